// Overview: is all well, what flows, and the last ten minutes.

import { call } from "../api.js";
import { Chart } from "../chart.js";
import { badge, findings, format, h, link, marked, notice, pairs, panel, put, Table } from "../dom.js";

function tile([title, where]) {
  const value = h("span", {}, "–");
  const more = h("small", {});
  const element = h("div", { class: "tile" }, h("dt", {}, where ? link(title, `#/${where}`) : title), h("dd", {}, value, more));
  return {
    element,
    set(text, small = "", kind = "") {
      value.textContent = text;
      more.textContent = small;
      more.title = small;
      element.className = `tile ${kind}`;
    },
  };
}

export default function overview(target, _rest, page, every) {
  const names = [["Devices", "clients"], ["From devices"], ["To queues", "queues"], ["To devices"], ["Latency p99"], ["Dropped", "rules"], ["Dead letters", "dead-letters"], ["On disk"]];
  const tiles = names.map(tile);
  const [devices, received, stored, sent, latency, dropped, dead, spool] = tiles;
  const problems = h("div");
  const flow = new Chart("Messages a second", ["from devices", "to queues", "to devices"], format.rate);
  const connections = new Chart("Connected devices", ["devices"], format.count);
  const waiting = new Chart("Latency, 99th percentile", ["PUBLISH to commit"], (value) => (value === null ? "–" : format.seconds(value / 1000)));
  const managers = new Table("", [
    { title: "Queue manager", cell: (each) => each.name },
    { title: "State", cell: (each) => badge(each.connected ? "connected" : "away", each.connected ? "good" : "bad"), value: (each) => String(each.connected) },
    { title: "Connections", cell: (each) => each.connections, number: true },
    { title: "Where", cell: (each) => each.detail, mono: true },
  ], { key: (each) => each.name });
  const listeners = new Table("", [
    { title: "Listener", cell: (each) => each.name },
    { title: "Address", cell: (each) => `${each.address} (${each.transport.replace("_", " ")})` },
    { title: "Connections", cell: (each) => `${each.connections} of ${format.count(each.limit)}`, value: (each) => each.connections, number: true },
    { title: "Sessions", cell: (each) => `${format.count(each.sessions)} of ${format.count(each.session_limit)}`, value: (each) => each.sessions, number: true },
    { title: "Certificate", cell: (each) => (each.certificate_not_after ? `until ${new Date(each.certificate_not_after * 1000).toLocaleDateString()}` : "–") },
  ], { key: (each) => each.name, empty: "No listener." });
  const facts = h("div");
  const reload = page.action("Reload configuration", async () => {
    try {
      const done = await call("/reload", { method: "POST" });
      notice(`${done.rules} rules in force${done.changed.length ? `; changed: ${done.changed.join(", ")}` : ", nothing changed"}.`);
    } catch (error) {
      const wrong = error.findings?.length;
      notice(wrong ? `Nothing changed: ${wrong === 1 ? "one error" : `${wrong} errors`}, shown on top.` : error.message, true);
      if (wrong) scrollTo({ top: 0, behavior: "smooth" });
    }
  }, "quiet");
  put(target, h("h1", {}, "Overview"), problems, h("dl", { class: "tiles" }, tiles.map((each) => each.element)),
    h("div", { class: "grid" }, panel("", flow.element), panel("", connections.element), panel("", waiting.element)),
    panel("Queue managers", managers.element), panel("Listeners", listeners.element),
    panel("Process", facts, h("div", { class: "bar" }, reload)));

  let before = null;
  every(2, async () => {
    const now = await call("/overview");
    const rate = (name) => (before && now.time > before.time ? Math.max(0, now.totals[name] - before.totals[name]) / (now.time - before.time) : null);
    devices.set(format.count(now.connections), `${format.count(now.sessions)} sessions, ${format.count(now.subscriptions)} subscriptions`);
    received.set(format.rate(rate("received")), `${format.count(now.totals.received)} since start`);
    stored.set(format.rate(rate("put")), `${format.count(now.totals.put)} since start`);
    sent.set(format.rate(rate("sent")), `${format.count(now.totals.sent)} since start`);
    const p99 = now.latency_ms.p99;
    latency.set(p99 === null ? "–" : format.seconds(p99 / 1000), p99 === null ? "no traffic" : `median ${format.seconds(now.latency_ms.p50 / 1000)}, last seconds`, p99 > 1000 ? "warn" : "");
    dropped.set(format.count(now.totals.dropped), "since start", now.totals.dropped ? "bad" : "");
    dead.set(format.count(now.dead_letters), "waiting now", now.dead_letters ? "warn" : "");
    const full = now.spool && now.spool.limit_bytes ? now.spool.bytes / now.spool.limit_bytes : 0;
    const share = now.spool ? `${Math.round(full * 100)} % of ${format.bytes(now.spool.limit_bytes)}` : "nothing is kept here";
    const owed = now.spool && now.spool.state && now.spool.state !== "connected";
    spool.set(now.spool ? format.bytes(now.spool.bytes) : "–", owed ? `${now.spool.state}: ${format.count(now.spool.messages)} messages, ${share}` : share, full > 0.9 ? "bad" : full > 0.7 || owed ? "warn" : "");
    managers.update(now.queue_managers);
    listeners.update(now.listeners);
    const list = now.problems.map((text) => h("li", {}, marked(text)));
    const delayed = now.last_reload.waiting;
    const signature = JSON.stringify([now.problems, now.last_reload.findings, delayed]);
    if (problems.signature !== signature) {
      problems.signature = signature;
      put(problems, list.length ? h("div", { class: "alert", role: "alert" }, h("b", {}, "Not all is well"), h("ul", {}, list)) : null,
        now.last_reload.findings.length ? findings(now.last_reload.findings, "The last reload was refused; what was in force before still is:") : null,
        delayed.length ? h("div", { class: "alert warn" }, h("b", {}, "These settings take effect after a restart"), h("ul", {}, delayed.map((text) => h("li", {}, h("code", {}, text.replace(" (after a restart)", "")))))) : null);
    }
    put(facts, pairs({
      Version: now.version, Backend: now.backend, Started: format.time(now.started),
      "Last reload": `${format.time(now.last_reload.time)}${now.last_reload.ok ? "" : " (refused)"}`,
      "In flight": format.messages(now.inflight), Retained: format.messages(now.retained),
      "Held back": now.paused ? `${now.paused} ${now.paused === 1 ? "connection" : "connections"}` : "nobody", "Not matched": h("span", {}, `${format.messages(now.totals.unrouted)} (`, link("try out", "#/try"), ")"),
    }, "facts"));
    before = now;
  });
  every(5, async () => {
    const past = await call("/history");
    flow.update(past.time, [past.received, past.put, past.sent]);
    connections.update(past.time, [past.connections]);
    waiting.update(past.time, [past.latency_p99_ms]);
  });
}
