"""The parts of the IBM backend that need no queue manager: order, identifiers, structures, back-off, loading."""

from __future__ import annotations

import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.backends.ibm import driver
from gateway.backends.ibm.identifiers import MessageIds, is_ours
from gateway.backends.ibm.requirements import STATE_QUEUES
from gateway.backends.ibm.structures import (
    fresh,
    get_options,
    has_identity,
    head_length_of,
    key_of,
    keyed_md,
    match_md,
    object_descriptor,
    plain_md,
    put_options,
)
from gateway.backends.ibm.submission_queue import Partition, Queue, Submission, lanes_of
from gateway.backends.ibm.unit_of_work import rows_of
from gateway.backends.ibm.worker import Backoff
from gateway.errors import DriverUnavailable
from gateway.mq import mqmd
from gateway.mq.layout import unpack
from gateway.ports.batch import Moves, Outcome, Puts, Replace, Takes, Unit
from gateway.ports.state_queues import MARKERS

HEAD = mqmd.build(persistence=1)


# Order


def _unit(*lanes: tuple[str, bytes]) -> Unit:
    return Unit(puts=[Puts(queue, key=key, heads=[HEAD], bodies=[b""]) for queue, key in lanes])


def test_lanes_are_every_queue_and_key_a_unit_touches() -> None:
    unit = Unit(
        puts=[Puts("A")],
        takes=[Takes("B", b"k", [])],
        moves=[Moves("C", b"k", [], "D", to_key=b"x")],
        replaces=[Replace("E", b"r", None)],
    )
    assert lanes_of(unit) == {("A", b""), ("B", b"k"), ("C", b"k"), ("D", b"x"), ("E", b"r")}


def test_units_of_one_lane_share_a_worker_while_one_is_under_way() -> None:
    partition = Partition(3)
    first = partition.assign([("A", b"")])
    assert partition.assign([("A", b""), ("B", b"")]) == first
    other = partition.assign([("C", b"")])
    assert other != first
    assert partition.assign([("B", b""), ("C", b"")]) is None
    partition.release(other or 0, [("C", b"")])
    assert partition.assign([("B", b""), ("C", b"")]) == first


@given(
    st.lists(st.sets(st.sampled_from("ABCDE"), min_size=1, max_size=3), min_size=1, max_size=30),
    st.integers(1, 4),
    st.data(),
)
def test_order_holds_for_every_lane_and_every_outcome(
    wanted: list[set[str]], workers: int, data: st.DataObject
) -> None:
    """In whatever order the workers finish, the units of a lane run on one worker, and outcomes come in order."""
    queue = Queue(workers)
    told: list[int] = []
    running: list[list[Submission]] = [[] for _ in range(workers)]
    numbers = {}

    def start(submissions) -> None:
        for submission in submissions:
            for other in running:
                for earlier in other:
                    shared = earlier.lanes & submission.lanes
                    assert not shared or other is running[submission.worker]
            running[submission.worker].append(submission)

    for number, lanes in enumerate(wanted):
        submission = Submission(_unit(*[(lane, b"") for lane in lanes]), lambda *_: None)
        numbers[id(submission)] = number
        start(queue.add(submission))
    while any(running):
        busy = [index for index, each in enumerate(running) if each]
        finished = running[data.draw(st.sampled_from(busy))].pop(0)
        tell, started = queue.finish(finished, Outcome())
        told += [numbers[id(each)] for each in tell]
        start(started)
    assert told == list(range(len(wanted)))
    assert not queue.order


# Identifiers and structures


@given(st.lists(st.integers(-1, 12), min_size=2, max_size=20))
def test_identifiers_are_in_the_order_of_the_queue(priorities: list[int]) -> None:
    new_id = MessageIds(1_700_000_000.5, b"abcd")
    made = [(9 - min(max(priority, 0), 9), number, new_id(priority)) for number, priority in enumerate(priorities)]
    assert [identifier for _, _, identifier in sorted(made)] == sorted(identifier for _, _, identifier in made)
    assert all(len(identifier) == 24 and is_ours(identifier) for _, _, identifier in made)
    assert not is_ours(bytes(24))


def test_a_later_process_makes_later_identifiers() -> None:
    assert MessageIds(1000.0, b"zzzz")(4) < MessageIds(1000.1, b"aaaa")(4)


@given(st.binary(max_size=24), st.binary(max_size=200), st.integers(-1, 9), st.booleans())
def test_a_state_descriptor_gives_key_and_head_back(key: bytes, rest: bytes, priority: int, persistent: bool) -> None:
    md = keyed_md(HEAD + rest, priority, persistent, b"m" * 24, key)
    assert len(md) == 364
    assert key_of(md) == key
    assert head_length_of(md) == len(rest)
    fields = unpack("MQMD", md, version=2)
    assert (fields["Priority"], fields["Persistence"], fields["MsgId"]) == (priority, persistent, b"m" * 24)
    assert fields["CorrelId"] == key.ljust(24, b"\0")


def test_every_call_gets_an_object_of_its_own() -> None:
    for make in (put_options(2), get_options(2, 3), fresh(b"ab")):
        assert make() == make()
        assert make() is not make()
    joined = b"".join(plain_md(HEAD, 4, persistent=True))
    assert joined == HEAD[:40] + struct.pack("<2i", 4, 1) + HEAD[48:364]
    assert match_md() is not match_md()


def test_packed_options_are_what_was_asked_for() -> None:
    pmo, gmo = unpack("MQPMO", put_options(0x10002)(), version=3), unpack("MQGMO", get_options(16, 2, 500)(), version=4)
    assert (pmo["Version"], pmo["Options"], pmo["PubLevel"]) == (3, 0x10002, 9)
    assert (gmo["Version"], gmo["Options"], gmo["MatchOptions"], gmo["WaitInterval"]) == (4, 16, 2, 500)
    od = unpack("MQOD", object_descriptor("Q", "QM"), version=4)
    assert (od["ObjectName"], od["ObjectType"]) == (b"Q".ljust(48), 1)
    topic = unpack("MQOD", object_descriptor("", topic_pointer=4096, topic_length=3), version=4)
    assert topic["ObjectType"] == 8
    assert struct.unpack("<Qiiii", topic["ObjectString"])[0] == 4096


def test_a_user_in_the_head_is_noticed() -> None:
    assert not has_identity(HEAD)
    assert not has_identity(HEAD[:196] + b" " * 12 + bytes(32) + b" " * 32 + HEAD[272:])
    assert has_identity(mqmd.build(user_identifier="alice"))
    assert has_identity(mqmd.build(appl_identity_data="line 7"))
    assert has_identity(HEAD[:208] + b"\x16" + HEAD[209:])  # an AccountingToken


# Work and waiting


def test_rows_count_what_stays_uncommitted() -> None:
    unit = Unit(
        puts=[Puts("A", heads=[HEAD] * 3, bodies=[b""] * 3)],
        takes=[Takes("B", b"", [b"1", b"2"])],
        moves=[Moves("C", b"", [b"1"], "D")],
        replaces=[Replace("E", b"", b"")],
    )
    assert rows_of(unit) == 9


def test_markers_are_among_the_state_queues() -> None:
    assert MARKERS in STATE_QUEUES


def test_waits_double_up_to_a_limit_and_spread() -> None:
    backoff = Backoff(1.0, 30.0)
    assert [backoff.delay(n, 1.0) for n in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff.delay(3, 0.0) == 4
    assert backoff.delay(10_000, 0.5) == 22.5


def test_without_a_binding_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ibmmq", "ibmmq.ibmmqc", "pymqi", "pymqi.pymqe"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DriverUnavailable, match=r"libmqm_r\.so") as refused:
        driver.load()
    assert "ibmmq: " in str(refused.value)
    assert "pymqi: " in str(refused.value)
    assert "pip install" in str(refused.value)


def test_a_library_that_is_missing_is_told_from_a_missing_binding() -> None:
    assert "LD_LIBRARY_PATH" in driver._why(ModuleNotFoundError("No module named 'ibmmqc'"))
    assert driver._why(ModuleNotFoundError("No module named 'pymqi'")) == "not installed"
    assert driver._why(ImportError("libmqic_r.so: cannot open")) == "libmqic_r.so: cannot open"
