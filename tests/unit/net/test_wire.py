"""Many sockets at once, in Python and compiled: the usual case is done, everything else is left to the caller."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
    """What the hub's sockets consist of, as far as the functions use it."""


@pytest.fixture
def pairs():
    """Makes links, each with the other end of its socket."""
    opened: list[socket.socket] = []

    def make(**more):
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        opened.extend((ours, theirs))
        known = {"connection": object(), "wrapping": None, "inward": None, "chunk": 4096, "direct": ours.fileno()}
        return Link(sock=ours, fd=ours.fileno(), **{**known, **more}), theirs

    yield make
    for one in opened:
        one.close()


def test_it_is_compiled_where_it_should_be():
    assert COMPILED or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@pytest.mark.parametrize(("receive", "write"), TWINS)
class TestReceive:
    """Tests of reading."""

    def test_few_bytes_come_with_the_connection_and_many_with_the_link(self, receive, write, pairs):
        del write
        (few, one), (many, two) = pairs(), pairs()
        one.sendall(b"abc")
        two.sendall(b"x" * 11)
        links = {few.fd: few, many.fd: many}
        arrived, wrapped, rest, full = receive([(few.fd, IN), (many.fd, IN)], links)
        assert wrapped == []
        assert arrived == [(few.connection, b"abc"), (many.connection, b"x" * 11)]
        assert rest == full == []

    def test_what_is_wrapped_comes_with_its_link_however_short(self, receive, write, pairs):
        del write
        (one, theirs), (other, others) = pairs(wrapping=object()), pairs(wrapping=object())
        theirs.sendall(b"abc")
        others.sendall(b"x" * 100)
        links = {one.fd: one, other.fd: other}
        found = receive([(one.fd, IN), (other.fd, IN)], links)
        assert found == ([], [(one, b"abc"), (other, b"x" * 100)], [], [])

    def test_what_is_ordinary_of_it_comes_as_what_is_plain(self, receive, write, pairs):
        del write
        (one, theirs), (long, longs), (odd, odds), (few, fews) = (
            pairs(wrapping=object(), inward=bytes.upper), pairs(wrapping=object(), inward=bytes.upper, chunk=8),
            pairs(wrapping=object(), inward=lambda _data: None), pairs(wrapping=object(), inward=lambda _data: b""),
        )  # fmt: skip
        theirs.sendall(b"abc")
        longs.sendall(b"x" * 9)
        odds.sendall(b"odd")
        fews.sendall(b"f" * few.chunk)
        links = {link.fd: link for link in (one, long, odd, few)}
        arrived, wrapped, rest, full = receive([(fd, IN) for fd in links], links)
        assert arrived == [(one.connection, b"ABC"), (long.connection, b"X" * 8)]
        assert (wrapped, rest, full) == ([(odd, b"odd")], [], [long, few])

    def test_a_defect_of_a_wrapping_is_told(self, receive, write, pairs):
        del write
        link, other = pairs(wrapping=object(), inward=lambda _data: 1 // 0)
        other.sendall(b"abc")
        with pytest.raises(ZeroDivisionError):
            receive([(link.fd, IN)], {link.fd: link})

    def test_no_more_than_a_chunk_is_read(self, receive, write, pairs):
        del write
        link, other = pairs(chunk=512)
        other.sendall(bytes(1000))
        (first,), _, _, full = receive([(link.fd, IN)], {link.fd: link})
        assert (len(first[1]), full) == (512, [link])
        (second,), _, _, full = receive([(link.fd, IN)], {link.fd: link})
        assert (len(second[1]), full) == (488, [])

    def test_what_is_not_plain_is_for_the_caller_and_unread(self, receive, write, pairs):
        del write
        made = [pairs(connection=None), pairs(connection=None, wrapping=object()), pairs(chunk=1 << 17), pairs()]
        for _, other in made:
            other.sendall(b"data")
        events = [(link.fd, IN) for link, _ in made[:3]] + [(made[3][0].fd, IN | select.EPOLLOUT), (9999, IN)]
        assert receive(events, {link.fd: link for link, _ in made}) == ([], [], events, [])
        assert [link.sock.recv(10) for link, _ in made] == [b"data"] * 4

    def test_a_socket_that_is_closed_or_was_not_ready_is_for_the_caller(self, receive, write, pairs):
        del write
        (gone, other), (idle, _) = pairs(), pairs()
        other.close()
        events = [(gone.fd, IN), (idle.fd, IN)]
        assert receive(events, {gone.fd: gone, idle.fd: idle}) == ([], [], events, [])

    def test_what_one_has_sent_that_is_gone_is_read_in_its_turn(self, receive, write, pairs):
        del write
        (gone, other), (comes, again) = pairs(), pairs()
        other.sendall(b"first")
        other.close()
        again.sendall(b"second")
        links, event = {gone.fd: gone, comes.fd: comes}, (gone.fd, IN | select.EPOLLHUP | select.EPOLLERR)
        arrived, *rest = receive([event, (comes.fd, IN)], links)
        assert arrived == [(gone.connection, b"first"), (comes.connection, b"second")]
        assert rest == [[], [], []]
        assert receive([event], links) == ([], [], [event], [])

    def test_one_call_reads_no_more_than_there_is_room_for(self, receive, write, pairs):
        del write
        made = [pairs(chunk=wire.LONGEST) for _ in range(wire.ROOM // wire.LONGEST + 3)]
        for _, other in made:
            other.sendall(bytes(wire.LONGEST))
        events = [(link.fd, IN) for link, _ in made]
        large, _, rest, full = receive(events, {link.fd: link for link, _ in made})
        assert len(large) == wire.ROOM // wire.LONGEST
        assert rest == events[-3:]
        assert full == [link for link, _ in made[:-3]]


@pytest.mark.parametrize(
    ("poll", "receive"),
    [
        pytest.param(wire.poll, wire.receive, id="python"),
        pytest.param(wire.poll, wire.read_sockets, id="polled in python"),
        pytest.param(wire.poll_sockets, wire.read_sockets, id="compiled"),
    ],
)
class TestPoll:
    """Tests of polling and then reading."""

    @pytest.fixture
    def epoll(self):
        with select.epoll() as made:
            yield made

    def test_what_is_ready_is_read_and_the_rest_is_for_the_caller(self, poll, receive, epoll, pairs):
        (one, theirs), (gone, other), (idle, _), (wants, _) = made = [pairs() for _ in range(4)]
        read, write = os.pipe()
        try:
            for link, _ in made:
                epoll.register(link.fd, select.EPOLLOUT if link is wants else IN)
            epoll.register(read, IN)
            os.write(write, b"woken")
            theirs.sendall(b"abc")
            other.close()
            for seconds in (0, 30, -1.0):
                events = poll(epoll, seconds)
                assert events
            arrived, wrapped, rest, full = receive(events, {link.fd: link for link, _ in made})
        finally:
            os.close(read)
            os.close(write)
        assert (arrived, wrapped, full) == ([(one.connection, b"abc")], [], [])
        gone_as = IN | select.EPOLLHUP
        assert sorted(rest) == sorted([(gone.fd, gone_as), (wants.fd, select.EPOLLOUT), (read, IN)])
        del idle

    def test_nothing_is_ready(self, poll, receive, epoll, pairs):
        link, _ = pairs()
        epoll.register(link.fd, IN)
        for seconds in (0, 0.0001, 0.002):
            events = poll(epoll, seconds)
            assert not events
            assert receive(events, {link.fd: link}) == ([], [], [], [])

    def test_descriptors_may_be_large(self, poll, receive, epoll, pairs):
        made = [pairs() for _ in range(150)]  # descriptors over the small numbers that Python keeps
        for link, theirs in made:
            epoll.register(link.fd, IN)
            theirs.sendall(b"%d" % link.fd)
        arrived, _, rest, _ = receive(poll(epoll, 0), {link.fd: link for link, _ in made})
        assert sorted(data for _, data in arrived) == sorted(b"%d" % link.fd for link, _ in made)
        assert rest == []

    def test_an_epoll_that_is_closed(self, poll, receive, epoll):
        del receive
        epoll.close()
        with pytest.raises(ValueError, match="closed"):
            poll(epoll, 0)

    def test_what_came_while_a_signal_was_handled_is_found(self, poll, receive, epoll, pairs):
        """The same holds after the process was stopped, which ends the wait as a signal does."""
        link, theirs = pairs()
        epoll.register(link.fd, IN)
        before = signal.signal(signal.SIGALRM, lambda *_: theirs.sendall(b"a"))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            events = poll(epoll, 60)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        arrived, *_ = receive(events, {link.fd: link})
        assert arrived == [(link.connection, b"a")]

    def test_what_a_signal_raises_ends_it(self, poll, receive, epoll):
        del receive

        def raises(*_):
            raise InterruptedError("by a signal")

        def waits():
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            poll(epoll, 60)

        before = signal.signal(signal.SIGALRM, raises)
        try:
            with pytest.raises(InterruptedError, match="by a signal"):
                waits()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")
def test_events_are_those_of_a_poll_or_pairs():
    for wrong, error in ((b"x", ValueError), ((), TypeError), ([1], TypeError), ([("a", 1)], TypeError)):
        with pytest.raises(error):
            wire.read_sockets(wrong, {})
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(OSError, match="Invalid argument"):
        wire.compiled_wire.poll(ours, 0)


@pytest.mark.parametrize(("receive", "write"), TWINS)
class TestWrite:
    """Tests of writing."""

    def test_each_gets_its_own(self, receive, write, pairs):
        del receive
        made = [pairs() for _ in range(5)]
        assert write(Link, [link for link, _ in made], [b"%d" % at for at in range(5)]) == []
        assert [other.recv(10) for _, other in made] == [b"0", b"1", b"2", b"3", b"4"]

    def test_what_a_socket_does_not_take_is_named(self, receive, write, pairs):
        del receive
        (full, theirs), (free, other) = pairs(), pairs()
        data = bytes(4 << 20)
        ((at, left),) = write(Link, [full, free], [data, b"x"])
        assert at == 0
        assert 0 < len(left) < len(data)
        assert write(Link, [full], [b"more"]) == [(0, b"more")]
        assert other.recv(10) == b"x"
        theirs.close()
        assert write(Link, [full], [b"more"]) == [(0, b"more")]

    def test_hundreds_get_their_own_and_those_that_cannot_are_named(self, receive, write, pairs):
        """There are more than fit into one call of the kernel; some of them are not sent, are refused, or are not taken
        completely."""
        del receive
        made = [pairs(**({"direct": -1} if at % 7 == 3 else {})) for at in range(300)]
        datas = [b"%d" % at for at in range(300)]
        datas[130] = b"x" * (4 << 20)
        made[140][1].close()
        rest = dict(write(Link, [link for link, _ in made], datas))
        assert sorted(rest) == sorted({130, 140} | {at for at in range(300) if at % 7 == 3})
        assert 0 < len(rest.pop(130)) < 4 << 20
        assert all(data == b"%d" % at for at, data in rest.items())
        for at, (_, other) in enumerate(made):
            if at not in {130, 140} and at % 7 != 3:
                assert other.recv(10) == b"%d" % at

    def test_two_threads_write_at_once(self, receive, write, pairs):
        del receive
        sets = [[pairs() for _ in range(60)] for _ in range(2)]

        def write_all(mine):
            return [write(Link, [link for link, _ in mine], [b"%3d" % at] * 60) for at in range(200)]

        with ThreadPoolExecutor(2) as threads:
            for answers in threads.map(write_all, sets):
                assert answers == [[]] * 200
        wanted = b"".join(b"%3d" % at for at in range(200))
        assert all(other.recv(1000) == wanted for mine in sets for _, other in mine)

    def test_what_is_wrapped_is_sent_as_its_peer_gets_it(self, receive, write, pairs):
        del receive
        slow = SimpleNamespace(wrap=lambda data: b"slowly " + data)
        (one, first), (two, second) = pairs(wrapping=slow, outward=b"<%s>".__mod__), pairs(wrapping=slow, outward=None)
        behind, _ = pairs(wrapping=slow, outward=None, direct=-1)
        assert write(Link, [one, two, behind], [b"a", b"b", b"c"]) == [(2, b"slowly c")]
        assert [first.recv(20), second.recv(20)] == [b"<a>", b"slowly b"]

    def test_the_part_of_what_is_wrapped_that_is_not_taken_is_not_wrapped_again(self, receive, write, pairs):
        del receive
        link, theirs = pairs(wrapping=object(), outward=lambda data: data.replace(b"x", b"y"))
        ((_, left),) = write(Link, [link], [b"x" * (4 << 20)])
        assert len(left) < 4 << 20
        assert set(left) == set(b"y")
        theirs.settimeout(30)
        assert theirs.recv(1) == b"y"

    def test_a_wrapping_that_fails_is_told(self, receive, write, pairs):
        del receive
        (fine, other), (broken, _) = pairs(), pairs(wrapping=SimpleNamespace(wrap=len), outward=None)
        with pytest.raises(TypeError):
            write(Link, [fine, broken], [b"a", b"b"])
        del other

    def test_behind_what_waits_and_to_other_links_nothing_is_sent(self, receive, write, pairs):
        del receive
        (behind, one), (link, two) = pairs(direct=-1), pairs()
        other = SimpleNamespace(**vars(link))
        assert write(Link, [behind, other], [b"a", b"b"]) == [(0, b"a"), (1, b"b")]
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


SEND = """
import os, socket
from types import SimpleNamespace as Link
from gateway.net import wire
pairs = [socket.socketpair() for _ in range(20)]
links = [Link(sock=ours, direct=ours.fileno(), wrapping=None) for ours, _ in pairs]
def send(text):
    assert wire.write_sockets(Link, links, [text] * 20) == []
    assert all(other.recv(10) == text for _, other in pairs)
"""


@pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")
@pytest.mark.parametrize(
    "then",
    [
        pytest.param(
            "resource.setrlimit(resource.RLIMIT_NOFILE, (43, 43)); send(b'ab'); print(wire.sends_in_one_call())",
            id="refused",
        ),
        pytest.param(
            "send(b'ab'); child = os.fork(); send(b'cd') if child == 0 else os.waitpid(child, 0); print(True)",
            id="forked",
        ),
    ],
)
def test_sends_are_done_where_the_kernel_refuses_and_in_a_child(then):
    """If the kernel does not provide the ring (here because no descriptor is left for it), each send is a call. A child
    process does not use its parent's ring."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import resource\n{SEND}\n{then}"], capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
    assert set(ended.stdout.split()) == ({"False"} if "setrlimit" in then else {"True"})
