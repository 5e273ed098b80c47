// Dead letters: grouped by reason and destination, shown in full, put back or purged.

import { call, part } from "../api.js";
import { breakable, button, confirmed, field, format, h, messageView, notice, open, panel, put, Table } from "../dom.js";

const two = (first, second) => h("span", { class: "stack" }, first, second && h("small", {}, second));

export default function deadLetters(target, _rest, page, every) {
  let chosen = {};
  const picked = new Set();
  const groups = new Table("", [
    { title: "Reason", node: (group) => button(`${group.reason_name} (${group.reason})`, () => choose({ reason: group.reason, destination: group.destination }), "link"), value: (group) => group.reason_name },
    { title: "Destination", cell: (group) => group.destination, mono: true },
    { title: "Messages", cell: (group) => group.count, number: true },
  ], { key: (group) => `${group.reason} ${group.destination}`, empty: "No dead letters. All is well." });
  const table = new Table("", [
    { title: "Choose", node: (each) => h("input", { type: "checkbox", "aria-label": `Choose ${each.msg_id}`, onchange: (event) => (event.target.checked ? picked.add(each.token) : picked.delete(each.token), label()) }), value: (each) => String(picked.has(each.token)) },
    { title: "Reason", node: (each) => button(breakable(each.reason_name), () => view(each), "link"), value: (each) => each.reason_name },
    { title: "Destination", node: (each) => two(h("code", {}, breakable(each.destination || "–")), each.rule && `rule ${each.rule}`), value: (each) => each.destination },
    { title: "From", node: (each) => two(h("code", {}, breakable(each.topic ?? "–")), each.client_id), value: (each) => each.topic ?? "" },
    { title: "Since (UTC)", cell: (each) => format.stamp(each.dead_since ?? each.put_time), short: true },
    { title: "Body", cell: (each) => each.preview, mono: true },
  ], { key: (each) => each.token, empty: "Nothing matches." });
  const about = h("p", { class: "soft", role: "status" });
  const all = button("Show all", () => choose({}), "quiet", { hidden: true });
  const to = h("input", { placeholder: "original destination", maxlength: 48 });
  const selection = () => (picked.size ? { tokens: [...picked] } : { ...chosen });
  const what = () => (picked.size ? `${picked.size} chosen` : chosen.reason === undefined ? "all" : `all with this reason for ${chosen.destination}`);
  const settle = async (operation, body) => {
    const done = await call(`/dlq/${operation}`, { method: "POST", body });
    picked.clear();
    notice(`${done.done} of ${done.matched} ${operation === "replay" ? "put back" : "removed"}${done.failed.length ? `; ${done.failed[0].text}` : ""}.`, done.failed.length > 0);
    await load();
  };
  const replay = page.action("Replay", () => settle("replay", { ...selection(), ...(to.value.trim() ? { to: to.value.trim() } : {}) }));
  const purge = page.action("Purge", async () => {
    if (await confirmed("Purge dead letters?", `Removes ${what()}. They cannot be brought back.`, "Purge")) await settle("purge", selection());
  }, "danger");
  const label = () => {
    replay.textContent = `Replay ${what()}`;
    purge.textContent = `Purge ${what()}`;
  };
  const choose = (filter) => {
    chosen = filter;
    picked.clear();
    all.hidden = filter.reason === undefined;
    label();
    load().catch((error) => notice(error.message, true));
  };
  const view = async (each) => {
    try {
      const message = await call(`/queues/${part(each.queue)}/messages/${part(each.token)}`);
      const dialog = h("dialog", { "aria-label": "Dead letter" }, h("h2", {}, `${each.reason_name} (${each.reason})`), h("p", {}, `For ${each.destination}${each.rule ? `, by rule ${each.rule}` : ""}${each.topic ? `, from topic ${each.topic}` : ""}.`), messageView(message), h("div", { class: "bar" }, button("Close", () => dialog.close(), "quiet")));
      open(dialog);
    } catch (error) {
      notice(error.message, true);
    }
  };
  const load = async () => {
    const found = await call("/dlq", { query: { ...chosen, limit: 100 } });
    groups.update(found.summary);
    table.update(found.items);
    about.textContent = `${found.total} messages${found.items.length < found.total ? `, the first ${found.items.length} shown` : ""}`;
  };
  label();
  put(target, h("h1", {}, "Dead letters"), panel("By reason and destination", groups.element),
    panel("Messages", h("div", { class: "bar" }, field("Replay to", to), replay, purge, all), about, table.element));
  every(5, () => (picked.size ? null : load()));
}
