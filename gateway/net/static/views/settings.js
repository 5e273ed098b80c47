// Settings in force with their origin, and the log level.

import { call } from "../api.js";
import { breakable, choice, field, format, h, marked, notice, panel, put, shown, Table } from "../dom.js";

export default function settings(target, _rest, page, every) {
  const level = choice("level", [["debug"], ["info"], ["warning"], ["error"]], "info");
  level.disabled = !page.administrator();
  level.addEventListener("change", async () => {
    try {
      await call("/log", { method: "PUT", body: { level: level.value } });
      notice(`Log level is ${level.value} until the next start.`);
    } catch (error) {
      notice(error.message, true);
    }
  });
  const search = h("input", { type: "search", placeholder: "part of a key or of what it is for", value: page.kept("search"), oninput: () => chosen() });
  const all = h("input", { type: "checkbox", checked: page.kept("all") === "1", onchange: () => chosen() });
  let items = [];
  const chosen = () => {
    page.keep("search", search.value);
    page.keep("all", all.checked);
    const wanted = search.value.toLowerCase();
    const found = items.filter((each) => (all.checked || wanted || each.origin !== "default") && `${each.key} ${each.description}`.toLowerCase().includes(wanted));
    table.update(found);
    total.textContent = all.checked || wanted ? format.many(found.length, "setting") : `${format.many(found.length, "setting")} set; the other ${items.length - found.length} are as shipped`;
  };
  const total = h("p", { class: "soft", role: "status" });
  const table = new Table("Secrets are masked.", [
    { title: "Setting", node: (each) => h("span", { class: "stack" }, h("code", {}, breakable(each.key)), h("small", {}, marked(each.description))), value: (each) => each.key },
    { title: "Value", cell: (each) => shown(each.value), mono: true, wide: true },
    { title: "From", cell: (each) => each.origin },
    { title: "On reload", cell: (each) => (each.reloadable ? "takes effect" : "needs a restart") },
  ], { key: (each) => each.key, empty: "No setting matches." });
  put(target, h("h1", {}, "Settings"), panel("", h("div", { class: "bar" }, field("Search", search, "grow"), h("label", { class: "check" }, all, "also what is as shipped"), field("Log level", level)), total, table.element));
  every(30, async () => {
    const [found, log] = await Promise.all([call("/settings"), call("/log")]);
    items = found.items;
    level.value = log.level;
    chosen();
  });
}
