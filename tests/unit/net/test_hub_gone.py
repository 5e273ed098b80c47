"""gateway.net.hub: what a client sent before it was gone is taken before its connection ends.

A client that closes its socket with unread data in it resets the connection: writes fail from then on, reads do not.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Iterator

import pytest
from hub_rig import BYE, COUNT, PACKET, Rig
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Request

from gateway.broker.sessions.older_connections import LOOK_SECONDS, LOOKS
from gateway.mqtt import client
from gateway.net.hub_socket import READ
from gateway.net.rates import ClientRates, SendRates
from gateway.net.stops import Stop
from gateway.net.websocket import WebSocketServer
from gateway.net.wire import poll_sockets
from gateway.net.wrapping import WebSocketWrapping
from gateway.ports.access import Verdict


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def test_a_client_that_leaves_unread_what_it_gets_has_left_in_order(rig: Rig) -> None:
    rig.leave()
    rig.assert_left_in_order()


def test_also_where_much_is_kept_for_it(rig: Rig) -> None:
    rig.link.send(b"\x30\xff\xff\x7f" + bytes(8 << 20))
    assert rig.link.buffered()
    rig.leave()
    rig.assert_left_in_order()


def test_one_that_is_not_read_for_its_rates_loses_nothing_by_it(rig: Rig) -> None:
    rig.hub.rates = SendRates({"plain": ClientRates(0, 10)}, rig.harness.clock.monotonic)
    rig.leave()
    while not rig.link.closed:
        rig.until(lambda: rig.later or rig.link.closed)
        if rig.later:
            before = rig.put("Q")
            rig.hub.wait(0)
            assert rig.hub._epoll.poll(0) == [], "nobody is asked again and again"
            assert rig.put("Q") == before
            rig.later.pop()()
    rig.assert_left_in_order()


def test_nor_one_whose_packets_are_put_off(rig: Rig) -> None:
    put_off = rig.harness.engine.put_off
    put_off.hold(rig.link.connection)
    assert not rig.link.watching & READ
    rig.leave()
    rig.hub.wait(0)
    rig.link.write(b"\xd0\x00")
    rig.link.write(b"\xd0\x00")
    rig.hub.wait(0)
    assert not rig.link.closed
    put_off.let_go(rig.link.connection)
    rig.assert_left_in_order()


def test_nor_one_whose_wrapping_is_at_work_on_what_it_has_sent(rig: Rig) -> None:
    """As when a thread works on a handshake: the peer sends at once what it has to say, and resets the connection. Then
    the handshake is answered."""
    rig.link.stop(Stop.WRAPPING, stopped=True)
    rig.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    rig.theirs.close()
    for _ in range(2):
        rig.hub.wait(0.1)
    assert rig.hub._epoll.poll(0) == [], "nobody is asked again and again"

    def stepped() -> bytes:
        rig.link.send(b"answer")
        rig.link.stop(Stop.WRAPPING, stopped=False)
        return PACKET * COUNT + BYE

    rig.hub.take_in(rig.link, stepped)
    rig.assert_left_in_order()


def test_nor_one_that_is_read_again_in_the_turn_in_which_it_is_gone(rig: Rig) -> None:
    """As when a commit returns in that turn: the next poll reports what is read from the client."""
    rig.hub.pause(paused=True)
    rig.leave()
    events = poll_sockets(rig.hub._epoll, 1.0)
    rig.hub.pause(paused=False)
    rig.hub._round(events)
    rig.assert_left_in_order()


def test_who_is_gone_and_has_sent_nothing_is_gone_at_once(rig: Rig) -> None:
    rig.hub.pause(paused=True)
    rig.theirs.close()
    rig.hub.wait(0)
    assert rig.link.closed
    rig.harness.engine.flush()
    assert rig.put("WILLS") == 1


def test_nothing_is_awaited_of_a_peer_whose_connection_has_ended_here(rig: Rig) -> None:
    rig.link.send(b"\x30\xff\xff\x7f" + bytes(8 << 20))
    rig.harness.engine.context.close(rig.link.connection, "other", "it is ended")
    rig.harness.engine.flush()
    assert not rig.link.closed
    rig.leave()
    rig.hub.wait(5)
    rig.hub.wait(0)
    assert rig.link.closed


class Undecided:
    """A client that does not wait for CONNACK, while it is being authenticated."""

    def __init__(self, rig: Rig) -> None:
        self.asked: list[Callable[[Verdict], None]] = []
        self.rig = rig
        rig.harness.engine.context.access.authenticate = lambda _connect, _link, done: self.asked.append(done)  # type: ignore[method-assign]
        self.link, self.theirs = rig.connection()
        self.theirs.sendall(client.encode_connect(client.connect(4, "d")) + PACKET * 3 + BYE)
        rig.until(lambda: self.asked)

    def leave(self) -> None:
        self.theirs.close()
        for _ in range(2):
            self.rig.hub.wait(0.1)
        assert not self.link.closed
        assert self.rig.hub._epoll.poll(0) == [], "nobody is asked again and again"


@pytest.mark.parametrize("reset", [False, True])
def test_who_leaves_before_it_is_let_in_is_heard_when_it_is(rig: Rig, reset: bool) -> None:
    one = Undecided(rig)
    if reset:
        one.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.leave()
    one.asked.pop()(Verdict(0, None))
    rig.until(lambda: one.link.closed)
    assert rig.put("Q") == 1 + 3
    assert rig.harness.engine.counters.mqtt_disconnects["plain", "normal"] == 1


def test_also_where_that_is_decided_in_the_turn_in_which_it_leaves_and_is_put_off(rig: Rig) -> None:
    one = Undecided(rig)
    one.theirs.close()
    events = poll_sockets(rig.hub._epoll, 1.0)
    rig.harness.engine.context.until = -1.0
    one.asked.pop()(Verdict(0, None))
    assert one.link.connection in rig.harness.engine.put_off
    rig.hub._round(events)
    rig.until(lambda: one.link.closed)
    assert rig.put("Q") == 1 + 3
    assert rig.harness.engine.counters.mqtt_disconnects["plain", "normal"] == 1


def test_also_where_the_end_of_its_websocket_is_answered_in_vain(rig: Rig) -> None:
    asked: list[Callable[[Verdict], None]] = []
    rig.harness.engine.context.access.authenticate = lambda _connect, _link, done: asked.append(done)  # type: ignore[method-assign]
    link, theirs = rig.connection()
    server = WebSocketServer("/mqtt", [])
    link.wrapping = WebSocketWrapping(link, server)
    browser = WSConnection(ConnectionType.CLIENT)
    theirs.sendall(browser.send(Request(host="localhost", target="/mqtt", subprotocols=["mqtt"])))
    rig.until(lambda: server.established)
    browser.receive_data(theirs.recv(4096))
    list(browser.events())
    said = BytesMessage(client.encode_connect(client.connect(4, "d")) + PACKET * 3 + BYE)
    theirs.sendall(browser.send(said) + browser.send(CloseConnection(1000)))
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()
    rig.until(lambda: asked and not link.heard)
    for _ in range(2):
        rig.hub.wait(0.1)
    asked.pop()(Verdict(0, None))
    rig.until(lambda: link.closed)
    assert rig.put("Q") == 1 + 3


def test_who_leaves_before_it_is_refused_is_heard_no_more(rig: Rig) -> None:
    one = Undecided(rig)
    one.leave()
    one.asked.pop()(Verdict(0x87))
    rig.until(lambda: one.link.closed)
    assert rig.put("Q") == 1


def test_nor_is_one_of_whom_nothing_is_decided_in_time(rig: Rig) -> None:
    one = Undecided(rig)
    one.leave()
    for _ in range(60):
        rig.harness.clock.advance(1)
        rig.harness.engine.tick()
    rig.until(lambda: one.link.closed)
    assert rig.put("Q") == 1


def test_what_a_client_had_sent_is_read_before_it_comes_again(rig: Rig) -> None:
    rig.link.chunk = len(PACKET)
    rig.leave()
    again, theirs = rig.connection()
    theirs.sendall(client.encode_connect(client.connect(4, "c")))
    rig.until(lambda: again.connection is not None and again.connection.connack_sent)
    rig.assert_left_in_order()
    theirs.close()
    again.abort()


def test_what_is_read_in_the_turn_in_which_it_is_let_in_again_is_taken_before(rig: Rig) -> None:
    """A thread has checked its password meanwhile; what threads have done comes first in a turn."""
    asked: list[Callable[[Verdict], None]] = []
    rig.harness.engine.context.access.authenticate = lambda _connect, _link, done: asked.append(done)  # type: ignore[method-assign]
    again, theirs = rig.connection()
    theirs.sendall(client.encode_connect(client.connect(4, "c")))
    rig.until(lambda: asked)
    woken = rig.hub._woken

    def decided(others: list[tuple[int, int]]) -> tuple[bool, list[tuple[int, int]]]:
        if asked and rig.hub._in_hand[0]:
            asked.pop()(Verdict(0, None))
        return woken(others)

    rig.hub._woken = decided  # type: ignore[method-assign]
    woke = os.eventfd(1)
    rig.hub.watch(woke)
    rig.theirs.sendall(PACKET + BYE)
    rig.until(lambda: again.connection is not None and again.connection.connack_sent)
    assert rig.put("Q") == 1 + 1
    assert rig.harness.engine.counters.mqtt_disconnects["plain", "normal"] == 1
    os.close(woke)
    theirs.close()
    again.abort()


def test_but_one_that_sends_on_does_not_keep_it_from_coming(rig: Rig) -> None:
    rig.hub.pause(paused=True)
    rig.theirs.sendall(PACKET)
    again, theirs = rig.connection()
    again.stop(Stop.ALL, stopped=False)
    theirs.sendall(client.encode_connect(client.connect(4, "c")))
    rig.hub.wait(5)
    assert not rig.link.closed
    rig.harness.clock.advance(LOOKS * LOOK_SECONDS)
    rig.until(lambda: again.connection is not None and again.connection.connack_sent)
    assert rig.link.closed
    theirs.close()
    again.abort()
