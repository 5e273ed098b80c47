// One queue: over time, altered, its messages searched, shown with every header decoded, downloaded, moved, put, removed.

import { call, part } from "../api.js";
import { Chart, charts } from "../chart.js";
import { badge, button, check, choice, confirmed, download, field, format, h, inSteps, link, messageView, notice, open, pairs, panel, put, ruleLinks, Table } from "../dom.js";
import { mqsc, quoted } from "../mqsc.js";

const ALTERABLE = [["DESCR", "Description"], ["MAXDEPTH", "Most messages", true], ["MAXMSGL", "Longest message, bytes", true], ["BOTHRESH", "Backout threshold", true], ["BOQNAME", "Backout queue"], ["TARGET", "Base queue"], ["RNAME", "Remote queue"], ["RQMNAME", "Remote queue manager"]];

export function one(target, name, page, every) {
  const base = `/queues/${part(name)}`;
  const flow = new Chart("Messages a second", ["put", "got"], format.rate);
  const depth = new Chart("Depth", ["messages"], format.count);
  const facts = h("div");
  const attributes = h("details", {}, h("summary", {}, "All attributes"));
  const table = new Table("In the order in which they would be got. Browsing removes nothing.", [
    { title: "Choose", node: (each) => h("input", { type: "checkbox", "aria-label": `Choose ${each.msg_id}`, onchange: (event) => (event.target.checked ? picked.add(each.token) : picked.delete(each.token), label()) }), value: (each) => String(picked.has(each.token)) },
    { title: "MsgId", node: (each) => button(each.msg_id.replace(/^(.{8}).*(.{8})$/, "$1…$2"), () => view(each), "link mono", { title: each.msg_id }), value: (each) => each.msg_id, short: true },
    { title: "Put", cell: (each) => format.stamp(each.put_time), short: true },
    { title: "Format", cell: (each) => (each.body_format && each.body_format !== each.format ? `${each.format} → ${each.body_format}` : each.format || "–") },
    { title: "Length", cell: (each) => format.bytes(each.length), value: (each) => each.length, number: true },
    { title: "Priority", cell: (each) => each.priority, number: true },
    { title: "Kept", cell: (each) => h("span", { class: "stack" }, each.persistent ? "persistent" : "not persistent", each.backout_count ? h("small", {}, `backed out ${each.backout_count} times`) : null), value: (each) => String(each.persistent) },
    { title: "Body", cell: (each) => each.preview, mono: true },
  ], { key: (each) => each.token, empty: "The queue is empty." });
  const picked = new Set();
  const about = h("span", { class: "soft", role: "status" });
  const search = h("input", { type: "search", placeholder: "in the body, MsgId or CorrelId", value: page.kept("text") });
  const property = h("input", { placeholder: "site=lima", value: page.kept("property"), spellcheck: "false" });
  const searching = () => Boolean(search.value || property.value);
  const find = h("form", { class: "bar" }, field("Search", search, "grow"), field("Property", property), h("button", { class: "quiet" }, "Find"), about);
  find.addEventListener("submit", (event) => {
    event.preventDefault();
    page.keep("text", search.value);
    page.keep("property", property.value);
    extended = false;
    browse().catch((error) => notice(error.message, true));
  });
  let asked = 0;
  let looking = 0;
  let next = null;
  let extended = false;
  const more = button("More", () => browse(true).catch((error) => notice(error.message, true)), "quiet", { hidden: true });
  const browse = async (further = false) => {
    looking += 1; // the page does not look again by itself meanwhile: More and a search would begin anew
    try {
      await browsed(further);
    } finally {
      looking -= 1;
    }
  };
  const browsed = async (further) => {
    const mine = (asked += 1);
    const items = further ? [...table.items] : [];
    const wanted = items.length + 50;
    let found = { next: further ? next : null };
    do { // a search goes on until there is a page of what is wanted
      found = await call(`${base}/messages`, { query: { limit: 50, after: found.next ?? undefined, text: search.value, property: property.value } });
      if (mine !== asked) return;
      items.push(...found.items);
      table.update(items);
      about.textContent = found.next && searching() ? `looking; ${format.messages(items.length)} found so far` : searching() ? `${format.messages(items.length)} found` : "";
    } while (found.next && searching() && items.length < wanted);
    extended = extended || further || searching();
    next = found.next;
    more.hidden = !next;
    if (next && searching()) about.textContent = `${format.messages(items.length)} found so far`;
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
      const dialog = h("dialog", { "aria-label": "Message" }, h("h2", {}, "Message"), messageView(message), h("div", { class: "bar" }, button("Download body", () => saved(each), "quiet"), button("Download all", () => saved(each, true), "quiet"), remove, button("Close", () => dialog.close(), "quiet")));
      open(dialog);
    } catch (error) {
      notice(error.message, true);
    }
  };
  const saved = async (each, all = false) => {
    try {
      const message = await call(`${base}/messages/${part(each.token)}`, { query: { whole: true } });
      const bytes = message.body.text ?? Uint8Array.from(atob(message.body.base64), (letter) => letter.charCodeAt(0));
      download(`${each.msg_id}${all ? ".json" : message.body.text === null ? ".bin" : ".txt"}`, all ? JSON.stringify(message, null, 2) : bytes);
    } catch (error) {
      notice(error.message, true);
    }
  };
  const to = h("input", { maxlength: 48, spellcheck: "false" });
  const move = page.action("Move", async () => {
    if (!to.value.trim()) throw new Error("Name the queue to move them to.");
    const tokens = [...picked];
    const total = tokens.length || table.total;
    if (!tokens.length && !(await confirmed(`Move all of ${name}?`, `Every message goes to ${to.value.trim()}.`, "Move"))) return;
    await inSteps(`Moving to ${to.value.trim()}`, total, async (done) => {
      const some = tokens.length ? tokens.slice(done, done + 100) : undefined;
      if (tokens.length && !some.length) return null;
      const answer = await call(`${base}/move`, { method: "POST", body: { to: to.value.trim(), ...(some ? { tokens: some } : {}) } });
      if (answer.failed.length) throw new Error(answer.failed[0].text);
      return answer.matched || null;
    });
    picked.clear();
    label();
    await browse();
  }, "quiet");
  const label = () => (move.textContent = picked.size ? `Move ${picked.size} chosen` : "Move all");
  const alter = (what, change) => page.action(what, async () => {
    await mqsc(`ALTER Q${kind.toUpperCase()}(${quoted(name)}) ${change}`);
    notice(`${name}: ${what.toLowerCase()}.`);
    await show();
  }, "quiet");
  let kind = "local";
  const acts = h("div", { class: "bar" });
  const remove = page.action("Delete queue", async () => {
    if (!(await confirmed(`Delete ${name}?`, "The definition goes; a queue with messages is refused: clear it first.", "Delete", name))) return;
    await mqsc(`DELETE Q${kind.toUpperCase()}(${quoted(name)})`);
    notice(`${name} is deleted.`);
    location.hash = "#/queues";
  }, "danger");
  const altering = h("form", { class: "fields" });
  altering.addEventListener("submit", async (event) => {
    event.preventDefault();
    const changed = [...altering.querySelectorAll("input")].filter((each) => each.value !== each.defaultValue);
    if (!changed.length) return notice("Nothing is changed.");
    try {
      await mqsc(`ALTER Q${kind.toUpperCase()}(${quoted(name)}) ${changed.map((each) => `${each.name}(${each.type === "number" ? each.value : quoted(each.value)})`).join(" ")}`);
      notice(`${name} is altered.`);
      altering.replaceChildren();
      await show();
    } catch (error) {
      notice(error.message, true);
    }
    return undefined;
  });
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
      notice(done.msg_id ? `Put with MsgId ${done.msg_id}.` : "Put.");
      await browse();
    } catch (error) {
      notice(error.message, true);
    }
  });
  const clear = page.action("Clear queue", async () => {
    if (!(await confirmed(`Clear ${name}?`, "Every message on the queue is removed. This cannot be undone.", "Clear", name))) return;
    const done = await call(`${base}/messages`, { method: "DELETE", query: { confirm: name } });
    notice(`${format.messages(done.removed)} removed.`);
    await browse();
  }, "danger");
  put(target, h("h1", {}, link("Queues", "#/queues"), " / ", name), panel("", facts, acts, page.administrator() ? h("details", {}, h("summary", {}, "Alter"), altering) : null, attributes),
    charts(page, every, (seconds) => call(`/history/queues/${part(name)}`, { query: { seconds } }), [[flow, ["put", "got"]], [depth, ["depth"]]]),
    panel("", h("details", {}, h("summary", {}, "Put a test message"), form)),
    panel("Messages", find, h("div", { class: "bar" }, button("Refresh", () => browse(), "quiet"), clear, field("Move to", to), move), table.element, more));
  label();
  const show = async () => {
    const queue = await call(base);
    kind = queue.type;
    table.total = queue.depth;
    const state = JSON.stringify([queue.type, queue.put_allowed, queue.get_allowed]);
    if (acts.dataset.state !== state && page.administrator()) {
      acts.dataset.state = state;
      put(acts, ["local", "alias"].includes(queue.type) || queue.type === "remote" ? alter(queue.put_allowed ? "Inhibit put" : "Allow put", `PUT(${queue.put_allowed ? "DISABLED" : "ENABLED"})`) : null,
        ["local", "alias"].includes(queue.type) ? alter(queue.get_allowed ? "Inhibit get" : "Allow get", `GET(${queue.get_allowed ? "DISABLED" : "ENABLED"})`) : null, remove);
    }
    if (!altering.children.length) put(altering, ALTERABLE.filter(([key]) => key in queue.attributes).map(([key, title, number]) => field(title, h("input", { name: key, value: queue.attributes[key], type: number ? "number" : "text", min: number ? 0 : null }))), h("div", { class: "bar wide" }, h("button", {}, "Alter")));
    put(facts, pairs({
      Type: queue.type === "local" ? `${queue.type}, ${queue.role.replace("_", " ")}` : `${queue.type} of ${queue.target}`,
      Depth: queue.depth === null ? "–" : h("span", {}, `${format.count(queue.depth)}${queue.max_depth ? ` of ${format.count(queue.max_depth)}` : ""} `, queue.max_depth && queue.depth >= queue.max_depth ? badge("full", "bad") : null), Oldest: format.seconds(queue.oldest_seconds),
      Open: `${queue.open_input ?? "–"} for input, ${queue.open_output ?? "–"} for output`,
      Allowed: h("span", {}, badge(queue.put_allowed ? "put" : "put inhibited", queue.put_allowed ? "good" : "bad"), " ", badge(queue.get_allowed ? "get" : "get inhibited", queue.get_allowed ? "good" : "bad")),
      Rules: queue.rules.length ? h("span", {}, ruleLinks(queue.rules)) : "–", Description: queue.description || "–",
    }, "facts"));
    put(attributes, h("summary", {}, "All attributes"), pairs(queue.attributes));
  };
  every(4, async () => {
    await show();
    if (!extended && !picked.size && !looking) await browse();
  });
}
