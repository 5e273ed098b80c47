"""What is in the sockets of many programs at one time is one commit; each is answered when that is made, or has
failed."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from embedded_rig import md
from round_rig import Program, Rig, programs
from schedulers import ManualScheduler

from gateway.errors import StoreError
from gateway.mqi.rounds import SECONDS, Rounds
from gateway.ports.group_commit import LONGEST_SECONDS
from gateway.ports.mqi import PutOptions
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.objects.local_queue import Waiters


@pytest.fixture(params=["memory", "journal"])
def rig(request, tmp_path):
    made = Rig(None if request.param == "memory" else tmp_path / "data")
    yield made
    made.manager.close()


def test_puts_of_many_programs_are_one_frame(rig):
    made = programs(rig, 20)
    assert rig.round(*[(one, b"put Q") for one in made]) == 1
    assert all(one.outcomes == ["put"] for one in made)
    assert rig.manager.depth("Q") == 20


def test_nobody_is_told_before_the_commit(rig, monkeypatch):
    [program] = programs(rig, 1)
    store = rig.manager.core.store
    seen, write = [], store.write
    monkeypatch.setattr(store, "write", lambda frame: (seen.append(list(program.outcomes)), write(frame))[1])
    rig.round((program, b"put Q"))
    assert seen[0] == []
    assert program.outcomes == ["put"]


def test_a_get_under_syncpoint_does_not_wait_for_the_commit_of_others(rig, monkeypatch):
    """A server goes on with its reply while the round goes on: half as many frames if many programs wait for
    servers."""
    one, server, waits = programs(rig, 3)
    rig.round((one, b"put Q"))
    rig.round((waits, b"wait R 2"))
    store = rig.manager.core.store
    seen, write = [], store.write
    monkeypatch.setattr(store, "write", lambda frame: (seen.append(server.outcomes + waits.outcomes), write(frame))[1])
    assert rig.round((one, b"put R"), (server, b"wait Q 2")) == 1
    assert seen == [[b"data"]]
    assert waits.outcomes == [b"data"]


def test_what_is_put_in_a_round_is_got_in_it_by_those_who_wait(rig):
    made = programs(rig, 10)
    for one in made[:5]:
        rig.round((one, b"wait Q 2"))
    assert rig.round(*[(one, b"put Q") for one in made[5:]]) == 1
    assert [one.outcomes for one in made] == [[b"data"]] * 5 + [["put"]] * 5
    assert rig.round(*[(one, b"commit") for one in made[:5]]) == 1
    assert rig.manager.depth("Q") == 0


def test_what_comes_while_a_round_runs_is_part_of_its_commit(rig):
    one, other = programs(rig, 2)
    rig.meanwhile = [[(other, b"put Q")], [(other, b"put Q")]]
    assert rig.round((one, b"put Q")) == 1
    assert (one.outcomes, other.outcomes) == (["put"], ["put", "put"])


def test_what_waits_is_taken_with_what_comes_meanwhile(rig):
    """One commit puts five messages; then they are got, and the next commit puts five more."""
    made = programs(rig, 10)
    for one in made[:5]:
        rig.round((one, b"wait Q 2"))
    rig.meanwhile = [[], [(one, b"put R") for one in made[5:]]]
    assert rig.round(*[(one, b"put Q") for one in made[5:]]) == 2
    assert [one.outcomes for one in made] == [[b"data"]] * 5 + [["put", "put"]] * 5


def test_gets_that_wait_are_looked_at_once_for_all_that_has_come(rig, monkeypatch):
    made = programs(rig, 10)
    for number, one in enumerate(made[:5]):
        rig.round((one, b"wait R 2 c%d" % number))
    looked, concerned = [], Waiters.concerned
    monkeypatch.setattr(
        Waiters, "concerned", lambda waiters, ids: (looked.append(len(ids)), concerned(waiters, ids))[1]
    )
    rig.round(*[(one, b"put R 4 c%d" % number) for number, one in enumerate(made[5:])])
    assert looked == [5]
    assert [one.outcomes for one in made[:5]] == [[b"data"]] * 5


def test_a_round_tells_what_the_writers_thread_has_written_meanwhile(rig):
    """While programs keep the lock busy, a thread that waits for it may have to wait long."""
    one, other = programs(rig, 2)
    committer = rig.manager.core.committer
    committer.seconds = 1.0  # a slow disk
    rig.rounds.receive(one, b"put Q")
    rig.rounds.run()
    assert one.outcomes == []
    assert committer._writing.written.wait(60)
    rig.rounds.receive(other, b"put R 2")
    rig.rounds.run()
    assert (one.outcomes, other.outcomes) == (["put"], ["put"])


def test_a_plan_that_is_taken_in_by_the_round_that_runs_does_not_stand_for_the_next():
    """A thread finds no round running, and continues when one is running: its wake-up is read with what programs have
    sent."""
    queue_manager = EmbeddedQueueManager.open(None, "QM1", ManualScheduler())
    made, plans = [], []

    def exchange():
        if not plans:
            rounds._have_run()  # as the other thread, which had looked before the round began

    rounds = Rounds(queue_manager, lambda: 0.0, lambda: plans.append(1), exchange)
    rounds._calls.append(lambda: made.append("first"))
    rounds.run()
    plans.clear()
    rounds.soon(lambda: made.append("second"))
    assert plans == [1]
    rounds.run()
    assert made == ["first", "second"]
    queue_manager.close()


def test_a_queue_manager_without_rounds_serves_gets_that_wait_by_itself(rig):
    one, other = programs(rig, 2)
    rig.round((one, b"wait Q"))
    rig.manager.serve_through(None)
    other.connection.put(other.handles["Q"], md(), PutOptions(4), b"data")
    rig.run()
    assert one.outcomes == [b"data"]


def test_units_of_work_are_committed_together(rig):
    made = programs(rig, 6)
    assert rig.round(*[(one, b"put Q 2") for one in made]) == 0
    assert rig.round(*[(one, b"commit") for one in made]) == 1
    assert all(one.outcomes == ["put", "commit"] for one in made)


def test_a_reply_wakes_the_program_that_waits_for_it_alone(rig, monkeypatch):
    made = programs(rig, 50)
    for number, one in enumerate(made):
        rig.round((one, b"wait R 2 c%d" % number))
    tried = []
    queue = rig.manager.core.queues["R"]
    for waiter in queue.waiters.concerned(None):
        attempt = waiter.attempt
        waiter.attempt = lambda attempt=attempt: (tried.append(1), attempt())[1]
    server = Program(rig, "server")
    rig.round((server, b"put R 4 c31"))
    assert len(tried) == 1
    assert made[31].outcomes == [b"data"]
    assert len(queue.waiters.concerned(None)) == 49


def test_a_frame_that_cannot_be_written_is_the_failure_of_each(rig, monkeypatch):
    one, other = programs(rig, 2)
    rig.round((one, b"put Q 2"))
    store = rig.manager.core.store

    def refuse(_frame):
        raise StoreError("no room")

    monkeypatch.setattr(store, "write", refuse)
    rig.round((one, b"commit"), (other, b"put Q"))
    monkeypatch.undo()
    assert one.outcomes[1].reason == 2003
    assert other.outcomes[0].reason == 2192
    assert rig.manager.depth("Q") == 0
    assert rig.manager.core.queues["Q"].uncommitted_puts == 0


def test_a_message_that_could_not_be_taken_is_there_again(rig, monkeypatch):
    [program] = programs(rig, 1)
    rig.round((program, b"put Q"))

    def refuse(_frame):
        raise StoreError("no room")

    monkeypatch.setattr(rig.manager.core.store, "write", refuse)
    rig.round((program, b"get Q"))
    monkeypatch.undo()
    assert program.outcomes[1].reason == 2192
    rig.round((program, b"get Q"))
    assert program.outcomes[2] == b"data"


def _slowly(rig, receive, chunk):
    rig.time += 2 * SECONDS
    receive(chunk)


def test_a_long_round_is_continued_in_the_next(rig, monkeypatch):
    made = programs(rig, 3)
    for one in made:
        monkeypatch.setattr(one, "receive", partial(_slowly, rig, one.receive))
        rig.rounds.receive(one, b"put Q")
    assert rig.planned == 1
    rig.rounds.run()
    assert rig.time == 2 * SECONDS  # one was taken in
    assert rig.planned == 2
    rig.run()
    rig.run()
    assert all(one.outcomes == ["put"] for one in made)


def test_what_a_program_said_before_it_went_counts(rig):
    program, other = programs(rig, 2)
    rig.rounds.receive(program, b"put Q")
    rig.rounds.receive(other, b"put Q")
    rig.rounds.lost(program)
    assert program.lost
    assert rig.manager.depth("Q") == 1
    rig.run()
    assert rig.manager.depth("Q") == 2


def test_programs_are_told_of_their_commit_in_one_call(rig):
    made, calls = programs(rig, 5), []

    def soon(call):
        calls.append(call)
        rig.rounds.soon(call)

    rig.manager.serve_through(soon)
    rig.round(*[(one, b"put Q") for one in made])
    assert len(calls) == 1
    assert all(one.outcomes == ["put"] for one in made)


def test_a_defect_of_one_program_does_not_keep_the_others_waiting(rig):
    one, *others = programs(rig, 3)
    one.told = lambda _outcome: one.connection.unsettled().then(lambda _error: 1 // 0)
    for program in (one, *others):
        rig.rounds.receive(program, b"put Q")
    with pytest.raises(ZeroDivisionError):
        rig.run()
    rig.run()
    assert all(other.outcomes == ["put"] for other in others)


@pytest.fixture
def slow(rig):
    """A slow disk that has just written a frame of three programs; a fourth waits for the next."""
    made = programs(rig, 4)
    committer = rig.manager.core.committer
    committer.seconds, committer._trial_in = 1.0, 1000
    gate = threading.Event()
    write, timed = rig.manager.core.store.write, committer._timed_write
    rig.manager.core.store.write = lambda frame: (gate.wait(60), write(frame))
    committer._timed_write = lambda frame: (timed(frame), 0.004)[1]
    for one in made[:3]:
        rig.rounds.receive(one, b"put Q")
    rig.rounds.run()
    rig.rounds.receive(made[3], b"put R")
    rig.rounds.run()
    assert [one.outcomes for one in made] == [[], [], [], []]
    gate.set()
    assert committer._writing.written.wait(60)
    return made


def _written(rig):
    """The frame in progress, if there is one, is written and reported."""
    committer = rig.manager.core.committer
    if committer._writing is not None:
        assert committer._writing.written.wait(60)
        rig.rounds.run()


def test_what_a_round_has_read_goes_before_the_next_frame_after_a_slow_one_is_handed_over(rig, slow):
    before = rig.frames
    rig.meanwhile = [[(one, b"put Q") for one in slow[:3]]]
    rig.rounds.run()
    _written(rig)
    assert rig.frames == before + 1
    assert [one.outcomes for one in slow] == [["put"] * 2] * 3 + [["put"]]


def test_after_a_slow_frame_calls_wait_for_those_of_the_programs_that_it_has_answered(rig, slow):
    before = rig.frames
    rig.rounds.run()
    assert [one.outcomes for one in slow] == [["put"]] * 3 + [[]]
    for one in slow[:2]:
        rig.rounds.receive(one, b"put Q")
        rig.rounds.run()
        assert rig.manager.core.committer._writing is None
    rig.rounds.receive(slow[2], b"put Q")
    rig.rounds.run()
    _written(rig)
    assert rig.frames == before + 1
    assert [one.outcomes for one in slow] == [["put"] * 2] * 3 + [["put"]]


def test_they_do_not_wait_for_those_that_do_not_come(rig, slow):
    rig.rounds.run()
    assert slow[3].outcomes == []
    rig.scheduler.advance(LONGEST_SECONDS)
    _written(rig)
    assert slow[3].outcomes == ["put"]


@pytest.mark.parametrize("leaves", ["waits", "disconnects"])
def test_they_do_not_wait_for_those_that_wait_themselves_or_have_gone(rig, slow, leaves):
    rig.rounds.run()
    for one in slow[:3]:
        if leaves == "waits":
            rig.rounds.receive(one, b"wait R 4 cNone")
        else:
            one.connection.disconnect()
    rig.rounds.run()
    _written(rig)
    assert slow[3].outcomes == ["put"]


def test_the_end_of_a_queue_manager_waits_for_nobody(rig, slow):
    rig.rounds.run()
    rig.manager.close()
    rig.rounds.run()
    assert slow[3].outcomes == ["put"]
