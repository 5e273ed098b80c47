"""Queues of targets that rules consume: what their messages lead to is committed where the state is, then the messages
leave their queue. Pure.

Messages are got in a unit of work at the target, which keeps them from everybody else. What they lead to is committed
with a marker that names them; then the target's unit of work is committed. If the gateway, the target or the connection
is lost in between, the messages are on their queue again; whoever gets them finds them in the marker, and only takes
them off.

That needs the marker to be visible. A gateway that has lost its messages may still be about to commit what they led to.
So before anything is got on a new connection, and before a message is dealt with that was got before and backed out,
all other gateways settle: they answer when what they have dealt with is committed, and they give out whatever else they
have got only when their unit of work turns out to be still open. Then the markers are read.

A defect here is treated like a lost connection: what is got goes back, after a while, and comes again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gateway.broker.consumed import Consumed, key_of, name_of, names_in
from gateway.broker.context import Context
from gateway.broker.deliver.handover import GIVING_SECONDS, PAUSE, Handover, Source
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.ports.batch import Scheduler, Stored, Token
from gateway.ports.sources import Backout
from gateway.ports.state_queues import MARKERS, rows_of
from gateway.ports.targets import Intake, Origin
from gateway.rules.mappings import OutboundRule

_LONGEST = 60.0
"""The most seconds until a queue that meets defects is tried again."""
_WAITS = "it waits until the other gateways have said what they have dealt with"

if TYPE_CHECKING:
    from gateway.broker.batch import Batch


class TargetQueue(Source):
    """One queue of a target, or the publications of one subscription there."""

    __slots__ = (
        "_again", "_aside", "_begun", "_broken", "_doubts", "_failures", "_in_batch", "_known", "_left", "_matched",
        "_of_queue", "_own", "_pending", "_retired", "_sure", "context", "handover", "intake", "target",
    )  # fmt: skip

    def __init__(
        self, context: Context, handover: Handover, target: str, origin: Origin, rules: list[OutboundRule],
        again: Callable[[Source], None],
    ) -> None:  # fmt: skip
        """`again`: has the queue pumped, when there is room."""
        super().__init__(origin.queue or origin.topic, rules)
        self.context, self.handover, self.target = context, handover, target
        self.key = key_of(target, origin.queue or f"{origin.subscription}\0{origin.topic}")
        self._again = again
        self._pending: dict[Token, Stored] = {}
        """Messages that are got, and not dealt with."""
        self._begun: dict[Token, Stored] = {}
        """Messages in a batch that is not committed."""
        self._in_batch = False
        """Whether what has been got is in the open batch, or in one that is on its way, and is dealt with when that is
        committed."""
        self._aside: list[tuple[Token, str]] = []
        """Messages to be put on a back-out queue when the unit of work is committed."""
        self._own: list[Token] = []
        """Markers for the messages in the unit of work."""
        self._left: dict[Token, Counter[bytes]] = {}
        """Markers of units of work that were not concluded, by whichever gateway."""
        self._known: Counter[bytes] = Counter()
        """The names in them whose messages have not come again."""
        self._matched: list[bytes] = []
        """Those of these names whose messages are in the unit of work."""
        self._doubts = self._sure = 0
        """How often other gateways may have got what is pending here, and up to which of these times it is certain that
        they have not."""
        self._retired = False
        self._broken = False
        """Whether something has met a defect: nothing is done until what is got has gone back."""
        self._failures = 0
        """How many defects there were in a row."""
        self._of_queue = Backout()
        self.intake: Intake | None = context.consume_at(target, origin, self)
        if self.intake is None:
            self.lost("the gateway is not connected to this target: start it again")

    def use(self, rules: list[OutboundRule]) -> None:
        """Set the rules, at start and after a reload."""
        self.rules, given = rules, rules[0].spec.backout
        self.backout = self._of_queue.unless(given.threshold, given.queue)

    # -- what the target tells --

    def opened(self, backout: Backout) -> None:
        """See `ports.targets.Taker`."""
        self._broken = False
        self._guarded(partial(self._begin, backout))

    def _begin(self, backout: Backout) -> None:
        self._of_queue = backout
        self.use(self.rules)
        self._pending.clear()
        self._aside, self._own, self._matched = [], [], []
        self.running = self.waiting = False
        self._sure = self._doubts
        self._look(self._get)

    def works(self) -> None:
        """See `ports.targets.Taker`."""
        self.context.problems.pop(self.name, None)

    def lost(self, why: str) -> None:
        """See `ports.targets.Taker`."""
        self.context.problems[self.name] = f"it cannot be consumed: {why}"

    def got(self, messages: list[Stored]) -> None:
        """See `ports.targets.Taker`."""
        self._guarded(partial(self._got, messages))

    def _got(self, messages: list[Stored]) -> None:
        self._pending = {stored.token: stored for stored in messages}
        if any(self._came_before(stored) for stored in messages):
            self._look(self._deal)
        else:
            self._deal()

    def verified(self, *, alive: bool) -> None:
        """See `ports.targets.Taker`."""
        self._guarded(self._deal if alive else self._back_out)

    def committed(self) -> None:
        """See `ports.targets.Taker`."""
        self._guarded(self._committed_there)

    def failed(self, error: Exception) -> None:
        """See `ports.targets.Taker`."""
        self.context.set_aside.keep("call", self.name, error)

    def _committed_there(self) -> None:
        self._failures = 0
        taken = self.context.batch.taken(MARKERS, self.key) if self._own else []
        taken += self._own
        for name in self._matched:
            marker = next((one for one, names in self._left.items() if names[name]), None)
            if marker is None:
                continue
            self._left[marker][name] -= 1
            if not self._left[marker].total():
                del self._left[marker]
                self.context.batch.take(MARKERS, self.key, marker)
        self._own, self._matched, self._aside = [], [], []

    # -- defects --

    def _guarded(self, call: Callable[[], None]) -> None:
        """Make a call; if it meets a defect, start over after a while."""
        if self._broken or self.context.set_aside.run("call", self.name, call):
            return
        self._broken = True
        seconds = min(_LONGEST, PAUSE * 2**self._failures)
        self._failures = min(self._failures + 1, 10)
        self.lost(f"a defect, see the log and MQGATE.SET.ASIDE; it is tried again in {seconds:.0f} s")
        self.context.scheduler.later(seconds, self._start_over)

    def _start_over(self) -> None:
        """Give back what is got, after which the queue is opened again. What is in a batch is committed first, with its
        marker."""
        if self._retired or not self._broken:
            return
        if self._in_batch:
            self.context.scheduler.later(PAUSE, self._start_over)
        else:
            self._back_out()

    # -- other gateways --

    def doubt(self) -> None:
        """Note that another gateway may have got what is pending here."""
        self._doubts += 1

    def _came_before(self, stored: Stored) -> bool:
        """Whether a message was got before, without being in any known marker."""
        return mqmd.number(stored.md, mqmd.AT_BACKOUT_COUNT) > 0 and not self._known[name_of(stored)]

    def _look(self, then: Callable[[], None]) -> None:
        """Read the markers when all gateways, this one included, have put theirs; then make the call."""
        self.context.batch.after.append(partial(self._guarded, partial(self._settle_others, then)))
        self.context.flush()

    def _settle_others(self, then: Callable[[], None]) -> None:
        self.context.problems.setdefault(self.name, _WAITS)
        self.context.settle_others(self.key, partial(self._guarded, partial(self._read, then)))
        self.context.flush()

    def _read(self, then: Callable[[], None]) -> None:
        if self._retired:
            return
        manager = self.context.queue_manager

        def found(markers: list[Stored] | MQError) -> None:
            self._guarded(partial(self._found, then, markers))

        self.context.ask(lambda: list(rows_of(manager, MARKERS, self.key)), found)

    def _found(self, then: Callable[[], None], found: list[Stored] | MQError) -> None:
        if isinstance(found, MQError):
            self.context.scheduler.later(PAUSE, partial(self._guarded, partial(self._read, then)))
            return
        if self.context.problems.get(self.name) == _WAITS:
            del self.context.problems[self.name]
        own, self._left, self._known = set(self._own), {}, Counter()
        for stored in found:
            if stored.token not in own:
                self._left[stored.token] = names = Counter(names_in(stored))
                self._known += names
        self._known.subtract(self._matched)
        if not self._retired:
            then()

    # -- what is done with messages --

    def _get(self) -> None:
        if self.intake is not None:
            self.intake.get()

    def _deal(self) -> None:
        self._again(self)

    def _back_out(self) -> None:
        """Back out the unit of work, because it is lost or what is pending is no longer wanted."""
        self._pending.clear()
        if self.intake is not None:
            self.intake.back_out()

    def retire(self) -> None:
        """Stop consuming, as no rule names the queue any more. What is in a batch is concluded first."""
        self.active = False
        self._retired = True
        self.context.problems.pop(self.name, None)
        if self.intake is not None and not self._in_batch:
            self.intake.close()

    def pump(self) -> None:
        """Deal with what is pending, as far as there is time; what it leads to goes into the open batch."""
        if self._broken:
            self.running = False
        else:
            self._guarded(self._pump)

    def _pump(self) -> None:
        if not self._pending:
            self.running = False
        elif self._sure < self._doubts and self.intake is not None:
            self._sure, self.running = self._doubts, False
            self.intake.verify()
        elif self.context.remote_reads is not None:
            known = list(self._pending.values())
            self.handover.know_requests(known, lambda error: self._guarded(partial(self._hand_over, error)))
        else:
            self._hand_over(None)

    def _hand_over(self, error: MQError | None) -> None:
        context = self.context
        if error is not None or self._sure < self._doubts or self._retired:
            self.running, self.waiting = False, True
            context.scheduler.later(PAUSE if error is not None else 0.0, self._resume_pumping)
            return
        begun, rules = context.scheduler.monotonic(), Counter[str]()
        context.batch.noting(context.batch.consumed, self)
        consumed = context.batch.consumed.setdefault(self, Consumed(self.key))
        for token, stored in list(self._pending.items()):
            name = name_of(stored)
            if self._known[name] > 0:  # it is dealt with already
                self._known[name] -= 1
                self._matched.append(name)
                del self._pending[token]
                continue
            consumed.names[token] = name
            self._begun[token] = self._pending.pop(token)
            rules[self.handover.one(self, stored)] += 1
            if self.in_slices or context.is_full or context.scheduler.monotonic() - begun > GIVING_SECONDS:
                break
        self._in_batch = True
        context.batch.after.append(partial(self._committed_here, consumed, rules, begun))
        context.flush()

    def _resume_pumping(self) -> None:
        self.waiting = False
        self._again(self)

    def _committed_here(self, consumed: Consumed, rules: Counter[str], begun: float) -> None:
        """What the messages led to is committed where the state is, with the marker."""
        self._in_batch = False
        self._guarded(partial(self._dealt_with, consumed, rules, begun))
        if self._broken and self._retired and self.intake is not None:
            self.intake.close()

    def _dealt_with(self, consumed: Consumed, rules: Counter[str], begun: float) -> None:
        context, counters = self.context, self.context.counters
        self._begun.clear()
        self.stayed.clear()
        if consumed.names:
            self._own += consumed.marker.tokens
        spent = context.scheduler.monotonic() - begun
        counters.bridge_latency_seconds["out"].observe_many(spent, rules.total())
        for rule, count in rules.items():
            counters.mq_get_messages[self.target, rule] += count
        self.running = False
        if self._pending and self._retired and self.intake is not None:
            self.intake.close()
        elif self._pending and self.paused:
            context.scheduler.later(2 * PAUSE, self._resume_pumping)
        elif self._pending and self.in_slices:
            self.over = partial(self._again, self)
        elif self._pending:
            self._again(self)
        elif self.under_way:
            self.over = partial(self._guarded, self._conclude)
        else:
            self._conclude()

    def _conclude(self) -> None:
        """Commit the target's unit of work, as everything that was got is dealt with."""
        if self.intake is None:
            return
        self.intake.commit(self._aside)
        if self._retired:
            self.intake.close()

    # -- what becomes of one message --

    def leave(self, batch: Batch, token: Token) -> None:
        """Leave a message out of the batch, which was refused: the batch does not deal with it any more."""
        batch.consumed[self].names.pop(token, None)

    def stay(self, scheduler: Scheduler, token: Token) -> None:
        """Keep a message that can neither be delivered nor dead-lettered: it stays got, and nothing more is got for a
        moment."""
        if token in self._begun:
            self._pending[token] = self._begun.pop(token)
            self._pending = dict(sorted(self._pending.items(), key=lambda one: one[1].token))  # type: ignore[arg-type,return-value]
        super().stay(scheduler, token)

    def put_aside(self, batch: Batch, stored: Stored, queue: str) -> bool:
        """Put a message on the back-out queue, which is at the target too, in the unit of work that takes it. Returns
        True."""
        if batch.undo is not None:
            batch.undo.length(self._aside)
            batch.undo.key(batch.consumed[self].names, stored.token)
        self._aside.append((stored.token, queue))
        del batch.consumed[self].names[stored.token]
        return True
