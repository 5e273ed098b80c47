"""The reactor behind the hub: the process waits in the hub, and everything of Twisted's continues to work."""

from __future__ import annotations

import os
import select
import threading

import pytest
from twisted.internet.interfaces import IReadDescriptor
from zope.interface import implementer

from gateway.net.reactor import HubReactor


class Watched:
    """A hub with one pipe."""

    def __init__(self) -> None:
        self.poll = select.epoll()
        self.reactor_fd = -1
        self.read_end, self.write_end = os.pipe()
        self.poll.register(self.read_end, select.EPOLLIN)
        self.got: list[bytes] = []
        self.then = lambda: None

    def watch(self, fd):
        self.reactor_fd = fd
        self.poll.register(fd, select.EPOLLIN)

    def wait(self, seconds):
        ready = [fd for fd, _ in self.poll.poll(seconds)]
        if self.read_end in ready:
            self.got.append(os.read(self.read_end, 100))
            self.then()
        return self.reactor_fd in ready


@implementer(IReadDescriptor)
class Reader:
    """A descriptor of Twisted's."""

    def __init__(self, fd, then) -> None:
        self.fd = fd
        self.then = then

    def fileno(self):
        return self.fd

    def logPrefix(self):
        return "reader"

    def connectionLost(self, reason):
        pass

    def doRead(self):
        os.read(self.fd, 100)
        self.then()


@pytest.fixture
def reactor():
    made = HubReactor()
    made.callLater(60, made.stop)  # a test that fails does not hang
    return made


def test_without_a_hub_it_is_twisteds(reactor):
    reactor.callLater(0.01, reactor.stop)
    reactor.run(installSignalHandlers=False)


def test_the_hub_timers_threads_and_descriptors_all_have_their_turn(reactor):
    hub, seen = Watched(), []
    reactor.serve_first(hub)
    theirs, ours = os.pipe()

    def read():
        seen.append("reader")
        reactor.removeReader(reader)
        threading.Thread(target=lambda: reactor.callFromThread(from_thread)).start()

    def from_thread():
        seen.append("thread")
        os.write(hub.write_end, b"device")

    def device():
        seen.append("device")
        reactor.stop()

    reader = Reader(theirs, read)
    reactor.addReader(reader)
    hub.then = device
    reactor.callLater(0.01, lambda: (seen.append("timer"), os.write(ours, b"x")))
    reactor.run(installSignalHandlers=False)
    assert seen == ["timer", "reader", "thread", "device"]
    assert hub.got == [b"device"]


def test_a_busy_hub_does_not_keep_the_others_waiting(reactor):
    hub, seen = Watched(), []
    reactor.serve_first(hub)
    hub.then = lambda: os.write(hub.write_end, b"again")
    os.write(hub.write_end, b"first")
    theirs, ours = os.pipe()

    def read():
        seen.append(len(hub.got))
        reactor.stop()

    reactor.addReader(Reader(theirs, read))
    reactor.callLater(0.01, lambda: os.write(ours, b"x"))
    reactor.run(installSignalHandlers=False)
    assert seen
    assert hub.got[0] == b"first"
