"""Store and forward, step by step: what goes directly, what waits, in which order it leaves, what survives what."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import mq_segments
import pytest
from buffer_rig import HEAD, VOLATILE, Killed, Mq, Rig, puts

from gateway.backends.buffer.progress import Progress
from gateway.backends.buffer.queue_manager import ABSENT_SECONDS, MOVED_IN
from gateway.backends.buffer.spool import ASIDE, ENTRIES, INTENT
from gateway.backends.ibm.requirements import STATE_QUEUES as ALL_STATE_QUEUES
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.mq.headers import dlh
from gateway.ports.batch import Moves, Puts, Replace, Takes, Unit
from gateway.ports.failure_policy import Policy
from gateway.ports.state_queues import AUDIT, FORWARD, GATEWAYS, MARKERS, SET_ASIDE, SUBSCRIPTIONS


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(max_bytes=getattr(request, "param", 1 << 30))
    made.run()
    assert made.queue_manager.state == "connected"
    yield made
    made.close()


def _staged(rig: Rig, body: bytes, key: bytes = b"device") -> object:
    staged = puts("MQGATE.STAGED", body, key=key)
    assert not rig.commit(Unit([staged])).failures
    return staged.tokens[0]


def _released(token: object, body: bytes, key: bytes = b"device") -> Unit:
    return Unit([puts("APP.Q", body)], [Takes("MQGATE.STAGED", key, [token])])  # type: ignore[list-item]


def test_the_state_queues_are_those_of_the_gateway() -> None:
    assert {*ALL_STATE_QUEUES} == MOVED_IN | {MARKERS, SUBSCRIPTIONS, GATEWAYS, FORWARD, SET_ASIDE, AUDIT}


def test_while_connected_nothing_is_written_to_the_buffer_for_plain_puts(rig: Rig) -> None:
    frames = rig.store.core.committer.frames
    assert not rig.commit(Unit([puts("APP.Q", b"1", b"2")])).failures
    assert rig.mq.bodies("APP.Q") == [b"1", b"2"]
    assert rig.store.core.committer.frames == frames


def test_an_acknowledgement_waits_for_the_commit_on_mq(rig: Rig) -> None:
    outcomes = rig.submit(Unit([puts("APP.Q", b"1")]))
    assert not outcomes
    rig.run()
    assert outcomes
    assert not outcomes[0].failures


def test_what_mq_refuses_directly_is_told_with_the_run_at_fault(rig: Rig) -> None:
    unit = Unit([puts("MQGATE.OUT", b"state", key=b"s"), puts("APP.Q", b"1"), puts("NO.SUCH.Q", b"2")])
    outcome = rig.commit(unit)
    assert [(one.puts, one.reason) for one in outcome.failures] == [(2, 2085)]
    assert not rig.mq.bodies("APP.Q")
    assert not list(rig.queue_manager.load("MQGATE.OUT"))
    assert not list(rig.store.load(ENTRIES))
    assert not list(rig.store.load(INTENT))


def test_while_mq_is_away_units_are_done_when_the_buffer_has_them(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    assert rig.queue_manager.state == "buffering"
    for number in range(3):
        assert not rig.commit(Unit([puts("APP.Q", b"%d" % number)])).failures
    assert rig.queue_manager.spool.messages == 3
    assert rig.queue_manager.spool.bytes > 0
    rig.mq.come()
    rig.run()
    assert rig.queue_manager.state == "connected"
    assert rig.mq.bodies("APP.Q") == [b"0", b"1", b"2"]
    assert (rig.queue_manager.spool.messages, rig.queue_manager.spool.bytes) == (0, 0)
    assert rig.counters.spool_drained_messages == 3
    assert rig.states == ["connected", "buffering", "draining", "connected"]


def test_new_messages_do_not_overtake_buffered_ones(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    rig.commit(Unit([puts("APP.Q", b"old")]))
    rig.mq.come()
    outcomes = rig.submit(Unit([puts("APP.Q", b"new")]))  # before the drain has done anything
    rig.run()
    assert outcomes
    assert rig.mq.bodies("APP.Q") == [b"old", b"new"]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_lost_answer_neither_loses_nor_doubles(rig: Rig, cut: str) -> None:
    rig.link.cut = cut
    assert not rig.commit(Unit([puts("APP.Q", b"1")])).failures
    rig.run()
    rig.commit(Unit([puts("APP.Q", b"2")]))
    assert rig.mq.bodies("APP.Q") == [b"1", b"2"]


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_release_whose_answer_is_lost_happens_once(rig: Rig, cut: str) -> None:
    token = _staged(rig, b"two")
    rig.link.cut = cut
    assert not rig.commit(_released(token, b"two")).failures
    rig.run()
    assert rig.mq.bodies("APP.Q") == [b"two"]
    assert not list(rig.queue_manager.load("MQGATE.STAGED"))


@pytest.mark.parametrize("cut", ["before", "after", ""])
@pytest.mark.parametrize("commits", [1, 2, 3])
@pytest.mark.parametrize("after", [True, False])
def test_a_gateway_killed_while_it_releases_does_it_once(rig: Rig, cut: str, commits: int, after: bool) -> None:
    token = _staged(rig, b"two")
    rig.link.cut = cut
    rig.store.ends_at, rig.store.after = commits, after
    try:
        rig.submit(_released(token, b"two"))
        rig.run()
    except Killed:
        rig.kill()
    rig.run()
    left = [stored for _, stored in rig.queue_manager.load("MQGATE.STAGED")]
    if left:  # the client sends its PUBREL again
        assert not rig.mq.bodies("APP.Q")
        rig.commit(_released(left[0].token, b"two"))
    rig.run()
    assert rig.mq.bodies("APP.Q") == [b"two"]
    assert not list(rig.queue_manager.load("MQGATE.STAGED"))
    assert not list(rig.store.load(INTENT))


def test_the_buffer_survives_a_restart_while_mq_is_away(rig: Rig) -> None:
    token = _staged(rig, b"two")
    rig.mq.go()
    rig.run()
    rig.commit(Unit([puts("APP.Q", b"one")], replaces=[Replace("MQGATE.SESSIONS", b"s", b"record")]))
    rig.commit(_released(token, b"two"))
    rig.kill()
    rig.run()
    assert rig.queue_manager.state == "buffering"
    assert rig.queue_manager.name == "QM1"
    assert rig.queue_manager.spool.recovered == 2
    assert [stored.data for _, stored in rig.queue_manager.load("MQGATE.SESSIONS")] == [b"record"]
    rig.commit(Unit([puts("APP.Q", b"three")]))
    rig.mq.come()
    rig.run()
    assert rig.mq.bodies("APP.Q") == [b"one", b"two", b"three"]


def test_numbers_of_a_new_process_lie_behind_those_of_direct_units(rig: Rig) -> None:
    for _ in range(5):
        rig.commit(Unit([puts("APP.Q", b"direct")]))
    rig.mq.go()
    rig.kill()
    rig.run()
    rig.commit(Unit([puts("APP.Q", b"buffered")]))
    rig.mq.come()
    rig.run()
    assert rig.mq.bodies("APP.Q").count(b"buffered") == 1


def test_nothing_is_drained_before_the_progress_can_be_seen(rig: Rig) -> None:
    rig.link.cut = "after"
    rig.link.hidden = 3
    outcomes = rig.submit(Unit([puts("APP.Q", b"1")]))
    rig.run()
    assert outcomes
    assert rig.queue_manager.state == "buffering"
    rig.run(5.0)
    assert rig.queue_manager.state == "connected"
    assert rig.mq.bodies("APP.Q") == [b"1"]


def test_a_progress_that_was_removed_is_written_anew_in_the_end(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    rig.commit(Unit([puts("APP.Q", b"1")]))
    tokens = [stored.token for _, stored in rig.mq.queue_manager.load("MQGATE.MARKERS")]
    rig.mq.commit(Unit(takes=[Takes("MQGATE.MARKERS", key, tokens) for key, _ in rig.mq.load_markers()]))
    rig.mq.come()
    rig.run(10.0)
    assert rig.queue_manager.state == "buffering"
    rig.run(ABSENT_SECONDS)
    assert rig.queue_manager.state == "connected"
    assert rig.mq.bodies("APP.Q") == [b"1"]


@pytest.mark.parametrize("rig", [4000], indirect=True)
def test_beyond_the_limit_nothing_is_acknowledged_and_volatile_messages_are_dropped(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    rig.queue_manager.units.rule_of = lambda _puts: "rule"
    assert rig.submit(Unit([puts("APP.Q", b"x" * 2000)]))
    held = rig.submit(Unit([puts("APP.Q", b"y" * 2000), puts("OTHER.Q", b"z" * 2000, persistent=False, head=VOLATILE)]))
    behind = rig.submit(Unit(replaces=[Replace("MQGATE.SESSIONS", b"s", b"record")]))
    rig.run()
    assert not held
    assert not behind
    assert rig.queue_manager.full
    assert rig.counters.messages_dropped["rule", "spool_full"] == 1
    assert rig.counters.backpressure_events["spool_full"] == 1
    rig.mq.come()
    rig.run()
    assert held
    assert behind
    assert rig.mq.bodies("APP.Q") == [b"x" * 2000, b"y" * 2000]
    assert not rig.mq.bodies("OTHER.Q")


@pytest.mark.parametrize("rig", [100], indirect=True)
def test_volatile_messages_alone_are_dropped_and_answered(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    assert not rig.commit(Unit([puts("OTHER.Q", b"z", persistent=False, head=VOLATILE)])).failures
    assert rig.counters.messages_dropped["_none", "spool_full"] == 1


@pytest.mark.parametrize("rig", [100], indirect=True)
def test_an_attempt_in_doubt_that_finds_no_room_is_settled_by_the_progress(rig: Rig) -> None:
    rig.mq.alive = True
    rig.link.cut = "after"
    rig.link.hidden = 2
    outcomes = rig.submit(Unit([puts("APP.Q", b"1")]))
    rig.run()
    assert not outcomes
    rig.run(5.0)
    assert outcomes
    assert rig.mq.bodies("APP.Q") == [b"1"]


def test_a_queue_manager_that_does_not_answer_is_away_and_what_it_did_counts(rig: Rig) -> None:
    rig.link.late = True
    outcomes = rig.submit(Unit([puts("APP.Q", b"1")]))
    rig.run(9.0)
    assert not outcomes
    rig.run(2.0)
    assert outcomes
    assert rig.queue_manager.state == "buffering"
    assert "not answered" in rig.queue_manager.why
    rig.commit(Unit([puts("APP.Q", b"2")]))
    assert not rig.mq.bodies("APP.Q")
    rig.link.answer()
    rig.run()
    assert rig.queue_manager.state == "connected"
    assert rig.mq.bodies("APP.Q") == [b"1", b"2"]


def test_a_full_disk_is_told_unless_an_attempt_is_in_doubt(rig: Rig) -> None:
    rig.link.cut, rig.link.hidden = "after", 1
    rig.store.fails = 2
    outcomes = rig.submit(Unit([puts("APP.Q", b"1")]))
    rig.run()
    assert not outcomes
    rig.run(10.0)
    assert [outcome.failures for outcome in outcomes] == [[]]
    assert rig.mq.bodies("APP.Q") == [b"1"]
    rig.store.fails = 0
    rig.mq.go()
    rig.run()
    rig.store.fails = 1
    assert [one.reason for one in rig.commit(Unit([puts("APP.Q", b"2")])).failures] == [2192]


@pytest.mark.parametrize("cut", ["", "after"])
def test_a_full_disk_between_mq_and_the_state_is_waited_for(rig: Rig, cut: str) -> None:
    token = _staged(rig, b"two")
    rig.link.cut = cut
    outcomes = rig.submit(_released(token, b"two"))
    rig.store.fails = 2
    rig.run()
    assert not outcomes
    rig.run(10.0)
    assert outcomes
    assert rig.mq.bodies("APP.Q") == [b"two"]
    assert not list(rig.queue_manager.load("MQGATE.STAGED"))


def test_expiry_runs_while_a_message_waits(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    rig.queue_manager.units.rule_of = lambda _puts: "rule"
    short, long = mqmd.with_expiry(HEAD, 50), mqmd.with_expiry(HEAD, 1000)
    rig.commit(Unit([Puts("APP.Q", heads=[short, long, HEAD], bodies=[b"short", b"long", b"ever"])]))
    rig.run(10.0)
    rig.mq.come()
    rig.run()
    assert rig.mq.bodies("APP.Q") == [b"long", b"ever"]
    assert rig.counters.messages_dropped["rule", "expired"] == 1
    assert rig.counters.spool_drained_messages == 2
    assert rig.queue_manager.spool.messages == 0
    page = rig.mq.queue_manager.fetch("APP.Q", b"", 1)
    assert mqmd.number(page[0].md, 16) <= 900


def test_expiry_runs_for_what_is_set_aside_and_is_counted_once(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    heads = [mqmd.with_expiry(HEAD, 300), mqmd.with_expiry(HEAD, 6000)]
    rig.commit(Unit([Puts("APP.Q", heads=heads, bodies=[b"short", b"long"])]))
    rig.run(10.0)
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) PUT(DISABLED)")
    rig.mq.come()
    rig.run(60.0)
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) PUT(ENABLED)")
    rig.run(60.0)
    assert rig.mq.bodies("APP.Q") == [b"long"]
    left = mqmd.number(rig.mq.queue_manager.fetch("APP.Q", b"", 1)[0].md, 16)
    assert 6000 - 1300 <= left <= 6000 - 700
    assert rig.counters.messages_dropped["_none", "expired"] == 1


def test_a_destination_that_refuses_holds_up_no_other(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    for number in range(4):
        rig.commit(Unit([puts("APP.Q", b"a%d" % number), puts("OTHER.Q", b"o%d" % number)]))
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) PUT(DISABLED)")
    rig.mq.come()
    rig.run()
    assert rig.mq.bodies("OTHER.Q") == [b"o0", b"o1", b"o2", b"o3"]
    assert rig.queue_manager.state == "draining"
    assert "APP.Q" in rig.queue_manager.problems
    assert [since for since, _ in rig.queue_manager.spool.waiting_since()] == [1_767_225_600.0]
    rig.commit(Unit([puts("OTHER.Q", b"direct")]))
    rig.commit(Unit([puts("APP.Q", b"a4"), puts("OTHER.Q", b"o4")]))  # lines up behind what refuses
    assert rig.mq.bodies("OTHER.Q")[-2:] == [b"direct", b"o4"]
    assert rig.queue_manager.spool.messages == 5
    rig.kill()
    rig.run()
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) PUT(ENABLED)")
    rig.run(60.0)
    assert rig.mq.bodies("APP.Q") == [b"a0", b"a1", b"a2", b"a3", b"a4"]
    assert rig.queue_manager.state == "connected"
    assert not rig.queue_manager.problems
    assert rig.queue_manager.spool.messages == 0
    assert not list(rig.store.load(ASIDE))


def test_a_destination_that_does_not_exist_means_dead_letters(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    rig.queue_manager.units.rule_of = lambda _puts: "rule"
    rig.commit(Unit([puts("APP.Q", b"1"), replace(puts("NO.SUCH.Q", b"2"), priority=7)]))
    rig.commit(Unit([puts("APP.Q", b"3")]))
    rig.mq.come()
    rig.run()
    assert rig.mq.bodies("APP.Q") == [b"1", b"3"]
    [(_, letter)] = rig.mq.load("MQGATE.DEAD.LETTER")
    assert 9 - (letter.token >> 60) == 7  # it has the priority of its message
    dead = dlh.parse(letter.data)
    assert (dead.reason, dead.dest_q_name.strip()) == (2085, "NO.SUCH.Q")
    assert rig.counters.dlq_messages["rule", "unknown_queue"] == 1
    assert rig.counters.spool_drained_messages == 2


@pytest.mark.parametrize("then", ["dead_letter", "drop", "disconnect", "hold"])
@pytest.mark.parametrize("fault", ["APP.Q", "NO.SUCH.Q"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_rule_says_what_becomes_of_what_is_refused_while_draining(
    rig: Rig, then: str, fault: str, killed: bool
) -> None:
    """As without a buffer: tried again where that may help, then what the rule says; others go on meanwhile."""

    def know() -> None:
        rig.queue_manager.units.rule_of = lambda _puts: "rule"
        rig.queue_manager.policy_of(lambda _rule: Policy("rule", 2, 1.0, 4.0, then, "dead_letter"))

    know()
    rig.mq.go()
    rig.run()
    for number in range(3):
        rig.commit(Unit([puts(fault, b"a%d" % number), puts("OTHER.Q", b"o%d" % number)]))
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) PUT(DISABLED)")
    rig.mq.come()
    rig.run()
    assert rig.mq.bodies("OTHER.Q") == [b"o0", b"o1", b"o2"]
    waits = then == "hold" or fault == "APP.Q"  # a queue that is missing is missing at the second look too
    assert rig.queue_manager.spool.messages == (3 if waits else 0)
    if killed:
        rig.kill()
        know()
    rig.run(120.0)
    dead, dropped = rig.counters.dlq_messages, rig.counters.messages_dropped
    letters = [dlh.parse(body).reason for body in rig.mq.bodies("MQGATE.DEAD.LETTER")]
    expected = 3 if then in {"dead_letter", "disconnect"} else 0
    assert letters == [2051 if fault == "APP.Q" else 2085] * expected
    label = "put_inhibited" if fault == "APP.Q" else "unknown_queue"
    assert +Counter(dead) == ({("rule", label): 3} if expected else {})
    assert sum(dropped.values()) == (3 if then == "drop" else 0)
    assert rig.queue_manager.spool.messages == (3 if then == "hold" else 0)
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) PUT(ENABLED)\nDEFINE QLOCAL(NO.SUCH.Q)")
    rig.run(120.0)
    rig.commit(Unit([puts(fault, b"after")]))
    held = [b"a0", b"a1", b"a2"] if then == "hold" else []
    assert rig.mq.bodies(fault) == [*held, b"after"]
    assert rig.queue_manager.state == "connected"


@pytest.mark.parametrize(
    ("reason", "label"), [(2053, "queue_full"), (2051, "put_inhibited"), (2110, "other"), (2190, "other")]
)
def test_a_dead_letter_is_counted_when_draining_as_it_is_without_a_buffer(rig: Rig, reason: int, label: str) -> None:
    """The broker's part of this is in unit/broker/test_parking.py, with the same codes and labels."""
    rig.queue_manager.units.rule_of = lambda _puts: "rule"
    rig.queue_manager.policy_of(lambda _rule: Policy("rule", 0, 1.0, 4.0, "dead_letter", "dead_letter"))
    rig.mq.go()
    rig.run()
    rig.commit(Unit([puts("APP.Q", b"refused")]))
    rig.commit(Unit([puts("OTHER.Q", b"next")]))
    rig.mq.refusing["APP.Q"] = reason
    rig.mq.come()
    rig.run()
    assert rig.mq.bodies("OTHER.Q") == [b"next"]
    assert [dlh.parse(body).reason for body in rig.mq.bodies("MQGATE.DEAD.LETTER")] == [reason]
    assert +Counter(rig.counters.dlq_messages) == {("rule", label): 1}


@pytest.mark.parametrize("then", ["dead_letter", "hold"])
@pytest.mark.parametrize("killed", [False, True])
def test_what_is_too_long_is_segmented_while_draining(rig: Rig, then: str, killed: bool) -> None:
    """Each message by itself is cut if its rule says so; what fits stays whole."""

    def know() -> None:
        rig.queue_manager.units.rule_of = lambda _puts: "rule"
        rig.queue_manager.policy_of(lambda _rule: Policy("rule", 2, 1.0, 4.0, then, "segment"))

    know()
    rig.mq.go()
    rig.run()
    long = bytes(range(256)) * 4
    rig.commit(Unit([puts("APP.Q", b"short", long, long), puts("OTHER.Q", b"beside")]))
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) MAXMSGL(300)")
    if killed:
        rig.kill()
        know()
    rig.mq.come()
    for _ in range(30):  # its own thread writes the store: on a busy machine that takes longer than this clock says
        rig.run(10.0)
        if rig.counters.spool_drained_messages == 4:
            break
    assert rig.mq.bodies("OTHER.Q") == [b"beside"]
    found = [stored for _, stored in rig.mq.queue_manager.load("APP.Q")]
    assert found[0].data == b"short"
    groups = list(dict.fromkeys(stored.md[mqmd.GROUP_ID] for stored in found[1:]))
    assert len(groups) == 2
    for group in groups:
        parts = [(stored.md, stored.data) for stored in found if stored.md[mqmd.GROUP_ID] == group]
        assert mq_segments.complete(parts)[1] == long
    assert rig.counters.spool_drained_messages == 4
    assert not any(rig.counters.dlq_messages.values())
    assert rig.queue_manager.state == "connected"


def test_of_a_run_only_what_is_too_long_is_dead_lettered(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    rig.queue_manager.units.rule_of = lambda _puts: "rule"
    rig.commit(Unit([puts("APP.Q", b"1", b"x" * 500, b"2")]))
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) MAXMSGL(300)")
    rig.mq.come()
    rig.run(10.0)
    assert rig.mq.bodies("APP.Q") == [b"1", b"2"]
    [letter] = rig.mq.bodies("MQGATE.DEAD.LETTER")
    assert dlh.parse(letter).reason == 2030
    assert (rig.counters.dlq_messages["rule", "too_long"], rig.counters.spool_drained_messages) == (1, 2)


def test_a_read_that_hangs_holds_up_nobody(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = rig.queue_manager._reads
    monkeypatch.setattr(reads._calls, "seconds", 0.05)
    going = threading.Event()
    monkeypatch.setattr(rig.mq, "depth", lambda *_: going.wait(20))
    with pytest.raises(MQError, match="not answered"):
        rig.queue_manager.depth("APP.Q")
    assert rig.queue_manager.state == "buffering"
    with pytest.raises(MQError, match="not answered"):
        reads.depth("APP.Q")
    assert not rig.commit(Unit([puts("MQGATE.OUT", b"goes on", key=b"s")])).failures
    rig.run()
    assert rig.queue_manager.state == "connected"  # the link has looked: it is only the reads that hang
    going.set()
    until = time.monotonic() + 20
    while reads._calls.silence() and time.monotonic() < until:
        time.sleep(0.01)
    assert rig.queue_manager.depth("APP.Q") is True


def test_a_long_unit_goes_through_the_store(rig: Rig) -> None:
    bodies = [b"%d" % number for number in range(6000)]
    assert not rig.commit(Unit([puts("APP.Q", *bodies)])).failures
    assert rig.mq.bodies("APP.Q") == bodies
    assert rig.queue_manager.state == "connected"


def test_moves_of_staged_messages(rig: Rig) -> None:
    token = _staged(rig, b"payload")
    rig.commit(Unit(moves=[Moves("MQGATE.STAGED", b"device", [token], "APP.Q", heads=[HEAD + b"header:"])]))  # type: ignore[list-item]
    assert rig.mq.bodies("APP.Q") == [b"header:payload"]
    assert not list(rig.queue_manager.load("MQGATE.STAGED"))


def test_reading_while_mq_is_away(rig: Rig) -> None:
    rig.mq.go()
    rig.run()
    assert rig.queue_manager.fetch("APP.Q", b"", 1) == []
    assert rig.queue_manager.max_length("APP.Q") == 104_857_600
    assert rig.queue_manager.depth("MQGATE.OUT", b"s") == 0
    with pytest.raises(MQError, match="cut"):
        rig.queue_manager.depth("APP.Q")


def test_a_length_that_is_only_usual_is_not_kept(rig: Rig) -> None:
    """Only the connection for reading is broken: the next caller is told the truth."""
    rig.mq.guessed.add("APP.Q")
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) MAXMSGL(5000)")
    assert rig.queue_manager.max_length("APP.Q") == 5000
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) MAXMSGL(6000)")
    assert rig.queue_manager.max_length("APP.Q") == 6000
    rig.mq.guessed.clear()
    assert rig.queue_manager.max_length("APP.Q") == 6000
    rig.mq.go()
    rig.run()
    assert rig.queue_manager.max_length("APP.Q") == 6000


def test_sources_are_asked_for_while_mq_is_there(rig: Rig) -> None:
    rig.mq.queue_manager.mqsc("ALTER QLOCAL(APP.Q) BOTHRESH(3) BOQNAME(OTHER.Q)")
    assert rig.queue_manager.backout("APP.Q") == (3, "OTHER.Q")
    where = rig.queue_manager.subscribe("mqgate.rule", "plant/+")
    assert where.queue
    rig.mq.go()
    rig.run()
    assert rig.queue_manager.backout("APP.Q") == (3, "OTHER.Q")
    with pytest.raises(MQError):
        rig.queue_manager.backout("OTHER.Q")
    with pytest.raises(MQError):
        rig.queue_manager.subscribe("mqgate.rule", "plant/+")


def test_a_buffer_restored_from_a_backup_loses_nothing_that_it_accepts(rig: Rig) -> None:
    backup = copy.deepcopy(rig.disk)
    for _ in range(3):  # later processes get further than the backup knows
        rig.kill()
        rig.run()
        rig.commit(Unit([puts("APP.Q", b"later")]))
    rig.mq.go()
    rig.disk = backup
    rig.kill()
    rig.run()
    rig.commit(Unit([puts("APP.Q", b"after the restore")]))
    rig.mq.come()
    rig.run()
    assert rig.queue_manager.state == "connected"
    assert rig.mq.bodies("APP.Q") == [b"later"] * 3 + [b"after the restore"]
    rig.kill()
    rig.run()
    rig.commit(Unit([puts("APP.Q", b"goes on")]))
    assert rig.mq.bodies("APP.Q")[-1] == b"goes on"
    assert len(rig.mq.load_markers()) == 2  # the other may be in use


def test_a_first_start_while_mq_is_away() -> None:
    mq = Mq()
    mq.alive = False
    with closing(Rig(mq)) as rig:
        rig.run()
        assert rig.queue_manager.state == "buffering"
        rig.commit(Unit([puts("APP.Q", b"1")]))
        mq.come()
        rig.run()
        assert mq.bodies("APP.Q") == [b"1"]
        assert json.loads(mq.bodies("MQGATE.MARKERS")[0])["main"] > 0


def test_progress_forgets_destinations_that_are_through(rig: Rig) -> None:
    progress = Progress(5, {("A", ""): 3}).reached(4).aside_reached(("B", "QM2"), 7)
    assert progress == Progress(5, {("A", ""): 3, ("B", "QM2"): 7})
    assert progress.without(("A", "")) == Progress(5, {("B", "QM2"): 7})
    del rig
