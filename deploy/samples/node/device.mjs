// A device with mqtt.js: readings of QoS 1, each acknowledged when it is committed; commands come back.
//
//   npm install mqtt
//   node device.mjs mqtt://gateway.plant.example:1883 [readings]     (mqtts:// or ws://HOST:8083/mqtt as well)
import mqtt from "mqtt";

const [address = "mqtt://127.0.0.1:1883", count = "3"] = process.argv.slice(2);
const { MQTT_USER: username, MQTT_PASSWORD: password } = process.env;

// clean: false keeps the session: commands wait on the gateway while the device is away.
const client = await mqtt.connectAsync(address, { clientId: "line-7-node", clean: false, username, password });
client.on("message", (topic, payload) => console.log(`command on ${topic}: ${payload}`));
await client.subscribeAsync("plant/lima/cmd", { qos: 1 });
for (let number = 0; number < Number(count); number += 1) {
  const reading = `${20 + number}.5`;
  await client.publishAsync("plant/lima/line/7/temperature", reading, { qos: 1 }); // resolved by PUBACK: it is on disk
  console.log(`committed ${reading}`);
}
await client.endAsync();
