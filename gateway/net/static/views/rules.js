// Rules in the order they are tried, with what they have done and how fast.

import { call } from "../api.js";
import { badge, breakable, format, h, link, panel, put, Table } from "../dom.js";

function failed(rule) {
  const parts = [["held", rule.held, "warn"], ["dead-lettered", rule.dead_lettered, "warn"], ["dropped", rule.dropped, "bad"], ["not built", rule.transform_errors, "warn"]].filter(([, count]) => count);
  return parts.length ? h("span", { class: "stack" }, parts.map(([what, count, kind]) => badge(`${format.count(count)} ${what}`, kind)), rule.last_error && h("small", {}, `last: ${rule.last_error}`)) : "–";
}

// From where to where, in reading order.
function way(rule) {
  const queue = h("code", {}, breakable(rule.queue_manager ? `${rule.queue}@${rule.queue_manager}` : rule.queue));
  const topic = h("code", {}, breakable(rule.topic || "the message's own topic"));
  const ends = rule.direction === "to_mq" ? [topic, queue] : [queue, topic];
  return h("span", { class: "way" }, ends[0], h("span", { class: "arrow", role: "img", "aria-label": "to" }, "→"), ends[1]);
}

export default function rules(target, _rest, _page, every) {
  const rates = new Map();
  const table = new Table("Sort by a heading; the order of the file is the order in which rules are tried.", [
    { title: "Rule", node: (rule) => h("span", { class: "stack" }, h("b", {}, rule.name), h("small", { title: rule.file }, `${rule.file.split("/").pop()}:${rule.line}`)), value: (rule) => rule.name },
    { title: "Way", node: way, value: (rule) => rule.direction },
    { title: "Rate", cell: (rule) => format.rate(rates.get(rule.name) ?? null), value: (rule) => rates.get(rule.name) ?? 0, number: true },
    { title: "Matched", cell: (rule) => format.count(rule.matched), value: (rule) => rule.matched, number: true },
    { title: "Done", cell: (rule) => format.count(rule.done), value: (rule) => rule.done, number: true },
    { title: "Failed", cell: failed, value: (rule) => rule.held + rule.dead_lettered + rule.dropped + rule.transform_errors },
    { title: "Last", cell: (rule) => format.ago(rule.last_matched), value: (rule) => rule.last_matched ?? 0, number: true },
  ], { key: (rule) => `${rule.direction} ${rule.name}`, empty: "No rules: publications reach local subscribers only. `mqgate init` writes an example." });
  const source = h("p", { class: "soft" });
  put(target, h("h1", {}, "Rules"), panel("", source, table.element), h("p", {}, "Which rule takes a topic, and why not another: ", link("try it out", "#/try"), "."));
  let before = null;
  every(3, async () => {
    const now = await call("/rules");
    const at = Date.now() / 1000;
    for (const rule of now.items) {
      const old = before?.items.get(rule.name);
      if (old !== undefined) rates.set(rule.name, Math.max(0, rule.matched - old) / (at - before.at));
    }
    before = { at, items: new Map(now.items.map((rule) => [rule.name, rule.matched])) };
    source.textContent = `${now.items.length} rules from ${now.files.join(", ") || "the built-in mapping"}, in force since ${format.time(now.loaded)}`;
    table.update(now.items);
  });
}
