"""Many sockets at once, in Python and compiled: the plain case is done, everything else is left to the caller."""

from __future__ import annotations

import os
import select
import socket
from types import SimpleNamespace

import pytest

from gateway.net import wire

COMPILED = wire.read_sockets is not wire.receive
TWINS = [
    pytest.param(wire.receive, wire.write, id="python"),
    pytest.param(
        wire.read_sockets, wire.write_sockets, id="compiled",
        marks=pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed"),
    ),
]  # fmt: skip
IN = select.EPOLLIN


class Link(SimpleNamespace):
    """What the hub's sockets have."""


@pytest.fixture
def pairs():
    """Makes links with the other end of their socket."""
    opened: list[socket.socket] = []

    def make(**more):
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        opened.extend((ours, theirs))
        known = {"connection": object(), "proxy": None, "chunk": 4096, "direct": ours.fileno()}
        return Link(sock=ours, fd=ours.fileno(), **{**known, **more}), theirs

    yield make
    for one in opened:
        one.close()


def test_it_is_compiled_where_it_should_be():
    assert COMPILED or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@pytest.mark.parametrize(("receive", "write"), TWINS)
class TestReceive:
    """Reading."""

    def test_few_bytes_come_with_the_connection_and_many_with_the_link(self, receive, write, pairs):
        del write
        (few, one), (many, two) = pairs(), pairs()
        one.sendall(b"abc")
        two.sendall(b"x" * 11)
        links = {few.fd: few, many.fd: many}
        small, large, rest = receive([(few.fd, IN), (many.fd, IN)], links, 10)
        assert small == [(few.connection, b"abc")]
        assert large == [(many, b"x" * 11)]
        assert rest == []

    def test_no_more_than_a_chunk_is_read(self, receive, write, pairs):
        del write
        link, other = pairs(chunk=512)
        other.sendall(bytes(1000))
        assert len(receive([(link.fd, IN)], {link.fd: link}, 10)[1][0][1]) == 512
        assert len(receive([(link.fd, IN)], {link.fd: link}, 10)[1][0][1]) == 488

    def test_what_is_not_plain_is_for_the_caller_and_unread(self, receive, write, pairs):
        del write
        made = [pairs(proxy=object()), pairs(connection=None), pairs(chunk=1 << 17), pairs()]
        for _, other in made:
            other.sendall(b"data")
        events = [(link.fd, IN) for link, _ in made[:3]] + [(made[3][0].fd, IN | select.EPOLLOUT), (9999, IN)]
        assert receive(events, {link.fd: link for link, _ in made}, 10) == ([], [], events)
        assert [link.sock.recv(10) for link, _ in made] == [b"data"] * 4

    def test_a_socket_that_is_closed_or_was_not_ready_is_for_the_caller(self, receive, write, pairs):
        del write
        (gone, other), (idle, _) = pairs(), pairs()
        other.close()
        events = [(gone.fd, IN), (idle.fd, IN)]
        assert receive(events, {gone.fd: gone, idle.fd: idle}, 10) == ([], [], events)

    def test_one_call_reads_no_more_than_there_is_room_for(self, receive, write, pairs):
        del write
        made = [pairs(chunk=wire.LONGEST) for _ in range(wire.ROOM // wire.LONGEST + 3)]
        for _, other in made:
            other.sendall(bytes(wire.LONGEST))
        events = [(link.fd, IN) for link, _ in made]
        _, large, rest = receive(events, {link.fd: link for link, _ in made}, 10)
        assert len(large) == wire.ROOM // wire.LONGEST
        assert rest == events[-3:]


@pytest.mark.parametrize(("receive", "write"), TWINS)
class TestWrite:
    """Writing."""

    def test_each_gets_its_own(self, receive, write, pairs):
        del receive
        made = [pairs() for _ in range(5)]
        assert write(Link, [link for link, _ in made], [b"%d" % at for at in range(5)]) == []
        assert [other.recv(10) for _, other in made] == [b"0", b"1", b"2", b"3", b"4"]

    def test_what_a_socket_does_not_take_is_named(self, receive, write, pairs):
        del receive
        (full, theirs), (free, other) = pairs(), pairs()
        data = bytes(4 << 20)
        ((at, sent),) = write(Link, [full, free], [data, b"x"])
        assert at == 0
        assert 0 < sent < len(data)
        assert write(Link, [full], [b"more"]) == [(0, 0)]
        assert other.recv(10) == b"x"
        theirs.close()
        assert write(Link, [full], [b"more"]) == [(0, 0)]

    def test_behind_what_waits_and_to_other_links_nothing_is_sent(self, receive, write, pairs):
        del receive
        (behind, one), (link, two) = pairs(direct=-1), pairs()
        other = SimpleNamespace(**vars(link))
        assert write(Link, [behind, other], [b"a", b"b"]) == [(0, 0), (1, 0)]
        for end in (one, two):
            end.settimeout(0)
            with pytest.raises(BlockingIOError):
                end.recv(1)

    def test_nothing_to_do(self, receive, write, pairs):
        del receive, pairs
        assert write(Link, [], []) == []

    def test_as_many_links_as_bytes(self, receive, write, pairs):
        del receive
        with pytest.raises(ValueError, match=r"as many links as bytes|shorter"):
            write(Link, [pairs()[0]], [])
