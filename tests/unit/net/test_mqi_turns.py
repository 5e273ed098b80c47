"""Busy MQI programs and devices take turns: one chunk of one program in a pass of the reactor, in order, none lost."""

from __future__ import annotations

from collections.abc import Callable

from gateway.net.mqi import MqiFactory, MqiProtocol


class Reactor:
    """What is called later is called in the next pass."""

    def __init__(self) -> None:
        self._later: list[Callable[[], None]] = []

    def callLater(self, _seconds: float, call: Callable[[], None]) -> None:
        self._later.append(call)

    def turn(self) -> None:
        later, self._later = self._later, []
        for call in later:
            call()


class Transport:
    def __init__(self) -> None:
        self.paused = False

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False


class Handler:
    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    def receive(self, chunk: bytes) -> None:
        self._log.append(f"{self._name}{chunk.decode()}")

    def connection_lost(self) -> None:
        self._log.append(f"{self._name} lost")


def _programs(count: int) -> tuple[Reactor, list[MqiProtocol], list[str]]:
    reactor, log = Reactor(), []
    factory = MqiFactory(lambda *_: None, reactor)  # type: ignore[arg-type,return-value]
    made = []
    for number in range(count):
        program = factory.buildProtocol(None)
        program.transport = Transport()  # type: ignore[assignment]
        program._handler = Handler("abc"[number], log)
        made.append(program)
    return reactor, made, log


def test_one_chunk_a_pass_in_order() -> None:
    reactor, (a, b, c), log = _programs(3)
    for program in (a, b, c):
        program.dataReceived(b"1")
    assert log == ["a1"]
    assert [one.transport.paused for one in (a, b, c)] == [False, True, True]
    a.dataReceived(b"2")  # it has had its turn
    for _ in range(3):
        reactor.turn()
    assert log == ["a1", "b1", "c1", "a2"]
    assert not any(one.transport.paused for one in (a, b, c))


def test_a_program_alone_never_waits_for_more_than_a_pass() -> None:
    reactor, (a,), log = _programs(1)
    for number in range(3):
        a.dataReceived(b"%d" % number)
        reactor.turn()
    assert log == ["a0", "a1", "a2"]


def test_what_a_program_said_before_it_went_counts() -> None:
    reactor, (a, b), log = _programs(2)
    a.dataReceived(b"1")
    b.dataReceived(b"1")
    b.connectionLost()
    assert log == ["a1", "b1", "b lost"]
    reactor.turn()
    reactor.turn()
    a.dataReceived(b"2")
    assert log[-1] == "a2"
