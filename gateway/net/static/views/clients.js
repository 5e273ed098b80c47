// Devices: who is connected, what is in doubt and what waits for whom; one device in full.

import { call, part } from "../api.js";
import { badge, button, choice, confirmed, field, format, h, link, notice, pairs, panel, put, Table } from "../dom.js";

const shownState = (client) => badge(client.connected ? (client.paused ? "held back" : "connected") : "away", client.connected ? (client.paused ? "warn" : "good") : "");

export default function clients(target, [id], page, every) {
  if (id !== undefined && id !== "") return one(target, id, page, every);
  const search = h("input", { type: "search", placeholder: "part of the client identifier", oninput: () => again() });
  const state = choice("state", [["", "all"], ["connected", "connected"], ["disconnected", "away"]], "");
  state.addEventListener("change", () => again());
  const total = h("p", { class: "soft" });
  const table = new Table("", [
    { title: "Client", node: (client) => link(client.client_id || "(empty)", `#/clients/${part(client.client_id)}`), value: (client) => client.client_id },
    { title: "State", cell: shownState, value: (client) => String(client.connected) },
    { title: "User", cell: (client) => client.user ?? "–" },
    { title: "MQTT", cell: (client) => client.protocol },
    { title: "From", cell: (client) => (client.peer ? `${client.peer} (${client.listener})` : "–"), mono: true },
    { title: "Since", cell: (client) => format.ago(client.since), value: (client) => client.since, number: true },
    { title: "In doubt", cell: (client) => client.in_doubt_in + client.in_doubt_out, number: true },
    { title: "Queued", cell: (client) => format.count(client.queued), value: (client) => client.queued, number: true },
    { title: "Received", cell: (client) => format.count(client.received), value: (client) => client.received, number: true },
    { title: "Sent", cell: (client) => format.count(client.sent), value: (client) => client.sent, number: true },
  ], { key: (client) => client.client_id, empty: "No device matches." });
  const more = button("More", () => load(true), "quiet", { hidden: true });
  put(target, h("h1", {}, "Clients"), panel("", h("div", { class: "bar" }, field("Search", search, "grow"), field("State", state)), total, table.element, more));
  let next = null;
  let extended = false;
  const load = async (further = false) => {
    const query = { search: search.value, state: state.value, limit: 100, after: further ? next : undefined };
    const found = await call("/clients", { query });
    extended ||= further;
    table.update(further ? [...table.items, ...found.items] : found.items);
    next = found.next;
    more.hidden = !next;
    total.textContent = `${found.total} ${found.total === 1 ? "device" : "devices"}`;
  };
  let typing;
  const again = () => {
    clearTimeout(typing);
    extended = false;
    typing = setTimeout(() => load().catch((error) => notice(error.message, true)), 200);
  };
  every(4, () => (extended ? null : load()));
}

function one(target, id, page, every) {
  const facts = h("div");
  const head = h("span");
  const subscriptions = new Table("", [
    { title: "Filter", cell: (each) => each.filter, mono: true },
    { title: "QoS", cell: (each) => each.qos, number: true },
    { title: "Options", cell: (each) => [each.no_local && "no local", each.retain_as_published && "retain as published", each.share && `shared as ${each.share}`].filter(Boolean).join(", ") || "–" },
  ], { key: (each) => `${each.share ?? ""} ${each.filter}`, empty: "No subscriptions." });
  const doubts = new Table("Between two acknowledgements; they are settled when the device is there.", [
    { title: "Direction", cell: (each) => (each.direction === "in" ? "from device" : "to device") },
    { title: "Packet", cell: (each) => each.packet_id, number: true },
    { title: "QoS", cell: (each) => each.qos, number: true },
    { title: "State", cell: (each) => each.state },
    { title: "Topic", cell: (each) => each.topic, mono: true },
    { title: "MsgId", cell: (each) => each.msg_id ?? "–", mono: true },
    { title: "Since", cell: (each) => format.ago(each.since), number: true },
  ], { key: (each) => `${each.direction} ${each.packet_id}`, empty: "Nothing in doubt." });
  const kick = page.action("Disconnect", async () => {
    await call(`/clients/${part(id)}/connection`, { method: "DELETE" });
    notice(`${id} was disconnected; its session stays.`);
  }, "quiet");
  const purge = page.action("Purge session", async () => {
    const text = "Its subscriptions, its will, and all messages queued for it or in doubt are removed.";
    if (!(await confirmed(`Purge ${id}?`, text, "Purge"))) return;
    await call(`/clients/${part(id)}`, { method: "DELETE" });
    notice(`The session of ${id} is gone.`);
    location.hash = "#/clients";
  }, "danger");
  const follow = h("a", { href: `#/trace/${part(id)}`, class: "button quiet" }, "Trace");
  put(target, h("h1", {}, link("Clients", "#/clients"), " / ", id, " ", head), panel("", facts, h("div", { class: "bar" }, kick, purge, follow)), panel("Subscriptions", subscriptions.element), panel("In doubt", doubts.element));
  every(3, async () => {
    const client = await call(`/clients/${part(id)}`);
    put(head, shownState(client));
    kick.hidden = !client.connected;
    put(facts, pairs({
      User: client.user, Protocol: `MQTT ${client.protocol}`, From: client.peer ? `${client.peer}, listener ${client.listener}` : "–",
      [client.connected ? "Connected" : "Last seen"]: client.since === null ? "–" : `${format.time(client.since)} (${format.ago(client.since)})`,
      "Keep alive": client.keep_alive ? `${client.keep_alive} s` : "none",
      Session: client.clean_start && !client.session_expiry_seconds ? "ends with the connection" : client.session_expiry_seconds === null ? "never expires" : `kept for ${format.seconds(client.session_expiry_seconds)}${client.ends ? `, until ${format.time(client.ends)}` : ""}`,
      Queued: format.messages(client.queued), Received: format.count(client.received), Sent: format.count(client.sent),
      Will: client.will ? `${client.will.topic} (QoS ${client.will.qos}, ${client.will.length} bytes)` : "none",
      Certificate: client.certificate ? `${client.certificate.subject}, until ${format.time(client.certificate.not_after)}` : "none",
    }, "facts"));
    subscriptions.update(client.subscription_list);
    doubts.update(client.in_doubt);
  });
}
