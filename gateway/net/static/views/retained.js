// Retained messages: the tree of their topics, level by level, or a search; one message; cleared by operators.

import { call, part } from "../api.js";
import { button, confirmed, download, field, format, h, inSteps, link, named, notice, open, pairs, panel, put, Table } from "../dom.js";

const AT_ONCE = 200;
const FOUND = 500;

export default function retained(target, _rest, page) {
  const under = page.kept("under", null);
  const search = h("input", { type: "search", placeholder: "part of the topic", value: page.kept("search"), oninput: () => typed() });
  const picked = new Set();
  const total = h("p", { class: "soft", role: "status" });
  const choose = (topic) => h("input", { type: "checkbox", "aria-label": `Choose ${topic}`, onchange: (event) => (event.target.checked ? picked.add(topic) : picked.delete(topic), label()) });
  const message = (row) => row.retained;
  const table = new Table("", [
    { title: "Choose", node: (row) => (message(row) && page.operator() ? choose(row.topic) : h("span", {}, "")), value: (row) => String(picked.has(row.topic)) },
    { title: "Topic", node: (row) => h("span", { class: "stack" }, row.below ? link(named(`${row.name || "(empty level)"}/`), `#/retained?under=${part(`${row.topic}/`)}`) : h("code", {}, named(row.name || "(empty level)")), row.below ? h("small", {}, `${format.many(row.below, "level")} below`) : null), value: (row) => row.name },
    { title: "Retained", node: (row) => (message(row) ? button(message(row).preview.slice(0, 40) || "(nothing readable)", () => show(row.topic), "link") : h("span", {}, "–")), value: (row) => message(row)?.preview ?? "" },
    { title: "Bytes", cell: (row) => (message(row) ? format.count(message(row).length) : "–"), value: (row) => message(row)?.length ?? -1, number: true },
    { title: "QoS", cell: (row) => message(row)?.qos ?? "–", number: true },
    { title: "From", node: (row) => named(message(row)?.client_id ?? "–"), value: (row) => message(row)?.client_id ?? "" },
    { title: "Expires", cell: (row) => format.time(message(row)?.expires), short: true },
  ], { key: (row) => row.topic, empty: "Nothing is retained here." });
  const clear = page.action("Clear chosen", async () => {
    const chosen = [...picked];
    if (!(await confirmed(`Clear ${format.many(chosen.length, "retained message")}?`, "New subscribers get none on these topics until something is retained again.", "Clear"))) return;
    await inSteps("Clearing", chosen.length, async (done) => {
      if (done >= chosen.length) return null;
      await call(`/retained/${part(chosen[done])}`, { method: "DELETE" }).catch((error) => {
        if (error.status !== 404) throw error; // it has been cleared or has expired
      });
      picked.delete(chosen[done]);
      return 1;
    });
    notice(`${format.many(chosen.length - picked.size, "retained message")} cleared.`);
    label();
    await load();
  }, "danger");
  const label = () => {
    clear.hidden = !picked.size;
    clear.textContent = `Clear ${picked.size} chosen`;
  };
  label();
  const show = async (topic) => {
    try {
      const one = await call(`/retained/${part(topic)}`);
      const dialog = h("dialog", { "aria-label": topic }, h("h2", {}, named(topic)), pairs({ Bytes: format.count(one.length), QoS: one.qos, From: one.client_id, Expires: format.time(one.expires) }),
        h("pre", {}, one.text ?? one.base64), one.truncated && h("p", { class: "soft" }, "Its beginning."),
        h("div", { class: "bar" }, button("Download", () => download(topic.replaceAll("/", "_"), one.text ?? Uint8Array.from(atob(one.base64), (letter) => letter.charCodeAt(0))), "quiet"), button("Close", () => dialog.close(), "quiet")));
      open(dialog);
    } catch (error) {
      notice(error.message, true);
    }
  };
  let next = null;
  const more = button("More", () => load(true).catch((error) => notice(error.message, true)), "quiet", { hidden: true });
  const load = async (further = false) => {
    next = further ? next : null;
    if (search.value) {
      const found = await call("/retained", { query: { search: search.value, limit: FOUND } });
      table.update(found.items.map((each) => ({ name: each.topic, topic: each.topic, below: 0, retained: each })));
      total.textContent = found.more ? `The first ${FOUND} that match: say more of the topic.` : format.many(found.items.length, "retained message");
      more.hidden = true;
      return;
    }
    const found = await call("/topics", { query: { under, after: next, limit: AT_ONCE } });
    table.update(further ? [...table.items, ...found.items] : found.items);
    next = found.next;
    more.hidden = next === null;
    total.textContent = `${format.many(table.items.length, "topic level")}${next === null ? "" : " and more"}${under === null ? "" : ` below ${under}`}`;
  };
  let typing;
  const typed = () => {
    clearTimeout(typing);
    picked.clear();
    label();
    page.keep("search", search.value);
    typing = setTimeout(() => load().catch((error) => notice(error.message, true)), 200);
  };
  put(target, h("h1", {}, trail(under)), panel("", h("div", { class: "bar" }, field("Search all topics", search, "grow"), button("Refresh", () => load().catch((error) => notice(error.message, true)), "quiet"), clear), total, table.element, more));
  load().catch((error) => notice(error.message, true));
}

// Where one is in the tree: each level above leads there.
function trail(under) {
  if (under === null) return ["Retained messages"];
  const levels = under.slice(0, -1).split("/");
  return [link("Retained messages", "#/retained"), ...levels.map((level, at) => [" / ", at === levels.length - 1 ? named(level || "(empty level)") : link(named(level || "(empty level)"), `#/retained?under=${part(`${levels.slice(0, at + 1).join("/")}/`)}`)])];
}
