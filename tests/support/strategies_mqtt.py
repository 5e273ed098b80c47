"""Hypothesis strategies for MQTT: values, packets as bytes, and ways to cut a stream into chunks."""

from __future__ import annotations

from hypothesis import strategies as st

from gateway.mqtt import client, properties, writer
from gateway.mqtt import packets as p

VERSIONS = (3, 4, 5)
versions = st.sampled_from(VERSIONS)
packet_ids = st.integers(1, 65535)
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
printable = st.characters(codec="utf-8", exclude_categories=["Cc", "Cn"])
names = st.text(printable, max_size=20)
topic_names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cn"], exclude_characters="+#"), min_size=1, max_size=20
)
levels = st.sampled_from(["", "a", "b", "+", "plant", "$SYS"])
topic_filters = st.builds(
    lambda parts, tail: "/".join(parts + tail) or "/", st.lists(levels, max_size=4), st.sampled_from([[], ["#"]])
)
payloads = st.binary(max_size=200) | st.integers(0, 40_000).map(lambda n: b"p" * n)

_VALUES = {
    properties.BYTE: st.integers(0, 1),
    properties.TWO: st.integers(1, 65535),
    properties.FOUR: st.integers(1, 2**32 - 1),
    properties.VARINT: st.integers(1, 268_435_455),
    properties.STRING: text,
    properties.BINARY: st.binary(max_size=20),
    properties.PAIR: st.tuples(text, text),
}


@st.composite
def property_dicts(draw, packet_type: int, from_server: bool = False):
    """Valid properties of one packet type."""
    chosen = {}
    for row in properties.DEFINITIONS.values():
        if packet_type not in row.packets or (packet_type, from_server, row.identifier) in WRONG_SIDE:
            continue
        if not draw(st.booleans()):
            continue
        value = topic_names if row.identifier == properties.RESPONSE_TOPIC else _VALUES[row.type]
        if row.repeatable:
            most = 1 if row.identifier == properties.SUBSCRIPTION_IDENTIFIER and not from_server else 3
            chosen[row.identifier] = draw(st.lists(value, min_size=1, max_size=most))
        else:
            chosen[row.identifier] = draw(value)
    if properties.AUTHENTICATION_DATA in chosen or packet_type == p.AUTH:
        chosen.setdefault(properties.AUTHENTICATION_METHOD, "SCRAM-SHA-256")
    return chosen


WRONG_SIDE = {
    (p.PUBLISH, False, properties.SUBSCRIPTION_IDENTIFIER),
    (p.DISCONNECT, False, properties.SERVER_REFERENCE),
    (p.DISCONNECT, True, properties.SESSION_EXPIRY_INTERVAL),
}


def for_version(version: int, packet_type: int):
    return property_dicts(packet_type) if version == 5 else st.just({})


@st.composite
def wills(draw, version: int):
    props = draw(for_version(version, properties.WILL))
    return p.Will(
        draw(topic_names),
        draw(st.binary(max_size=30)),
        draw(st.integers(0, 2)),
        draw(st.booleans()),
        props,
        properties.encode(props),
    )


@st.composite
def connects(draw, version: int | None = None):
    version = version or draw(versions)
    username = draw(st.none() | names)
    password = draw(st.none() | st.binary(max_size=20)) if username is not None or version == 5 else None
    return p.Connect(
        "MQIsdp" if version == 3 else "MQTT",
        version,
        draw(st.booleans()),
        draw(st.integers(0, 65535)),
        draw(names),
        draw(st.none() | wills(version)),
        username,
        password,
        draw(for_version(version, p.CONNECT)),
    )


@st.composite
def subscriptions(draw, version: int):
    flag = st.booleans() if version == 5 else st.just(False)
    handling = draw(st.integers(0, 2)) if version == 5 else 0
    return p.Subscription(draw(topic_filters), draw(st.integers(0, 2)), draw(flag), draw(flag), handling)


@st.composite
def client_packets(draw, version: int) -> bytes:
    """One valid packet of a client after its CONNECT, as bytes."""
    kind = draw(st.sampled_from(["publish"] * 4 + ["acks", "ack", "subscribe", "unsubscribe", "ping", "disconnect"]))
    packet_id = draw(packet_ids)
    if kind == "publish":
        qos = draw(st.integers(0, 2))
        block = properties.encode(draw(for_version(version, p.PUBLISH)))
        return writer.encode_publish(
            version,
            draw(topic_names).encode(),
            draw(payloads),
            qos,
            retain=draw(st.booleans()),
            dup=bool(qos) and draw(st.booleans()),
            packet_id=packet_id,
            properties=block,
        )
    if kind == "acks":
        return writer.encode_acks(draw(st.sampled_from([4, 5, 6, 7])), draw(st.lists(packet_ids, max_size=20)))
    if kind == "ack":
        packet_type = draw(st.sampled_from([4, 5, 6, 7]))
        reason = draw(st.sampled_from([0, 0x92 if packet_type in {6, 7} else 0x87])) if version == 5 else 0
        return writer.encode_ack(version, packet_type, packet_id, reason, draw(for_version(version, packet_type)))
    if kind == "subscribe":
        wanted = draw(st.lists(subscriptions(version), min_size=1, max_size=4))
        return client.encode_subscribe(version, p.Subscribe(packet_id, wanted, draw(for_version(version, p.SUBSCRIBE))))
    if kind == "unsubscribe":
        filters = draw(st.lists(topic_filters, min_size=1, max_size=4))
        props = draw(for_version(version, p.UNSUBSCRIBE))
        return client.encode_unsubscribe(version, p.Unsubscribe(packet_id, filters, props))
    if kind == "ping":
        return client.encode_pingreq()
    return writer.encode_disconnect(version, p.Disconnect(0, draw(for_version(version, p.DISCONNECT))))


@st.composite
def streams(draw) -> bytes:
    """A CONNECT and packets of its version, perhaps damaged: bytes flipped, cut out or put in."""
    connect = draw(connects())
    parts = [client.encode_connect(connect), *draw(st.lists(client_packets(connect.version), max_size=12))]
    stream = bytearray(b"".join(parts))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        place = draw(st.integers(0, max(0, len(stream) - 1)))
        damage = draw(st.sampled_from(["flip", "cut", "put"]))
        if damage == "flip":
            stream[place : place + 1] = bytes((draw(st.integers(0, 255)),))
        elif damage == "cut":
            del stream[place : place + draw(st.integers(1, 5))]
        else:
            stream[place:place] = draw(st.binary(min_size=1, max_size=5))
    return bytes(stream)


@st.composite
def chunked(draw, stream: bytes) -> list[bytes]:
    """The same bytes in chunks."""
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
