"""The batch port over the real client bindings, against our queue manager and against the one in the library."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import HEAD, OBJECTS, STATE, BatchRig, Rig, over, served

from gateway.backends.ibm import worker
from gateway.backends.ibm.client import IbmQueueManager
from gateway.backends.ibm.driver import ConnectSettings
from gateway.errors import MQError
from gateway.ports.batch import Moves, Outcome, Puts, Replace, Takes, Unit
from gateway.queue_manager.thread_scheduler import ThreadScheduler

pytestmark = pytest.mark.mqi


@pytest.fixture(
    params=[
        "embedded",
        "ibmmq-socket",
        "pymqi-socket",
        "ibmmq-posted",
        "pymqi-posted",
        "ibmmq-buffer",
        "pymqi-buffer",
    ]
)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchRig]:
    with over(request.param, tmp_path) as made:
        yield made


def _puts(queue: str, *bodies: bytes, key: bytes = b"", persistent: bool = True) -> Puts:
    return Puts(queue, key=key, persistent=persistent, heads=[HEAD] * len(bodies), bodies=list(bodies))


def test_puts_are_there_after_the_commit_in_order(rig: BatchRig) -> None:
    assert not rig.commit(Unit(puts=[_puts("APP.Q", *[b"%d" % i for i in range(200)])])).failures
    page = rig.queue_manager.fetch("APP.Q", b"", 500)
    assert [stored.data for stored in page] == [b"%d" % i for i in range(200)]
    assert rig.queue_manager.depth("APP.Q") == 200


def test_a_shared_head_is_not_changed_by_the_call(rig: BatchRig) -> None:
    before = bytes(bytearray(HEAD))
    rig.commit(Unit(puts=[_puts("APP.Q", b"a", b"b", key=b"")]))
    assert before == HEAD
    ids = [stored.md[48:72] for stored in rig.queue_manager.fetch("APP.Q", b"", 10)]
    assert len(set(ids)) == 2


def test_the_head_carries_the_first_part_of_the_data(rig: BatchRig) -> None:
    puts = Puts("APP.Q", heads=[HEAD + b"front-"], bodies=[b"back"])
    rig.commit(Unit(puts=[puts]))
    assert rig.queue_manager.fetch("APP.Q", b"", 1)[0].data == b"front-back"


def test_tokens_take_what_was_put(rig: BatchRig) -> None:
    puts = _puts("MQGATE.STATE", b"1", b"2", b"3", key=b"device")
    rig.commit(Unit(puts=[puts]))
    assert len(puts.tokens) == 3
    rig.commit(Unit(takes=[Takes("MQGATE.STATE", b"device", [puts.tokens[1]])]))
    assert [stored.data for stored in rig.queue_manager.fetch("MQGATE.STATE", b"device", 10)] == [b"1", b"3"]
    rig.commit(Unit(takes=[Takes("MQGATE.STATE", b"device", [puts.tokens[1]])]))  # gone already: nothing to do


def test_keys_are_separate_and_come_back(rig: BatchRig) -> None:
    rig.commit(Unit(puts=[_puts("MQGATE.STATE", b"a", key=b"k1"), _puts("MQGATE.STATE", b"b", key=b"k" * 24)]))
    assert [(key, stored.data) for key, stored in rig.queue_manager.load("MQGATE.STATE")] == [
        (b"k1", b"a"),
        (b"k" * 24, b"b"),
    ]
    assert rig.queue_manager.depth("MQGATE.STATE", b"k1") == 1


def test_replace_keeps_one_message_for_a_key(rig: BatchRig) -> None:
    for body in (b"one", b"two", b"three"):
        rig.commit(Unit(replaces=[Replace("MQGATE.STATE", b"k", body)]))
    assert [stored.data for _, stored in rig.queue_manager.load("MQGATE.STATE")] == [b"three"]
    rig.commit(Unit(replaces=[Replace("MQGATE.STATE", b"k", None)]))
    assert list(rig.queue_manager.load("MQGATE.STATE")) == []


def test_a_move_makes_the_staged_message_visible_once(rig: BatchRig) -> None:
    staged = Puts("MQGATE.STAGED", key=b"d", heads=[HEAD + b"record"], bodies=[b"payload"])
    rig.commit(Unit(puts=[staged]))
    move = Moves("MQGATE.STAGED", b"d", list(staged.tokens), "APP.Q", heads=[HEAD + b"header:"])
    for _ in range(2):  # a resent PUBREL changes nothing
        assert not rig.commit(Unit(moves=[move])).failures
    assert [stored.data for stored in rig.queue_manager.fetch("APP.Q", b"", 10)] == [b"header:payload"]
    assert rig.queue_manager.depth("MQGATE.STAGED") == 0


def test_a_refused_put_refuses_its_unit_and_no_other(rig: BatchRig) -> None:
    good, bad = Unit(puts=[_puts("APP.Q", b"good")]), Unit(puts=[_puts("APP.Q", b"x"), _puts("NO SUCH", b"y")])
    outcomes: dict[int, Outcome] = {}
    done = threading.Event()

    def finished(unit: Unit, outcome: Outcome) -> None:
        outcomes[id(unit)] = outcome
        if len(outcomes) == 3:
            done.set()

    last = Unit(puts=[_puts("APP.Q", b"last")])
    for unit in (good, bad, last):
        rig.queue_manager.submit(unit, finished)
    assert done.wait(60)
    assert not outcomes[id(good)].failures
    assert not outcomes[id(last)].failures
    assert [(failure.puts, failure.reason) for failure in outcomes[id(bad)].failures] in ([(1, 2085)], [(1, 2152)])
    assert [stored.data for stored in rig.queue_manager.fetch("APP.Q", b"", 10)] == [b"good", b"last"]


def test_outcomes_come_in_the_order_of_submission(rig: BatchRig) -> None:
    order: list[int] = []
    done = threading.Event()
    units = [Unit(puts=[_puts("APP.Q" if i % 3 else "OTHER.Q", b"%d" % i)]) for i in range(60)]

    def finished(unit: Unit, outcome: Outcome) -> None:
        order.append(units.index(unit))
        if len(order) == len(units):
            done.set()

    for unit in units:
        rig.queue_manager.submit(unit, finished)
    assert done.wait(60)
    assert order == list(range(60))
    sequence = [int(stored.data) for stored in rig.queue_manager.fetch("APP.Q", b"", 100)]
    assert sequence == sorted(sequence)


def test_fetch_goes_on_behind_a_message_that_has_been_taken(rig: BatchRig) -> None:
    puts = _puts("MQGATE.STATE", *[b"%d" % i for i in range(10)], key=b"k")
    rig.commit(Unit(puts=[puts]))
    first = rig.queue_manager.fetch("MQGATE.STATE", b"k", 4)
    rig.queue_manager.fetch("MQGATE.STATE", b"other", 4)  # moves the cursor away
    rig.commit(Unit(takes=[Takes("MQGATE.STATE", b"k", [first[-1].token])]))
    page = rig.queue_manager.fetch("MQGATE.STATE", b"k", 3, first[-1].token)
    assert [stored.data for stored in page] == [b"4", b"5", b"6"]
    page = rig.queue_manager.fetch("MQGATE.STATE", b"k", 30, page[-1].token)
    assert [stored.data for stored in page] == [b"7", b"8", b"9"]


def test_a_long_message_is_fetched_whole(rig: BatchRig) -> None:
    body = os.urandom(300_000)
    rig.commit(Unit(puts=[_puts("APP.Q", body)]))
    assert rig.queue_manager.fetch("APP.Q", b"", 2)[0].data == body


def test_arrivals_are_told(rig: BatchRig) -> None:
    arrived = threading.Event()
    rig.queue_manager.consume("OTHER.Q", arrived.set)
    rig.commit(Unit(puts=[_puts("OTHER.Q", b"x")]))
    assert arrived.wait(60)
    page = rig.queue_manager.fetch("OTHER.Q", b"", 10)
    rig.commit(Unit(takes=[Takes("OTHER.Q", b"", [page[0].token])]))
    arrived.clear()
    rig.commit(Unit(puts=[_puts("OTHER.Q", b"y")]))
    assert arrived.wait(60)


def test_a_batch_of_n_puts_costs_n_calls_and_a_constant(rig: BatchRig) -> None:
    if not isinstance(rig, Rig):
        pytest.skip("makes no calls, or through its link")
    costs = []
    for count in (10, 500):
        before = _calls(rig)
        rig.commit(Unit(puts=[_puts("APP.Q", *[b"x"] * count)]))
        costs.append(_calls(rig) - before - count)
    assert costs[0] == costs[1] <= 4


def _calls(rig: BatchRig) -> int:
    return sum(
        w.calls + (w._connection.calls if w._connection else 0) + (w._posted_units.calls if w._posted_units else 0)
        for w in rig.queue_manager._workers
    )


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_a_queue_that_was_made_anew_is_opened_anew(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock") as queue_manager:
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        rig.commit(Unit(puts=[_puts("APP.Q", b"old")]))
        assert rig.queue_manager.depth("APP.Q") == 1
        rig.queue_manager.fetch("APP.Q", b"", 1)
        connection = rig.queue_manager._workers[0]._connection
        assert connection is not None
        for handle in connection._handles.values():  # what a deletion with FORCE leaves: handles of nothing
            connection.session.close(handle)
        connection = rig.queue_manager._workers[1]._connection
        assert connection is not None
        for handle in connection._handles.values():
            connection.session.close(handle)
        assert not rig.commit(Unit(puts=[_puts("APP.Q", b"new")])).failures
        assert queue_manager.depth("APP.Q") == 2
        rig.close()


def test_an_idle_worker_renews_its_marker_and_a_closed_one_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mqi_clients.load_bindings()
    monkeypatch.setattr(worker, "RENEW_SECONDS", 0.02)
    with served(None, tmp_path / "mqi.sock") as queue_manager:
        rig = Rig("ibmmq", str(tmp_path / "mqi.sock"))
        marker = rig.queue_manager._workers[0]._marker
        first, until = marker.settled, time.monotonic() + 60
        while marker.settled == first and time.monotonic() < until:
            time.sleep(0.01)
        assert marker.settled != first
        rig.close()
        assert queue_manager.depth("MQGATE.MARKERS") == 0


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_put_that_fails_asynchronously_is_reported(driver: str, persistent: bool, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", OBJECTS + "\nDEFINE QLOCAL(SMALL.Q) MAXMSGL(10)"):
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        long = _puts("SMALL.Q", b"fits", b"does not fit", persistent=persistent)
        outcome = rig.commit(Unit(puts=[_puts("APP.Q", b"with it"), long]))
        assert [(failure.puts, failure.reason) for failure in outcome.failures] == [(1, 2030)]
        assert rig.queue_manager.depth("APP.Q") == rig.queue_manager.depth("SMALL.Q") == 0
        assert not rig.commit(Unit(puts=[_puts("SMALL.Q", b"fits", persistent=persistent)])).failures
        rig.close()


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_starting_refuses_with_what_to_do(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", "DEFINE QLOCAL(APP.Q)"):
        os.environ["MQGATE_MQI"] = str(tmp_path / "mqi.sock")
        with ThreadScheduler() as scheduler:
            wrong = ConnectSettings("QM1", "h(1)", "C", "app", "wrong")
            with pytest.raises(MQError, match="deploy/mq") as refused:
                IbmQueueManager(wrong, scheduler, driver=driver).start()
            assert refused.value.reason == 2035
            with pytest.raises(MQError, match=r"state\.mqsc") as refused:
                IbmQueueManager(ConnectSettings("QM1", "h(1)", "C", "app", "pw"), scheduler, driver=driver).start()
            assert refused.value.reason == 2085
            assert all(name in str(refused.value) for name in ("MQGATE.SESSIONS", "MQGATE.MARKERS", "MQGATE.OUT"))
            named = ConnectSettings("OTHER", "h(1)", "C", "app", "pw")
            with pytest.raises(MQError, match="is not the name") as refused:
                IbmQueueManager(named, scheduler, driver=driver).start()
            assert refused.value.reason == 2058


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_examining_names_everything_that_is_missing(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    own = "DEFINE QLOCAL(SHORT) MAXMSGL(1000)\nDEFINE QLOCAL(IN) BOTHRESH(3)\nDEFINE QLOCAL(GOOD) MAXMSGL(5000000)"
    with served(None, tmp_path / "mqi.sock", f"{STATE}\n{own}"):
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        found = rig.queue_manager.examine(["GOOD", "SHORT", "MISSING", "topic://a/b"], ["IN"], 1 << 20)
        assert [(one.subject, one.serious) for one in found] == [("SHORT", True), ("MISSING", True), ("IN", False)]
        assert "MAXMSGL to 1052672" in found[0].text
        assert "does not exist" in found[1].text
        assert rig.queue_manager.dead_letter_queue in ("MQGATE.DEAD.LETTER", "SYSTEM.DEAD.LETTER.QUEUE")
        rig.close()


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_a_unit_above_maxumsgs_is_committed_in_parts(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock", OBJECTS + "\nALTER QMGR MAXUMSGS(40)") as queue_manager:
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        assert rig.queue_manager.most_rows == 20
        staged = _puts("MQGATE.STATE", *[b"%d" % i for i in range(30)], key=b"k")
        assert not rig.commit(Unit(puts=[staged])).failures
        assert len(set(staged.tokens)) == 30
        unit = Unit(
            puts=[_puts("APP.Q", *[b"%d" % i for i in range(90)])],
            takes=[Takes("MQGATE.STATE", b"k", list(staged.tokens))],
        )
        assert not rig.commit(unit).failures
        page = rig.queue_manager.fetch("APP.Q", b"", 500)
        assert [stored.data for stored in page] == [b"%d" % i for i in range(90)]
        assert [stored.token for stored in page] == list(unit.puts[0].tokens)
        assert queue_manager.depth("MQGATE.STATE") == 0
        rig.close()
