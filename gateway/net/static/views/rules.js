// Rules in the order they are tried, with what they have done and how fast.

import { call, part } from "../api.js";
import { Chart, charts } from "../chart.js";
import mapping from "./mapping.js";
import { badge, breakable, button, field, format, h, link, notice, pairs, panel, put, Table } from "../dom.js";

const PAGE = 500; // rules asked for at once; a browser takes seconds to draw thousands

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

function one(target, name, page, every) {
  const facts = h("div");
  const head = h("div");
  const flow = new Chart("Messages a second", ["matched", "failed"], format.rate);
  put(target, h("h1", {}, link("Rules", "#/rules"), " / ", name), panel("", head, facts), charts(page, every, (seconds) => call(`/history/rules/${part(name)}`, { query: { seconds } }), [[flow, ["matched", "failed"]]]));
  every(3, async () => {
    let rule;
    try {
      rule = await call(`/rules/${part(name)}`);
    } catch (error) {
      if (error.status !== 404) throw error;
      return put(facts, h("p", {}, "There is no such rule now."));
    }
    if (!head.firstChild) {
      put(head, h("p", {}, way(rule)), rule.hidden_by && h("p", { class: "note warn" }, "Never reached: ", link(rule.hidden_by, `#/rules/${part(rule.hidden_by)}`), " comes before it and takes everything it matches."));
    }
    put(facts, pairs({
      Queue: rule.queue.includes("{") || !rule.queue ? rule.queue || "–" : link(rule.queue, `#/queues/${part(rule.queue)}`), "Queue manager": rule.queue_manager || "the gateway's", "After it": rule.continue ? "the next rules are tried too" : "no other rule is tried",
      "On failure": rule.on_failure, Matched: format.count(rule.matched), Done: format.count(rule.done), Held: format.messages(rule.held), "Dead-lettered": format.count(rule.dead_lettered), Dropped: format.count(rule.dropped), "Not built": format.count(rule.transform_errors), "Backed out": format.count(rule.backouts),
      "Last matched": rule.last_matched ? `${format.time(rule.last_matched)} (${format.ago(rule.last_matched)})` : "not since the start", "Last failure": rule.last_error ?? "none since the start", Place: `${rule.file}:${rule.line}`,
    }, "facts"));
    return undefined;
  });
}

export default function rules(target, [name], page, every, onLeave) {
  if (name === "edit mapping") return mapping(target, page, onLeave);
  if (name) return one(target, name, page, every);
  const rates = new Map();
  const table = new Table("Sort by a heading; the order of the file is the order in which rules are tried.", [
    { title: "Rule", node: (rule) => h("span", { class: "stack" }, link(rule.name, `#/rules/${part(rule.name)}`), h("small", { title: rule.file }, `${rule.file.split("/").pop()}:${rule.line}`), rule.hidden_by && badge("never reached", "warn")), value: (rule) => rule.name },
    { title: "Way", node: way, value: (rule) => rule.direction },
    { title: "Rate", cell: (rule) => format.rate(rates.get(rule.name) ?? null), value: (rule) => rates.get(rule.name) ?? 0, number: true },
    { title: "Matched", cell: (rule) => format.count(rule.matched), value: (rule) => rule.matched, number: true },
    { title: "Done", cell: (rule) => format.count(rule.done), value: (rule) => rule.done, number: true },
    { title: "Failed", cell: failed, value: (rule) => rule.held + rule.dead_lettered + rule.dropped + rule.transform_errors },
    { title: "Last", cell: (rule) => format.ago(rule.last_matched), value: (rule) => rule.last_matched ?? 0, number: true },
  ], { key: (rule) => `${rule.direction} ${rule.name}`, empty: "No rules: publications reach local subscribers only. `mqgate init` writes an example." });
  const source = h("p", { class: "soft" });
  const search = h("input", { type: "search", placeholder: "part of the name, topic or queue", value: page.kept("search"), oninput: () => again() });
  const searching = h("div", { class: "bar", hidden: true }, field("Search", search, "grow"));
  const more = button("More", () => load(true), "quiet", { hidden: true });
  put(target, h("h1", {}, "Rules"), panel("", h("div", { class: "bar" }, source, h("a", { href: "#/rules/edit%20mapping", class: "button quiet right" }, "Edit the mapping")), searching, table.element, more), h("p", {}, "Which rule takes a topic, and why not another: ", link("try it out", "#/try"), "."));
  let next = null;
  let extended = false;
  let before = null;
  const load = async (further = false, polled = false) => {
    const wanted = search.value;
    const found = await call("/rules", { query: { search: wanted, limit: PAGE, after: further ? next : undefined } });
    if (wanted !== search.value) return; // what has been typed since is asked for
    if (polled && extended) return; // more have been asked for meanwhile
    const at = Date.now() / 1000;
    for (const rule of found.items) {
      const old = before?.counts.get(rule.name);
      if (old !== undefined && at > before.at) rates.set(rule.name, Math.max(0, rule.matched - old) / (at - before.at));
    }
    before = { at, counts: new Map(found.items.map((rule) => [rule.name, rule.matched])) };
    extended ||= further;
    if (wanted) table.none.firstChild.textContent = "No rule matches.";
    table.update(further ? [...table.items, ...found.items] : found.items);
    next = found.next;
    more.hidden = !next;
    searching.hidden = !next && !extended && !wanted;
    source.textContent = `${format.many(found.total, "rule")} from ${found.files.join(", ") || "the built-in mapping"}${next ? `, ${table.items.length} of them here` : ""}, in force since ${format.time(found.loaded)}`;
  };
  let typing;
  const again = () => {
    clearTimeout(typing);
    extended = false;
    page.keep("search", search.value);
    typing = setTimeout(() => load().catch((error) => notice(error.message, true)), 200);
  };
  every(3, () => (extended ? null : load(false, true)));
  return undefined;
}
