// One scenario for every protocol version and transport: prints one JSON object. Run by test_mqtt_js.py.
import { createRequire } from "node:module";
const require = createRequire(process.argv[2] + "/");
const mqtt = require("mqtt");
const [url, version] = [process.argv[3], Number(process.argv[4])];
const tag = `js${version}${url.startsWith("ws") ? "w" : "t"}${process.pid}`;

const options = (name, extra = {}) => ({
  protocolVersion: version, protocolId: version === 3 ? "MQIsdp" : "MQTT", clientId: `${tag}${name}`,
  clean: true, reconnectPeriod: 0, connectTimeout: 5000, ...extra,
});
const connect = async (name, extra) => mqtt.connectAsync(url, options(name, extra));
const received = [];
let wake = () => {};
const until = async (count) => { while (received.length < count) await new Promise((go) => { wake = go; }); };
const listen = (client) => client.on("message", (topic, payload, packet) => {
  received.push({ topic: topic.replace(tag, "t"), payload: payload.toString(), qos: packet.qos, retain: packet.retain });
  wake();
});

const publisher = await connect("p");
await publisher.publishAsync(`${tag}/kept`, "last", { qos: 1, retain: true });
const subscriber = await connect("s");
listen(subscriber);
const granted = await subscriber.subscribeAsync({ [`${tag}/#`]: { qos: 2 } });
await until(1);
for (const qos of [0, 1, 2]) { await publisher.publishAsync(`${tag}/q${qos}`, `m${qos}`, { qos }); await until(2 + qos); }
const dying = await connect("w", { will: { topic: `${tag}/will`, payload: "gone", qos: 1 } });
dying.stream.destroy();
await until(5);
await subscriber.unsubscribeAsync(`${tag}/#`);
await publisher.publishAsync(`${tag}/q1`, "unheard", { qos: 1 });
await publisher.publishAsync(`${tag}/kept`, "", { qos: 1, retain: true });

const resting = { clean: false, ...(version === 5 ? { properties: { sessionExpiryInterval: 60 } } : {}) };
const sleeper = await connect("d", resting);
await sleeper.subscribeAsync(`${tag}/offline`, { qos: 1 });
await sleeper.endAsync();
await publisher.publishAsync(`${tag}/offline`, "waited", { qos: 1 });
const again = mqtt.connect(url, options("d", resting));
listen(again);
await until(6);
await Promise.all([publisher.endAsync(), subscriber.endAsync(), again.endAsync()]);
console.log(JSON.stringify({ granted: granted.map((one) => one.qos), received }));
process.exit(0);
