// Queues with depth and age, and new ones. One queue is in queue.js.

import { call, part } from "../api.js";
import { badge, breakable, button, choice, field, format, h, link, notice, panel, put, ruleLinks, Table } from "../dom.js";
import { definitions } from "./definitions.js";
import { one } from "./queue.js";
import { mqsc, quoted } from "../mqsc.js";

function full(queue) {
  if (!queue.max_depth) return "–";
  const share = queue.depth / queue.max_depth;
  const kind = share > 0.9 ? "bad" : share > 0.7 ? "warn" : "";
  const bar = h("span", { class: "level" }, h("i", { class: kind }));
  bar.firstChild.style.width = `${Math.min(100, Math.ceil(share * 100))}%`;
  return h("span", { class: "full", title: `${queue.depth} of ${queue.max_depth}` }, bar, h("span", { class: "share" }, `${Math.round(share * 100)} %`));
}

function inhibited(queue) {
  const states = [!queue.put_allowed && "put inhibited", !queue.get_allowed && "get inhibited", queue.max_depth && queue.depth >= queue.max_depth && "full"].filter(Boolean);
  return states.length ? h("span", { class: "stack" }, states.map((each) => badge(each, "bad"))) : badge("open", "good");
}

export default function queues(target, [name], page, every) {
  if (name) return one(target, name, page, every);
  const search = h("input", { type: "search", placeholder: "part of the name", value: page.kept("search"), oninput: () => again() });
  const all = h("input", { type: "checkbox", checked: page.kept("all") === "1", onchange: () => again() });
  const again = () => {
    page.keep("search", search.value);
    page.keep("all", all.checked);
    extended = false;
    load().catch(() => {});
  };
  const table = new Table("", [
    { title: "Queue", node: (queue) => link(queue.name.length > 30 ? breakable(queue.name) : queue.name, `#/queues/${part(queue.name)}`), value: (queue) => queue.name },
    { title: "Type", cell: (queue) => (queue.type === "local" ? queue.role.replace("_", " ") : queue.type) },
    { title: "Depth", cell: (queue) => format.count(queue.depth), value: (queue) => queue.depth ?? -1, number: true },
    { title: "Full", cell: full, value: (queue) => (queue.max_depth ? queue.depth / queue.max_depth : 0), number: true },
    { title: "Oldest", cell: (queue) => format.seconds(queue.oldest_seconds), value: (queue) => queue.oldest_seconds ?? 0, number: true },
    { title: "In, out", cell: (queue) => (queue.put_rate || queue.got_rate ? h("span", { class: "stack" }, `${format.rate(queue.put_rate)} in`, h("small", {}, `${format.rate(queue.got_rate)} out`)) : "–"), value: (queue) => queue.put_rate ?? -1, number: true },
    { title: "Open in, out", cell: (queue) => `${queue.open_input ?? "–"}, ${queue.open_output ?? "–"}`, value: (queue) => queue.open_input ?? -1, number: true },
    { title: "State", cell: inhibited, value: (queue) => inhibited(queue).textContent },
    { title: "Rules", node: (queue) => (queue.rules.length ? h("span", {}, ruleLinks(queue.rules)) : "–"), value: (queue) => queue.rules.join(", ") },
  ], { key: (queue) => queue.name, empty: "No queue matches." });
  const total = h("p", { class: "soft" });
  const more = button("More", () => load(true), "quiet", { hidden: true });
  let next = null;
  let extended = false;
  const load = async (further = false, polled = false) => {
    const found = await call("/queues", { query: { search: search.value, all: all.checked || undefined, limit: 500, after: further ? next : undefined } });
    if (polled && extended) return; // more have been asked for meanwhile
    extended ||= further;
    table.update(further ? [...table.items, ...found.items] : found.items);
    next = found.next;
    more.hidden = !next;
    total.textContent = `${format.many(found.total, "queue")}${next ? `, ${table.items.length} of them here` : ""}`;
  };
  put(target, h("h1", {}, "Queues"), panel("", h("div", { class: "bar" }, field("Search", search, "grow"), h("label", { class: "check" }, all, "system and state queues too")), total, table.element, more), page.administrator() ? panel("", h("details", {}, h("summary", {}, "Define a queue"), defining(() => load()))) : null, definitions(page, () => load()));
  every(4, () => (extended ? null : load(false, true)));
}

function defining(done) {
  const target = field("Base queue", h("input", { name: "target", maxlength: 48, spellcheck: "false" }));
  const kind = choice("kind", [["QLOCAL", "local"], ["QALIAS", "alias"], ["QREMOTE", "remote"]], "QLOCAL");
  const manager = field("Its queue manager", h("input", { name: "manager", maxlength: 48, spellcheck: "false" }));
  const depth = field("Most messages", h("input", { name: "depth", type: "number", min: 0, max: 999999999, value: 5000 }));
  const adapt = () => {
    target.hidden = kind.value === "QLOCAL";
    manager.hidden = kind.value !== "QREMOTE";
    depth.hidden = kind.value !== "QLOCAL";
  };
  kind.addEventListener("change", adapt);
  adapt();
  const form = h("form", {}, h("div", { class: "fields" }, field("Name", h("input", { name: "name", required: true, maxlength: 48, pattern: "[A-Za-z0-9._\\/%]+", spellcheck: "false" }), "double"), field("Kind", kind), target, manager, depth, field("Description", h("input", { name: "descr", maxlength: 64 }), "double")),
    h("div", { class: "bar" }, h("button", {}, "Define")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(form));
    const more = { QLOCAL: `MAXDEPTH(${given.depth || 5000})`, QALIAS: `TARGET(${quoted(given.target)})`, QREMOTE: `RNAME(${quoted(given.target)}) RQMNAME(${quoted(given.manager)})` }[given.kind];
    try {
      await mqsc(`DEFINE ${given.kind}(${quoted(given.name)}) ${more} DESCR(${quoted(given.descr)})`);
      notice(`${given.name} is defined.`);
      await done();
    } catch (error) {
      notice(error.message, true);
    }
  });
  return form;
}
