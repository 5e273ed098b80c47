// Try-out: what would become of a publication, and why other rules do not apply. Nothing is put.

import { call } from "../api.js";
import { badge, choice, field, findings, h, messageView, notice, panel, put, Table } from "../dom.js";

export default function tryOut(target, [topic]) {
  const result = h("div", { "aria-live": "polite" });
  const mapping = h("textarea", { name: "mapping", rows: 8, spellcheck: "false", placeholder: "version: 1\nto_mq:\n  - name: …" });
  const form = h("form", {}, h("div", { class: "fields" },
    field("Topic", h("input", { name: "topic", required: true, value: topic ?? "", placeholder: "plant/lima/line/7/temperature", spellcheck: "false" }), "wide"),
    field("Payload", h("textarea", { name: "text", spellcheck: "false" }), "wide"),
    field("QoS", choice("qos", [[0], [1], [2]], 1)), field("Client identifier", h("input", { name: "client_id", spellcheck: "false" })),
    field("User", h("input", { name: "user", spellcheck: "false" })), field("Listener", h("input", { name: "listener", spellcheck: "false" }))),
    h("details", {}, h("summary", {}, "With another mapping than the one in force"), field("Mapping (YAML)", mapping)),
    h("div", { class: "bar" }, h("button", {}, "Try")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
    try {
      put(result, explained(await call("/explain", { method: "POST", body: { ...given, qos: Number(given.qos) } })));
    } catch (error) {
      notice(error.message, true);
    }
  });
  put(target, h("h1", {}, "Try out"), panel("", h("p", {}, "Shows which rule takes a publication, the queue and the message that would be put. Nothing is put."), form), result);
}

function explained(answer) {
  const others = new Table("", [
    { title: "Rule", cell: (each) => each.rule },
    { title: "Why not", cell: (each) => each.why },
    { title: "File", cell: (each) => `${each.file.split("/").pop()}:${each.line}` },
  ], { key: (each) => `${each.file}:${each.line} ${each.rule}`, empty: "There are no other rules." });
  others.update(answer.others);
  return [
    answer.findings.length ? findings(answer.findings, "The mapping has errors:") : null,
    panel("Access", h("p", {}, badge(answer.allowed ? "allowed" : "denied", answer.allowed ? "good" : "bad"), " ", answer.access)),
    answer.puts.length ? answer.puts.map((each) => panel(`${each.rule} → ${each.queue || each.mq_topic}`, h("p", { class: "soft" }, `${each.file}:${each.line}${each.queue_manager ? `, queue manager ${each.queue_manager}` : ""}`), answer.missing_queues.includes(each.queue) ? noQueue(each.queue) : null, putting(each), messageView(each)))
      : panel("No queue", h("p", {}, "No rule takes it: it is not put on any queue.")),
    panel("Local subscribers", h("p", {}, `${answer.subscribers === 1 ? "1 subscription matches" : `${answer.subscribers} subscriptions match`}.`)),
    panel("Other rules", others.element),
  ];
}

function noQueue(name) {
  return h("p", {}, badge("no queue", "bad"), ` There is no queue ${name} (2085): `, h("code", {}, `DEFINE QLOCAL('${name}')`), " makes one.");
}

function putting(put) {
  if (put.error) return null;
  const how = [put.persistent ? "Persistent" : "Not persistent", `${put.syncpoint ? "within" : "out of"} syncpoint: ${put.syncpoint_why}`].join(", ");
  return h("p", {}, `${how}. If its ${put.length} bytes are more than the queue takes: ${put.too_long}.`);
}
