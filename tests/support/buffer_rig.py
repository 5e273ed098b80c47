"""IBM MQ with a buffer in front, in one process: the queue manager behind it can go away at any moment, and so can the
gateway. Both sides keep what they have committed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from schedulers import ManualScheduler

from gateway.backends.buffer.link import Found, Verdict
from gateway.backends.buffer.queue_manager import STATE_QUEUES, BufferedQueueManager
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.ports.batch import Failure, Outcome, Puts, Replace, Stored, Token, Unit
from gateway.ports.counters import Counters
from gateway.ports.sources import Backout, Subscribed
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.store.memory import MemoryStore
from gateway.queue_manager.store.storage import MessageStore

HEAD = mqmd.build(persistence=1)
VOLATILE = mqmd.build(persistence=0)
OBJECTS = "\n".join(
    f"DEFINE QLOCAL({name}) DEFPSIST(YES) MAXDEPTH(900000) REPLACE"
    for name in ("APP.Q", "OTHER.Q", "THIRD.Q", "MQGATE.MARKERS", "MQGATE.DEAD.LETTER")
)


class Killed(BaseException):
    """The gateway's process ends here."""


def settle(queue_manager: EmbeddedQueueManager, scheduler: ManualScheduler | None = None) -> None:
    """On a slow machine commits move to a thread of their own: here they are over when this returns."""
    core = queue_manager.core
    while core.committer._writing is not None:
        with core.entered():
            core.committer.settle()
            core.committer.run()
    if scheduler is not None:
        scheduler.run()


class Mq:
    """The queue manager behind the buffer."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler()
        self.queue_manager = EmbeddedQueueManager.open(None, "QM1", self.scheduler, OBJECTS)
        self.alive = True
        self.links: list[FakeLink] = []
        self.commits = 0
        self.consumed: list[str] = []
        self.guessed: set[str] = set()
        """Queues whose length is not known, only what is usual."""
        self.refusing: dict[str, int] = {}
        """Queues that refuse puts, and the reason code they give."""

    def go(self) -> None:
        self.alive = False
        for link in self.links:
            link.gone()

    def come(self) -> None:
        self.alive = True
        for link in self.links:
            link.came()

    def commit(self, unit: Unit) -> Outcome:
        for at, puts in enumerate(unit.puts):
            if puts.queue in self.refusing:
                return Outcome([Failure(at, self.refusing[puts.queue], "refused by the rig")])
        outcomes: list[Outcome] = []
        self.queue_manager.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
        settle(self.queue_manager, self.scheduler)
        self.commits += not outcomes[0].failures
        return outcomes[0]

    def bodies(self, queue: str) -> list[bytes]:
        return [stored.data for _, stored in self.queue_manager.load(queue)]

    def load_markers(self) -> list[tuple[bytes, Stored]]:
        return list(self.queue_manager.load("MQGATE.MARKERS"))

    # The reading half, as the buffer sees it

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None = None) -> list[Stored]:
        self._check()
        return self.queue_manager.fetch(queue, key, limit, after)

    def load(self, queue: str) -> list[tuple[bytes, Stored]]:
        self._check()
        return list(self.queue_manager.load(queue))

    def depth(self, queue: str, key: bytes = b"") -> int:
        self._check()
        return self.queue_manager.depth(queue, key)

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        self.consumed.append(queue)
        self.queue_manager.consume(queue, arrived)

    def max_length(self, queue: str) -> int:
        self._check()
        return self.queue_manager.max_length(queue)

    def knows_length(self, queue: str) -> bool:
        return queue not in self.guessed

    def claim(self, queue: str, key: bytes, limit: int) -> list[Stored]:
        return self.fetch(queue, key, limit)

    def backout(self, queue: str) -> Backout:
        self._check()
        return self.queue_manager.backout(queue)

    def subscribe(self, name: str, topic: str) -> Subscribed:
        self._check()
        return self.queue_manager.subscribe(name, topic)

    def close(self) -> None:
        return

    def _check(self) -> None:
        if not self.alive:
            raise MQError(2059, "away")


class FakeLink:
    """`Link` to it. Everything takes a turn of the scheduler, so that a kill finds it half done."""

    def __init__(self, mq: Mq, scheduler: ManualScheduler) -> None:
        self._mq = mq
        self._scheduler = scheduler
        self._key = b""
        self.put_to: set[str] = set()
        self.cut: str = ""
        """What happens to the next attempt: `before` or `after` it is committed the connection breaks."""
        self.late = False
        """The next attempt is not answered before `answer`."""
        self._unanswered: list[Callable[[], None]] = []
        self._looks = False
        self.hidden = 0
        """So many looks do not see the progress."""

    def start(self, key: bytes, up: Callable[[Found], None], down: Callable[[str], None]) -> None:
        self._key, self._up, self._down = key, up, down
        self._mq.links = [self]
        self.came()

    def came(self) -> None:
        if self._mq.alive:
            self._scheduler.soon(self.look)

    def gone(self) -> None:
        self.answer()
        self._scheduler.soon(lambda: self._down("cut"))

    def rename(self, key: bytes) -> None:
        self._key = key

    def close_objects(self) -> None:
        """There are none."""

    def answer(self) -> None:
        """What was late happens now, and what is behind it."""
        unanswered, self._unanswered = self._unanswered, []
        for call in unanswered:
            self._scheduler.soon(call)
        if self._looks:
            self._looks = False
            self._scheduler.soon(self.look)

    def look(self) -> None:
        if self._unanswered:
            self._looks = True
            return
        if not self._mq.alive:
            return
        found = {key: stored.data for key, stored in self._mq.queue_manager.load("MQGATE.MARKERS")}
        progress = found.get(self._key)
        if self.hidden:
            self.hidden -= 1
            progress = None
        self._scheduler.soon(lambda: self._up(Found("QM1", "MQGATE.DEAD.LETTER", progress)))

    def commit(self, unit: Unit, progress: bytes, told: Callable[[Verdict], None]) -> None:
        if self.late:
            self.late = False
            self._unanswered.append(lambda: self._attempt(unit, progress, told))
            return
        self._scheduler.soon(lambda: self._attempt(unit, progress, told))

    def _attempt(self, unit: Unit, progress: bytes, told: Callable[[Verdict], None]) -> None:
        cut, self.cut = self.cut, ""
        verdict = Verdict(lost=True)
        if self._mq.alive and cut != "before":
            whole = Unit(unit.puts, unit.takes, [], [Replace("MQGATE.MARKERS", self._key, progress)])
            failures: list[Failure] = self._mq.commit(whole).failures
            verdict = Verdict(lost=True) if cut else Verdict(failures[:1])
        self._scheduler.soon(lambda: told(verdict))
        if cut:
            self._scheduler.soon(lambda: self._down("cut"))
            self.came()

    def stop(self) -> None:
        self._mq.links = []


class MortalStore(EmbeddedQueueManager):
    """The buffer's own store; the process may end before or after one of its commits."""

    ends_at = 0
    """Commits from now; negative: just before it."""

    fails = 0
    """So many commits from now find the disk full."""

    def submit(self, unit: Unit, done: Callable[[Unit, Outcome], None]) -> None:
        if self.fails:
            self.fails -= 1
            done(unit, Outcome([Failure(-1, 2192, "no room")]))
            return
        if self.ends_at:
            self.ends_at -= 1 if self.ends_at > 0 else -1
            if not self.ends_at:
                if self.after:
                    super().submit(unit, lambda _unit, _outcome: None)
                    settle(self)
                raise Killed
        super().submit(unit, done)
        settle(self)

    after = True


class Rig:
    """A buffered queue manager over a store that survives it."""

    def __init__(
        self, mq: Mq | None = None, *, max_bytes: int = 1 << 30, disk: MessageStore | None = None
    ) -> None:  # fmt: skip
        self.mq = mq or Mq()
        self.disk = disk or MemoryStore("BUFFER")
        self.max_bytes = max_bytes
        self.states: list[str] = []
        self.counters = Counters()
        self.starts = 0
        self.start()

    def start(self) -> None:
        now = self.scheduler.now() if self.starts else 1_767_225_600.0
        self.starts += 1
        self.scheduler = ManualScheduler(now)
        self.store = MortalStore("BUFFER", self.disk, self.scheduler)
        self.store.start()
        self.link = FakeLink(self.mq, self.scheduler)
        self.queue_manager = BufferedQueueManager(
            self.store, self.link, self.mq, self.scheduler, self.counters, max_bytes=self.max_bytes,
            state_queues=(*STATE_QUEUES, "MQGATE.STATE"), told=lambda state, _why: self.states.append(state),
        )  # fmt: skip
        self.queue_manager.start()

    def kill(self) -> None:
        """The process ends: nothing that was scheduled happens, what was committed is there."""
        self.mq.links = []
        self.close()
        self.start()

    def close(self) -> None:
        """The thread of its reads ends; what was committed is there."""
        self.queue_manager._reads.close()

    def run(self, seconds: float = 0.0) -> None:
        self.scheduler.run()
        if seconds:
            self.scheduler.advance(seconds)
            self.scheduler.run()

    def submit(self, unit: Unit) -> list[Outcome]:
        outcomes: list[Outcome] = []
        self.queue_manager.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
        return outcomes

    def commit(self, unit: Unit) -> Outcome:
        outcomes = self.submit(unit)
        self.run()
        assert outcomes, "no outcome"
        return outcomes[0]


def puts(queue: str, *bodies: bytes, key: bytes = b"", persistent: bool = True, head: bytes = HEAD) -> Puts:
    return Puts(queue, key=key, persistent=persistent, heads=[head] * len(bodies), bodies=list(bodies))
