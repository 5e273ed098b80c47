// What people have done here: the audit trail. For administrators.

import { call } from "../api.js";
import { badge, breakable, field, format, h, panel, put, Table, two } from "../dom.js";

const words = (pairs) => Object.entries(pairs).map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ") || "–";

export default function audit(target, _rest, page, every) {
  const search = h("input", { type: "search", placeholder: "part of user, action or address", oninput: () => show() });
  const refused = h("input", { type: "checkbox", onchange: () => show() });
  let items = [];
  let after;
  const table = new Table("The last ones first. Passwords, tokens and payloads are never kept.", [
    { title: "When", cell: (each) => format.time(Date.parse(each.time) / 1000), short: true },
    { title: "User", cell: (each) => (each.user ? two(each.user, each.method) : "–"), value: (each) => each.user },
    { title: "From", cell: (each) => each.address, mono: true, short: true },
    { title: "Action", cell: (each) => each.action.replace("/api/v1", ""), mono: true, wide: true },
    { title: "On, with", node: (each) => h("span", {}, breakable(words({ ...each.on, ...each.arguments }))), value: (each) => words({ ...each.on, ...each.arguments }), wide: true },
    { title: "Result", node: (each) => two(badge(each.succeeded ? "done" : each.status, each.succeeded ? "good" : "warn"), each.succeeded ? words(each.count ?? {}).replace("–", "") : each.why), value: (each) => each.status },
  ], { key: (each) => each.token, empty: "Nobody has done anything that matches." });
  const show = () => {
    const fits = (each) => [each.user, each.action, each.address].some((text) => text.includes(search.value)) && !(refused.checked && each.succeeded);
    table.update(items.filter(fits).slice(-500).reverse());
  };
  put(target, h("h1", {}, "Audit"), panel("", h("div", { class: "bar" }, field("Search", search, "grow"), h("label", { class: "check" }, refused, "only refused")), table.element));
  every(5, async () => {
    for (;;) {
      const found = await call("/audit", { query: { limit: 500, after } });
      items = [...items, ...found.items].slice(-5000);
      after = found.items.at(-1)?.token ?? after;
      if (!found.next) break;
      after = found.next;
    }
    show();
  });
}
