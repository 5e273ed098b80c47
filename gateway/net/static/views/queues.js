// Queues with depth and age; one queue: browse with every header decoded, put a test message, remove.

import { call, part } from "../api.js";
import { badge, button, check, choice, confirmed, field, format, h, link, messageView, notice, open, pairs, panel, put, Table } from "../dom.js";

function full(queue) {
  if (!queue.max_depth) return "–";
  const share = queue.depth / queue.max_depth;
  const kind = share > 0.9 ? "bad" : share > 0.7 ? "warn" : "";
  const bar = h("span", { class: "level" }, h("i", { class: kind }));
  bar.firstChild.style.width = `${Math.min(100, Math.ceil(share * 100))}%`;
  return h("span", { class: "full", title: `${queue.depth} of ${queue.max_depth}` }, bar, `${Math.round(share * 100)} %`);
}

function inhibited(queue) {
  const states = [!queue.put_allowed && "put inhibited", !queue.get_allowed && "get inhibited"].filter(Boolean);
  return states.length ? h("span", { class: "stack" }, states.map((each) => badge(each, "bad"))) : badge("open", "good");
}

export default function queues(target, [name], page, every) {
  if (name) return one(target, name, page, every);
  const search = h("input", { type: "search", placeholder: "part of the name", oninput: () => load().catch(() => {}) });
  const all = h("input", { type: "checkbox", onchange: () => load().catch(() => {}) });
  const table = new Table("", [
    { title: "Queue", node: (queue) => link(queue.name, `#/queues/${part(queue.name)}`), value: (queue) => queue.name },
    { title: "Type", cell: (queue) => (queue.type === "local" ? queue.role.replace("_", " ") : queue.type) },
    { title: "Depth", cell: (queue) => format.count(queue.depth), value: (queue) => queue.depth ?? -1, number: true },
    { title: "Full", cell: full, value: (queue) => (queue.max_depth ? queue.depth / queue.max_depth : 0), number: true },
    { title: "Oldest", cell: (queue) => format.seconds(queue.oldest_seconds), value: (queue) => queue.oldest_seconds ?? 0, number: true },
    { title: "Open in, out", cell: (queue) => `${queue.open_input ?? "–"}, ${queue.open_output ?? "–"}`, value: (queue) => queue.open_input ?? -1, number: true },
    { title: "State", cell: inhibited, value: (queue) => `${queue.put_allowed}${queue.get_allowed}` },
    { title: "Rules", cell: (queue) => queue.rules.join(", ") || "–" },
  ], { key: (queue) => queue.name, empty: "No queue matches." });
  const load = async () => table.update((await call("/queues", { query: { search: search.value, all: all.checked || undefined, limit: 500 } })).items);
  put(target, h("h1", {}, "Queues"), panel("", h("div", { class: "bar" }, field("Search", search, "grow"), h("label", { class: "check" }, all, "system and state queues too")), table.element));
  every(4, load);
}

function one(target, name, page, every) {
  const base = `/queues/${part(name)}`;
  const facts = h("div");
  const attributes = h("details", {}, h("summary", {}, "All attributes"));
  const table = new Table("In the order in which they would be got. Browsing removes nothing.", [
    { title: "MsgId", node: (each) => button(each.msg_id.replace(/^(.{8}).*(.{8})$/, "$1…$2"), () => view(each), "link mono", { title: each.msg_id }), value: (each) => each.msg_id, short: true },
    { title: "Put (UTC)", cell: (each) => format.stamp(each.put_time), short: true },
    { title: "Format", cell: (each) => (each.body_format && each.body_format !== each.format ? `${each.format} → ${each.body_format}` : each.format || "–"), short: true },
    { title: "Length", cell: (each) => format.bytes(each.length), value: (each) => each.length, number: true },
    { title: "Priority", cell: (each) => each.priority, number: true },
    { title: "Persistent", cell: (each) => (each.persistent ? "yes" : "no") },
    { title: "Backed out", cell: (each) => each.backout_count, number: true },
    { title: "Body", cell: (each) => each.preview, mono: true },
  ], { key: (each) => each.token, empty: "The queue is empty." });
  let next = null;
  let extended = false;
  const more = button("More", () => browse(true).catch((error) => notice(error.message, true)), "quiet", { hidden: true });
  const browse = async (further = false) => {
    const found = await call(`${base}/messages`, { query: { limit: 50, after: further ? next : undefined } });
    extended ||= further;
    table.update(further ? [...table.items, ...found.items] : found.items);
    next = found.next;
    more.hidden = !next;
  };
  const view = async (each) => {
    try {
      const message = await call(`${base}/messages/${part(each.token)}`);
      const remove = page.action("Remove", async () => {
        if (!(await confirmed("Remove this message?", "It cannot be brought back.", "Remove"))) return;
        await call(`${base}/messages/${part(each.token)}`, { method: "DELETE" });
        dialog.close();
        await browse();
      }, "danger");
      const dialog = h("dialog", { "aria-label": "Message" }, h("h2", {}, "Message"), messageView(message), h("div", { class: "bar" }, remove, button("Close", () => dialog.close(), "quiet")));
      open(dialog);
    } catch (error) {
      notice(error.message, true);
    }
  };
  const text = h("textarea", { name: "text", "aria-label": "Body" }, "");
  const form = h("form", {}, h("fieldset", { disabled: !page.operator() }, h("div", { class: "fields" },
    field("Body", text, "wide"), field("Format", h("input", { name: "format", value: "MQSTR", maxlength: 8 })),
    field("Priority", choice("priority", [["", "queue's default"], ...[..."0123456789"].map((digit) => [digit])], "")),
    field("Expiry, seconds", h("input", { name: "expiry", type: "number", min: 1, placeholder: "never" })),
    field("Properties (name=value …)", h("input", { name: "properties", placeholder: "site=lima line=7" }), "double"), check("persistent", "persistent", true)),
    h("div", { class: "bar" }, h("button", {}, "Put"))));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = new FormData(form);
    const body = { text: given.get("text"), format: given.get("format"), persistent: given.has("persistent"), properties: Object.fromEntries(given.get("properties").split(/\s+/).filter((each) => each.includes("=")).map((each) => each.split(/=(.*)/).slice(0, 2))) };
    if (given.get("priority") !== "") body.priority = Number(given.get("priority"));
    if (given.get("expiry")) body.expiry_seconds = Number(given.get("expiry"));
    try {
      const done = await call(`${base}/messages`, { method: "POST", body });
      notice(`Put with MsgId ${done.msg_id}.`);
      await browse();
    } catch (error) {
      notice(error.message, true);
    }
  });
  const clear = page.action("Clear queue", async () => {
    if (!(await confirmed(`Clear ${name}?`, "Every message on the queue is removed. This cannot be undone.", "Clear", name))) return;
    const done = await call(`${base}/messages`, { method: "DELETE", query: { confirm: name } });
    notice(`${done.removed} messages removed.`);
    await browse();
  }, "danger");
  put(target, h("h1", {}, link("Queues", "#/queues"), " / ", name), panel("", facts, attributes),
    panel("Messages", h("div", { class: "bar" }, button("Refresh", () => browse(), "quiet"), clear), table.element, more), panel("Put a test message", form));
  every(4, async () => {
    const queue = await call(base);
    put(facts, pairs({
      Type: queue.type === "local" ? `${queue.type}, ${queue.role.replace("_", " ")}` : `${queue.type} of ${queue.target}`,
      Depth: queue.depth === null ? "–" : `${format.count(queue.depth)}${queue.max_depth ? ` of ${format.count(queue.max_depth)}` : ""}`, Oldest: format.seconds(queue.oldest_seconds),
      Open: `${queue.open_input ?? "–"} for input, ${queue.open_output ?? "–"} for output`,
      Allowed: h("span", {}, badge(queue.put_allowed ? "put" : "put inhibited", queue.put_allowed ? "good" : "bad"), " ", badge(queue.get_allowed ? "get" : "get inhibited", queue.get_allowed ? "good" : "bad")),
      Rules: queue.rules.join(", ") || "–", Description: queue.description || "–",
    }, "facts"));
    if (attributes.children.length === 1) attributes.append(pairs(queue.attributes));
    if (!extended) await browse();
  });
}
