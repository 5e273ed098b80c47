"""gateway.net.hub: how much is read at once, and clients that exceed their rates."""

from __future__ import annotations

import fcntl
import socket
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker_harness import Harness

from gateway.broker.put_off import STRANGERS_SECONDS, TURN_SECONDS
from gateway.mqtt import client, writer
from gateway.mqtt.client import server_reader
from gateway.mqtt.packets import Will
from gateway.net import hub
from gateway.net.hub import CHUNK, LEAST_CHUNK, SEVERAL, Hub
from gateway.net.hub_socket import FIRST_CHUNK, READ, HubSocket
from gateway.net.rates import ClientRates, SendRates
from gateway.net.reactor import HubReactor
from gateway.net.scheduler import Waker
from gateway.session.connection import ONLINE, Connection

MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: 't', queue: Q}\n"


class Rig:
    """A hub with one client that is online."""

    def __init__(self) -> None:
        self.harness = Harness(MAPPING, receive_maximum=60_000)
        self.harness.clock.monotonic = lambda: 0.0  # on a busy machine these would be put off
        self.hub = Hub(HubReactor(), self.harness.engine)
        ours, self.theirs = socket.socketpair()
        self.link = HubSocket(self.hub, ours, "10.0.0.9:1", "plain")
        self.link.connection = self.connection = self.harness.engine.connected(self.link)
        self.hub.add(self.link)
        self.send(client.encode_connect(client.connect(4, "c")))
        self.send(self.publications(1))
        self.link.chunk = FIRST_CHUNK
        self.harness.clock.monotonic = time.monotonic

    def send(self, data: bytes) -> None:
        """Send data and have it read, if anything is: a turn may have served something else, such as a finished
        commit."""
        self.theirs.sendall(data)
        self.read()

    def read(self) -> None:
        """Read what there is, unless reading is stopped."""
        self.hub.wait(0)
        while self.link.watching & READ and self._unread():
            assert not self.link.closed
            self.hub.wait(5)

    def _unread(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.link.fd, termios.FIONREAD, bytes(4)), sys.byteorder)

    @staticmethod
    def publications(count: int, size: int = 1) -> bytes:
        return b"".join(writer.encode_publish(4, b"t", b"x" * size, 1, packet_id=n) for n in range(1, count + 1))


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.theirs.close()
    made.link.abort()


def test_more_is_read_at_once_while_it_is_all_there_is(rig: Rig) -> None:
    rig.harness.clock.monotonic = lambda: 0.0  # nothing takes long, however busy the machine is
    data = rig.publications(20, 2 * FIRST_CHUNK)
    rig.theirs.setblocking(False)
    sent = rig.theirs.send(data)
    rig.read()
    assert rig.link.chunk > FIRST_CHUNK
    assert sent > 2 * FIRST_CHUNK
    assert rig.link.chunk <= CHUNK


def test_less_after_a_packet_that_takes_long(rig: Rig) -> None:
    rig.harness.engine.context.on_slow(rig.connection, 0.5, 100)
    assert rig.link.chunk == FIRST_CHUNK // 4
    for _ in range(9):
        rig.harness.engine.context.on_slow(rig.connection, 0.5, 100)
    assert rig.link.chunk == LEAST_CHUNK


def test_a_client_that_exceeds_its_rate_is_read_later_and_stays_on_the_fast_lane(rig: Rig) -> None:
    now, later, alone = [100.0], list[Any](), list[Any]()
    rig.hub.rates = SendRates({"plain": ClientRates(bytes=0, publishes=10)}, lambda: now[0])
    rig.hub.later = lambda seconds, call: later.append((seconds, call))
    rig.connection.published = 0  # as when rates are set
    rig.harness.engine.plain_lane.handlers[3] = lambda *arguments: alone.append(arguments)
    rig.send(rig.publications(8))
    assert later == []
    rig.send(rig.publications(22))
    assert alone == []
    assert rig.connection.published == 0
    ((seconds, call),) = later
    assert seconds == pytest.approx(2.0)
    assert rig.harness.engine.counters.backpressure_events["client_rate"] == 1
    before = rig.harness.engine.counters.packets_in[3]
    rig.send(rig.publications(1))
    assert rig.harness.engine.counters.packets_in[3] == before
    call()
    rig.hub.wait(5)
    assert rig.harness.engine.counters.packets_in[3] == before + 1


def test_a_socket_says_whether_something_lies_unread(rig: Rig) -> None:
    assert not rig.link.unread()
    rig.theirs.sendall(client.encode_pingreq())
    assert rig.link.unread()
    rig.read()
    assert not rig.link.unread()
    rig.theirs.close()
    assert not rig.link.unread()
    rig.link.abort()
    assert not rig.link.unread()


def test_who_exceeds_its_rates_is_not_read_sooner_because_another_reason_ends(rig: Rig) -> None:
    later: list[Callable[[], None]] = []
    rig.hub.later = lambda _seconds, call: later.append(call)  # type: ignore[method-assign]
    rig.hub.rates = SendRates({"plain": ClientRates(0, 5)}, rig.harness.clock.monotonic)
    rig.send(rig.publications(20))
    assert len(later) == 1
    assert not rig.link.watching & READ
    rig.hub.pause(paused=True)
    rig.hub.pause(paused=False)
    assert not rig.link.watching & READ
    rig.harness.engine.put_off.on_busy(rig.connection, True)
    rig.harness.engine.put_off.on_busy(rig.connection, False)
    assert not rig.link.watching & READ
    later.pop()()
    assert rig.link.watching & READ


def test_who_exceeds_its_rates_is_not_read_while_nobody_is(rig: Rig) -> None:
    later: list[Callable[[], None]] = []
    rig.hub.later = lambda _seconds, call: later.append(call)  # type: ignore[method-assign]
    rig.hub.rates = SendRates({"plain": ClientRates(0, 5)}, rig.harness.clock.monotonic)
    rig.send(rig.publications(20))
    rig.hub.pause(paused=True)
    later.pop()()
    assert not rig.link.watching & READ
    rig.hub.pause(paused=False)
    assert rig.link.watching & READ


def test_those_who_are_found_gone_together_are_ended_a_few_in_each_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Any] = []
    gone = [HubSocket(rig.hub, socket.socketpair()[0], f"10.0.0.9:{one}", "plain") for one in range(20)]
    ended: list[HubSocket] = []

    def lost(link: HubSocket) -> None:
        ended.append(link)
        until = time.monotonic() + TURN_SECONDS / 2
        while time.monotonic() < until:
            pass

    monkeypatch.setattr(rig.hub, "lost", lost)
    monkeypatch.setattr(rig.hub.reactor, "callLater", lambda _seconds, call: planned.append(call))
    for link in gone:
        rig.hub.lost_later(link)
    assert len(planned) == 1
    turns = 0
    while planned:
        turns, before = turns + 1, len(ended)
        planned.pop()()
        assert len(ended) - before <= 3
    assert turns > 5
    assert set(ended) == set(gone)
    for link in gone:
        link.sock.close()


class Coming:
    """Strangers who connect through an acceptor, each of whom takes this long."""

    def __init__(self, rig: Rig, count: int, seconds: float) -> None:
        self.hub, self.seconds = rig.hub, seconds
        listening = socket.create_server(("127.0.0.1", 0), backlog=count)
        self.acceptor = rig.hub.listen(listening, self.accepted, "plain")
        self.accepted_links: list[HubSocket] = []
        self.theirs = [socket.create_connection(listening.getsockname()) for _ in range(count)]

    def accepted(self, link: HubSocket) -> None:
        self.accepted_links.append(link)
        until = time.monotonic() + self.seconds
        while time.monotonic() < until:
            pass

    def close(self) -> None:
        self.hub.unlisten(self.acceptor)
        for sock in self.theirs:
            sock.close()
        for link in self.accepted_links:
            link.sock.close()


def test_those_who_come_together_are_accepted_a_few_in_each_turn(rig: Rig) -> None:
    coming = Coming(rig, 12, STRANGERS_SECONDS)
    for turn in range(1, 13):
        rig.hub.wait(5)
        assert len(coming.accepted_links) <= 2 * turn
    while len(coming.accepted_links) < 12:
        rig.hub.wait(5)
    coming.close()


def test_what_clients_have_sent_is_taken_before_those_who_come(rig: Rig) -> None:
    coming = Coming(rig, 1, 0.0)
    taken = rig.harness.engine.context.counters.packets_in
    before, seen = taken[3], list[int]()

    def accepted(link: HubSocket) -> None:
        seen.append(taken[3])
        coming.accepted(link)

    coming.acceptor.accepted = accepted
    rig.theirs.sendall(rig.publications(1))
    while not seen:
        rig.hub.wait(5)
    assert seen == [before + 1]
    coming.close()


class Many:
    """Clients that each send a publication; while those of the first half are taken in, the others send theirs."""

    def __init__(self, rig: Rig, count: int) -> None:
        self.rig = rig
        rig.harness.clock.monotonic = lambda: 0.0  # time is never up, however busy the machine is
        self.links: list[HubSocket] = []
        self.sockets: list[socket.socket] = []
        for number in range(count):
            ours, theirs = socket.socketpair()
            link = HubSocket(rig.hub, ours, f"10.0.0.9:{number}", "plain")
            link.connection = rig.harness.engine.connected(link)
            rig.hub.add(link)
            theirs.sendall(client.encode_connect(client.connect(4, f"many{number}")))
            self.links.append(link)
            self.sockets.append(theirs)
            rig.hub.wait(5)
        assert all(link.connection is not None and link.connection.state == ONLINE for link in self.links)
        self.commits = rig.harness.queues.commits
        self._later: list[socket.socket] = []
        self._take = rig.harness.engine.received_each
        rig.harness.engine.received_each = self._received_each  # type: ignore[method-assign]

    def _received_each(self, arrived: list[tuple[Connection, bytes]]) -> None:
        self._take(arrived)
        later, self._later = self._later, []
        for one in later:
            one.sendall(self.rig.publications(1))

    def send(self) -> tuple[int, int]:
        """Half of the clients send, and the hub has one turn; returns how many publications it has taken, and how many
        commits it has made."""
        before = self.rig.harness.engine.counters.packets_in[3]
        self._later = self.sockets[len(self.sockets) // 2 :]
        for one in self.sockets[: len(self.sockets) // 2]:
            one.sendall(self.rig.publications(1))
        self.rig.hub.wait(5)
        taken = self.rig.harness.engine.counters.packets_in[3] - before
        return taken, self.rig.harness.queues.commits - self.commits

    def close(self) -> None:
        for sock, link in zip(self.sockets, self.links, strict=True):
            sock.close()
            link.abort()


def test_what_several_clients_send_meanwhile_comes_into_the_same_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "ALONG_SECONDS", 60.0)  # on a busy machine the first may have taken long
    many = Many(rig, 4 * SEVERAL)
    assert many.send() == (4 * SEVERAL, 1)
    many.close()


def test_those_who_were_first_do_not_wait_for_long(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ALONG_SECONDS", 0.0)
    many = Many(rig, 4 * SEVERAL)
    assert many.send() == (2 * SEVERAL, 1)
    many.close()


def test_few_do_not_wait_for_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ALONG_SECONDS", 60.0)
    many = Many(rig, 2 * (SEVERAL - 1))
    assert many.send() == (SEVERAL - 1, 1)
    many.close()


def test_nothing_is_read_along_into_a_batch_that_waits_for_a_commit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ALONG_SECONDS", 60.0)
    many = Many(rig, 4 * SEVERAL)
    rig.harness.queues.automatic = False
    rig.send(rig.publications(1))
    assert rig.harness.engine.context.committing
    assert many.send()[0] == 2 * SEVERAL
    rig.harness.queues.automatic = True
    rig.harness.queues.commit()
    many.close()


def _waited_for(many: Many, until: float) -> None:
    """Wait as after a slow commit that has answered all of them."""
    group = many.rig.harness.engine.context.group_commit
    group.committed(0.01, [link.connection for link in many.links if link.connection is not None], 0.0)
    group.until = until


def test_a_batch_waits_for_those_whom_a_slow_commit_has_just_answered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "ALONG_SECONDS", 0.0)
    many = Many(rig, 4 * SEVERAL)
    _waited_for(many, time.monotonic() + 60)
    assert many.send() == (4 * SEVERAL, 1)
    assert not rig.harness.engine.context.group_commit.missing
    many.close()


def test_but_not_for_longer_than_it_may(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "ALONG_SECONDS", 0.0)
    many = Many(rig, 4 * SEVERAL)
    _waited_for(many, time.monotonic())
    assert many.send() == (2 * SEVERAL, 1)
    assert not rig.harness.engine.context.group_commit.missing
    many.close()


def test_nobody_waits_where_there_is_nothing_to_commit(rig: Rig) -> None:
    many = Many(rig, SEVERAL)
    _waited_for(many, time.monotonic() + 60)
    many.sockets[0].sendall(b"\xc0\x00")
    rig.hub.wait(5)
    assert many.sockets[0].recv(100)[-2:] == b"\xd0\x00"
    assert len(rig.harness.engine.context.group_commit.missing) == SEVERAL - 1
    many.close()


def test_what_a_round_has_read_goes_with_the_batch_that_waited_for_the_commit_which_returns_in_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "ALONG_SECONDS", 0.0)
    waker = rig.hub._waker = Waker()
    rig.hub._epoll.register(waker.fd, READ)
    many = Many(rig, 2 * SEVERAL)
    rig.harness.queues.automatic = False
    rig.send(rig.publications(1))
    assert many.send() == (SEVERAL, 0)  # they are in the open batch; the others' publications are in their sockets
    rig.harness.queues.automatic = True
    waker.call(rig.harness.queues.commit)
    assert many.send() == (2 * SEVERAL, 2)
    many.close()


class Fifth:
    """A client of 5.0; it may send more behind its CONNECT at once."""

    def __init__(self, rig: Rig, name: str, behind: bytes = b"", packets: int = 1) -> None:
        self.rig = rig
        self.ours, self.theirs = socket.socketpair()
        link = HubSocket(rig.hub, self.ours, "10.0.0.9:1", "plain")
        link.connection = rig.harness.engine.connected(link)
        rig.hub.add(link)
        self.say(client.encode_connect(client.connect(5, name)) + behind)
        self.heard = self._hear(packets)
        assert self.heard[0] == 0x20

    def say(self, data: bytes) -> None:
        self.theirs.sendall(data)
        self.rig.hub.wait(5)

    def _hear(self, packets: int) -> list[int]:
        """The kinds of so many packets."""
        heard = server_reader(5).feed(self.theirs.recv(1000))
        assert len(heard) == packets
        return [packet[0] for packet in heard]


def test_a_client_that_still_sends_when_it_is_refused_reads_why(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(rig.hub, "later", lambda seconds, call: timers.append((seconds, call)))
    refused = Fifth(rig, "a")
    refused.say(b"\x82\x00")
    refused.theirs.sendall(b"\xc0\x00")  # closed at once, it would be answered with a reset
    told = refused.theirs.recv(1000)
    assert (told[0], told[2]) == (0xE0, 0x81)
    assert refused.theirs.recv(1000) == b""
    ((seconds, call),) = timers
    assert seconds == hub.PARTING_SECONDS
    call()
    assert refused.ours.fileno() == -1
    left = Fifth(rig, "b")
    left.say(b"\xe0\x00")
    assert left.theirs.recv(1000) == b""
    assert left.ours.fileno() == -1
    for one in refused, left:
        one.theirs.close()


def test_so_does_one_that_is_refused_for_what_it_sent_behind_connect(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(rig.hub, "later", lambda seconds, call: timers.append((seconds, call)))
    refused = Fifth(rig, "a", b"\x82\x00", packets=2)
    assert refused.heard == [0x20, 0xE0]
    refused.theirs.sendall(b"\xc0\x00")
    ((_, call),) = timers
    call()
    assert refused.ours.fileno() == -1
    refused.theirs.close()


def stranger(rig: Rig) -> tuple[HubSocket, socket.socket]:
    """A connection without CONNECT."""
    ours, theirs = socket.socketpair()
    link = HubSocket(rig.hub, ours, "10.0.0.9:1", "plain")
    link.connection = rig.harness.engine.connected(link)
    rig.hub.add(link)
    return link, theirs


@pytest.mark.parametrize("version", [4, 5])
def test_so_does_one_that_is_refused_in_connack(rig: Rig, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    timers: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(rig.hub, "later", lambda seconds, call: timers.append((seconds, call)))
    link, theirs = stranger(rig)
    will = Will("a/#", b"", 0, retain=False)  # a topic name has no wildcards
    wrong = client.connect(4, "", clean_start=False) if version == 4 else client.connect(5, "a", will=will)
    theirs.sendall(client.encode_connect(wrong))
    rig.hub.wait(5)
    theirs.sendall(b"\xc0\x00")
    (told,) = server_reader(version).feed(theirs.recv(1000))
    assert told[0] == 0x20
    assert theirs.recv(1000) == b""
    assert [seconds for seconds, _ in timers] == [hub.PARTING_SECONDS]
    timers[0][1]()
    assert link.sock.fileno() == -1
    theirs.close()


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", b"\x10\x02\x00\x00"])
def test_who_is_told_nothing_is_closed_at_once(rig: Rig, said: bytes) -> None:
    link, theirs = stranger(rig)
    theirs.sendall(said)
    rig.hub.wait(5)
    assert link.sock.fileno() == -1
    theirs.close()


def test_only_some_sockets_are_kept_for_clients_that_still_send(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MOST_PARTING", 2)
    monkeypatch.setattr(rig.hub, "later", lambda _seconds, _call: None)
    clients = [Fifth(rig, name) for name in "abc"]
    for one in clients:
        one.say(b"\x82\x00")
    assert [one.ours.fileno() == -1 for one in clients] == [True, False, False]
    for one in clients:
        one.ours.close()
        one.theirs.close()
