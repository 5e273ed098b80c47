"""All lines of the buffer on their way to IBM MQ: the main one, and one for each destination that refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.backends.buffer.forwarder import Forwarder
from gateway.backends.buffer.judgement import PolicyOf
from gateway.backends.buffer.link import Reads
from gateway.backends.buffer.progress import Destination, Progress
from gateway.backends.buffer.spool import Spool
from gateway.backends.buffer.tube import Tube
from gateway.ports.batch import Scheduler
from gateway.ports.counters import Counters
from gateway.queue_manager.embedded import EmbeddedQueueManager


class Drain:
    """See the module."""

    def __init__(
        self, store: EmbeddedQueueManager, spool: Spool, tube: Tube, reads: Reads, scheduler: Scheduler,
        counters: Counters,
    ) -> None:  # fmt: skip
        self.store = store
        self.spool = spool
        self.tube = tube
        self.reads = reads
        self.scheduler = scheduler
        self.counters = counters
        self.on_room: Callable[[], None] = lambda: None
        """Entries have gone."""
        self.on_empty: Callable[[], None] = lambda: None
        """Nothing is left in the main line."""
        self.policy_of: PolicyOf = lambda _rule: None
        """What a rule says about failures: the broker knows."""
        self.problems: dict[Destination | None, str] = {}
        """Why something waits although IBM MQ is there, by destination (None: everything)."""
        self._main = Forwarder(self, spool.main)
        self._aside: dict[Destination, Forwarder] = {}

    @property
    def idle(self) -> bool:
        """Whether the main line is empty and at rest: new units need not line up."""
        return self._main.idle

    def name(self) -> str:
        """The queue manager's name, for dead-letter headers."""
        return self.spool.identity.name

    def dead_letter_queue(self) -> str:
        """Where what it can never take goes."""
        return self.spool.identity.dead_letter_queue

    def connected(self, progress: Progress) -> None:
        """There is a way again, and this is how far it was got."""
        for destination, number in progress.aside.items():
            line = self.spool.line_of(destination)
            line.last = max(line.last, number)
        for forwarder in self._all():
            forwarder.wake()
        self.emptied()

    def kick(self) -> None:
        """New entries."""
        self._main.kick()

    def kick_aside(self) -> None:
        """Something was set aside."""
        for forwarder in self._all():
            forwarder.kick()

    def _all(self) -> Iterator[Forwarder]:
        for destination, line in self.spool.aside.items():
            if destination not in self._aside:
                self._aside[destination] = Forwarder(self, line, destination)
        yield self._main
        yield from list(self._aside.values())

    def emptied(self) -> None:
        """A line has nothing left. A destination joins the others again when the main line has passed what was set
        aside for it."""
        progress = self.tube.progress
        if progress is None:
            return
        for destination, line in list(self.spool.aside.items()):
            forwarder = self._aside.get(destination)
            if not line.entries and progress.main >= line.last and (forwarder is None or forwarder.at_rest):
                del self.spool.aside[destination]
                self._aside.pop(destination, None)
                self.problems.pop(destination, None)
        if self._main.idle:
            self.on_empty()

    def pruned(self, progress: Progress) -> Progress:
        """Without the destinations that have nothing set aside any more."""
        for destination in progress.aside:
            if destination not in self.spool.aside:
                progress = progress.without(destination)
        return progress
