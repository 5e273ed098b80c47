"""The IBM backend when its queue manager goes away at the worst moment: nothing is lost, nothing is doubled."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path

import mqi_clients
import pytest
from frame_proxy import CUT_AFTER, CUT_BEFORE, REFUSED_AFTER, REFUSED_BEFORE, after_call, at_call
from ibm_rig import HEAD, Rig, ServingProcess, behind_proxy, served

from gateway.backends.ibm.unit_of_work import Marker
from gateway.mqi.wire import Verb
from gateway.ports.batch import Outcome, Puts, Replace, Takes, Unit

pytestmark = pytest.mark.mqi


def _unit(number: int) -> Unit:
    """What one QoS 1 publication with a session record amounts to."""
    return Unit(
        puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"%d" % number])],
        replaces=[Replace("MQGATE.STATE", b"session", b"%d" % number)],
    )


def _numbers(rig: Rig) -> list[int]:
    return [int(stored.data) for stored in rig.queue_manager.fetch("APP.Q", b"", 10_000)]


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
@pytest.mark.parametrize(
    ("verb", "nth", "decision"),
    [
        (Verb.COMMIT, 5, CUT_BEFORE),  # never arrived: backed out, has to be repeated
        (Verb.COMMIT, 5, CUT_AFTER),  # committed, the answer was lost: must not be repeated
        (Verb.PUT, 4, CUT_BEFORE),
        (Verb.PUT, 4, CUT_AFTER),
        (Verb.GET, 3, CUT_AFTER),
    ],
)
def test_a_lost_answer_neither_loses_nor_doubles(
    driver: str, verb: Verb, nth: int, decision: str, tmp_path: Path
) -> None:
    with behind_proxy(tmp_path, at_call(verb, nth, decision), partial(Rig, driver)) as (_, rig):
        for number in range(8):
            assert not rig.commit(_unit(number)).failures
        assert _numbers(rig) == list(range(8))
        assert [stored.data for _, stored in rig.queue_manager.load("MQGATE.STATE")] == [b"7"]
        assert any("2009" in line for line in rig.told), "the connection was meant to break"


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
@pytest.mark.parametrize(
    ("verb", "nth", "decision"),
    [
        (Verb.COMMIT, 8, CUT_BEFORE),
        (Verb.COMMIT, 8, CUT_AFTER),
        (Verb.PUT, 16, CUT_BEFORE),
        (Verb.PUT, 16, CUT_AFTER),
        (Verb.GET, 5, CUT_AFTER),
    ],
)
def test_nor_does_one_lost_by_a_worker_that_is_parked(
    driver: str, verb: Verb, nth: int, decision: str, tmp_path: Path
) -> None:
    with behind_proxy(tmp_path, at_call(verb, nth, decision), partial(Rig, driver, posted=True)) as (_, rig):
        for number in range(12):
            bodies = [b"%d" % (3 * number + one) for one in range(3)]
            assert not rig.commit(Unit(puts=[Puts("APP.Q", heads=[HEAD] * 3, bodies=bodies)])).failures
        assert _numbers(rig) == list(range(36))
        assert any("2009" in line for line in rig.told), "the connection was meant to break"


@pytest.mark.parametrize("posted", [False, True])
@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
@pytest.mark.parametrize("decision", [REFUSED_BEFORE, REFUSED_AFTER])
def test_a_commit_that_fails_without_saying_what_became_of_it_neither_loses_nor_doubles(
    decision: str, driver: str, posted: bool, tmp_path: Path
) -> None:
    """2195, 2102 and others, but for 2003: the unit was taken for backed out. It had been committed, or it was open
    still and was committed with its own repetition."""
    decide = at_call(Verb.COMMIT, 8, decision)
    with behind_proxy(tmp_path, decide, partial(Rig, driver, posted=posted)) as (_, rig):
        for number in range(12):
            bodies = [b"%d" % (3 * number + one) for one in range(3)]
            assert not rig.commit(Unit(puts=[Puts("APP.Q", heads=[HEAD] * 3, bodies=bodies)])).failures
        assert _numbers(rig) == list(range(36))
        assert any("2195" in line for line in rig.told), "a commit was meant to fail"


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_half_a_unit_that_cannot_be_backed_out_is_not_committed_by_mqdisc(driver: str, tmp_path: Path) -> None:
    """MQBACK fails, and fails again; the gateway is told to end, with which the queue manager backs it out."""
    refusing = after_call(Verb.BACK_OUT, 1, REFUSED_BEFORE)  # the first one is of the asynchronous attempt
    with behind_proxy(tmp_path, refusing, partial(Rig, driver)) as (queue_manager, rig):
        ended = threading.Event()
        rig.queue_manager.on_superseded = lambda text: ended.set() if "MQBACK" in text else None
        assert not rig.commit(_unit(0)).failures
        half = [Puts(queue, heads=[HEAD], bodies=[b"1"]) for queue in ("APP.Q", "UNKNOWN.Q")]
        assert rig.commit(Unit(puts=half)).failures
        assert ended.is_set()
        assert [stored.data for _, stored in queue_manager.load("APP.Q")] == [b"0"]


def test_a_killed_queue_manager_costs_time_only(tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    process = ServingProcess(tmp_path)
    rig = Rig("ibmmq", str(process.socket))
    outcomes: list[Outcome] = []
    done = threading.Event()
    total = 300

    def finished(_unit: Unit, outcome: Outcome) -> None:
        outcomes.append(outcome)
        if len(outcomes) == total:
            done.set()

    def feed() -> None:
        for number in range(total):
            rig.scheduler.soon(lambda number=number: rig.queue_manager.submit(_unit(number), finished))
            time.sleep(0.002)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        for kill in range(3):
            while len(outcomes) < (kill + 1) * 60:
                time.sleep(0.005)
            process.kill()
            process.start()
        feeder.join()
        assert done.wait(60), rig.told[-5:]
        assert not [outcome for outcome in outcomes if outcome.failures]
        assert _numbers(rig) == list(range(total))
    finally:
        feeder.join()
        rig.close()
        process.kill()


def test_a_commit_in_doubt_waits_for_the_verdict(tmp_path: Path) -> None:
    """While neither marker can be seen the unit is neither repeated nor acknowledged."""
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock"):
        rig = Rig("ibmmq", str(tmp_path / "mqi.sock"))
        worker = rig.queue_manager._workers[0]
        marker, connection = worker._marker, worker._connection
        assert connection is not None
        other = Rig("ibmmq", str(tmp_path / "mqi.sock"))
        looking = other.queue_manager._workers[1]._connection
        assert looking is not None
        assert marker.verdict(looking) is False  # the settled one is there: nothing new was committed
        marker.advance(connection)
        assert marker.verdict(looking) is None
        connection.session.commit()
        assert marker.verdict(looking) is True
        marker.settle(committed=True)
        stale = Marker(marker.key)  # left by a unit of work that ended late: it decides nothing
        stale.advance(connection)
        connection.session.commit()
        marker.advance(connection)
        connection.session.commit()
        assert marker.verdict(looking) is True
        marker.settle(committed=True)
        rig.commit(Unit(takes=[Takes("APP.Q", b"", [])], puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"x"])]))
        other.close()
        rig.close()


def test_a_unit_is_not_repeated_while_its_first_try_is_still_open(tmp_path: Path) -> None:
    """What the first try has taken cannot be seen: repeating now would take it for gone and leave it there."""
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock") as queue_manager:
        rig, other = Rig("ibmmq", str(tmp_path / "mqi.sock")), Rig("ibmmq", str(tmp_path / "mqi.sock"))
        puts = Puts("MQGATE.STATE", key=b"k", heads=[HEAD], bodies=[b"state"])
        rig.commit(Unit(puts=[puts]))
        holding = other.queue_manager._workers[0]._connection
        assert holding is not None
        for worker in rig.queue_manager._workers:  # as if their connections had broken inside a unit of work
            assert worker._marker.settled is not None
            holding.take(Takes("MQGATE.MARKERS", b"", [worker._marker.settled]))
            worker._marker.offered = b"x" * 24
        holding.take(Takes("MQGATE.STATE", b"k", list(puts.tokens)))
        outcomes: list[Outcome] = []
        done = threading.Event()
        take = Unit(takes=[Takes("MQGATE.STATE", b"k", list(puts.tokens))])
        rig.queue_manager.submit(take, lambda _unit, outcome: (outcomes.append(outcome), done.set()))
        assert not done.wait(0.6)
        holding.session.back()
        assert done.wait(60)
        assert not outcomes[0].failures
        assert queue_manager.depth("MQGATE.STATE") == 0
        other.close()
        rig.close()


def test_environment_is_left_alone(tmp_path: Path) -> None:
    """The library is chosen by the environment at connect time: two queue managers in one process."""
    mqi_clients.load_bindings()
    with served(None, tmp_path / "one.sock"), served(None, tmp_path / "two.sock"):
        one, two = Rig("ibmmq", str(tmp_path / "one.sock")), Rig("ibmmq", str(tmp_path / "two.sock"))
        one.commit(_unit(1))
        assert two.queue_manager.depth("APP.Q") == 0
        assert os.environ["MQGATE_MQI"].endswith("two.sock")
        two.close()
        one.close()
