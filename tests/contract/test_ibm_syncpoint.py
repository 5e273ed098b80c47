"""Puts out of syncpoint: what QoS 0 is on every backend. They stand by themselves, whatever becomes of the unit they
came with, and are there once however often it is submitted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mqi_clients
import pytest
from ibm_rig import HEAD, OBJECTS, BatchRig, Rig, over, served

from gateway.backends.ibm import client
from gateway.backends.ibm.driver import ConnectSettings
from gateway.mq import mqmd
from gateway.ports.batch import Puts, Takes, Unit

pytestmark = pytest.mark.mqi
LIGHT = mqmd.build(persistence=0)
BOTH = ["ibmmq", "pymqi"]


@pytest.fixture(params=["embedded", *BOTH])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchRig]:
    with over(request.param, tmp_path, OBJECTS + "\nDEFINE QLOCAL(SMALL.Q) MAXDEPTH(3)\n") as made:
        yield made


def beside(queue: str, *bodies: bytes) -> Puts:
    return Puts(queue, persistent=False, heads=[LIGHT] * len(bodies), bodies=list(bodies), syncpoint=False)


def within(queue: str, *bodies: bytes) -> Puts:
    return Puts(queue, heads=[HEAD] * len(bodies), bodies=list(bodies))


def on(rig: BatchRig, queue: str) -> list[bytes]:
    return [stored.data for stored in rig.queue_manager.fetch(queue, b"", 500)]


def test_they_arrive_without_and_with_a_unit_of_work(rig: BatchRig) -> None:
    for unit in (Unit([beside("APP.Q", b"1", b"2")]), Unit([within("OTHER.Q", b"a"), beside("APP.Q", b"3")])):
        assert not rig.commit(unit).failures
        assert [len(puts.tokens) for puts in unit.puts] == [len(puts.heads) for puts in unit.puts]
    assert on(rig, "APP.Q") == [b"1", b"2", b"3"]
    assert on(rig, "OTHER.Q") == [b"a"]


def test_a_refused_unit_leaves_them_where_they_are_and_does_not_double_them(rig: BatchRig) -> None:
    unit = Unit([within("NO.SUCH.Q", b"lost"), beside("APP.Q", b"1", b"2"), within("OTHER.Q", b"a")])
    outcome = rig.commit(unit)
    assert [(one.puts, one.reason) for one in outcome.failures] == [(0, 2085)]
    assert unit.puts[1].placed == 2
    assert on(rig, "APP.Q") == [b"1", b"2"]
    assert on(rig, "OTHER.Q") == []
    del unit.puts[0]
    assert not rig.commit(unit).failures
    assert (on(rig, "APP.Q"), on(rig, "OTHER.Q")) == ([b"1", b"2"], [b"a"])


def test_their_own_refusal_names_the_run_and_leaves_the_others_of_their_kind(rig: BatchRig) -> None:
    unit = Unit([within("OTHER.Q", b"a"), beside("NO.SUCH.Q", b"x"), beside("APP.Q", b"1")])
    assert [(one.puts, one.reason) for one in rig.commit(unit).failures] == [(1, 2085)]
    assert [puts.placed for puts in unit.puts] == [0, 0, 1]
    assert (on(rig, "APP.Q"), on(rig, "OTHER.Q")) == ([b"1"], [])


def test_with_takes_in_the_unit(rig: BatchRig) -> None:
    first = within("OTHER.Q", b"a")
    rig.commit(Unit([first]))
    assert not rig.commit(Unit([beside("APP.Q", b"1")], [Takes("OTHER.Q", b"", list(first.tokens))])).failures
    assert (on(rig, "APP.Q"), on(rig, "OTHER.Q")) == ([b"1"], [])


@pytest.fixture(params=BOTH)
def ibm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    mqi_clients.load_bindings()
    socket = tmp_path / "mqi.sock"
    with served(
        None, socket, f"{OBJECTS}\nDEFINE QLOCAL(SMALL.Q) MAXDEPTH(3)\nDEFINE QLOCAL(SHORT.Q) MAXMSGL(100)\n"
    ) as manager:
        made = Rig(request.param, str(socket))
        made.mqsc = manager.mqsc  # type: ignore[attr-defined]
        yield made
        made.close()


def test_a_queue_that_is_full_says_which_rows_it_has(ibm: Rig) -> None:
    unit = Unit([beside("SMALL.Q", *(b"%d" % number for number in range(5)))])
    assert [(one.puts, one.reason) for one in ibm.commit(unit).failures] == [(0, 2053)]
    assert (unit.puts[0].placed, unit.puts[0].lost) == (3, 0)
    assert len(on(ibm, "SMALL.Q")) == 3


def test_nothing_is_lost_without_being_counted_where_the_answer_comes_late(ibm: Rig) -> None:
    """A queue that has taken everything so far is not asked about each message; what it then refuses is counted, and
    the next message is asked about again."""
    assert not ibm.commit(Unit([beside("SMALL.Q", b"0")])).failures
    unit = Unit([beside("SMALL.Q", *(b"%d" % number for number in range(1, 6)))])
    outcome, puts = ibm.commit(unit), unit.puts[0]
    there = len(on(ibm, "SMALL.Q"))
    assert there == 3
    if outcome.failures:  # pymqi cannot ask later, and so has asked about each
        assert (puts.placed, puts.lost) == (2, 0)
    else:
        assert (1 + len(puts.heads) - puts.lost, puts.lost_reason) == (there, 2053)
    again = Unit([beside("SMALL.Q", b"6")])
    assert [one.reason for one in ibm.commit(again).failures] == [2053]


def test_what_is_too_long_is_told_before_it_is_lost(ibm: Rig) -> None:
    """The rule may want it dead-lettered; one put asynchronously would only be counted."""
    for _ in range(2):
        assert not ibm.commit(Unit([beside("SHORT.Q", b"1", b"2")])).failures
    unit = Unit([beside("SHORT.Q", b"3", b"x" * 101, b"4")])
    outcome, puts = ibm.commit(unit), unit.puts[0]
    assert [(one.puts, one.reason) for one in outcome.failures] == [(0, 2030)]
    assert (puts.placed, puts.lost) == (1, 0)
    assert not ibm.commit(Unit([beside("SHORT.Q", b"5")])).failures
    assert on(ibm, "SHORT.Q") == [b"1", b"2", b"1", b"2", b"3", b"5"]


@pytest.mark.parametrize("named", ["SHORT.Q", "ALIAS.Q", "FAR.Q"])
def test_what_is_too_long_is_told_though_nobody_could_know_it(ibm: Rig, named: str) -> None:
    """MAXMSGL was lowered meanwhile; or the name is an alias or a remote queue, which has none of its own. The rows
    that are on their queue stay there, and those that are not are named."""
    ibm.mqsc("DEFINE QALIAS(ALIAS.Q) TARGET(SHORT.Q) REPLACE\nDEFINE QLOCAL(X.Q) USAGE(XMITQ) MAXMSGL(528) REPLACE")
    ibm.mqsc("DEFINE QREMOTE(FAR.Q) RNAME(T) RQMNAME(QM2) XMITQ(X.Q) REPLACE")
    for _ in range(2):
        assert not ibm.commit(Unit([beside(named, b"1")])).failures
    if named == "SHORT.Q":
        ibm.mqsc("ALTER QLOCAL(SHORT.Q) MAXMSGL(50)")
    unit = Unit([within("OTHER.Q", b"a"), beside(named, b"2", b"x" * 101, b"3", b"y" * 102)])
    outcome, puts = ibm.commit(unit), unit.puts[1]
    assert [(one.puts, one.reason) for one in outcome.failures] == [(1, 2030)]
    assert puts.lost == 0
    if puts.placed > 1:  # pymqi cannot ask later, and so has asked about each
        assert (puts.placed, list(puts.too_long)) == (4, [1, 3])
    assert on(ibm, "OTHER.Q") == []
    if named != "FAR.Q":
        assert on(ibm, "SHORT.Q") == ([b"1", b"1", b"2", b"3"] if puts.placed > 1 else [b"1", b"1", b"2"])


def wait(met: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not met():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_how_long_messages_may_be_is_not_waited_for_twice(ibm: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device can choose queues by its topics: a queue manager that answers late must not keep everybody waiting at
    each of them."""
    settings = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
    driver = ibm.queue_manager.driver
    manager = client.IbmQueueManager(settings, ibm.scheduler, driver=driver, connections=1, patient=True)
    manager.start()
    released, waited, briefly = threading.Event(), list[str](), manager.briefly

    def counted(read: Callable[[], Any]) -> Any:
        waited.append("once")
        return briefly(read)

    monkeypatch.setattr(manager, "briefly", counted)
    monkeypatch.setattr(client, "_UNHEARD_SECONDS", 600.0)
    manager.ask(lambda: released.wait(60), lambda _found: None)
    try:
        assert [manager.max_length(queue) for queue in ("OTHER.Q", "SHORT.Q", "APP.Q")] == [4_194_304] * 3
        assert waited == ["once"]
    finally:
        released.set()
    wait(lambda: manager.knows_length("SHORT.Q"))
    assert manager.max_length("SHORT.Q") == 100
    manager.close()


@pytest.mark.parametrize(("queue", "before", "after"), [("SHORT.Q", 100, 50), ("ALIAS.Q", 100, 50), ("FAR.Q", 100, 60)])
def test_how_long_messages_may_be_is_learned_from_a_refusal(ibm: Rig, queue: str, before: int, after: int) -> None:
    """Of an alias what its queue takes, of a remote queue what is left beside the headers."""
    ibm.mqsc("DEFINE QALIAS(ALIAS.Q) TARGET(SHORT.Q) REPLACE\nDEFINE QLOCAL(X.Q) USAGE(XMITQ) MAXMSGL(600) REPLACE")
    ibm.mqsc("DEFINE QREMOTE(FAR.Q) RNAME(T) RQMNAME(QM2) XMITQ(X.Q) REPLACE")
    manager = ibm.queue_manager
    wait(lambda: manager.max_length(queue) == before)
    ibm.mqsc("ALTER QLOCAL(SHORT.Q) MAXMSGL(50)\nALTER QLOCAL(X.Q) MAXMSGL(560)")
    outcome = ibm.commit(Unit([within(queue, b"1", b"x" * 200, b"2")]))
    assert [(one.puts, one.reason, one.longest) for one in outcome.failures] == [(0, 2030, after)]
    assert manager.max_length(queue) == after


def test_what_is_lost_for_another_reason_is_counted_beside_what_is_too_long(ibm: Rig) -> None:
    ibm.mqsc("ALTER QLOCAL(SHORT.Q) MAXDEPTH(3)")
    assert not ibm.commit(Unit([beside("SHORT.Q", b"1")])).failures
    ibm.mqsc("ALTER QLOCAL(SHORT.Q) MAXMSGL(50)")
    unit = Unit([beside("SHORT.Q", b"2", b"x" * 60, b"3", b"4")])
    outcome, puts = ibm.commit(unit), unit.puts[0]
    assert [(one.puts, one.reason) for one in outcome.failures] == [(0, 2030)]
    if puts.placed > 1:
        assert (puts.placed, list(puts.too_long), puts.lost) == (4, [1], 1)


def test_more_than_a_unit_of_work_may_hold(ibm: Rig) -> None:
    ibm.queue_manager.most_rows = 10
    unit = Unit([beside("APP.Q", *[b"0"] * 50), within("OTHER.Q", *[b"1"] * 25)])
    assert not ibm.commit(unit).failures
    assert (len(on(ibm, "APP.Q")), len(on(ibm, "OTHER.Q"))) == (50, 25)
