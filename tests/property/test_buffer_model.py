"""A model of store and forward: devices publish and release, an application's commands are taken, IBM MQ goes, comes,
loses answers and refuses, the gateway is killed between its steps and inside its commits. In the end everything that
was acknowledged is on its queue: QoS 1 at least once (once for each time it was sent), QoS 2 exactly once, in order."""

from __future__ import annotations

from collections import Counter
from typing import Any

from buffer_rig import HEAD, Killed, Rig, puts
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gateway.backends.buffer.spool import ASIDE, ENTRIES, INTENT
from gateway.mq import mqmd
from gateway.ports.batch import Outcome, Puts, Takes, Unit

QUEUES = ("APP.Q", "OTHER.Q")


class Op:
    """One exchange of a device with the gateway, until it is acknowledged."""

    def __init__(self, kind: str, body: bytes, queue: str) -> None:
        self.kind = kind
        self.body = body
        self.queue = queue
        self.done = False
        self.sent = 0


class BufferMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.rig.run()
        self.ops: list[Op] = []
        self.order: list[Op] = []
        """Publications and releases, as they were first sent."""
        self.staged: dict[bytes, Any] = {}
        self.releasing: set[bytes] = set()
        self.taking = False
        self.refused: list[Op] = []
        self.count = 0

    # Sending

    def _send(self, op: Op) -> None:
        op.sent += 1
        try:
            self.rig.queue_manager.submit(self._unit(op), lambda unit, outcome: self._acknowledged(op, unit, outcome))
        except Killed:
            self._restart()

    def _unit(self, op: Op) -> Unit:
        if op.kind == "stage":
            return Unit([puts("MQGATE.STAGED", op.body, key=b"device")])
        if op.kind == "release":
            return Unit([puts(op.queue, op.body)], [Takes("MQGATE.STAGED", b"device", [self.staged[op.body]])])
        if op.kind == "both":  # heads that are alike are packed
            heads = [mqmd.build(persistence=1, correl_id=op.body + queue.encode()) for queue in QUEUES]
            return Unit([puts(queue, op.body, head=head) for queue, head in zip(QUEUES, heads, strict=True)])
        copy = puts("MQGATE.OUT", op.body, key=b"session")
        return Unit([puts(op.queue, op.body), copy] if op.kind == "fanout" else [puts(op.queue, op.body)])

    def _acknowledged(self, op: Op, unit: Unit, outcome: Outcome) -> None:
        assert not op.done, "answered twice"
        if outcome.failures:  # refused directly, or the buffer's disk is full: the broker would try again
            assert outcome.failures[0].reason in {2051, 2192}
            op.sent -= 1
            self.refused.append(op)
            return
        op.done = True
        if op.kind == "stage":
            self.staged[op.body] = unit.puts[0].tokens[0]
        elif op.kind == "release":
            del self.staged[op.body]

    def _new(self, kind: str, queue: str) -> None:
        self.count += 1
        self._first(Op(kind, b"%d" % self.count, queue))

    def _first(self, op: Op) -> None:
        self.ops.append(op)
        if op.kind != "stage":
            self.order.append(op)
        self._send(op)

    @rule(queue=strategies.sampled_from(QUEUES), kind=strategies.sampled_from(["publish", "fanout", "both"]))
    def publish(self, queue: str, kind: str) -> None:
        self._new(kind, queue)

    @rule()
    def stage(self) -> None:
        self._new("stage", "")

    @precondition(lambda self: set(self.staged) - self.releasing)
    @rule(data=strategies.data())
    def release(self, data: Any) -> None:
        body = data.draw(strategies.sampled_from(sorted(set(self.staged) - self.releasing)))
        self.releasing.add(body)
        self._first(Op("release", body, "APP.Q"))

    @rule()
    def command(self) -> None:
        self.count += 1
        self.rig.mq.commit(Unit([puts("THIRD.Q", b"c%d" % self.count)]))

    @precondition(lambda self: not self.taking)
    @rule()
    def take(self) -> None:
        if not self.rig.mq.alive:
            return
        page = self.rig.queue_manager.fetch("THIRD.Q", b"", 2)
        if not page:
            return
        self.taking = True
        copies = Puts("MQGATE.OUT", key=b"session", heads=[HEAD] * len(page), bodies=[one.data for one in page])

        def taken(_unit: Unit, outcome: Outcome) -> None:
            assert not outcome.failures or outcome.failures[0].reason == 2192
            self.taking = False

        try:
            unit = Unit([copies], [Takes("THIRD.Q", b"", [one.token for one in page])])
            self.rig.queue_manager.submit(unit, taken)
        except Killed:
            self._restart()

    # What goes wrong

    @rule()
    def mq_goes(self) -> None:
        if self.rig.mq.alive:
            self.rig.mq.go()

    @rule()
    def mq_comes(self) -> None:
        if not self.rig.mq.alive:
            self.rig.mq.come()

    @rule(cut=strategies.sampled_from(["before", "after"]), hidden=strategies.integers(0, 2))
    def answer_lost(self, cut: str, hidden: int) -> None:
        self.rig.link.cut, self.rig.link.hidden = cut, hidden

    @rule()
    def answer_late(self) -> None:
        self.rig.link.late = True

    @rule()
    def answer(self) -> None:
        self.rig.link.answer()

    @rule(allowed=strategies.booleans())
    def refuse(self, allowed: bool) -> None:
        self.rig.mq.queue_manager.mqsc(f"ALTER QLOCAL(OTHER.Q) PUT({'ENABLED' if allowed else 'DISABLED'})")

    @rule(commits=strategies.integers(1, 6), after=strategies.booleans())
    def die_in_a_commit(self, commits: int, after: bool) -> None:
        self.rig.store.ends_at, self.rig.store.after = commits, after

    @rule(commits=strategies.integers(1, 3))
    def disk_is_full(self, commits: int) -> None:
        self.rig.store.fails = commits

    @rule()
    def kill(self) -> None:
        self._restart()

    @rule(steps=strategies.integers(1, 12))
    def step(self, steps: int) -> None:
        self._run(steps, 0.0)

    @rule(seconds=strategies.sampled_from([0.5, 5.0, 11.0, 40.0]))
    def time_goes_by(self, seconds: float) -> None:
        self._run(10_000, seconds)

    def _run(self, steps: int, seconds: float) -> None:
        scheduler = self.rig.scheduler
        try:
            for _ in range(steps):
                if not scheduler._soon:
                    break
                scheduler._soon.popleft()()
            if seconds:
                self.rig.run(seconds)
        except Killed:
            self._restart()
        self._repeat_refused()

    def _repeat_refused(self) -> None:
        while self.refused:
            self._again(self.refused.pop(0))

    def _again(self, op: Op) -> None:
        """It was refused: nothing of it was committed, and it is as if it were sent now."""
        for sent in (self.ops, self.order) if op.kind != "stage" else (self.ops,):
            sent.remove(op)
            sent.append(op)
        self._send(op)

    def _restart(self) -> None:
        """What was not acknowledged is sent again, in its order; a release only if its message is still staged."""
        while True:
            try:
                self.rig.kill()
                break
            except Killed:
                continue
        self.taking = False
        refused, self.refused = self.refused, []
        held = {stored.data: stored.token for _, stored in self.rig.queue_manager.load("MQGATE.STAGED")}
        self.staged = held
        for op in list(self.ops):
            if op.done or op in refused:
                continue
            if (op.kind == "stage" and op.body in held) or (op.kind == "release" and op.body not in held):
                op.done = True
            else:
                self._send(op)
        for op in refused:
            self._again(op)

    # The end

    def teardown(self) -> None:
        rig = self.rig
        rig.store.ends_at = rig.store.fails = 0
        rig.link.cut, rig.link.hidden, rig.link.late = "", 0, False
        rig.link.answer()
        rig.mq.queue_manager.mqsc("ALTER QLOCAL(OTHER.Q) PUT(ENABLED)")
        if not rig.mq.alive:
            rig.mq.come()
        for _ in range(6):
            self._run(10_000, 60.0)
        assert all(op.done for op in self.ops)
        assert rig.queue_manager.state == "connected"
        assert (rig.queue_manager.spool.messages, rig.queue_manager.spool.bytes) == (0, 0)
        for queue in (ENTRIES, ASIDE, INTENT):
            assert not list(rig.store.load(queue)), queue
        for queue in QUEUES:
            self._check(queue, [one.decode() for one in rig.mq.bodies(queue)])
        copies = Counter(stored.data for _, stored in rig.queue_manager.load("MQGATE.OUT") if stored.data[:1] == b"c")
        assert set(copies.values()) <= {1}, "a command was taken twice"
        assert not {*copies} & {*rig.mq.bodies("THIRD.Q")}, "taken and still there"
        rig.close()

    def _check(self, queue: str, found: list[str]) -> None:
        mine = [op for op in self.order if op.kind == "both" or op.queue == queue]
        counts = Counter(found)
        for op in mine:
            most = 1 if op.kind == "release" else op.sent
            assert 1 <= counts[op.body.decode()] <= most, (op.kind, op.body, counts[op.body.decode()], op.sent)
        firsts = list(dict.fromkeys(found))
        assert firsts == [op.body.decode() for op in mine]


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
