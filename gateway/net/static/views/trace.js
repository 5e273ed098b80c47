// Live trace of one client or topic, and the way of single messages from packet identifier to MsgId.

import { call, events, part } from "../api.js";
import { brief, button, field, format, h, link, named, notice, panel, put, Table } from "../dom.js";

const KEPT = 1000;

export default function trace(target, [client], _page, _every, onLeave) {
  const lines = h("div", { class: "log", tabindex: 0, role: "log", "aria-label": "Trace", "data-empty": "Packets appear here while a trace runs: ← from the device, → to it, ◆ put on a queue." });
  const status = h("span", { class: "soft", role: "status" }, "not running");
  const halt = button("Stop", () => stop(), "quiet", { disabled: true });
  const form = h("form", { class: "bar" },
    field("Client identifier (* at the end)", h("input", { name: "client", value: client ?? "", spellcheck: "false" }), "grow"),
    field("or topic filter", h("input", { name: "topic", spellcheck: "false", placeholder: "plant/+/line/#" }), "grow"), h("button", {}, "Start"), halt, button("Clear", () => put(lines), "quiet"));
  let running = null;
  const stop = () => {
    running?.abort();
    running = null;
    halt.disabled = true;
    status.textContent = "not running";
  };
  const say = (text, kind = "") => {
    const low = lines.scrollHeight - lines.scrollTop - lines.clientHeight < 40;
    lines.append(h("p", { class: kind }, text));
    while (lines.children.length > KEPT) lines.firstChild.remove();
    if (low) lines.scrollTop = lines.scrollHeight;
  };
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    stop();
    const given = Object.fromEntries(new FormData(form));
    if (!given.client && !given.topic) return notice("Name a client or a topic filter.", true);
    const mine = (running = new AbortController());
    halt.disabled = false;
    status.textContent = "starting …";
    try {
      await events("/trace", { ...given, seconds: 900 }, mine.signal, (name, data) => {
        status.textContent = "running";
        if (name === "trace") say(described(data), data.direction);
        else if (name === "missed") say(`${data.count} events were left out: too many to show`);
      }, () => { status.textContent = "waiting for something to happen …"; });
      if (running === mine) {
        halt.disabled = true;
        status.textContent = "ended";
      }
    } catch (error) {
      if (error.name !== "AbortError") notice(error.message, true);
    }
  });
  onLeave(stop);
  put(target, h("h1", {}, "Trace"), panel("", form, h("p", {}, status), lines), journey());
}

function described(each) {
  const arrow = { in: "←", out: "→", mq: "◆" }[each.direction];
  const facts = [
    ["topic", each.topic && brief(each.topic)], ["qos", each.qos], ["packet", each.packet_id], ["bytes", each.length], ["rule", each.rule], ["queue", each.queue], ["msgid", each.msg_id],
    ["reason", each.reason || undefined], ["retain", each.retain || undefined], ["dup", each.dup || undefined],
  ].filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => `${name}=${value}`);
  return `${format.clock(each.time)} ${arrow} ${brief(each.client_id || "-")} ${each.kind} ${facts.join(" ")}${each.detail ? ` ${each.detail}` : ""}`;
}

function journey() {
  const table = new Table("", [
    { title: "Time", cell: (each) => format.time(each.time) },
    { title: "Client", node: (each) => link(named(each.client_id), `#/clients/${part(each.client_id)}`), value: (each) => each.client_id, short: true },
    { title: "Packet", cell: (each) => each.packet_id, number: true },
    { title: "Topic", node: (each) => named(each.topic), value: (each) => each.topic, mono: true },
    { title: "State", cell: (each) => each.state },
    { title: "Queue", cell: (each) => each.queue ?? "–", mono: true },
    { title: "MsgId", cell: (each) => each.msg_id ?? "–", mono: true },
  ], { key: (each) => `${each.time} ${each.client_id} ${each.packet_id} ${each.msg_id}`, empty: "Nothing found. Messages are remembered while they are in doubt, and while their client is traced." });
  const form = h("form", { class: "bar" }, field("Client identifier", h("input", { name: "client_id", spellcheck: "false" }), "grow"), field("Packet identifier", h("input", { name: "packet_id", type: "number", min: 1, max: 65535 })),
    field("or MsgId", h("input", { name: "msg_id", pattern: "[0-9a-fA-F]{48}", spellcheck: "false" }), "grow"), h("button", { class: "quiet" }, "Find"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      table.update((await call("/journey", { query: Object.fromEntries(new FormData(form)) })).items);
    } catch (error) {
      notice(error.message, true);
    }
  });
  table.update([]);
  return panel("Where did a message go?", form, table.element);
}
