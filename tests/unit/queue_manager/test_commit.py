"""Group commit: order, the writer's thread, failures."""

from __future__ import annotations

import threading

import pytest
from embedded_rig import md, refused
from schedulers import ManualScheduler

from gateway.errors import StoreUnavailable
from gateway.ports.batch import Puts, Takes, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor
from gateway.queue_manager.batch import commit
from gateway.queue_manager.embedded import EmbeddedQueueManager


def unit(*texts):
    return Unit(puts=[Puts("A", heads=[md()] * len(texts), bodies=[text.encode() for text in texts])])


class Rig:
    def __init__(self):
        self.scheduler = ManualScheduler()
        self.queue_manager = EmbeddedQueueManager.open(None, "QM1", self.scheduler, "DEFINE QLOCAL(A) MAXDEPTH(100000)")
        self.store = self.queue_manager.core.store
        self.committer = self.queue_manager.core.committer
        self.done = []

    def submit(self, name, *texts):
        self.queue_manager.submit(unit(*texts), lambda _unit, outcome: self.done.append((name, outcome.failures)))

    def on_a_slow_disk(self):
        """From now on a write waits for the gate, as on a disk that is busy: the writer's thread is used."""
        gate, writing = threading.Event(), threading.Event()

        def write(_frame):
            writing.set()
            assert gate.wait(60)

        self.store.write = write
        self.committer.seconds = 1.0
        return gate, writing


@pytest.mark.usefixtures("fast_disk")
def test_inline_while_the_disk_is_fast():
    rig = Rig()
    rig.submit("one", "1")
    assert rig.done == [("one", [])]


def test_one_hiccup_of_a_fast_disk_does_not_change_the_way(monkeypatch):
    rig, now = Rig(), [0.0]
    monkeypatch.setattr(commit, "perf_counter", lambda: now[0])

    def commit_in(seconds):
        rig.store.write = lambda _frame: now.__setitem__(0, now[0] + seconds)
        rig.submit("one", "1")

    for _ in range(20):
        commit_in(0.0003)
    commit_in(0.5)
    assert not rig.committer.slow
    commit_in(0.5)
    assert rig.committer.slow
    assert max(rig.committer.times) == pytest.approx(0.5)


def test_a_disk_that_is_fast_again_is_noticed():
    """The writer's thread measures its wait for the interpreter too, and would never give the frames back."""
    rig = Rig()
    here = threading.get_ident()

    def write(_frame):
        if threading.get_ident() != here:
            threading.Event().wait(0.005)

    rig.store.write = write
    rig.committer.seconds = 1.0
    for _ in range(3000):
        rig.done.clear()
        rig.submit("one", "1")
        rig.scheduler.run_until(lambda: bool(rig.done))
        if not rig.committer.slow:
            break
    assert not rig.committer.slow
    rig.queue_manager.close()


class HangingDisk:
    """Its writes take as long as the test says, by a clock of its own, and it knows which thread waited."""

    def __init__(self, rig, monkeypatch):
        self.rig, self.now, self.takes, self.here = rig, 100.0, 0.0001, threading.get_ident()
        self.waited = []
        rig.store.write, rig.store.maintain = self._write, lambda _now: None
        monkeypatch.setattr(commit, "perf_counter", lambda: self.now)

    def _write(self, _frame):
        self.now += self.takes
        self.waited.append(threading.get_ident() == self.here)

    def waited_for(self, frames, takes=0.0001):
        """How many of the frames the caller's thread has waited for."""
        self.takes = takes
        self.waited.clear()
        for _ in range(frames):
            self.rig.done.clear()
            self.rig.submit("one", "1")
            self.rig.scheduler.run_until(lambda: bool(self.rig.done))
        return sum(self.waited)


def test_after_a_write_that_hung_none_is_waited_for_until_the_disk_has_been_well_for_a_minute(monkeypatch):
    rig = Rig()
    disk = HangingDisk(rig, monkeypatch)
    assert disk.waited_for(1, takes=40.0) == 1
    assert disk.waited_for(500) == 0
    disk.now += 30.0
    assert disk.waited_for(1, takes=40.0) == 0, "it hangs again, with the writer's thread"
    disk.now += 50.0
    assert disk.waited_for(500) == 0
    disk.now += 20.0
    assert disk.waited_for(5) == 5, "trusted again"
    rig.queue_manager.close()


def test_a_disk_that_hangs_at_each_trial_is_tried_ever_more_seldom(monkeypatch):
    rig = Rig()
    disk = HangingDisk(rig, monkeypatch)
    assert disk.waited_for(1, takes=40.0) == 1
    for pause in (60, 120, 240, 480, 960, 1920, 3600, 3600):
        disk.now += pause - 10.0
        assert disk.waited_for(commit.LAST_TRIAL) == 0
        disk.now += 20.0
        assert disk.waited_for(1, takes=40.0) == 1
    disk.now += 8000.0
    assert disk.waited_for(commit.LAST_TRIAL) == 1
    assert disk.waited_for(1, takes=40.0) == 1
    disk.now += 70.0
    assert disk.waited_for(commit.FIRST_TRIAL) == 1, "a minute again: it was well for long"
    rig.queue_manager.close()


def test_maintenance_has_its_turn_between_units_however_many_wait():
    rig = Rig()
    gate, writing = rig.on_a_slow_disk()
    written = []
    own = [object() for _ in range(3)]
    steps = list(own)
    write, apply = rig.store.write, rig.store.apply

    def recorded(frame):
        written.append(frame)
        if frame not in own:
            write(frame)

    rig.store.write, rig.store.apply = recorded, lambda frame: None if frame in own else apply(frame)
    rig.store.maintain = lambda _now: steps.pop(0) if steps else None
    rig.submit("first", "1")
    assert writing.wait(60)
    rig.submit("second", "2")
    gate.set()
    rig.scheduler.run_until(lambda: len(rig.done) == 2)
    assert [frame in own for frame in written[:3]] == [False, True, False], "one step for each frame of units"
    rig.queue_manager.close()


def test_a_commit_while_units_gather_may_start_maintenance():
    """A state queue is defined when it is first named, in a frame of its own; maintenance follows it on the thread."""
    rig = Rig()
    own, applied, steps = object(), [], []
    steps.append(own)
    apply = rig.store.apply
    rig.store.write = lambda _frame: threading.Event().wait(0.002)
    rig.store.apply = lambda frame: applied.append(frame) if frame is own else apply(frame)
    rig.store.maintain = lambda _now: steps.pop() if steps else None
    rig.committer.seconds = 1.0
    assert rig.committer.slow
    state = Unit(puts=[Puts("MQGATE.NEW", heads=[md()], bodies=[b"1"])])
    rig.queue_manager.submit(state, lambda _unit, outcome: rig.done.append(("state", outcome.failures)))
    rig.scheduler.run_until(lambda: len(rig.done) == 1)
    assert rig.done == [("state", [])]
    assert applied == [own]
    assert rig.queue_manager.depth("MQGATE.NEW") == 1
    rig.queue_manager.close()


@pytest.mark.usefixtures("fast_disk")
def test_maintenance_takes_one_step_a_unit_and_goes_on_by_itself_when_no_more_come(monkeypatch):
    rig, steps = Rig(), []
    monkeypatch.setattr(type(rig.store), "under_maintenance", property(lambda _store: len(steps) < 9))
    rig.store.maintain = lambda _now: steps.append(1)
    for count in (1, 2, 3):
        rig.submit("one", "1")
        rig.scheduler.run()
        assert len(steps) == count, "units come: nothing but a step after each"
    rig.scheduler.advance(1.0)
    assert len(steps) == 9
    rig.scheduler.advance(1.0)
    assert len(steps) == 9


@pytest.mark.usefixtures("fast_disk")
def test_finished_maintenance_is_not_scheduled_while_units_come(monkeypatch):
    rig, steps = Rig(), []
    monkeypatch.setattr(type(rig.store), "under_maintenance", property(lambda _store: len(steps) < 3))
    rig.store.maintain = lambda _now: steps.append(1)
    for _ in range(5):
        rig.submit("one", "1")
        rig.scheduler.run()
        rig.scheduler.advance(commit.QUIET_SECONDS / 2)
    assert len(steps) == 5
    assert not rig.committer._maintenance_scheduled
    rig.scheduler.advance(1.0)
    assert len(steps) == 5


def test_maintenance_that_fails_pauses_until_a_unit_is_written():
    rig = Rig()
    gate, _writing = rig.on_a_slow_disk()
    gate.set()
    own, asked = object(), []
    write, apply, abort = rig.store.write, rig.store.apply, rig.store.abort

    def failing(frame):
        if frame is own:
            raise StoreUnavailable("the disk is failing")
        write(frame)

    def maintain(_now):
        asked.append(1)
        assert len(asked) < 50
        return own

    rig.store.write, rig.store.maintain = failing, maintain
    rig.store.apply = lambda frame: None if frame is own else apply(frame)
    rig.store.abort = lambda frame: None if frame is own else abort(frame)
    rig.submit("first", "1")
    rig.scheduler.run_until(lambda: len(rig.done) == 1 and rig.committer._maintenance_failed)
    count = len(asked)
    rig.committer.run()
    assert len(asked) == count
    rig.committer.seconds = 1.0
    rig.submit("second", "2")
    rig.scheduler.run_until(lambda: len(rig.done) == 2 and len(asked) > count)
    rig.queue_manager.close()


def test_units_gather_while_a_frame_is_written():
    rig = Rig()
    gate, writing = rig.on_a_slow_disk()
    frames = rig.committer.frames
    for name in ("one", "two", "three"):
        rig.submit(name, name)
    assert writing.wait(60)
    assert not rig.done
    assert rig.queue_manager.depth("A") == 0
    gate.set()
    rig.scheduler.run_until(lambda: len(rig.done) == 3)
    assert [name for name, _ in rig.done] == ["one", "two", "three"]
    assert rig.committer.frames == frames + 2
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 5)] == [b"one", b"two", b"three"]
    rig.queue_manager.close()


def test_a_call_that_must_be_durable_waits_for_the_frame_before():
    rig = Rig()
    gate, writing = rig.on_a_slow_disk()
    rig.submit("batch", "1")
    assert writing.wait(60)
    connection = rig.queue_manager.connect()
    other = threading.Thread(target=lambda: connection.put1(ObjectDescriptor("A"), md(), _options(), b"2"))
    other.start()
    gate.set()
    other.join(60)
    rig.scheduler.run_until(lambda: bool(rig.done))
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 5)] == [b"1", b"2"]
    rig.queue_manager.close()


def _options():
    from gateway.ports.mqi import PutOptions

    return PutOptions(4)


def test_a_failed_write_refuses_every_unit_of_its_frame():
    rig = Rig()
    gate, writing = rig.on_a_slow_disk()
    rig.submit("first", "1")
    assert writing.wait(60)
    rig.submit("second", "2")
    rig.submit("third", "3")

    def fail(_frame):
        raise StoreUnavailable("the disk is full")

    rig.store.write = fail
    gate.set()
    rig.scheduler.run_until(lambda: len(rig.done) == 3)
    assert [(name, [one.reason for one in failures]) for name, failures in rig.done] == [
        ("first", []),
        ("second", [2192]),
        ("third", [2192]),
    ]
    rig.store.write = lambda _frame: None
    rig.submit("fourth", "4")
    rig.scheduler.run_until(lambda: len(rig.done) == 4)
    assert [one.data for one in rig.queue_manager.fetch("A", b"", 5)] == [b"1", b"4"]
    rig.queue_manager.close()


def test_a_full_disk_still_lets_messages_go():
    rig = Rig()
    rig.submit("before", "1")
    rig.scheduler.run_until(lambda: bool(rig.done))
    token = rig.queue_manager.fetch("A", b"", 1)[0].token
    gate, writing = rig.on_a_slow_disk()
    rig.submit("first", "2")
    assert writing.wait(60)
    rig.submit("refused", "3")
    rig.queue_manager.submit(
        Unit(takes=[Takes("A", b"", [token])]), lambda _unit, outcome: rig.done.append(("taken", outcome.failures))
    )

    def full(frame):
        if frame.puts:
            raise StoreUnavailable("the disk is full")

    rig.store.write = full
    gate.set()
    rig.scheduler.run_until(lambda: len(rig.done) == 4)
    assert [(name, [one.reason for one in failures]) for name, failures in rig.done[1:]] == [
        ("first", []),
        ("refused", [2192]),
        ("taken", []),
    ]
    rig.store.write = lambda _frame: None
    rig.queue_manager.close()


def test_waiters_are_served_when_the_frame_has_arrived():
    rig = Rig()
    connection = rig.queue_manager.connect()
    handle = connection.open(ObjectDescriptor("A"), 2).handle
    answers = []
    connection.wait(handle, md(), GetOptions(1), 100, None, answers.append)
    gate, writing = rig.on_a_slow_disk()
    rig.submit("one", "1")
    assert writing.wait(60)
    assert not answers
    gate.set()
    rig.scheduler.run_until(lambda: bool(answers))
    assert answers[0].data == b"1"
    rig.queue_manager.close()


def test_a_commit_that_cannot_be_stored_backs_out():
    rig = Rig()
    connection = rig.queue_manager.connect()
    handle = connection.open(ObjectDescriptor("A"), 2 | 16).handle
    connection.put(handle, md(), _options(), b"1")
    assert connection.get(handle, md(), GetOptions(2), 100).data == b"1"

    def fail(_frame):
        raise StoreUnavailable("the disk is full")

    rig.store.write = fail
    with refused(2003):
        connection.commit()
    rig.store.write = lambda _frame: None
    assert connection.get(handle, md(), GetOptions(4), 100).data == b"1"


def test_calls_on_several_threads_share_a_frame():
    rig = Rig()
    gate, writing = rig.on_a_slow_disk()
    frames = rig.committer.frames
    connections = [rig.queue_manager.connect() for _ in range(5)]
    threads = [
        threading.Thread(target=one.put1, args=(ObjectDescriptor("A"), md(), _options(), b"%d" % index))
        for index, one in enumerate(connections)
    ]
    threads[0].start()
    assert writing.wait(60)
    for thread in threads[1:]:
        thread.start()
    while len(rig.committer._calls) < 4:
        threading.Event().wait(0.001)
    assert rig.queue_manager.depth("A") == 0
    gate.set()
    for thread in threads:
        thread.join(60)
    assert rig.committer.frames == frames + 2
    assert len(rig.queue_manager.fetch("A", b"", 9)) == 5
    rig.queue_manager.close()


def test_a_message_on_its_way_out_is_nobody_elses():
    rig = Rig()
    one, two = rig.queue_manager.connect(), rig.queue_manager.connect()
    handle, other = (each.open(ObjectDescriptor("A"), 2 | 16).handle for each in (one, two))
    one.put(handle, md(), _options(), b"1")
    gate, writing = rig.on_a_slow_disk()
    got = []
    getter = threading.Thread(target=lambda: got.append(one.get(handle, md(), GetOptions(4), 100)))
    getter.start()
    assert writing.wait(60)
    with refused(2033):
        two.get(other, md(), GetOptions(4), 100)

    def fail(_frame):
        assert gate.wait(60)
        raise StoreUnavailable("the disk is full")

    gate.set()
    getter.join(60)
    assert [each.data for each in got] == [b"1"]
    one.put(handle, md(), _options(), b"2")
    gate.clear()
    rig.store.write = fail
    failures = []

    def attempt():
        with refused(2192):
            one.get(handle, md(), GetOptions(4), 100)
        failures.append(1)

    getter = threading.Thread(target=attempt)
    getter.start()
    gate.set()
    getter.join(60)
    rig.store.write = lambda _frame: None
    assert failures
    assert two.get(other, md(), GetOptions(4), 100).data == b"2"
    rig.queue_manager.close()


def test_how_long_the_disk_has_kept_a_write_is_known_while_it_does():
    rig = Rig()
    gate, writing = rig.on_a_slow_disk()
    assert rig.queue_manager.disk_silence == 0.0
    rig.submit("one", "1")
    assert writing.wait(60)
    first = rig.queue_manager.disk_silence
    assert rig.queue_manager.disk_silence > first > 0.0
    gate.set()
    rig.scheduler.run_until(lambda: rig.done)
    assert rig.queue_manager.disk_silence == 0.0
    rig.queue_manager.close()


def test_to_ask_how_many_messages_are_on_a_queue_of_the_gateway_commits_nothing():
    """A probe asks, and may not wait for the disk."""
    rig = Rig()
    frames = rig.committer.frames
    assert rig.queue_manager.depth("MQGATE.SET.ASIDE") == 0
    assert rig.committer.frames == frames
    rig.queue_manager.close()
