"""gateway.queue_manager.searches: a get that looks at many messages does so in several turns."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import embedded_rig
import pytest
from embedded_rig import MqiRig, md
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mqi.server_protocol import ServerProtocol
from gateway.mqi.wire import HEADER, MAGIC, PROTOCOL_VERSION, Verb
from gateway.ports.mqi import Cancel, GetOptions, Got, ObjectDescriptor
from gateway.queue_manager import searches
from gateway.queue_manager.journal import finder
from gateway.queue_manager.store.memory import MemoryStore

NOW, UNDER_SYNCPOINT = mq.MQGMO_NO_SYNCPOINT, mq.MQGMO_SYNCPOINT
WAIT = NOW | mq.MQGMO_WAIT
WANTED = "Root.MQMD.Priority >= 5"
COUNT = 20
OPEN = mq.MQOO_INPUT_SHARED | mq.MQOO_BROWSE
FAR = 1e12
"""A deadline that does not come."""


@pytest.fixture(params=[True, False], ids=["journal", "memory"])
def rig(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast_disk: None
) -> Iterator[MqiRig]:  # fmt: skip
    """What is committed is told in the turn itself."""
    monkeypatch.setattr(searches, "SECONDS", 0)
    found = MqiRig(tmp_path if request.param else None, "DEFINE QLOCAL(A) MSGDLVSQ(PRIORITY)")
    for number in range(COUNT):
        found.put("A", b"other %d" % number, descriptor=md(priority=number % 2))
    yield found
    found.queue_manager.close()


class Program:
    """A program that gets with a selector."""

    def __init__(self, rig: MqiRig, selection: str = WANTED, queue: str = "A") -> None:
        self.rig = rig
        self.connection = rig.queue_manager.connect(application="program", user="ana")
        self.handle = self.connection.open(ObjectDescriptor(queue, selection=selection), OPEN).handle
        self.answers: list[Got | MQError] = []
        self.cancel: Cancel | None = None

    def get(self, options: int = NOW, deadline: float | None = 0.0, match: int = 0, **fields: int | bytes) -> Program:
        """Wait as the server of the MQI does; `deadline` 0: without waiting."""
        asked, wanted = GetOptions(options, match=match), md(**fields)
        if deadline == 0.0:
            assert self.connection.get_briefly(self.handle, wanted, asked, 100) is None
        self.cancel = self.connection.wait(self.handle, wanted, asked, 100, deadline, self.answers.append)
        assert not self.answers
        return self

    @property
    def told(self) -> list[bytes | int]:
        return [one.reason if isinstance(one, MQError) else one.data for one in self.answers]


def other_gets(rig: MqiRig, options: int = NOW) -> bytes:
    handle = rig.open("A", mq.MQOO_INPUT_SHARED)
    try:
        return rig.get(handle, options).data
    finally:
        rig.connection.close(handle)


def finish(rig: MqiRig) -> int:
    """Takes all turns that are left; returns how many there were."""
    turns = 0
    while rig.scheduler.turn():
        turns += 1
    rig.scheduler.advance(0)
    return turns


def test_there_is_none(rig: MqiRig) -> None:
    program = Program(rig).get()
    assert finish(rig) >= COUNT - 2
    assert program.told == [mq.MQRC_NO_MSG_AVAILABLE]


def test_one_in_the_middle_is_found(rig: MqiRig) -> None:
    found = Program(rig, "Root.MQMD.Priority = 0").get()
    finish(rig)
    assert found.told == [b"other 0"]


def test_others_are_served_meanwhile_and_what_they_take_is_gone(rig: MqiRig) -> None:
    program = Program(rig, "Root.MQMD.Priority = 0").get()
    rig.scheduler.turn()
    assert [other_gets(rig) for _ in range(COUNT // 2 + 1)][-1] == b"other 0"
    finish(rig)
    assert program.told == [b"other 2"]


@pytest.mark.parametrize("deadline", [0.0, None])
def test_what_is_backed_out_in_front_meanwhile_comes_first(rig: MqiRig, deadline: float | None) -> None:
    for data in (b"first", b"second"):
        rig.put("A", data, descriptor=md(priority=6))
    assert other_gets(rig, UNDER_SYNCPOINT) == b"first"
    program = Program(rig, "Root.MQMD.Priority = 6 OR Root.MQMD.Priority = 0")
    assert program.connection.get(program.handle, md(), GetOptions(UNDER_SYNCPOINT), 100).data == b"second"
    program.get(WAIT, deadline)
    rig.scheduler.turn()
    rig.connection.back()
    finish(rig)
    assert program.told == [b"first"]


@pytest.mark.parametrize("priority", [9, 5])
def test_a_get_that_waits_finds_what_has_come_meanwhile(rig: MqiRig, priority: int) -> None:
    program = Program(rig).get(WAIT, FAR)
    rig.scheduler.turn()
    rig.put("A", b"wanted", descriptor=md(priority=priority))
    finish(rig)
    assert program.told == [b"wanted"]


def test_a_get_that_has_looked_at_everything_waits(rig: MqiRig) -> None:
    program = Program(rig).get(WAIT, FAR)
    finish(rig)
    assert program.told == []
    rig.put("A", b"other", descriptor=md(priority=1))
    rig.put("A", b"wanted", descriptor=md(priority=5))
    finish(rig)
    assert program.told == [b"wanted"]


def test_it_ends_however_many_messages_come_meanwhile(rig: MqiRig) -> None:
    program = Program(rig).get()
    for number in range(5 * COUNT):
        if program.answers:
            break
        rig.put("A", b"more", descriptor=md(priority=number % 2))
        rig.put("A", b"more", descriptor=md(priority=number % 2))
        rig.scheduler.advance(0.0)
    assert program.told == [mq.MQRC_NO_MSG_AVAILABLE]


def test_a_wait_that_is_too_short_to_look_at_everything_finds_the_last(rig: MqiRig) -> None:
    rig.put("A", b"wanted", descriptor=md(priority=0, expiry=-1, feedback=77))
    late = Program(rig, "Root.MQMD.Feedback = 77").get(WAIT, rig.scheduler.monotonic() + 0.001)
    rig.scheduler.time += 1
    finish(rig)
    assert late.told == [b"wanted"]


def test_a_wait_that_is_too_short_ends_when_it_has_looked_at_everything(rig: MqiRig) -> None:
    program = Program(rig).get(WAIT, rig.scheduler.monotonic() + 1)
    finish(rig)
    assert program.told == []
    rig.scheduler.advance(1)
    assert program.told == [mq.MQRC_NO_MSG_AVAILABLE]


def test_under_syncpoint_it_is_backed_out(rig: MqiRig) -> None:
    program = Program(rig, "Root.MQMD.Priority = 0").get(UNDER_SYNCPOINT)
    finish(rig)
    assert program.told == [b"other 0"]
    program.connection.back()
    assert program.connection.get(program.handle, md(), GetOptions(NOW), 100).data == b"other 0"


def test_the_cursor_of_a_browser_goes_on(rig: MqiRig) -> None:
    rig.put("A", b"low", descriptor=md(priority=0, feedback=77))
    program = Program(rig, "Root.MQMD.Feedback = 77 OR Root.MQMD.Priority > 7")
    rig.put("A", b"high", descriptor=md(priority=8))
    assert program.connection.get(program.handle, md(), GetOptions(mq.MQGMO_BROWSE_FIRST), 100).data == b"high"
    program.get(mq.MQGMO_BROWSE_NEXT)
    rig.put("A", b"higher", descriptor=md(priority=9))
    finish(rig)
    assert program.told == [b"low"]
    program.answers.clear()
    assert program.connection.get(program.handle, md(), GetOptions(mq.MQGMO_BROWSE_FIRST), 100).data == b"higher"


def test_without_a_selector_a_sequence_number_is_looked_for(rig: MqiRig) -> None:
    program = Program(rig, "")
    program.get(match=mq.MQMO_MATCH_MSG_SEQ_NUMBER, sequence=2)
    assert finish(rig) >= COUNT - 2
    assert program.told == [mq.MQRC_NO_MSG_AVAILABLE]


@pytest.mark.parametrize(
    ("match", "field"),
    [(mq.MQMO_MATCH_CORREL_ID, "correl_id"), (mq.MQMO_MATCH_MSG_ID, "msg_id"), (mq.MQMO_MATCH_GROUP_ID, "group_id")],
)
@pytest.mark.parametrize("deadline", [0.0, FAR])
def test_the_first_get_by_an_identifier(
    rig: MqiRig, monkeypatch: pytest.MonkeyPatch, match: int, field: str, deadline: float
) -> None:
    if isinstance(rig.queue_manager.core.store, MemoryStore):
        return
    monkeypatch.setattr(finder, "PART", 3)
    program, wanted = Program(rig, ""), {field: b"w" * 24}
    program.get(WAIT if deadline else NOW, deadline, match=match, **wanted)
    assert other_gets(rig) == b"other 1"
    rig.put("A", b"wanted", descriptor=md(**wanted))
    assert finish(rig) >= COUNT // 3 - 2
    assert program.told == [b"wanted"]


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda rig, program: program.connection.close(program.handle), [mq.MQRC_HOBJ_ERROR]),
        (lambda rig, program: program.connection.disconnect(), [mq.MQRC_CONNECTION_BROKEN]),
        (lambda rig, program: program.connection.disconnect(commit=False), [mq.MQRC_CONNECTION_BROKEN]),
        (lambda rig, program: program.cancel(), []),
        (lambda rig, program: rig.mqsc("ALTER QLOCAL(A) GET(DISABLED)"), [mq.MQRC_GET_INHIBITED]),
        (lambda rig, program: rig.queue_manager.quiesce(), [mq.MQRC_Q_MGR_QUIESCING]),
        (lambda rig, program: rig.queue_manager.close(), [mq.MQRC_CONNECTION_BROKEN]),
    ],
    ids=["MQCLOSE", "MQDISC", "lost", "cancelled", "inhibited", "quiescing", "closed"],
)  # fmt: skip
def test_it_ends(rig: MqiRig, end, told: list[int]) -> None:
    program = Program(rig).get(WAIT | mq.MQGMO_FAIL_IF_QUIESCING, FAR)
    rig.scheduler.turn()
    end(rig, program)
    finish(rig)
    assert program.told == told
    if told not in ([mq.MQRC_GET_INHIBITED], [mq.MQRC_Q_MGR_QUIESCING]):
        return
    assert not rig.queue_manager.core.queues["A"].waiters.count


def test_several_share_the_time_of_one(rig: MqiRig, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [Program(rig).get() for _ in range(5)]
    looks: list[Program] = []
    for program in programs:
        get = next(iter(program.connection.state.waiting))
        monkeypatch.setattr(get, "look_on", lambda look=get.look_on, program=program: (looks.append(program), look()))
    rig.scheduler.turn()
    assert looks == programs[:1]
    rig.scheduler.turn()
    assert looks == programs[:2]
    finish(rig)
    assert [program.told for program in programs] == [[mq.MQRC_NO_MSG_AVAILABLE]] * 5


def frame(verb: Verb, body: bytes) -> bytes:
    return HEADER.pack(len(body) + 4, verb, 0, 7) + body


def served(rig: MqiRig) -> tuple[ServerProtocol, list[bytes]]:
    """A program at the server, with the queue open as handle 1, and the answers that it gets."""
    answers: list[bytes] = []
    monotonic = rig.scheduler.monotonic
    protocol = ServerProtocol(rig.queue_manager, answers.append, lambda: None, monotonic=monotonic, user="ana")
    protocol.receive(frame(Verb.CONNECT, MAGIC + struct.pack("<3i", PROTOCOL_VERSION, 0, 0) + bytes(4 * 6)))
    assert protocol._connection is not None
    protocol._connection.open(ObjectDescriptor("A", selection=WANTED), OPEN)
    answers.clear()
    return protocol, answers


GET = frame(Verb.GET, struct.pack("<7i", 1, NOW, 0, 0, 0, 1, 100) + bytes(16) + md())


def test_the_server_answers_when_the_search_is_over_and_then_reads_on(rig: MqiRig) -> None:
    protocol, answers = served(rig)
    protocol.receive(GET)
    protocol.receive(frame(Verb.COMMIT, b""))
    assert answers == []
    finish(rig)
    assert [HEADER.unpack_from(one)[1] for one in answers] == [Verb.GET, Verb.COMMIT]


def test_the_search_of_a_program_that_is_gone_ends(rig: MqiRig) -> None:
    protocol, answers = served(rig)
    protocol.receive(GET)
    rig.scheduler.turn()
    protocol.connection_lost()
    assert finish(rig) <= 2
    assert answers == []


def put_and_damaged(rig: MqiRig, path: Path) -> None:
    """Make a message unreadable."""
    data = b"a message with a byte that turns"
    rig.put("A", data, descriptor=md(persistence=1))
    segment = next(one for one in path.rglob("*.segment") if data in one.read_bytes())
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(data))
        file.write(b"A")


@pytest.mark.parametrize("waits", [False, True])
def test_a_message_that_cannot_be_read_ends_the_search_that_meets_it_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    monkeypatch.setattr(searches, "SECONDS", 0)
    monkeypatch.setattr(embedded_rig, "SMALL", replace(embedded_rig.SMALL, cache_bytes=1))
    rig = MqiRig(tmp_path, "DEFINE QLOCAL(A)\nDEFINE QLOCAL(B)")
    for queue in ("A", "B") * 5:
        rig.put(queue, b"other", descriptor=md(persistence=1))
    put_and_damaged(rig, tmp_path)
    rig.put("A", b"behind it", descriptor=md(persistence=1))
    options, deadline = (WAIT, None) if waits else (NOW, 0.0)
    programs = [Program(rig, queue=queue).get(options, deadline) for queue in ("A", "B")]
    finish(rig)
    assert programs[0].told == [mq.MQRC_OBJECT_DAMAGED], "as where it is met at once"
    assert programs[1].told == ([] if waits else [mq.MQRC_NO_MSG_AVAILABLE])
    rig.put("B", b"wanted", descriptor=md(priority=5))
    rig.scheduler.run_until(lambda: bool(programs[1].answers))
    assert programs[1].told == ([b"wanted"] if waits else [mq.MQRC_NO_MSG_AVAILABLE])
    rig.queue_manager.close()


STEP = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("take"), st.just(0), st.booleans()),
    st.tuples(st.just("back"), st.just(0), st.booleans()),
    st.tuples(st.just("turn"), st.integers(1, 4), st.booleans()),
)


class Kept:
    """What is on the queue for a program that searches, and what was during all of its search."""

    def __init__(self, rig: MqiRig) -> None:
        self.rig = rig
        self.other = rig.queue_manager.connect(user="ana")
        self.theirs = self.other.open(ObjectDescriptor("A"), mq.MQOO_INPUT_SHARED).handle
        self.all: list[tuple[int, int, bytes]] = []
        """Of those that are selected: priority from the highest, number, data."""
        self.held: list[tuple[int, int, bytes]] = []
        self.number = 0

    def put(self, priority: int, *, wanted: bool) -> None:
        self.number += 1
        data = b"%d" % self.number
        self.rig.put("A", data, descriptor=md(priority=priority, feedback=77 if wanted else 0))
        if wanted:
            self.all.append((-priority, self.number, data))
            self.all.sort()

    def take(self, *, syncpoint: bool) -> None:
        try:
            data = self.other.get(
                self.theirs, md(), GetOptions(UNDER_SYNCPOINT if syncpoint else NOW, match=0), 100
            ).data
        except MQError:
            return
        gone = [one for one in self.all if one[2] == data]
        self.all = [one for one in self.all if one[2] != data]
        if syncpoint:
            self.held += gone

    def back(self) -> None:
        self.other.back()
        self.all = sorted(self.all + self.held)
        self.held = []


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12), st.lists(STEP, max_size=25), st.booleans())
def test_nothing_that_was_there_is_missed(
    monkeypatch: pytest.MonkeyPatch,
    before: list[tuple[int, bool]],
    steps: list[tuple[str, int, bool]],
    waits: bool,
) -> None:
    monkeypatch.setattr(searches, "SECONDS", 0)
    rig = MqiRig(None, "DEFINE QLOCAL(A) MSGDLVSQ(PRIORITY)")
    kept = Kept(rig)
    for priority, wanted in before:
        kept.put(priority, wanted=wanted)
    program = Program(rig, "Root.MQMD.Feedback = 77")
    options, deadline = (WAIT, None) if waits else (NOW, 0.0)
    throughout = list(kept.all)
    asked = GetOptions(options, match=0)
    program.connection.wait(program.handle, md(), asked, 100, deadline, program.answers.append)
    for what, number, flag in steps:
        if program.answers:
            break
        if what == "put":
            kept.put(number, wanted=flag)
        elif what == "take":
            kept.take(syncpoint=flag)
        elif what == "back":
            kept.back()
        else:
            for _ in range(number):
                rig.scheduler.turn()
        throughout = [one for one in throughout if one in kept.all]
    finish(rig)
    if not program.answers:
        assert waits
        assert kept.all == []
    elif isinstance(program.answers[0], Got):
        found = next(one for one in kept.all if one[2] == program.told[0])
        assert not throughout or found <= throughout[0]
    else:
        assert not waits
        assert throughout == []
    rig.queue_manager.close()
