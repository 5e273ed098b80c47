// Overview: is all well, what flows, and the last minutes, hours or day.

import { call, part } from "../api.js";
import { Chart, charts } from "../chart.js";
import { badge, button, findings, format, h, link, marked, notice, pairs, panel, put, Table } from "../dom.js";

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
  const names = [["Devices", "clients"], ["From devices"], ["To queues", "queues"], ["To devices"], ["Latency p99"], ["Dropped"], ["Dead letters", "dead-letters"], ["On disk"]];
  const tiles = names.map(tile);
  const [devices, received, stored, sent, latency, dropped, dead, spool] = tiles;
  const problems = h("div");
  const lost = h("div");
  const seen = (now) => Number(localStorage.getItem(`mqgate.dropped.${now.started}`) ?? 0);
  const losses = new Table("", [
    { title: "Reason", cell: (each) => each.reason.replaceAll("_", " ") },
    { title: "Rule", node: (each) => (each.rule ? link(each.rule, `#/rules/${part(each.rule)}`) : "none"), value: (each) => each.rule ?? "" },
    { title: "Messages", cell: (each) => format.count(each.count), value: (each) => each.count, number: true },
  ], { key: (each) => `${each.rule} ${each.reason}`, sort: 2, descending: true });
  const noted = button("Acknowledge", () => {
    localStorage.setItem(`mqgate.dropped.${before.started}`, before.totals.dropped);
    shownDropped(before);
  }, "quiet");
  const skipped = h("p");
  const loss = panel("Dropped", losses.element, skipped, h("div", { class: "bar" }, noted));
  const shownDropped = (now) => {
    const fresh = now.totals.dropped - seen(now);
    const reasons = Object.entries(Object.groupBy(now.dropped, (each) => each.reason)).map(([reason, all]) => `${reason.replaceAll("_", " ")} ${format.count(all.reduce((sum, each) => sum + each.count, 0))}`);
    dropped.set(format.count(fresh), `${now.totals.dropped ? `${reasons.join(", ")}; ` : ""}since ${format.time(now.started)}`, fresh > 0 ? "bad" : "");
    noted.disabled = fresh <= 0;
    if (now.totals.dropped && !loss.isConnected) put(lost, loss);
    losses.update(now.dropped);
    put(skipped, ...(now.skipped ? [`${format.many(now.skipped.count, "message")} skipped for sessions that were full, the last ${format.time(now.skipped.time)} for `, link(now.skipped.client_id, `#/clients/${part(now.skipped.client_id)}`)] : []));
  };
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
    { title: "Certificate", cell: (each) => (each.certificate_not_after ? `until ${format.date(each.certificate_not_after)}` : "–") },
  ], { key: (each) => each.name, empty: "No listener." });
  const facts = h("div");
  const reload = page.action("Reload configuration", async () => {
    try {
      const done = await call("/reload", { method: "POST" });
      notice(`${format.many(done.rules, "rule")} in force${done.changed.length ? `; changed: ${done.changed.join(", ")}` : ", nothing changed"}.`);
    } catch (error) {
      const wrong = error.findings?.length;
      notice(wrong ? `Nothing changed: ${wrong === 1 ? "one error" : `${wrong} errors`}, shown on top.` : error.message, true);
      if (wrong) scrollTo({ top: 0, behavior: "smooth" });
    }
  }, "quiet");
  put(target, h("h1", {}, "Overview"), problems, h("dl", { class: "tiles" }, tiles.map((each) => each.element)),
    charts(page, every, (seconds) => call("/history", { query: { seconds } }), [[flow, ["received", "put", "sent"]], [connections, ["connections"]], [waiting, ["latency_p99_ms"]]]),
    lost, panel("Queue managers", managers.element), panel("Listeners", listeners.element),
    panel("Process", facts, h("div", { class: "bar" }, reload)));

  let before = null;
  every(2, async () => {
    const now = await call("/overview");
    const rate = (name) => (before && now.time > before.time ? Math.max(0, now.totals[name] - before.totals[name]) / (now.time - before.time) : now.rates[name]);
    devices.set(format.count(now.connections), `${format.many(now.sessions, "session")}, ${format.many(now.subscriptions, "subscription")}`);
    received.set(format.rate(rate("received")), `${format.count(now.totals.received)} since start`);
    stored.set(format.rate(rate("put")), `${format.count(now.totals.put)} since start`);
    sent.set(format.rate(rate("sent")), `${format.count(now.totals.sent)} since start`);
    const p99 = now.latency_ms.p99;
    latency.set(p99 === null ? "–" : format.seconds(p99 / 1000), p99 === null ? "no traffic" : `median ${format.seconds(now.latency_ms.p50 / 1000)}, last seconds`, p99 > 1000 ? "warn" : "");
    shownDropped(now);
    dead.set(format.count(now.dead_letters), "waiting now", now.dead_letters ? "warn" : "");
    const full = now.spool && now.spool.limit_bytes ? now.spool.bytes / now.spool.limit_bytes : 0;
    const share = now.spool ? `${Math.round(full * 100)} % of ${format.bytes(now.spool.limit_bytes)}` : "nothing is kept here";
    const owed = now.spool && now.spool.state && now.spool.state !== "connected";
    spool.set(now.spool ? format.bytes(now.spool.bytes) : "–", now.spool ? `${owed ? `${now.spool.state}: ` : ""}${format.messages(now.spool.messages)}, ${share}` : share, full > 0.9 ? "bad" : full > 0.7 || owed ? "warn" : "");
    managers.update(now.queue_managers);
    listeners.update(now.listeners);
    const list = now.attention.map((each) => h("li", {}, marked(each.text), each.section && [" ", link("Look", `#/${each.section}`)]));
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
      "Held back": now.paused ? link(format.many(now.paused, "connection"), "#/clients?state=held_back") : "nobody", "Times": format.zone(), "Not matched": h("span", {}, `${format.messages(now.totals.unrouted)} (`, link("try out", "#/try"), ")"),
    }, "facts"));
    before = now;
  });
}
