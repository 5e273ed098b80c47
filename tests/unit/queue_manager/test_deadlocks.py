"""Calls of many programs at once end, whatever they wait for. A watchdog says where threads stand that do not end.

The journal's writer is the one thread that must never wait for a commit: nobody else could end that wait.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import traceback

import pytest
from embedded_rig import SMALL, md

from gateway.errors import MQError
from gateway.ports.batch import Puts, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

PATIENCE = 60
SYNCPOINT, NO_SYNCPOINT, WAIT, BROWSE_FIRST = 2, 4, 1, 16
PROGRAMS, CALLS = 8, 400 if os.environ.get("MQGATE_LONG") else 60
OBJECTS = "DEFINE QLOCAL(Q) MAXDEPTH(100000)\nDEFINE QLOCAL(R) MAXDEPTH(100000)"


class Slow:
    """A queue manager whose journal believes that its disk is slow, so that frames go to the writer's thread."""

    def __init__(self, path):
        self.scheduler = ThreadScheduler()
        self.scheduler.__enter__()
        self.queue_manager = EmbeddedQueueManager.open(path, "QM1", self.scheduler, OBJECTS, store_options=SMALL)
        committer = self.queue_manager.core.committer
        committer.seconds, committer._trial_in = 10.0, 1 << 30

    def close(self):
        self.queue_manager.close()
        self.scheduler.__exit__(None, None, None)


@pytest.fixture
def slow(tmp_path):
    made = Slow(tmp_path / "data")
    yield made
    made.close()


def joined(threads):
    """Wait for threads; a failure shows where each of those that have not ended stands."""
    for thread in threads:
        thread.join(PATIENCE)
    alive = [thread for thread in threads if thread.is_alive()]
    if alive:
        frames = sys._current_frames()
        stacks = {
            thread.name: "".join(traceback.format_stack(frames[thread.ident]))
            for thread in threading.enumerate()
            if thread.ident in frames
        }
        os._exit(_told(stacks))  # the queue manager cannot be closed either


def _told(stacks):
    for name, stack in stacks.items():
        sys.stderr.write(f"\n-- {name}\n{stack}")
    sys.stderr.flush()
    return 70


def test_a_parked_get_out_of_syncpoint_that_the_writer_s_thread_finds_a_message_for(slow):
    taker = slow.queue_manager.connect(user="taker")
    answered = threading.Event()
    found = []

    def arrived(outcome):
        found.append(outcome)
        answered.set()

    handle = taker.open(ObjectDescriptor("Q"), 2).handle
    taker.wait(handle, md(), GetOptions(NO_SYNCPOINT | WAIT), 100, None, arrived)

    def put():
        giver = slow.queue_manager.connect(user="giver")
        giver.put(giver.open(ObjectDescriptor("Q"), 16).handle, md(persistence=1), PutOptions(4), b"one")
        giver.disconnect()

    thread = threading.Thread(target=put, name="giver")
    thread.start()
    joined([thread])
    waiting = threading.Thread(target=lambda: answered.wait(PATIENCE + 1), name="answer")
    waiting.start()
    joined([waiting])
    assert [one.data for one in found] == [b"one"]
    taker.disconnect()


class Program:
    """A program that makes calls at random."""

    def __init__(self, queue_manager, number, seed):
        self.random = random.Random(seed * 1000 + number)
        self.queue_manager = queue_manager
        self.number = number
        self.connection = queue_manager.connect(user=f"p{number}")
        self.handles = [self.connection.open(ObjectDescriptor(name), 2 | 8 | 16).handle for name in ("Q", "R")]
        self.kinds = [self.put, self.put, self.get, self.wait, self.browse, self.commit, self.back, self.submit]

    def run(self):
        for _ in range(CALLS):
            try:
                self.random.choice(self.kinds)(self.random.choice(self.handles))
            except MQError as error:
                if error.reason not in {2033, 2003, 2024}:
                    raise
        self.connection.disconnect()

    def put(self, handle):
        options = self.random.choice((SYNCPOINT, NO_SYNCPOINT))
        descriptor = md(persistence=self.random.choice((0, 1)), correl_id=bytes([self.random.randrange(4)]) * 24)
        self.connection.put(handle, descriptor, PutOptions(options), b"x" * self.random.choice((1, 500, 5000)))

    def _options(self):
        asked = md(correl_id=bytes([self.random.randrange(4)]) * 24) if self.random.random() < 0.4 else md()
        return asked, self.random.choice((SYNCPOINT, NO_SYNCPOINT))

    def get(self, handle):
        asked, options = self._options()
        self.connection.get(handle, asked, GetOptions(options), 10_000)

    def wait(self, handle):
        asked, options = self._options()
        ended = threading.Event()
        scheduler = self.queue_manager.core.scheduler
        deadline = scheduler.monotonic() + self.random.choice((0.0, 0.001, 0.02))
        self.connection.wait(handle, asked, GetOptions(options | WAIT), 10_000, deadline, lambda _: ended.set())
        assert ended.wait(PATIENCE), "the get was never answered"

    def browse(self, handle):
        self.connection.get(handle, md(), GetOptions(BROWSE_FIRST), 10_000)

    def commit(self, _handle):
        self.connection.commit()

    def back(self, _handle):
        self.connection.back()

    def submit(self, _handle):
        puts = Puts("R", heads=[md(persistence=1)] * 3, bodies=[b"b"] * 3)
        done = threading.Event()
        self.queue_manager.submit(Unit(puts=[puts]), lambda *_: done.set())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slowly", [True, False], ids=["slow disk", "fast disk"])
def test_every_mixture_of_calls_ends(slow, slowly, seed):
    if not slowly:
        slow.queue_manager.core.committer.seconds = 0.0
    programs = [Program(slow.queue_manager, number, seed) for number in range(PROGRAMS)]
    failures = []

    def run(program):
        try:
            program.run()
        except BaseException as error:  # noqa: BLE001 -- told below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(one,), name=f"program {one.number}", daemon=True) for one in programs]
    for thread in threads:
        thread.start()
    joined(threads)
    assert not failures
