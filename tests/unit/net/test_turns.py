"""gateway.net.turns: a turn of the reactor that takes too long is reported, with what was done, for whom and where."""

from __future__ import annotations

import socket
import time

from broker_harness import Harness
from waiting import until

from gateway.app.reports.log_lines import stalled
from gateway.net.hub import Hub
from gateway.net.hub_socket import HubSocket
from gateway.net.reactor import HubReactor
from gateway.net.scheduler import Waker
from gateway.net.turns import Stall, Turns


def watched(stall_seconds: float = 0.05) -> tuple[Turns, list[Stall]]:
    turns, told = Turns(stall_seconds), list[Stall]()
    turns.on_stall = told.append
    return turns, told


def compute(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_a_turn_in_time_is_not_told_of() -> None:
    turns, told = watched(10.0)
    turns.begin()
    turns.took(0.03, "30 bytes received", "a")
    turns.end()
    assert told == []


def test_a_turn_that_takes_too_long_is_told_of_with_what_took_longest() -> None:
    turns, told = watched()
    turns.begin()
    turns.took(0.03, "30 bytes received", "a at 10.0.0.1:5")
    turns.took(0.04, "40 bytes received", "b at 10.0.0.2:5")
    turns.took(0.02, "20 bytes received", "c at 10.0.0.3:5")
    compute(0.06)
    turns.end()
    (stall,) = told
    assert stall.seconds >= 0.06
    assert 0.06 <= stall.processor <= stall.seconds
    assert (stall.doing, stall.who) == ("40 bytes received", "b at 10.0.0.2:5")


def test_what_a_turn_before_did_is_not_told_of() -> None:
    turns, told = watched(60.0)
    turns.begin()
    turns.took(0.03, "30 bytes received", "a")
    turns.end()
    turns.stall_seconds = 0.05
    turns.begin()
    compute(0.06)
    turns.end()
    assert [(stall.doing, stall.who) for stall in told] == [("", "")]


def test_waiting_is_no_turn_and_costs_no_processor() -> None:
    turns, told = watched()
    turns.begin()
    turns.end()
    told.clear()  # on a busy machine even that may have taken long
    time.sleep(0.06)  # the process waits for its sockets
    turns.end()
    assert told == []
    turns.begin()
    time.sleep(0.06)  # something blocks it
    turns.end()
    assert told[0].processor < told[0].seconds / 2


def test_where_the_reactor_is_is_noted_while_it_is_there() -> None:
    turns, told = watched()
    turns.watch()
    turns.begin()
    Waker._run(lambda: until(lambda: turns._seen[0]))
    turns.end()
    turns.close()
    assert told[0].at.startswith("net.scheduler._run:")


def test_the_hub_says_whose_bytes_took_long() -> None:
    harness = Harness()
    hub = Hub(HubReactor(), harness.engine)
    hub.turns, told = watched()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = HubSocket(hub, ours, "10.0.0.9:1", "plain")
        link.connection = harness.engine.connected(link)
        hub.add(link)
        harness.clock.monotonic = time.monotonic
        hub.engine.connect.connect = lambda _connection, _packet: compute(0.06)
        theirs.sendall(b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00")
        hub.wait(5)
        hub.wait(0)
        assert told[0].doing == "14 bytes received"
        assert told[0].who == "10.0.0.9:1"


def test_a_stall_is_one_line_of_the_log(caplog) -> None:
    stalled(Stall(1.5, 0.2, "40 bytes received", "b at 10.0.0.2:5", "routing.filters.match:1"))
    (record,) = caplog.records
    assert record.getMessage() == "everybody waited 1.50 s for 40 bytes received"
    assert record.event == "reactor.stall"
    assert record.fields["who"] == "b at 10.0.0.2:5"
    assert (record.fields["duration_ms"], record.fields["processor_ms"]) == (1500, 200)
