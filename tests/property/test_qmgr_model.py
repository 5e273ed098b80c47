"""The embedded queue manager against a model: puts, gets, browses, units of work, priorities, expiry, restarts."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from embedded_rig import MqiRig, md, refused
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.errors import MQError
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions
from gateway.queue_manager.descriptor import Descriptor

DEPTH = 12


@dataclass
class Kept:
    """A message of the model."""

    data: bytes
    priority: int
    number: int
    persistent: bool
    correl: bytes
    expires: float | None = None
    backout: int = 0
    owner: int = 0
    """The connection that got it under syncpoint (its index + 1)."""


@dataclass
class Work:
    """A unit of work of the model."""

    puts: list[Kept] = field(default_factory=list)
    gets: list[Kept] = field(default_factory=list)


class QueueManagerMachine(RuleBasedStateMachine):
    """Two connections on one queue; the model is a list."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp()) if self.durable else None
        self.rig = MqiRig(self.directory and self.directory / "data", f"DEFINE QLOCAL(Q) MAXDEPTH({DEPTH})")
        self.queue: list[Kept] = []
        self.number = 0
        self._connect()

    def _connect(self) -> None:
        self.connections = [self.rig.connection, self.rig.queue_manager.connect(user="bea")]
        self.handles = [one.open(ObjectDescriptor("Q"), 2 | 8 | 16).handle for one in self.connections]
        self.work = [Work(), Work()]

    def teardown(self) -> None:
        self.rig.queue_manager.close()
        if self.directory:
            shutil.rmtree(self.directory)

    def _now(self) -> float:
        return self.rig.scheduler.now()

    def _visible(self) -> list[Kept]:
        alive = [one for one in self.queue if not one.owner and (one.expires is None or one.expires > self._now())]
        return sorted(alive, key=lambda one: (-one.priority, one.number))

    def _depth(self) -> int:
        return len(self.queue) + sum(len(work.puts) for work in self.work)

    who = st.integers(0, 1)
    syncpoints = st.booleans()

    @initialize()
    def begin(self) -> None:
        pass

    @rule(
        who=who,
        sync=syncpoints,
        priority=st.integers(0, 3),
        persistent=st.booleans(),
        correl=st.sampled_from([b"\0", b"\1", b"\2"]),
        expiry=st.sampled_from([-1, -1, 30, 100]),
    )
    def put(self, who, sync, priority, persistent, correl, expiry) -> None:
        self.number += 1
        data = b"%d" % self.number
        descriptor = md(priority=priority, persistence=int(persistent), correl_id=correl * 24, expiry=expiry)
        options = PutOptions(2 if sync else 4)
        if self._depth() >= DEPTH:
            with refused(2053):
                self.connections[who].put(self.handles[who], descriptor, options, data)
            return
        self.connections[who].put(self.handles[who], descriptor, options, data)
        # Expiry counts from the put, also under syncpoint; the place in the queue is taken at the commit.
        expires = None if expiry < 0 else self._now() + expiry / 10
        kept = Kept(data, priority, self.number, persistent, correl * 24, expires)
        if sync:
            self.work[who].puts.append(kept)
        else:
            self.queue.append(kept)

    def _forget_expired_seen(self, stop: Kept | None) -> None:
        """A get discards the expired messages it comes across."""
        now = self._now()
        for one in list(self.queue):
            passed = stop is None or (-one.priority, one.number) < (-stop.priority, stop.number)
            if not one.owner and one.expires is not None and one.expires <= now and passed:
                self.queue.remove(one)

    @rule(who=who, sync=syncpoints, correl=st.sampled_from([None, b"\1", b"\2"]))
    def get(self, who, sync, correl) -> None:
        descriptor = md() if correl is None else md(correl_id=correl * 24)
        fitting = [one for one in self._visible() if correl is None or one.correl == correl * 24]
        try:
            got = self.connections[who].get(self.handles[who], descriptor, GetOptions(2 if sync else 4), 100)
        except MQError as error:
            found = error.reason
        else:
            found = 0
        if not fitting:
            assert found == 2033
            self._resync_expired()
            return
        expected = fitting[0]
        assert (found, got.data, Descriptor(got.md).backout_count) == (0, expected.data, expected.backout)
        if sync:
            expected.owner = who + 1
            self.work[who].gets.append(expected)
        else:
            self.queue.remove(expected)
        self._resync_expired()

    def _resync_expired(self) -> None:
        """Which expired messages were met depends on the way taken; those that are gone from the store are gone
        here."""
        store = self.rig.queue_manager.core.store
        there = {message.body for message in store.fetch("Q", b"", 100, None, locked=True)}
        now = self._now()
        for one in list(self.queue):
            if one.data not in there:
                assert one.expires is not None
                assert one.expires <= now
                self.queue.remove(one)

    @rule(who=who)
    def browse(self, who) -> None:
        expected = [one.data for one in self._visible()]
        found = []
        options = 16
        while True:
            try:
                found.append(self.connections[who].get(self.handles[who], md(), GetOptions(options), 100).data)
            except MQError as error:
                if error.reason != 2033:
                    raise
                break
            options = 32
        assert found == expected
        self._resync_expired()

    @rule(who=who)
    def commit(self, who) -> None:
        self.connections[who].commit()
        work, self.work[who] = self.work[who], Work()
        for one in work.gets:
            self.queue.remove(one)
        for one in work.puts:
            self.number += 1
            one.number = self.number
            self.queue.append(one)

    @rule(who=who)
    def back(self, who) -> None:
        self.connections[who].back()
        work, self.work[who] = self.work[who], Work()
        for one in work.gets:
            one.owner = 0
            one.backout += 1

    @rule(seconds=st.sampled_from([0.5, 4.0, 20.0]))
    def time_passes(self, seconds) -> None:
        self.rig.scheduler.advance(seconds)
        self._resync_expired()

    @precondition(lambda self: self.number % 3 == 0)
    @rule()
    def restart(self) -> None:
        for connection in self.connections:
            connection.disconnect(commit=False)
        for work in self.work:
            for one in work.gets:
                one.owner = 0
                one.backout += 1
        self.rig.restart()
        self.queue = [one for one in self.queue if one.persistent]
        self._connect()

    @invariant()
    def depth_is_what_the_model_says(self) -> None:
        assert self.rig.depth("Q") == self._depth()


class DurableMachine(QueueManagerMachine):
    """The same over the journal."""

    durable = True


LONG = bool(os.environ.get("MQGATE_LONG"))
TestMemory = QueueManagerMachine.TestCase
TestMemory.settings = settings(max_examples=400 if LONG else 25, stateful_step_count=30, deadline=None)
TestJournal = DurableMachine.TestCase
TestJournal.settings = settings(max_examples=200 if LONG else 10, stateful_step_count=30, deadline=None)
pytestmark = pytest.mark.timeout(600)
