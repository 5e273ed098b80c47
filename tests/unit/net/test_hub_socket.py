"""gateway.net.hub_socket: what is kept for clients that do not read, and when they are ended for it."""

from __future__ import annotations

import contextlib
import socket
import sys
import tracemalloc
from collections.abc import Iterator

import pytest
from hub_rig import Rig

from gateway.mqtt import client, writer
from gateway.mqtt.packets import Subscribe, Subscription
from gateway.session.connection import CLOSED, ONLINE

BOUND = 200_000
MIB = 1 << 20
PING = b"\xc0\0"


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    made.harness.engine.limits.max_outgoing_bytes = BOUND
    subscribe(made, 0)
    yield made
    made.close()


def subscribe(rig: Rig, qos: int) -> None:
    received = rig.harness.engine.received_each
    assert rig.link.connection is not None
    received([(rig.link.connection, client.encode_subscribe(4, Subscribe(1, [Subscription("n", qos)])))])
    rig.harness.engine.flush()


def publish(rig: Rig, *sizes: int, qos: int = 0) -> None:
    """Each in a batch of its own, while the client reads nothing."""
    received = rig.harness.engine.received_each
    link, theirs = rig.connection()
    assert link.connection is not None
    received([(link.connection, client.encode_connect(client.connect(4, "sender")))])
    link.connection.reader.max_packet = 64 * MIB
    for number, size in enumerate(sizes, 1):
        packet = writer.encode_publish(4, b"n", bytes(size), qos, packet_id=number if qos else 0)
        received([(link.connection, packet)])
        rig.harness.engine.flush()
    link.abort()
    theirs.close()


def counted(rig: Rig) -> tuple[int, int]:
    counters = rig.harness.engine.counters
    return counters.mqtt_disconnects["plain", "slow_consumer"], counters.messages_dropped["_none", "qos0_overload"]


def read(rig: Rig) -> int:
    """How many PUBLISHes come, with all that is sent before PINGRESP."""
    reader, found = client.server_reader(4), list[int]()
    reader.max_packet = 64 * MIB
    rig.theirs.setblocking(False)
    rig.theirs.sendall(PING)

    def answered() -> bool:
        try:
            data = rig.theirs.recv(4 * MIB)
        except BlockingIOError:
            return False
        found.extend(packet[0] >> 4 for packet in reader.feed(data))
        return 13 in found

    rig.until(answered)
    return found.count(3)


@pytest.mark.parametrize("sizes", [[9 * MIB], [9 * MIB, 9 * MIB], [100, 20 * MIB]])
def test_one_message_and_one_behind_it_may_be_of_any_size(rig: Rig, sizes: list[int]) -> None:
    publish(rig, *sizes)
    assert rig.link.buffered() > BOUND
    rig.theirs.sendall(PING)
    rig.until(lambda: not rig.link.unread())
    assert rig.link.connection is not None
    assert (rig.link.connection.state, counted(rig)) == (ONLINE, (0, 0))


def test_what_comes_behind_these_at_qos_0_is_dropped(rig: Rig) -> None:
    publish(rig, *[9 * MIB] * 6)
    waits = rig.link.buffered()
    assert 9 * MIB < waits < 2 * 9 * MIB + 100
    assert counted(rig) == (0, 4)
    assert read(rig) == 1 + 2, "and what it had been sent before"
    assert (rig.link.buffered(), rig.link.largest()) == (0, 0)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_window_lets_be_in_flight_may_wait(rig: Rig, qos: int) -> None:
    subscribe(rig, qos)
    publish(rig, *[MIB // 2] * 40, qos=1)
    while rig.harness.queues.commit():
        pass
    assert rig.link.buffered() > 10 * MIB
    assert counted(rig) == (0, 0)
    assert read(rig) == 1 + 40


def test_who_asks_and_reads_no_answers_is_ended(rig: Rig) -> None:
    connection = rig.link.connection
    assert connection is not None
    rig.link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)
    rig.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
    rig.harness.engine.limits.max_outgoing_bytes = 20_000
    for _ in range(20):
        rig.harness.engine.received_each([(connection, PING * 5000)])
        rig.harness.engine.flush()
        if connection.state == CLOSED:
            break
        assert rig.link.buffered() <= 20_000 + 2 * rig.link.largest()
    assert connection.close_reason == "the client does not read what it is sent"
    assert counted(rig)[0] == 1


def test_short_pieces_do_not_take_many_times_their_length(rig: Rig) -> None:
    rig.link.send(bytes(20 * MIB))
    for _ in range(10_000):
        rig.link.send(b"\xd0\0")
    kept = rig.link._backlog
    assert kept is not None
    assert sum(map(sys.getsizeof, kept)) < 20 * MIB + 40_000
    assert rig.link.buffered() == sum(map(len, kept))


def test_what_waits_is_not_copied_for_each_part_that_is_sent(rig: Rig) -> None:
    rig.link.send(writer.encode_publish(4, b"t", bytes(20 * MIB), 0))
    before = rig.link.buffered()
    tracemalloc.start()
    try:
        rig.theirs.setblocking(False)
        while rig.link.buffered() > MIB:
            with contextlib.suppress(BlockingIOError):
                rig.theirs.recv(65_536)
            rig.link.drain()
        assert tracemalloc.get_traced_memory()[1] < MIB < before
    finally:
        tracemalloc.stop()
