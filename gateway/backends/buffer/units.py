"""Units of work in the buffer. Each goes to IBM MQ directly, into the store, or both, in steps that survive a crash of
either side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.backends.buffer.drain import Drain
from gateway.backends.buffer.link import Verdict
from gateway.backends.buffer.record import Parts, Record, cut, rows_of, size_of
from gateway.backends.buffer.spool import INTENT
from gateway.errors import StoreCorrupt
from gateway.mq.constants import MQRC_OBJECT_DAMAGED
from gateway.ports.batch import Done, Failure, Outcome, Puts, Takes, Unit
from gateway.ports.counters import NO_ROUTE

_TRY_AGAIN = 1.0


@dataclass(slots=True, eq=False)
class Job:
    """One unit between `submit` and `done`."""

    unit: Unit
    done: Done
    parts: Parts
    at: float
    records: list[Record]
    """The half for IBM MQ, once it has been numbered."""
    entries: Puts | None = None
    intent: Puts | None = None
    in_doubt: bool = False
    """Whether the answer to an attempt was lost."""
    refused: Sequence[Failure] = ()
    """Why it cannot be done: a staged message cannot be read."""


class Units:
    """Does units one after the other, in the order of their submission."""

    def __init__(self, drain: Drain, own: frozenset[str], max_bytes: int) -> None:
        self._drain = drain
        self._store = drain.store
        self._spool = drain.spool
        self._attempts = drain.attempts
        self._scheduler = drain.scheduler
        self._counters = drain.counters
        self._own = own
        self._max_bytes = max_bytes
        self._waiting: deque[Job] = deque()
        self._job: Job | None = None
        self.held = False
        """Whether the current unit waits for room."""
        self.closed = False
        self.on_stored: Callable[[], None] = lambda: None
        """Called when there are new entries."""
        self.rule_of: Callable[[Puts], str] = lambda _puts: NO_ROUTE
        """Returns the rule that a run comes from; set by the broker."""

    def submit(self, unit: Unit, done: Done) -> None:
        """Commit the unit: on IBM MQ, or in the store while IBM MQ is away or older messages wait."""
        refused: list[Failure] = []
        if unit.moves:
            try:
                unit = self._without_moves(unit)
            except StoreCorrupt as error:
                refused = [Failure(-1, MQRC_OBJECT_DAMAGED, str(error))]
        parts = cut(Unit() if refused else unit, self._own.__contains__)
        self._waiting.append(Job(unit, done, parts, self._scheduler.now(), [], refused=refused))
        self._next()

    def _next(self) -> None:
        while self._job is None and self._waiting:
            self._job = self._waiting.popleft()
            self._begin(self._job)

    def _finish(self, job: Job, failures: list[Failure]) -> None:
        self._job = None
        job.done(job.unit, Outcome(failures))
        self._next()

    def _begin(self, job: Job) -> None:
        self.held = False
        if job.refused:
            self._finish(job, [*job.refused])
        elif not job.parts.remote:
            self._commit_own(job)
        elif job.in_doubt and self._is_there(job):
            self._finish(job, [])
        elif not self._may_go(job.parts.remote):
            self._store_entries(job)
        elif job.parts.own:
            self._prepare(job)
        else:
            self._attempt(job)

    def _commit_own(self, job: Job) -> None:
        def finished(_unit: Unit, outcome: Outcome) -> None:
            places = job.parts.own_puts
            self._finish(job, [one._replace(puts=_place(places, one.puts)) for one in outcome.failures])

        self._store.submit(job.parts.own, finished)

    def _may_go(self, remote: Unit) -> bool:
        """Whether IBM MQ is connected and no waiting message would be overtaken."""
        if self._attempts.progress is None or not self._drain.idle or rows_of(remote) > self._attempts.most_rows:
            return False  # a unit that is too long for IBM MQ goes through the store, in parts
        aside = self._spool.aside
        return not aside or not any((puts.queue, puts.queue_manager) in aside for puts in remote.puts)

    def _is_there(self, job: Job) -> bool:
        """Whether an attempt whose answer was lost has been committed after all."""
        progress = self._attempts.progress
        return progress is not None and job.records[-1].number <= progress.main

    def _records(self, job: Job) -> list[Record]:
        if not job.records:
            remote = job.parts.remote
            job.records = self._spool.records_of(remote, [self.rule_of(puts) for puts in remote.puts], job.at)
        return job.records

    # Directly

    def _prepare(self, job: Job) -> None:
        """Store both halves before one of them is committed on IBM MQ."""
        job.entries = self._spool.puts_of(self._records(job))
        job.intent = self._spool.intent_of(job.parts.own, job.at)

        def prepared(_unit: Unit, outcome: Outcome) -> None:
            if outcome.failures:
                self._finish(job, _whole(outcome))
            else:
                self._attempt(job)

        self._store.submit(Unit(puts=[job.entries, job.intent]), prepared)

    def _attempt(self, job: Job) -> None:
        number = self._records(job)[-1].number
        self._attempts.commit(
            job.parts.remote, lambda progress: progress.reached(number), lambda verdict: self._attempted(job, verdict)
        )

    def _attempted(self, job: Job, verdict: Verdict) -> None:
        if self.closed:
            return
        if verdict.committed:
            self._conclude(job, entries=True)
        elif verdict.lost and job.entries is not None:
            self._conclude(job, entries=False)
        elif verdict.lost:
            job.in_doubt = True
            self._store_entries(job)
        else:
            places = job.parts.remote_puts
            self._withdraw(job, [one._replace(puts=_place(places, one.puts)) for one in verdict.failures])

    def _conclude(self, job: Job, *, entries: bool) -> None:
        """Commit the gateway's half. With `entries` the other half is on IBM MQ, and its entries are removed; otherwise
        it waits in the store."""
        unit = self._leftovers(job, entries=entries)
        if not unit:
            self._finish(job, [])
            return
        own = job.parts.own
        unit.puts += own.puts
        unit.takes += own.takes
        unit.replaces += own.replaces

        def concluded(_unit: Unit, outcome: Outcome) -> None:
            if outcome.failures:  # it cannot be taken back: try again until the disk allows it
                self._scheduler.later(_TRY_AGAIN, lambda: self._conclude(job, entries=entries))
                return
            if not entries and job.entries is not None:
                self._spool.added(job.records, job.entries)
            self._finish(job, [])
            self._drain.kick()

        self._store.submit(unit, concluded)

    def _withdraw(self, job: Job, failures: list[Failure]) -> None:
        """IBM MQ has refused: remove what a start after a crash would carry out."""
        unit = self._leftovers(job, entries=True)
        if not unit:
            self._finish(job, failures)
            return

        def withdrawn(_unit: Unit, outcome: Outcome) -> None:
            if outcome.failures:
                self._scheduler.later(_TRY_AGAIN, lambda: self._withdraw(job, failures))
            else:
                self._finish(job, failures)

        self._store.submit(unit, withdrawn)

    def _leftovers(self, job: Job, *, entries: bool) -> Unit:
        """Returns the unit that removes the intent, and the entries if they are not to be put."""
        unit = Unit()
        if job.intent is not None:
            unit.takes.append(Takes(INTENT, b"", list(job.intent.tokens)))
        if entries and job.entries is not None:
            unit.takes.append(Takes(job.entries.queue, b"", list(job.entries.tokens)))
        return unit

    # Through the store

    def _store_entries(self, job: Job) -> None:
        """Commit the whole unit in the store: the state, and the entries for IBM MQ."""
        own, remote = job.parts.own, job.parts.remote
        if not self._fits(remote) and not self._fits(self._without_volatile(job)):
            self._hold()
            return
        if not remote and not own:
            self._finish(job, [])
            return
        job.entries = entries = self._spool.puts_of(self._records(job))

        def stored(_unit: Unit, outcome: Outcome) -> None:
            if outcome.failures and job.in_doubt:  # with another number it would be another message
                job.entries = None
                self._scheduler.later(_TRY_AGAIN, lambda: self._begin(job))
                return
            if outcome.failures:
                self._finish(job, _whole(outcome))
                return
            self._spool.added(job.records, entries)
            self.on_stored()
            self._finish(job, [])
            self._drain.kick()

        self._store.submit(Unit([entries, *own.puts], list(own.takes), replaces=list(own.replaces)), stored)

    def _fits(self, remote: Unit) -> bool:
        return self._spool.bytes + size_of(remote) <= self._max_bytes

    def _hold(self) -> None:
        """There is no room: as without a buffer, nothing is acknowledged, and reading pauses."""
        if not self.held:
            self.held = True
            self._counters.backpressure_events["spool_full"] += 1

    def _without_volatile(self, job: Job) -> Unit:
        """Drop the QoS 0 messages of a unit when there is no room, and count them."""
        remote = job.parts.remote
        if not job.records:  # numbered units are promised: an attempt may have been committed
            for puts in remote.puts:
                if not puts.persistent and puts.heads:
                    self._counters.messages_dropped[self.rule_of(puts), "spool_full"] += len(puts.heads)
                    puts.heads.clear()
                    puts.bodies.clear()
            left = [index for index, puts in enumerate(remote.puts) if puts.heads]
            job.parts.remote_puts[:] = [job.parts.remote_puts[index] for index in left]
            remote.puts = [remote.puts[index] for index in left]
        return remote

    def room(self) -> None:
        """There is room again, or IBM MQ is connected again: go on."""
        if self.held and self._job is not None:
            self._begin(self._job)

    def _without_moves(self, unit: Unit) -> Unit:
        """Returns the unit with staged messages that become visible on IBM MQ taken from here and put there."""
        puts, takes = list(unit.puts), list(unit.takes)
        for moves in unit.moves:
            core = self._store.core
            run = Puts(moves.to_queue, moves.to_queue_manager, moves.to_key)
            for index, token in enumerate(moves.tokens):
                with core.entered():
                    found = core.store.read(moves.queue, moves.key, token) if isinstance(token, int) else None
                if found is not None:
                    run.heads.append(found.head if moves.heads is None else moves.heads[index])
                    run.bodies.append(found.body)
            if run.heads:
                puts.append(run)
            takes.append(Takes(moves.queue, moves.key, list(moves.tokens)))
        return Unit(puts, takes, [], list(unit.replaces))


def _place(places: list[int], index: int) -> int:
    """Returns the index that a run of a part has in the whole unit."""
    return places[index] if index >= 0 else -1


def _whole(outcome: Outcome) -> list[Failure]:
    """Returns the failures when the store refuses its frame, which concerns the whole unit."""
    return [one._replace(puts=-1) for one in outcome.failures]
