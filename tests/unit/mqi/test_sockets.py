"""The sockets of many programs in one call: the functions in Python and those in C do the same."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator

import pytest

from gateway.mqi import sockets

IN_C = pytest.importorskip("gateway.mqi._sockets")
RECEIVE = pytest.mark.parametrize("receive", [sockets.receive_in_python, IN_C.receive], ids=["python", "c"])
SEND = pytest.mark.parametrize("send_each", [sockets.send_each_in_python, IN_C.send_each], ids=["python", "c"])
IN = select.EPOLLIN


@pytest.fixture
def pairs() -> Iterator[Callable[[], tuple[socket.socket, socket.socket]]]:
    made: list[socket.socket] = []

    def pair() -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        made.extend((ours, theirs))
        return ours, theirs

    yield pair
    for one in made:
        one.close()


def test_they_are_compiled_where_they_should_be() -> None:
    assert (sockets.receive, sockets.send_each) == (IN_C.receive, IN_C.send_each)


@RECEIVE
def test_what_has_come_is_told_with_whose_it_is(receive, pairs) -> None:
    (one, peer), (other, other_peer) = pairs(), pairs()
    peer.sendall(b"a")
    other_peer.sendall(b"b" * 5000)
    programs = {one.fileno(): "one", other.fileno(): "other"}
    events = [(other.fileno(), IN), (one.fileno(), IN)]
    assert receive(events, programs) == ([("other", b"b" * 5000), ("one", b"a")], [])


@RECEIVE
def test_the_rest_is_for_the_caller_and_unread(receive, pairs) -> None:
    (gone, peer), (silent, _), (ready, ready_peer), (unknown, unknown_peer) = pairs(), pairs(), pairs(), pairs()
    peer.close()
    ready_peer.sendall(b"c")
    unknown_peer.sendall(b"d")
    programs = {one.fileno(): one for one in (gone, silent, ready)}
    events = [
        (gone.fileno(), IN), (silent.fileno(), IN), (ready.fileno(), IN | select.EPOLLOUT), (unknown.fileno(), IN),
    ]  # fmt: skip
    assert receive(events, programs) == ([], events)
    assert (ready.recv(9), unknown.recv(9)) == (b"c", b"d")


@RECEIVE
def test_much_comes_in_several_chunks(receive, pairs) -> None:
    ours, theirs = pairs()
    for one in (ours, theirs):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    theirs.setblocking(False)
    sent = theirs.send(b"x" * 400_000)
    programs, got = {ours.fileno(): "p"}, b""
    while len(got) < sent:
        [(_, chunk)], rest = receive([(ours.fileno(), IN)], programs)
        assert not rest
        assert len(chunk) <= 256 << 10
        got += chunk
    assert got == b"x" * sent


@SEND
def test_each_gets_its_own(send_each, pairs) -> None:
    (one, peer), (other, other_peer) = pairs(), pairs()
    assert send_each((one.fileno(), other.fileno()), (b"first", b"second")) == []
    assert (peer.recv(99), other_peer.recv(99)) == (b"first", b"second")


@SEND
def test_those_that_do_not_take_all_are_named(send_each, pairs) -> None:
    (full, _), (gone, gone_peer), (fine, fine_peer) = pairs(), pairs(), pairs()
    gone_peer.close()
    much = b"x" * (8 << 20)
    [(first, sent), (second, none)] = send_each((full.fileno(), gone.fileno(), fine.fileno()), (much, b"y", b"z"))
    assert (first, second, none) == (0, 1, 0)
    assert 0 < sent < len(much)
    assert fine_peer.recv(9) == b"z"
    assert send_each((full.fileno(),), (b"more",)) == [(0, 0)]


def test_wrong_arguments_are_refused() -> None:
    for wrong in (([1], {}), ([(1,)], {}), ([("x", 1)], {})):
        with pytest.raises(TypeError):
            IN_C.receive(*wrong)
    with pytest.raises(ValueError, match="as many"):
        IN_C.send_each((1,), ())
    with pytest.raises(TypeError):
        IN_C.send_each((1,), ("text",))
    with pytest.raises(TypeError):
        IN_C.usual_call(bytearray(8))
