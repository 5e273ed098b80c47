// An MQTT 3.1.1 and 5.0 client over WebSocket, small: enough to try a gateway from its own page. One packet in memory,
// QoS 0 to 2 both ways, no stored session.

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const NAMES = ["", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH"];

const word = (value) => [value >> 8, value & 255];
const text = (value) => {
  const bytes = encoder.encode(value);
  return [...word(bytes.length), ...bytes];
};

export function packet(first, body) {
  const length = [];
  let rest = body.length;
  do {
    length.push((rest & 127) | (rest > 127 ? 128 : 0));
    rest >>= 7;
  } while (rest);
  return new Uint8Array([first, ...length, ...body]);
}

// Takes bytes in any pieces, hands out whole packets as {type, flags, body}.
export class Reader {
  constructor() {
    this.kept = new Uint8Array(0);
  }

  feed(chunk) {
    const bytes = new Uint8Array(this.kept.length + chunk.length);
    bytes.set(this.kept);
    bytes.set(chunk, this.kept.length);
    const packets = [];
    let at = 0;
    for (;;) {
      const head = header(bytes, at);
      if (!head || bytes.length < head.end) break;
      packets.push({ type: bytes[at] >> 4, flags: bytes[at] & 15, body: bytes.slice(head.start, head.end) });
      at = head.end;
    }
    this.kept = bytes.slice(at);
    return packets;
  }
}

function header(bytes, at) {
  let length = 0;
  for (let n = 0; n < 4; n += 1) {
    const byte = bytes[at + 1 + n];
    if (byte === undefined) return null;
    length |= (byte & 127) << (7 * n);
    if (byte < 128) return { start: at + 2 + n, end: at + 2 + n + length };
  }
  throw new Error("A packet length of more than four bytes.");
}

function varint(body, at) {
  let value = 0;
  for (let n = 0; ; n += 1) {
    value |= (body[at + n] & 127) << (7 * n);
    if (body[at + n] < 128) return [value, at + n + 1];
  }
}

export class MqttClient {
  // handlers: packet(text, direction), message({topic, payload, qos, retain}), closed(text)
  constructor(url, { clientId, username, password, version, keepAlive = 30, cleanStart = true }, handlers) {
    Object.assign(this, { version, handlers, keepAlive, reader: new Reader(), last: 0, waiting: new Map() });
    this.socket = new WebSocket(url, "mqtt");
    this.socket.binaryType = "arraybuffer";
    this.connected = new Promise((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    this.connected.catch(() => {});
    this.socket.onopen = () => this.send(this.connect(clientId, username, password, cleanStart), `CONNECT ${clientId}`);
    this.socket.onmessage = (event) => this.receive(new Uint8Array(event.data));
    this.socket.onclose = (event) => this.ended(event.reason || `closed (${event.code})`);
  }

  connect(clientId, username, password, cleanStart) {
    const flags = (cleanStart ? 2 : 0) | (username ? 128 : 0) | (password ? 64 : 0);
    const five = this.version === 5;
    return packet(0x10, [...text("MQTT"), this.version, flags, ...word(this.keepAlive), ...(five ? [0] : []), ...text(clientId), ...(username ? text(username) : []), ...(password ? text(password) : [])]);
  }

  subscribe(filter, qos) {
    const id = this.next();
    return this.ask(id, packet(0x82, [...word(id), ...(this.version === 5 ? [0] : []), ...text(filter), qos]), `SUBSCRIBE ${filter} qos=${qos}`);
  }

  unsubscribe(filter) {
    const id = this.next();
    return this.ask(id, packet(0xa2, [...word(id), ...(this.version === 5 ? [0] : []), ...text(filter)]), `UNSUBSCRIBE ${filter}`);
  }

  publish(topic, payload, qos, retain) {
    const id = qos ? this.next() : 0;
    const body = [...text(topic), ...(qos ? word(id) : []), ...(this.version === 5 ? [0] : []), ...encoder.encode(payload)];
    const bytes = packet(0x30 | (qos << 1) | (retain ? 1 : 0), body);
    const said = `PUBLISH ${topic} qos=${qos}${qos ? ` packet=${id}` : ""}${retain ? " retain" : ""}`;
    if (!qos) return Promise.resolve(this.send(bytes, said));
    return this.ask(id, bytes, said);
  }

  disconnect() {
    if (this.socket.readyState === WebSocket.OPEN) this.send(packet(0xe0, []), "DISCONNECT");
    this.socket.close(1000);
  }

  next() {
    this.last = (this.last % 65535) + 1;
    return this.last;
  }

  ask(id, bytes, said) {
    this.send(bytes, said);
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  send(bytes, said) {
    this.socket.send(bytes);
    this.handlers.packet(said, "out");
  }

  receive(chunk) {
    try {
      for (const each of this.reader.feed(chunk)) this.handle(each);
    } catch (error) {
      this.handlers.packet(error.message, "in");
      this.socket.close();
    }
  }

  handle({ type, flags, body }) {
    if (type === 2) return this.accepted(body);
    if (type === 3) return this.arrived(flags, body);
    const id = type < 12 ? (body[0] << 8) | body[1] : 0;
    const reason = type === 9 || type === 11 ? body.at(-1) : (body[type === 14 ? 0 : 2] ?? 0);
    this.handlers.packet(`${NAMES[type]}${id ? ` packet=${id}` : ""}${reason ? ` reason=0x${reason.toString(16)}` : ""}`, "in");
    if (type === 5 && reason < 128) return this.send(packet(0x62, word(id)), `PUBREL packet=${id}`);
    if (type === 6) return this.send(packet(0x70, word(id)), `PUBCOMP packet=${id}`);
    this.settle(id, reason);
  }

  settle(id, reason) {
    const asked = this.waiting.get(id);
    this.waiting.delete(id);
    if (!asked) return;
    if (reason >= 128) asked.reject(new Error(`Refused with reason 0x${reason.toString(16)}.`));
    else asked.resolve(reason);
  }

  accepted(body) {
    this.handlers.packet(`CONNACK${body[0] & 1 ? " session present" : ""}${body[1] ? ` reason=0x${body[1].toString(16)}` : ""}`, "in");
    if (body[1]) return this.reject(new Error(`The gateway refused the connection with 0x${body[1].toString(16)}.`));
    this.timer = setInterval(() => this.send(packet(0xc0, []), "PINGREQ"), this.keepAlive * 1000);
    this.resolve();
  }

  arrived(flags, body) {
    const length = (body[0] << 8) | body[1];
    const topic = decoder.decode(body.slice(2, 2 + length));
    const qos = (flags >> 1) & 3;
    let at = 2 + length;
    const id = qos ? (body[at] << 8) | body[at + 1] : 0;
    if (qos) at += 2;
    if (this.version === 5) {
      const [size, start] = varint(body, at);
      at = start + size;
    }
    const message = { topic, payload: decoder.decode(body.slice(at)), qos, retain: Boolean(flags & 1) };
    this.handlers.packet(`PUBLISH ${topic} qos=${qos}${id ? ` packet=${id}` : ""}${message.retain ? " retain" : ""} ${message.payload.slice(0, 400)}`, "in");
    this.handlers.message?.(message);
    if (qos) this.send(packet(qos === 1 ? 0x40 : 0x50, word(id)), `${qos === 1 ? "PUBACK" : "PUBREC"} packet=${id}`);
  }

  ended(why) {
    clearInterval(this.timer);
    this.reject(new Error(`The connection ended: ${why}.`));
    for (const asked of this.waiting.values()) asked.reject(new Error("The connection ended before the answer."));
    this.waiting.clear();
    this.handlers.closed(why);
  }
}
