// The gateways on one queue manager: what each does, whether its lease is renewed, and the way to its page.

import { call } from "../api.js";
import { badge, format, h, link, panel, put, Table, two } from "../dom.js";

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

// A page on the loopback address is there for browsers of the same machine only.
function reachable(page) {
  if (!page || !URL.canParse(page)) return false;
  return !LOOPBACK.test(new URL(page).hostname) || LOOPBACK.test(location.hostname);
}

function stateOf(one) {
  if (one.own) return badge("this one", "good");
  if (one.lease_age !== null && one.lease_seconds && one.lease_age > one.lease_seconds / 2) return badge("lease not renewed", "bad");
  if (one.heard === null) return badge("has not told yet", "warn");
  return Date.now() / 1000 - one.heard > 60 ? badge("silent", "warn") : badge("running", "good");
}

function named(one) {
  if (!one.version) return two("not known yet", one.instance);
  return two(!one.own && reachable(one.page) ? link(one.name, one.page) : one.name, `version ${one.version}`);
}

const heard = (one) => (one.own || one.heard === null ? null : `heard of ${format.ago(one.heard)}`);

const lease = (one) => (one.own || one.lease_age === null ? "–" : `${Math.round(one.lease_age)}\u00a0of\u00a0${Math.round(one.lease_seconds)}\u00a0s`);

const counted = (name) => ({ cell: (one) => format.count(one[name]), value: (one) => one[name] ?? -1, number: true });

export default function gateways(target, _rest, _page, every) {
  const sums = h("p", { class: "soft" });
  const versions = h("div");
  const table = new Table("", [
    { title: "Gateway", node: named, value: (one) => one.name, short: true },
    { title: "State", cell: (one) => two(stateOf(one), heard(one)), value: (one) => (one.own ? 0 : one.heard ?? -1), short: true },
    { title: "Connections", ...counted("connections") },
    { title: "Sessions", ...counted("sessions") },
    { title: "Subscriptions", ...counted("subscriptions") },
    { title: "Messages", cell: (one) => (one.received_rate === null ? "–" : two(`${format.rate(one.received_rate)} in`, `${format.rate(one.sent_rate)} out`)), value: (one) => one.received_rate ?? -1, number: true },
    { title: "Lease seen for", cell: lease, value: (one) => one.lease_age ?? -1, number: true },
    { title: "Runs for", cell: (one) => (one.started ? format.seconds(Date.now() / 1000 - one.started) : "–"), value: (one) => (one.started ? Date.now() / 1000 - one.started : -1), number: true },
  ], { key: (one) => `${one.instance} ${one.name} ${one.version} ${one.page}` });
  put(target, h("h1", {}, "Gateways"), versions, panel("", sums, table.element,
    h("p", { class: "soft" }, "Each tells the others every ten seconds what it does. One whose lease stays as it is for its whole length is taken for dead: another takes its sessions over. A name leads to the page of that gateway, where one signs in anew. Limits on connections, on the sessions of a listener, and rates are each gateway's own; mqtt.max_sessions is for all together.")));
  every(4, async () => {
    const { items } = await call("/gateways");
    const sum = (name) => items.reduce((total, one) => total + (one[name] ?? 0), 0);
    sums.textContent = items.length === 1 ? "This is the only gateway on its queue manager." : `${format.count(items.length)} gateways, ${format.many(sum("connections"), "connection")}, ${format.many(sum("sessions"), "session")}, ${format.rate(sum("received_rate"))} from devices, ${format.rate(sum("sent_rate"))} to them.`;
    const several = [...new Set(items.map((one) => one.version).filter(Boolean))].sort();
    put(versions, several.length > 1 ? h("p", { class: "note warn" }, `They run different releases (${several.join(", ")}), as during an upgrade.`) : null);
    table.update(items);
  });
}
