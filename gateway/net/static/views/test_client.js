// A device in the browser: MQTT over WebSocket to one of the gateway's own listeners.

import { button, check, choice, field, format, h, notice, panel, put } from "../dom.js";
import { MqttClient } from "../mqtt.js";

export default function testClient(target, _rest, page, _every, onLeave) {
  const listeners = page.me.websocket_listeners;
  const addresses = listeners.map((each) => `${each.tls ? "wss" : "ws"}://${location.hostname}:${each.port}${each.path}`);
  const log = h("div", { class: "log", tabindex: 0, role: "log", "aria-label": "Packets", "data-empty": "Connect, then publish or subscribe: every packet is shown here." });
  const status = h("span", { class: "soft", role: "status" }, "not connected");
  let client = null;
  const say = (text, kind) => {
    log.append(h("p", { class: kind }, `${format.clock(Date.now() / 1000)} ${kind === "in" ? "←" : "→"} ${text}`));
    while (log.children.length > 500) log.firstChild.remove();
    log.scrollTop = log.scrollHeight;
  };
  const working = h("fieldset", { disabled: true });
  const connecting = h("form", {}, h("div", { class: "fields" },
    field("Address", h("input", { name: "url", required: true, value: addresses[0] ?? "", list: "addresses", spellcheck: "false" }), "wide"), h("datalist", { id: "addresses" }, addresses.map((value) => h("option", { value }))),
    field("Client identifier", h("input", { name: "clientId", value: `page-${Math.random().toString(36).slice(2, 8)}`, spellcheck: "false" })),
    field("Version", choice("version", [[5, "5.0"], [4, "3.1.1"]], 5)),
    field("User", h("input", { name: "username", autocomplete: "off" })), field("Password", h("input", { name: "password", type: "password", autocomplete: "off" }))),
    h("div", { class: "bar" }, h("button", {}, "Connect"), button("Disconnect", () => client?.disconnect(), "quiet"), status));
  connecting.addEventListener("submit", async (event) => {
    event.preventDefault();
    client?.disconnect();
    const given = Object.fromEntries(new FormData(connecting));
    status.textContent = "connecting …";
    try {
      const mine = (client = new MqttClient(given.url, { ...given, version: Number(given.version) }, {
        packet: say,
        closed: () => {
          if (client !== mine) return;
          status.textContent = "not connected";
          working.disabled = true;
        },
      }));
      await mine.connected;
      status.textContent = `connected as ${given.clientId}`;
      working.disabled = false;
    } catch (error) {
      status.textContent = "not connected";
      notice(error.message, true);
    }
  });
  const qos = (chosen) => choice("qos", [[0], [1], [2]], chosen);
  const publishing = h("form", {}, h("div", { class: "fields" }, field("Topic", h("input", { name: "topic", required: true, spellcheck: "false", value: "plant/lima/line/7/temperature" }), "wide"), field("Payload", h("textarea", { name: "payload", spellcheck: "false" }, "21.5"), "wide"), field("QoS", qos(1)), check("retain", "retain")), h("div", { class: "bar" }, h("button", {}, "Publish")));
  const subscribing = h("form", {}, h("div", { class: "fields" }, field("Filter", h("input", { name: "filter", required: true, spellcheck: "false", value: "plant/#" }), "wide"), field("QoS", qos(1))), h("div", { class: "bar" }, h("button", { value: "subscribe" }, "Subscribe"), h("button", { value: "unsubscribe", class: "quiet" }, "Unsubscribe")));
  const submitted = (form, run) => form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await run(Object.fromEntries(new FormData(form)), event.submitter.value);
    } catch (error) {
      notice(error.message, true);
    }
  });
  submitted(publishing, (given) => client.publish(given.topic, given.payload, Number(given.qos), "retain" in given));
  submitted(subscribing, (given, what) => (what === "unsubscribe" ? client.unsubscribe(given.filter) : client.subscribe(given.filter, Number(given.qos))));
  working.append(h("div", { class: "grid" }, panel("Publish", publishing), panel("Subscribe", subscribing)));
  onLeave(() => client?.disconnect());
  put(target, h("h1", {}, "Test client"),
    listeners.length ? null : h("p", { class: "alert warn" }, "No listener speaks WebSocket. Add one to the settings: ", h("code", {}, "{name: web, port: 8083, websocket: {path: /mqtt}}")),
    panel("Connection", connecting), working, panel("Packets", h("div", { class: "bar" }, button("Clear", () => put(log), "quiet")), log));
}
