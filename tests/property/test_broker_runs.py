"""The compiled kernel against the Python that does the same: any bytes in any chunks, the same comes of both."""

from __future__ import annotations

import itertools
import os

import pytest
from broker_harness import Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.broker import runs
from gateway.mqtt import packets as p
from gateway.mqtt import writer

KERNEL = runs.kernel
MAPPING = """
version: 1
to_mq:
  - {name: dear, topic: 'q/dear', queue: Q1, descriptor: {priority: 7}, on_failure: {then: drop}}
  - {name: other, topic: 'q/other', queue: Q1, headers: []}
  - {name: all, topic: 'q/#', queue: Q2, properties: {topic: '{topic}'}}
"""
VERSIONS = (3, 4, 5)

pytestmark = pytest.mark.skipif(KERNEL is None, reason="no compiler where the gateway was installed")


def test_the_kernel_is_there():
    assert runs.compiled() or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@st.composite
def packet(draw, version):
    kind = draw(st.sampled_from(["publish"] * 10 + ["ack", "ping", "rubbish"]))
    if kind == "ack":
        return writer.encode_acks(draw(st.sampled_from([p.PUBACK, p.PUBREL])), [draw(st.integers(1, 3))])
    if kind == "ping":
        return b"\xc0\x00"
    if kind == "rubbish":
        return draw(st.binary(min_size=1, max_size=8))
    qos = draw(st.sampled_from([1, 1, 1, 1, 0, 0, 2]))
    properties = draw(st.sampled_from([b""] * 6 + [b"\x26\x00\x01a\x00\x01b"]))
    made = writer.encode_publish(
        version, draw(st.sampled_from([b"q/1", b"q/1", b"q/1", b"q/2", b"q/dear", b"q/other", b"not", b"q/+", b""])),
        draw(st.one_of(st.binary(max_size=20), st.binary(min_size=120, max_size=150))), qos,
        retain=draw(st.integers(0, 9)) == 9, dup=qos > 0 and draw(st.integers(0, 9)) == 9,
        packet_id=draw(st.integers(1, 300)) if qos else 0, properties=properties if version == 5 else b"",
    )  # fmt: skip
    if draw(st.integers(0, 30)) == 30:  # a byte that is wrong: an identifier of 0, a length that does not fit
        at = draw(st.integers(0, len(made) - 1))
        made = made[:at] + bytes([draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))]) + made[at + 1 :]
    return made


@st.composite
def streams(draw):
    """Version, and what its client sends, cut anywhere."""
    version = draw(st.sampled_from(VERSIONS))
    data = b"".join(draw(st.lists(packet(version), max_size=12)))
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=5)) | {0, len(data)})
    return version, [data[start:stop] for start, stop in itertools.pairwise(cuts)]


class Side:
    """A bench with one client, with the kernel or without."""

    def __init__(self, version: int, kernel) -> None:
        self.kernel = kernel
        self.bench = Bench(MAPPING, receive_maximum=8, max_payload=140, max_packet=160)
        self.device = self.bench.device(version, "c").connect()
        self.bench.queues.automatic = False

    def take(self, chunk: bytes, *, flushed: bool) -> None:
        if self.device.wire.closed:
            return
        runs.kernel = self.kernel
        try:
            self.bench.engine.received(self.device.connection, chunk)
        finally:
            runs.kernel = KERNEL
        if flushed:
            self.bench.engine.flush()

    def state(self):
        counters, connection = self.bench.engine.counters, self.device.connection
        return (
            self.device.take(),
            self.device.wire.closed,
            connection.close_reason,
            connection.inbound_pending,
            {name: list(rows.values()) for name, rows in self.bench.queues.rows.items()},
            counters.packets_in,
            counters.packets_out,
            counters.bytes_in,
            dict(counters.mq_put_messages),
        )


@settings(max_examples=300)
@given(streams(), st.lists(st.sampled_from(["no", "flush", "commit"]), min_size=8, max_size=8))
def test_the_kernel_does_what_python_does(stream, then):
    version, chunks = stream
    sides = [Side(version, KERNEL), Side(version, None)]
    for number, chunk in enumerate(chunks):
        for side in sides:
            side.take(chunk, flushed=then[number] != "no")
            if then[number] == "commit":
                side.bench.queues.commit()
        assert sides[0].state() == sides[1].state()
    for side in sides:
        side.bench.engine.flush()
        while side.bench.queues.commit():
            pass
    assert sides[0].state() == sides[1].state()


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 60), st.sampled_from([0x30, 0x32]), st.booleans())
def test_any_bytes_are_left_alone(data, offset, first, version_5):
    heads: list[bytes] = []
    stop = KERNEL.take(data, offset, first, version_5, 1000, 1000, {}, (), heads, [], [], [])
    assert (stop, heads) == (offset, [])
    topic = KERNEL.topic(data, offset, 1000)
    assert topic is None or topic in data


COLUMNS = ({}, (), [], [], [], [])


@pytest.mark.parametrize(
    "arguments",
    [(), (1,) * 12, (b"", 0, 0x34, False, 9, 9, *COLUMNS), (b"", -1, 0x32, False, 9, 9, *COLUMNS)],
)
def test_wrong_arguments_are_type_errors(arguments):
    with pytest.raises(TypeError):
        KERNEL.take(*arguments)


def test_a_run_is_taken_whole():
    sender = Side(5, KERNEL)
    chunk = b"".join(writer.encode_publish(5, b"q/%d" % (n % 3), b"x" * n, 1, packet_id=n) for n in range(1, 9))
    assert runs.take(sender.bench.engine, sender.device.connection, chunk + chunk[:5]) == chunk[:5]
    assert sender.bench.engine.turn.rows == 8


def test_an_acknowledgement_that_does_not_exist():
    sender = Side(4, KERNEL)
    sender.take(writer.encode_publish(4, b"q/1", b"x", 1, packet_id=1), flushed=True)
    route = sender.device.connection.caches[2][b"q/1"]
    with pytest.raises(TypeError, match="pubacks"):
        KERNEL.take(
            writer.encode_publish(4, b"q/1", b"x", 1, packet_id=9), 0, 0x32, False, 99, 99, {b"q/1": route}, route.run,
            [], [], [b""] * 9, [],
        )  # fmt: skip
