"""When a unit of work cannot be committed: what happens to which message, decided by reason code and rule. Pure.

Nothing of a failed unit was committed, so the turn is changed (a run dead-lettered, dropped or refused) and submitted
again; everything that came after it has waited behind it. Only what the queue manager cannot do at all is retried as it
is, with growing pauses: the acknowledgements stay withheld meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.bridge import deadletter
from gateway.broker.oversize import cut
from gateway.broker.route import DEAD
from gateway.broker.turn import Run, Turn
from gateway.errors import MQError
from gateway.mq.constants import name_of_reason
from gateway.mqtt import reasons
from gateway.ports.batch import MQMD_LENGTH, Failure, Outcome, Puts, Unit
from gateway.ports.counters import DeadLetterReason, mqrc_label

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.parking import Parked

DEAD_LETTER_NOW = frozenset({2010, 2013, 2027, 2029, 2030, 2031, 2047, 2048, 2050, 2061, 2218, 2334, 2421, 2478})
"""This message or its target cannot work; trying again changes nothing."""
TOO_LONG = frozenset({2030, 2031})
RETRY_RUN = frozenset({2016, 2024, 2042, 2051, 2053, 2056, 2071})
"""The destination cannot take it now: the rule's retry policy applies."""
CONFIGURATION = frozenset({2035, 2045, 2052, 2057, 2058, 2063, 2082, 2085, 2086, 2087, 2091, 2092, 2101, 2196, 2197})
"""An operator has to act; meanwhile the messages go where they can be seen and replayed."""
_LABELS: dict[int, DeadLetterReason] = {
    2030: "too_long", 2031: "too_long", 2218: "too_long", 2053: "queue_full", 2051: "put_inhibited",
    2035: "not_authorized", 2085: "unknown_queue", 2082: "unknown_queue", 2087: "unknown_queue",
}  # fmt: skip


class Failures:
    """Retry, dead-letter, hold."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._tries: dict[Run, int] = {}
        self._pause = 0.0
        self.held_since = 0.0
        """Since when nothing could be committed (0: all is well); readiness looks at it."""
        self.last_text = ""

    def handle(self, turn: Turn, unit: Unit, outcome: Outcome) -> None:
        """Change the turn so that it can be committed, or wait and try the same again."""
        engine = self.engine
        wait = 0.0
        if turn.parked is not None:
            self.parked_failed(turn, turn.parked, outcome)
            return
        for failure in outcome.failures:
            engine.counters.mq_errors[engine.queue_manager.name, "put", mqrc_label(failure.reason)] += 1
            self.last_text = f"{name_of_reason(failure.reason)}: {failure.text}"
            if failure.puts < 0:
                wait = max(wait, self.hold())
                continue
            wait = max(wait, self.run_failed(turn, unit.puts[failure.puts], failure))
        if wait:
            engine.counters.mq_backouts[engine.queue_manager.name, "_none"] += 1
            engine.scheduler.later(wait, lambda: engine.resubmit(turn))
        else:
            engine.resubmit(turn)

    def hold(self) -> float:
        """The queue manager or its disk cannot: seconds until the next attempt."""
        if not self.held_since:
            self.held_since = self.engine.scheduler.now()
        self._pause = min(self._pause * 2 or 0.1, 10.0)
        return self._pause

    def recovered(self) -> None:
        """A commit went through."""
        self.held_since, self._pause = 0.0, 0.0
        self._tries.clear()

    def run_failed(self, turn: Turn, puts: Puts, failure: Failure) -> float:
        """One run of puts was refused: seconds to wait before the next attempt, 0 when the turn was changed."""
        run: Run = (puts.queue, puts.queue_manager, puts.priority, puts.persistent, puts.key)
        target = turn.targets.get(run)
        if target is None:  # a state queue: without it nothing can be promised
            return self.hold()
        if failure.reason in RETRY_RUN:
            tries = self._tries.get(run, 0)
            if tries < target.retry_times:
                if turn.parked is None and run not in turn.joint:
                    self.engine.parking.park(turn, run, target.retry_first)
                    return 0.0
                self._tries[run] = tries + 1
                return float(min(target.retry_first * 2**tries, target.retry_longest))
        elif failure.reason not in DEAD_LETTER_NOW and failure.reason not in CONFIGURATION:
            return self.hold()
        self._tries.pop(run, None)
        return self.give_up(turn, run, puts, failure, target.then)

    def parked_failed(self, turn: Turn, parked: Parked, outcome: Outcome) -> None:
        """The next attempt of what was parked was refused too: again later, or what the rule says comes then."""
        engine, failure = self.engine, outcome.failures[0]
        engine.counters.mq_errors[engine.queue_manager.name, "put", mqrc_label(failure.reason)] += 1
        self.last_text = f"{name_of_reason(failure.reason)}: {failure.text}"
        policy = parked.policy
        used_up = parked.tries > policy.retry_times or failure.reason not in RETRY_RUN
        own = failure.puts >= 0 and parked.run in turn.runs
        if (
            own
            and used_up
            and policy.then != "hold"
            and not self.give_up(turn, parked.run, parked.puts, failure, policy.then)
        ):
            engine.resubmit(turn)
            return
        wait = min(policy.retry_first * 2 ** min(parked.tries, 16), policy.retry_longest)
        engine.counters.mq_backouts[engine.queue_manager.name, policy.rule] += 1
        engine.parking.refused(parked, wait)
        engine.abandon()

    def give_up(self, turn: Turn, run: Run, puts: Puts, failure: Failure, then: str) -> float:
        """The retries are used up: what the rule says comes next."""
        rule = turn.targets[run].rule
        if then == "hold":
            if turn.parked is None and run not in turn.joint:
                self.engine.parking.park(turn, run, turn.targets[run].retry_first)
                return 0.0
            return self.hold()
        counters, rows = self.engine.counters, len(puts.heads)
        if failure.reason in TOO_LONG and turn.targets[run].too_long == "segment" and self.segment(puts):
            turn.rows += len(puts.heads) - rows
            return 0.0
        if then == "disconnect" and run not in turn.released:
            self.disconnect(turn, run, failure)
        if then == "dead_letter":
            if not self.dead_letter(turn, puts, failure):
                return self.hold()
            rows -= len(puts.heads)
            counters.dlq_messages[rule, _LABELS.get(failure.reason, "other")] += rows
        else:
            counters.messages_dropped[rule, "queue_full" if failure.reason == 2053 else "other"] += rows
            puts.heads.clear()
            puts.bodies.clear()
        turn.rows -= rows
        if not puts.heads:
            del turn.runs[run]
        return 0.0

    def disconnect(self, turn: Turn, run: Run, failure: Failure) -> None:
        """Those who published to it are told why and lose their connection: nothing of this turn is acknowledged to
        them, so they send it again."""
        reason = reasons.reason_from_mqrc(failure.reason)
        for connection in turn.contributors.pop(run, set()):
            turn.replies.pop(connection, None)
            self.engine.refuse(connection, reason, "other", f"{puts_name(run)}: {name_of_reason(failure.reason)}")

    def segment(self, puts: Puts) -> bool:
        """Cut what is too long into segments; False when nothing could be cut."""
        engine = self.engine
        longest, now = engine.queue_manager.max_length(puts.queue), engine.scheduler.now()
        rows: list[tuple[bytes, bytes]] = []
        try:
            for head, body in zip(puts.heads, puts.bodies, strict=True):
                fits = len(head) - MQMD_LENGTH + len(body) <= longest
                rows += [(head, body)] if fits else cut(head, body, longest, now)
        except MQError:
            return False
        changed = len(rows) > len(puts.heads)
        puts.heads[:] = [head for head, _ in rows]
        puts.bodies[:] = [body for _, body in rows]
        return changed

    def dead_letter(self, turn: Turn, puts: Puts, failure: Failure) -> bool:
        """Messages behind an MQDLH each: all of the run, or those that are too long for its queue. False when the
        dead-letter queue is what refused."""
        engine = self.engine
        queue, manager = engine.dead_letter_queue, engine.queue_manager
        if not queue or puts.queue == queue:
            return False
        longest = manager.max_length(puts.queue) if failure.reason in TOO_LONG else -1
        sizes = [len(head) - MQMD_LENGTH + len(body) for head, body in zip(puts.heads, puts.bodies, strict=True)]
        if max(sizes) <= longest:  # the queue manager counts otherwise: none of them is taken
            longest = -1
        room, now = manager.max_length(queue), engine.scheduler.now()
        run: Run = (queue, "", 0, puts.persistent, b"")
        turn.targets.setdefault(run, DEAD)
        kept: list[tuple[bytes, bytes]] = []
        for size, head, body in zip(sizes, puts.heads, puts.bodies, strict=True):
            if size <= longest:
                kept.append((head, body))
                continue
            dead = deadletter.build(
                head, body, reason=failure.reason, queue=puts.queue, now=now, max_length=room,
                queue_manager=puts.queue_manager or manager.name,
            )  # fmt: skip
            turn.put(run, dead.head, dead.body)
        puts.heads[:] = [head for head, _ in kept]
        puts.bodies[:] = [body for _, body in kept]
        return True


def puts_name(run: Run) -> str:
    """A destination in words."""
    return f"{run[0]} at {run[1]}" if run[1] else run[0]
