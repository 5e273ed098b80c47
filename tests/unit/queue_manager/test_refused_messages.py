"""gateway.queue_manager.verbs.refused_messages: a selector looks at each message once, however often it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from embedded_rig import MqiRig, md
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MQError
from gateway.ports.mqi import GetOptions, Got, ObjectDescriptor
from gateway.queue_manager.objects.selectors import Selector
from gateway.queue_manager.store.place import NUMBER_BITS, wanted
from gateway.queue_manager.verbs import refused_messages
from gateway.queue_manager.verbs.refused_messages import RefusedMessages
from gateway.queue_manager.verbs.search import Wanted

WAIT, SYNCPOINT, NO_SYNCPOINT, BROWSE_NEXT = 1, 2, 4, 32
MATCH_SEQUENCE = 8
COUNT = 30


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def rig(request: pytest.FixtureRequest, tmp_path: Path, fast_disk: None):
    found = MqiRig(tmp_path if request.param else None, "DEFINE QLOCAL(A)")
    for number in range(COUNT):
        found.put("A", b"other %d" % number, descriptor=md(priority=number % 3))
    yield found
    found.queue_manager.close()


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    looks: list[bytes] = []
    whole = Selector.accepts

    def counted(selector: Selector, head: bytes, data: bytes) -> bool:
        looks.append(data)
        return whole(selector, head, data)

    monkeypatch.setattr(Selector, "accepts", counted)
    return looks


def opened(rig: MqiRig, selection: str, options: int = 2 | 8) -> int:
    return rig.connection.open(ObjectDescriptor("A", selection=selection), options).handle


def test_a_get_that_waits_looks_at_what_comes(rig: MqiRig, looked_at: list[bytes]) -> None:
    handle, answers = opened(rig, "Root.MQMD.Priority = 7"), list[Got | MQError]()
    rig.connection.wait(handle, md(), GetOptions(NO_SYNCPOINT | WAIT), 100, None, answers.append)
    assert len(looked_at) == COUNT
    for number in range(20):
        rig.put("A", b"more", descriptor=md(priority=number % 9 % 7))
    assert len(looked_at) == COUNT + 20
    rig.put("A", b"wanted", descriptor=md(priority=7))
    rig.scheduler.run()
    assert [one.data for one in answers if isinstance(one, Got)] == [b"wanted"]


def test_each_get_looks_at_what_the_one_before_has_not(rig: MqiRig, looked_at: list[bytes]) -> None:
    handle = opened(rig, "Root.MQMD.Priority = 1")
    assert len(rig.drain(handle)) == COUNT // 3
    assert len(looked_at) == COUNT
    assert rig.drain(handle) == []
    assert len(looked_at) == COUNT
    assert len(rig.drain(opened(rig, "Root.MQMD.Priority <> 1"))) == COUNT * 2 // 3


def test_what_is_backed_out_is_selected_again(rig: MqiRig, looked_at: list[bytes]) -> None:
    handle = opened(rig, "Root.MQMD.Priority = 2")
    other = rig.queue_manager.connect(application="other", user="ana")
    theirs = other.open(ObjectDescriptor("A"), 2).handle
    taken = [other.get(theirs, md(), GetOptions(SYNCPOINT), 100).data for _ in range(COUNT // 3)]
    assert rig.drain(handle) == []
    other.back()
    assert rig.drain(handle) == taken


def test_a_selector_that_asks_how_often_a_message_came_is_asked_each_time(rig: MqiRig) -> None:
    handle = opened(rig, "JMSRedelivered = TRUE")
    assert rig.drain(handle) == []
    theirs = rig.open("A", 2)
    taken = rig.get(theirs, SYNCPOINT).data
    rig.connection.back()
    assert rig.drain(handle) == [taken]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400), st.integers(1, 40)), max_size=20))
def test_it_knows_what_was_added(pieces: list[tuple[int, int, int]]) -> None:
    added = [(rank, number) for rank, first, count in pieces for number in range(first, min(first + count, 401))]
    known = RefusedMessages("a = 1")
    tokens = {rank << NUMBER_BITS | 1000 + number for rank, number in sorted(added)}
    for token in sorted(tokens):
        known.add(token)
    assert bool(known) == bool(tokens)
    every = {rank << NUMBER_BITS | 1000 + number for rank in range(10) for number in range(-10, 420)}
    assert {token for token in every if token in known} == tokens
    for token in every:
        assert known.onward(token) == next(one for one in range(token, token + 1000) if one not in tokens)


def test_it_takes_no_more_room_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_messages, "MOST", 100)
    known = RefusedMessages("a = 1")
    for token in (500, 10, 599, 700):
        known.add(token)
    assert [token in known for token in (500, 10, 599, 700)] == [False, False, False, True]


@given(st.lists(st.integers(0, 300), unique=True), st.sets(st.integers(0, 300)))
def test_of_those_that_are_looked_for_it_is_asked_no_more_than_needed(numbers: list[int], refused: set[int]) -> None:
    """It looks for the next one that is not refused: if each of a million were asked, it would look through all of them
    every time."""
    known, asked = RefusedMessages("a = 1"), list[int]()
    for number in sorted(refused):
        known.add(number)

    def onward(token: int) -> int:
        asked.append(token)
        return known.onward(token)

    looked_for = sorted(numbers)
    assert list(wanted(looked_for, onward)) == [number for number in looked_for if number not in refused]
    runs = sum(number in refused and number - 1 not in refused for number in range(301))
    assert len(asked) <= len(set(looked_for) - refused) + runs


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Messages whose sequence number is compared."""
    looks: list[bytes] = []
    whole = Wanted.is_at

    def counted(self: Wanted, head: bytes) -> bool:
        looks.append(head)
        return whole(self, head)

    monkeypatch.setattr(Wanted, "is_at", counted)
    return looks


def in_group(number: int, priority: int = 0) -> bytes:
    return md(group_id=b"g" * 24, flags=8, sequence=number, priority=priority)


def test_a_get_by_sequence_number_that_waits_looks_at_what_comes(rig: MqiRig, placed: list[bytes]) -> None:
    handle, answers = opened(rig, ""), list[Got | MQError]()
    asked = GetOptions(NO_SYNCPOINT | WAIT, match=MATCH_SEQUENCE)
    rig.connection.wait(handle, md(sequence=7), asked, 100, None, answers.append)
    begun = len(placed)
    assert begun == COUNT
    for number in range(20):
        rig.put("A", b"more", descriptor=in_group(1 + number % 6, number % 3))
    assert len(placed) == COUNT + 20
    rig.put("A", b"wanted", descriptor=in_group(7))
    rig.scheduler.run()
    assert [one.data for one in answers if isinstance(one, Got)] == [b"wanted"]


def test_who_asks_for_another_sequence_number_looks_at_all_of_them(rig: MqiRig) -> None:
    handle = opened(rig, "")
    for number in (3, 1, 2):
        rig.put("A", b"%d" % number, descriptor=in_group(number))

    def got(number: int) -> bytes:
        asked = GetOptions(NO_SYNCPOINT, match=MATCH_SEQUENCE)
        return rig.connection.get(handle, md(sequence=number), asked, 100).data

    with pytest.raises(MQError):
        got(9)
    assert [got(number) for number in (2, 3)] == [b"2", b"3"]
    rig.put("A", b"3 again", descriptor=in_group(3))
    assert got(3) == b"3 again"
    assert rig.connection.get(handle, md(), GetOptions(NO_SYNCPOINT), 100).data == b"other 2"
