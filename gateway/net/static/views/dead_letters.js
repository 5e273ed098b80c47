// Dead letters, and what met a defect and is set aside: grouped by reason and destination, shown in full, put back or purged.

import { call, part } from "../api.js";
import { breakable, button, choice, confirmed, field, format, h, inSteps, messageView, named, notice, open, panel, put, Table } from "../dom.js";

const two = (first, second) => h("span", { class: "stack" }, first, second && h("small", {}, second));

export default function deadLetters(target, _rest, page, every) {
  let chosen = page.kept("reason") === "" ? {} : { reason: Number(page.kept("reason")), destination: page.kept("destination") };
  let aside = page.kept("aside") === "1";
  const search = h("input", { type: "search", placeholder: "topic, client or body", value: page.kept("text"), oninput: () => {
    page.keep("text", search.value);
    clearTimeout(typing);
    typing = setTimeout(() => choose(chosen), 250);
  } });
  let typing;
  const typed = () => (search.value ? { text: search.value } : {});
  const queue = () => (aside ? { queue: "MQGATE.SET.ASIDE" } : {});
  const picked = new Set();
  const groups = new Table("", [
    { title: "Reason", node: (group) => button(`${group.reason_name} (${group.reason})`, () => choose({ reason: group.reason, destination: group.destination }), "link"), value: (group) => group.reason_name },
    { title: "Destination", cell: (group) => group.destination, mono: true },
    { title: "Messages", cell: (group) => group.count, number: true },
  ], { key: (group) => `${group.reason} ${group.destination}`, empty: "No dead letters. All is well." });
  const table = new Table("", [
    { title: "Choose", node: (each) => h("input", { type: "checkbox", "aria-label": `Choose ${each.msg_id}`, onchange: (event) => (event.target.checked ? picked.add(each.token) : picked.delete(each.token), label()) }), value: (each) => String(picked.has(each.token)) },
    { title: "Reason", node: (each) => button(each.reason_name, () => view(each), "link"), value: (each) => each.reason_name, short: true },
    { title: "Destination", node: (each) => two(h("code", {}, breakable(each.destination || "–")), each.rule && `rule ${each.rule}`), value: (each) => each.destination },
    { title: "From", node: (each) => two(h("code", {}, named(each.topic ?? "–")), each.client_id && named(each.client_id)), value: (each) => each.topic ?? "" },
    { title: "Since", cell: (each) => format.stamp(each.dead_since ?? each.put_time), short: true },
    { title: "Body", cell: (each) => each.preview, mono: true },
  ], { key: (each) => each.token, empty: "Nothing matches." });
  const about = h("p", { class: "soft", role: "status" });
  const all = button("Show all", () => choose({}), "quiet", { hidden: true });
  const more = button("Next 100", () => load(true).catch((error) => notice(error.message, true)), "quiet", { hidden: true });
  const to = h("input", { maxlength: 48 });
  const which = button(aside ? "Show dead letters" : "Show what is set aside", () => {
    aside = !aside;
    page.keep("aside", aside);
    which.textContent = aside ? "Show dead letters" : "Show what is set aside";
    choose({});
  }, "quiet", { title: "What met a defect of the gateway" });
  const selection = () => ({ ...queue(), ...(picked.size ? { tokens: [...picked] } : { ...chosen, ...typed() }) });
  const what = () => (picked.size ? `${picked.size} chosen` : search.value ? "all found" : chosen.reason === undefined ? "all" : `all with this reason for ${chosen.destination}`);
  const how = choice("how", [["", "to its destination"], ["rules", "through the rules in force"], ["to", "to another queue"]], "");
  const where = field("Queue", to);
  where.hidden = true;
  how.addEventListener("change", () => (where.hidden = how.value !== "to"));
  const replay = page.action("Replay", async () => {
    const given = how.value === "rules" ? { through_rules: true } : how.value === "to" && to.value.trim() ? { to: to.value.trim() } : {};
    const wanted = { ...selection() };
    const tokens = wanted.tokens ?? (await every_token(wanted));
    let put = 0;
    const failed = [];
    await inSteps("Replaying", tokens.length, async (done) => {
      const some = tokens.slice(done, done + 100);
      if (!some.length) return null;
      const answer = await call("/dlq/replay", { method: "POST", body: { ...queue(), ...given, tokens: some } });
      put += answer.done;
      failed.push(...answer.failed);
      return some.length;
    });
    picked.clear();
    label();
    notice(`${format.count(put)} of ${format.count(tokens.length)} put back${failed.length ? `; ${failed[0].text}` : ""}.`, failed.length > 0);
    await load();
  });
  // All that match, so that what fails is tried once and the progress is known.
  const every_token = async (wanted) => {
    const tokens = [];
    let after;
    do {
      const found = await call("/dlq", { query: { ...wanted, limit: 500, after } });
      tokens.push(...found.items.map((each) => each.token));
      after = found.next;
    } while (after);
    return tokens;
  };
  const purge = page.action("Purge", async () => {
    if (!(await confirmed("Purge dead letters?", `Removes ${what()}. They cannot be brought back.`, "Purge"))) return;
    const done = await call("/dlq/purge", { method: "POST", body: Object.keys(selection()).length ? selection() : { limit: 1000000 } });
    picked.clear();
    label();
    notice(`${format.count(done.done)} of ${format.count(done.matched)} removed.`);
    await load();
  }, "danger");
  const label = () => {
    replay.textContent = `Replay ${what()}`;
    purge.textContent = `Purge ${what()}`;
  };
  const choose = (filter) => {
    chosen = filter;
    picked.clear();
    page.keep("reason", filter.reason ?? "");
    page.keep("destination", filter.destination ?? "");
    extended = false;
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
  let next = null;
  let extended = false;
  const load = async (further = false, polled = false) => {
    const found = await call("/dlq", { query: { ...queue(), ...chosen, ...typed(), limit: 100, after: further ? next : undefined } });
    if (polled && (extended || picked.size)) return; // more have been asked for meanwhile
    extended = further;
    if (chosen.reason === undefined) groups.update(found.summary);
    table.update(further ? [...table.items, ...found.items] : found.items);
    next = found.next;
    more.hidden = !next;
    about.textContent = `${format.messages(found.total)}${table.items.length < found.total ? `, the first ${table.items.length} shown` : ""}`;
  };
  label();
  all.hidden = chosen.reason === undefined;
  put(target, h("h1", {}, "Dead letters"), panel("By reason and destination", groups.element, h("div", { class: "bar" }, field("Search", search, "grow"), field("Replay", how), where, replay, purge, all, which)),
    panel("Messages", about, table.element, more));
  every(5, () => (picked.size || extended ? null : load(false, true)));
}
