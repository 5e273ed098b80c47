"""A few bytes of each of many connections, taken in together, compiled or not, and one after the other: the same comes
of all."""

from __future__ import annotations

import os

import pytest
from broker_harness import Harness
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.broker.publish import fast
from gateway.mqtt import packets as p
from gateway.mqtt import writer

MAPPING = """
version: 1
to_mq:
  - {name: first, topic: 'q/{x}', queue: Q1, continue: true, when: {client: [c0]}}
  - {name: second, topic: 'q/#', queue: Q2, properties: {topic: '{topic}'}}
"""
VERSIONS = (3, 4, 5, 4)
TOPICS = st.sampled_from([b"q/1", b"q/1", b"q/2", b"other", b"subscribed/1", b"q/+", b""])


@st.composite
def chunk(draw, version):
    kind = draw(st.sampled_from(["publish"] * 6 + ["ack", "ping", "part", "rubbish"]))
    if kind == "ack":
        return writer.encode_acks(draw(st.sampled_from([p.PUBACK, p.PUBREL])), [draw(st.integers(1, 3))])
    if kind == "ping":
        return b"\xc0\x00"
    if kind == "rubbish":
        return draw(st.binary(min_size=1, max_size=8))
    qos = draw(st.sampled_from([1, 1, 1, 0, 2]))
    properties = draw(st.sampled_from([b"", b"", b"\x26\x00\x01a\x00\x01b", b"\x02\x00\x00\x00\x05"]))
    payload = draw(st.binary(max_size=20)) * draw(st.sampled_from([1, 1, 10, 40]))
    packet = writer.encode_publish(
        version, draw(TOPICS), payload, qos, retain=draw(st.integers(0, 5)) == 5,
        packet_id=draw(st.integers(1, 4)) if qos else 0, properties=properties if version == 5 else b"",
    )  # fmt: skip
    if draw(st.integers(0, 9)) == 9 and packet[1] < 128:  # a remaining length in more bytes than it needs
        packet = bytes((packet[0], packet[1] | 0x80, 0)) + packet[2:]
    return packet[: draw(st.integers(1, len(packet)))] if kind == "part" else packet


@st.composite
def rounds(draw):
    one = st.tuples(*(st.one_of(st.none(), chunk(version)) for version in VERSIONS))
    return draw(st.lists(one, max_size=8))


class Side:
    """A bench with its connections; commits return when the test says so."""

    def __init__(self, max_payload: int = 700) -> None:
        self.bench = Harness(MAPPING, receive_maximum=3, max_payload=max_payload)
        self.devices = [self.bench.device(version, f"c{i}").connect() for i, version in enumerate(VERSIONS)]
        self.devices[3].subscribe("subscribed/#", 1)
        for device in self.devices:
            device.publish("q/1", b"warm", 1, 9)
            device.take()
        self.bench.queues.automatic = False

    def state(self):
        counters = self.bench.engine.counters
        return (
            [device.take() for device in self.devices],
            [device.wire.closed for device in self.devices],
            [device.connection.inbound_pending for device in self.devices],
            {name: [row[1:] for row in rows.values()] for name, rows in self.bench.queues.rows.items()},
            counters.packets_in,
            counters.bytes_in,
        )

    def arrived(self, chunks):
        pairs = zip(self.devices, chunks, strict=True)
        return [(device.connection, chunk) for device, chunk in pairs if chunk and not device.wire.closed]

    def take_in(self, arrived) -> None:
        for connection, chunk in arrived:
            self.bench.engine.received(connection, chunk)
        self.bench.engine.flush()


COMPILED = fast.compiled()


def test_the_compiled_function_is_there():
    assert COMPILED or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@pytest.fixture(params=["compiled", "compiled, many topics", "python"], autouse=True)
def way(request):
    """Both ways to take them in; the first also with clients that have many topics."""
    if request.param != "python" and not COMPILED:
        pytest.skip("no compiler where the gateway was installed")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "python":
            patch.setattr(fast, "take_each", fast.round_in_python)
        if request.param.endswith("many topics"):
            patch.setattr(fast, "MANY", 0)
        yield


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds(), st.sets(st.integers(0, 7)))
def test_together_as_one_after_the_other(given_rounds, commits):
    together, alone = Side(), Side()
    for number, chunks in enumerate(given_rounds):
        arrived = together.arrived(chunks)
        others = together.bench.engine.received_each(list(arrived))
        together.take_in(others)
        later = [one in others for one in arrived]  # connections have no order among them: take the same one
        ordered = sorted(zip(later, alone.arrived(chunks), strict=True), key=lambda one: one[0])
        alone.take_in([one for _, one in ordered])
        if number in commits:
            together.bench.queues.commit()
            alone.bench.queues.commit()
        assert together.state() == alone.state()
    for side in (together, alone):
        while side.bench.queues.commit():
            pass
    assert together.state() == alone.state()


def test_what_is_plain_is_taken_in_at_once():
    side = Side()
    plain = [writer.encode_publish(version, b"q/1", b"x", 1, packet_id=1) for version in VERSIONS[1:]]
    assert side.bench.engine.received_each(side.arrived([None, *plain])) == []
    side.bench.engine.flush()
    side.bench.queues.commit()
    assert [device.take() for device in side.devices[1:]] == [[(0x40, 1, 0, b"")]] * 3


@pytest.mark.parametrize("size", [120, 121, 122, 256, 4000])
def test_so_is_one_whose_length_takes_two_bytes(size):
    side = Side(max_payload=5000)
    plain = [writer.encode_publish(version, b"q/1", b"x" * size, 1, packet_id=1) for version in VERSIONS[1:]]
    assert side.bench.engine.received_each(side.arrived([None, *plain])) == []
    side.bench.engine.flush()
    side.bench.queues.commit()
    assert [device.take() for device in side.devices[1:]] == [[(0x40, 1, 0, b"")]] * 3


@pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")
def test_what_the_compiled_function_cannot_use_is_an_error():
    from gateway.broker.publish import _rounds

    side = Side()
    good = [[], lambda _route: ([], [], set()), {}, {}, fast.PUBACKS, 0.0, 0, 100]
    assert _rounds.take(*good) == ([], 0, 0)
    for at, wrong in [(0, ()), (2, []), (3, []), (4, [b""]), (6, "0"), (7, None)]:
        with pytest.raises(TypeError):
            _rounds.take(*good[:at], wrong, *good[at + 1 :])
    for pair in (None, (1,), [1, 2]):
        with pytest.raises(TypeError):
            _rounds.take([pair], *good[1:])
    odd = [(None, b"\x32\x00"), (side.devices[0].connection, "text"), (side.devices[0].connection, b"")]
    assert _rounds.take(list(odd), *good[1:]) == (odd, 0, 0)
    with pytest.raises(AttributeError):
        _rounds.configure(fast.Connection, fast.Reader, int, 1, 2, 5)
    with pytest.raises(TypeError):
        _rounds.configure(type("NoSlots", (), {"state": 0}), fast.Reader, fast.Route, 1, 2, 5)


@pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")
@pytest.mark.parametrize("columns", [None, (), ([], []), ([], (), set()), ([], [], [])])
def test_columns_that_are_none_change_nothing(columns):
    from gateway.broker.publish import _rounds

    side = Side()
    connection = side.devices[1].connection
    packet = writer.encode_publish(4, b"q/1", b"x", 1, packet_id=1)
    generation = side.bench.engine.router.generation
    with pytest.raises(TypeError):
        _rounds.take([(connection, packet)], lambda _: columns, {}, {}, fast.PUBACKS, 0.0, generation, 100)
    assert connection.inbound_pending == 0
