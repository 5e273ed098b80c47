// Devices: who is connected, what is in doubt and what waits for whom; one device in full.

import { call, part } from "../api.js";
import { Chart, charts } from "../chart.js";
import { badge, brief, button, choice, confirmed, field, format, h, link, named, notice, pairs, panel, put, Table, two } from "../dom.js";

const shownState = (client) => badge(client.connected ? (client.paused ? "held back" : "connected") : "away", client.connected ? (client.paused ? "warn" : "good") : "");

export default function clients(target, [id], page, every) {
  if (id !== undefined && id !== "") return one(target, id, page, every);
  const search = h("input", { type: "search", placeholder: "part of the client identifier", value: page.kept("search"), oninput: () => again() });
  const state = choice("state", [["", "all"], ["connected", "connected"], ["held_back", "held back"], ["disconnected", "away"]], page.kept("state"));
  const listener = h("input", { value: page.kept("listener"), list: "listeners", spellcheck: "false", oninput: () => again() });
  const user = h("input", { value: page.kept("user"), spellcheck: "false", oninput: () => again() });
  const names = h("datalist", { id: "listeners" });
  state.addEventListener("change", () => again());
  const total = h("p", { class: "soft" });
  const picked = new Set();
  const rates = new Map();
  const flowing = (count, client, name) => two(format.count(count), rates.has(client.client_id) ? format.rate(rates.get(client.client_id)[name]) : null);
  const table = new Table("", [
    { title: "Choose", node: (client) => h("input", { type: "checkbox", "aria-label": `Choose ${client.client_id}`, onchange: (event) => (event.target.checked ? picked.add(client.client_id) : picked.delete(client.client_id), label()) }), value: (client) => String(picked.has(client.client_id)) },
    { title: "Client", node: (client) => two(link(named(client.client_id || "(empty)"), `#/clients/${part(client.client_id)}`), `MQTT ${client.protocol}`), value: (client) => client.client_id, wide: true },
    { title: "State", cell: shownState, value: (client) => String(client.connected) },
    { title: "User", cell: (client) => client.user ?? "–" },
    { title: "From", cell: (client) => (client.peer ? two(h("code", {}, client.peer), client.listener) : "–"), value: (client) => client.peer ?? "", short: true },
    { title: "Since", cell: (client) => format.ago(client.since), value: (client) => client.since, number: true },
    { title: "In doubt", cell: (client) => client.in_doubt_in + client.in_doubt_out, number: true },
    { title: "Queued", cell: (client) => format.count(client.queued), value: (client) => client.queued, number: true },
    { title: "Received", cell: (client) => flowing(client.received, client, "received"), value: (client) => client.received, number: true },
    { title: "Sent", cell: (client) => flowing(client.sent, client, "sent"), value: (client) => client.sent, number: true },
  ], { key: (client) => client.client_id, empty: "No device: none has connected, or none matches." });
  const more = button("More", () => load(true), "quiet", { hidden: true });
  const kick = page.action("Disconnect chosen", async () => {
    if (!(await confirmed(`Disconnect ${format.many(picked.size, "device")}?`, "Their sessions stay; a device comes back when it wants to.", "Disconnect"))) return;
    let done = 0;
    for (const each of picked) {
      try {
        await call(`/clients/${part(each)}/connection`, { method: "DELETE" });
        done += 1;
      } catch (error) {
        if (error.status !== 404) throw error; // it has gone by itself
      }
    }
    picked.clear();
    label();
    table.body.querySelectorAll("input").forEach((each) => (each.checked = false));
    notice(`${format.many(done, "device")} disconnected.`);
    await load();
  }, "danger");
  const label = () => {
    kick.hidden = !picked.size;
    kick.textContent = `Disconnect ${picked.size} chosen`;
  };
  label();
  put(target, h("h1", {}, "Clients"), panel("", h("div", { class: "bar" }, field("Search", search, "grow"), field("State", state), field("Listener", listener), names, field("User", user), kick), total, table.element, more));
  let next = null;
  let extended = false;
  let before = null;
  const load = async (further = false, polled = false) => {
    const query = { search: search.value, state: state.value, listener: listener.value, user: user.value, limit: 100, after: further ? next : undefined };
    const found = await call("/clients", { query });
    if (polled && extended) return; // more have been asked for meanwhile
    const at = Date.now() / 1000;
    for (const client of found.items) {
      const old = before?.counts.get(client.client_id);
      if (old && at > before.at) rates.set(client.client_id, Object.fromEntries(["received", "sent"].map((name) => [name, Math.max(0, client[name] - old[name]) / (at - before.at)])));
    }
    before = { at, counts: new Map(found.items.map((client) => [client.client_id, client])) };
    extended ||= further;
    table.update(further ? [...table.items, ...found.items] : found.items);
    put(names, [...new Set(table.items.map((client) => client.listener).filter(Boolean))].map((each) => h("option", { value: each })));
    next = found.next;
    more.hidden = !next;
    total.textContent = format.many(found.total, "device");
  };
  let typing;
  const again = () => {
    clearTimeout(typing);
    extended = false;
    for (const [name, control] of Object.entries({ search, state, listener, user })) page.keep(name, control.value);
    typing = setTimeout(() => load().catch((error) => notice(error.message, true)), 200);
  };
  every(4, () => (extended ? null : load(false, true)));
}

const queuesOf = (client) => [...new Set(client.in_doubt.filter((each) => each.state === "held back").map((each) => each.queue))].map((name) => link(name, `#/queues/${part(name)}`));

function one(target, id, page, every) {
  const facts = h("div");
  const head = h("span");
  const held = h("div");
  const subscriptions = new Table("", [
    { title: "Filter", node: (each) => named(each.filter), value: (each) => each.filter, mono: true },
    { title: "QoS", cell: (each) => each.qos, number: true },
    { title: "Options", cell: (each) => [each.no_local && "no local", each.retain_as_published && "retain as published", each.share && `shared as ${each.share}`].filter(Boolean).join(", ") || "–" },
  ], { key: (each) => `${each.share ?? ""} ${each.filter}`, empty: "No subscriptions." });
  const doubts = new Table("Between two acknowledgements; they are settled when the device is there.", [
    { title: "Direction", cell: (each) => (each.direction === "in" ? "from device" : "to device") },
    { title: "Packet", cell: (each) => each.packet_id, number: true },
    { title: "QoS", cell: (each) => each.qos, number: true },
    { title: "State", cell: (each) => each.state },
    { title: "Topic", cell: (each) => named(each.topic ?? "–"), value: (each) => each.topic ?? "", mono: true },
    { title: "Queue", cell: (each) => each.queue ?? "–", mono: true },
    { title: "MsgId", cell: (each) => each.msg_id ?? "–", mono: true },
    { title: "Since", cell: (each) => format.ago(each.since), number: true },
  ], { key: (each) => `${each.direction} ${each.packet_id}`, empty: "Nothing in doubt." });
  const kick = page.action("Disconnect", async () => {
    await call(`/clients/${part(id)}/connection`, { method: "DELETE" });
    notice(`${brief(id)} was disconnected; its session stays.`);
  }, "quiet");
  const purge = page.action("Purge session", async () => {
    const text = "Its subscriptions, its will, and all messages queued for it or in doubt are removed.";
    if (!(await confirmed(`Purge ${brief(id)}?`, text, "Purge"))) return;
    await call(`/clients/${part(id)}`, { method: "DELETE" });
    notice(`The session of ${brief(id)} is gone.`);
    location.hash = "#/clients";
  }, "danger");
  const follow = h("a", { href: `#/trace/${part(id)}`, class: "button quiet" }, "Trace");
  const flow = new Chart("Messages a second", ["from the device", "to it"], format.rate);
  put(target, h("h1", {}, link("Clients", "#/clients"), " / ", named(id), " ", head), panel("", held, facts, h("div", { class: "bar" }, kick, purge, follow)),
    charts(page, every, (seconds) => call(`/history/clients/${part(id)}`, { query: { seconds } }), [[flow, ["received", "sent"]]]), panel("Subscriptions", subscriptions.element), panel("In doubt", doubts.element));
  every(3, async () => {
    const client = await call(`/clients/${part(id)}`);
    put(head, shownState(client));
    kick.hidden = !client.connected;
    put(held, client.held_back ? h("p", { class: "note warn" }, `Held back: ${client.held_back}. It gets no acknowledgement before that. `, ...queuesOf(client)) : null);
    put(facts, pairs({
      User: client.user, Protocol: `MQTT ${client.protocol}`, From: client.peer ? `${client.peer}, listener ${client.listener}` : "–",
      [client.connected ? "Connected" : "Last seen"]: client.since === null ? "–" : `${format.time(client.since)} (${format.ago(client.since)})`,
      "Keep alive": client.keep_alive ? `${client.keep_alive} s` : "none",
      Session: client.clean_start && !client.session_expiry_seconds ? "ends with the connection" : client.session_expiry_seconds === null ? "never expires" : `kept for ${format.seconds(client.session_expiry_seconds)}${client.ends ? `, until ${format.time(client.ends)}` : ""}`,
      Queued: format.messages(client.queued), Received: format.count(client.received), Sent: format.count(client.sent),
      Will: client.will ? `${brief(client.will.topic)} (QoS ${client.will.qos}, ${client.will.length} bytes)` : "none",
      Certificate: client.certificate ? `${client.certificate.subject}, until ${format.time(client.certificate.not_after)}` : "none",
    }, "facts"));
    subscriptions.update(client.subscription_list);
    doubts.update(client.in_doubt);
  });
}
