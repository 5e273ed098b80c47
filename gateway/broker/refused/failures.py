"""When a unit of work cannot be committed: what happens to which message, decided by reason code and rule. Pure.

Nothing of a failed unit was committed, so the turn is changed (a run dead-lettered, dropped or refused) and submitted
again; everything that came after it has waited behind it. Only what the queue manager cannot do at all is retried as it
is, with growing pauses: the acknowledgements stay withheld meanwhile.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gateway.bridge import deadletter, reports
from gateway.bridge.segments import segments
from gateway.broker import accounting
from gateway.broker.deliver.reports import put_report
from gateway.broker.publish import qos2
from gateway.broker.publish.route import DEAD_LETTER_POLICY
from gateway.broker.turn import Cause, Row, Run, Turn
from gateway.errors import MQError, Refused
from gateway.mq.constants import name_of_reason
from gateway.mq.reason_policy import TOO_LONG, Action, action_for, concerns_destination, policy_for
from gateway.mqtt import reasons
from gateway.ports.batch import MQMD_LENGTH, Failure, Outcome, Puts, Stored, Token, Unit
from gateway.ports.counters import mqrc_label
from gateway.ports.state_queues import STAGED, rows_of

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.publish.route import Policy
    from gateway.broker.refused.parking import Parked
    from gateway.broker.turn import Released
    from gateway.session.session import Session

_AGAIN_SECONDS = 1.0


class Failures:
    """Retry, dead-letter, hold."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._pause = 0.0
        self.last_text = ""
        self._cuts = 0
        """Messages cut into segments: it makes the GroupIds of equal ones differ."""

    def handle(self, turn: Turn, unit: Unit, outcome: Outcome) -> None:
        """Change the turn so that it can be committed, or wait and try the same again."""
        engine = self.engine
        wait = 0.0
        if any(puts.placed for puts in unit.puts):
            self.place(turn)
        if turn.parked is not None:
            self.parked_failed(turn, turn.parked, unit, outcome)
            return
        if turn.held.moves:
            engine.staged_runs.write_all_out(turn)
            engine.resubmit(turn)
            return
        for failure in outcome.failures:
            engine.counters.mq_errors[engine.queue_manager.name, "put", mqrc_label(failure.reason)] += 1
            self.last_text = f"{name_of_reason(failure.reason)}: {failure.text}"
            if failure.puts < 0:
                wait = max(wait, self.hold())
                continue
            wait = max(wait, self.run_failed(turn, unit.puts[failure.puts], failure))
        engine.counters.mq_backouts[engine.queue_manager.name, "_none"] += 1
        if wait:
            engine.scheduler.later(wait, lambda: engine.resubmit(turn))
        else:
            engine.resubmit(turn)

    def place(self, turn: Turn) -> None:
        """What was put out of syncpoint is no part of the next attempt."""
        engine, before = self.engine, turn.rows
        accounting.placed(engine.counters, engine.queue_manager.name, turn)
        if turn.parked is not None:
            engine.parking.placed(turn.parked, before - turn.rows)

    def hold(self) -> float:
        """The queue manager or its disk cannot: seconds until the next attempt."""
        if not self.engine.held_since:
            self.engine.held_since = self.engine.scheduler.now()
        self._pause = min(self._pause * 2 or 0.1, 10.0)
        return self._pause

    def recovered(self) -> None:
        """A commit went through after some that did not."""
        self.engine.held_since, self._pause = 0.0, 0.0

    def run_failed(self, turn: Turn, puts: Puts, failure: Failure) -> float:
        """One run of puts was refused: seconds to wait before the next attempt, 0 when the turn was changed."""
        run = run_of(puts)
        if run not in turn.targets:  # a state queue: without it nothing can be promised
            return self.hold()
        if run not in turn.runs:
            return 0.0  # it went with another one
        if not concerns_destination(failure.reason):
            return self.hold()
        if self.settle(turn, run, failure, 0):
            self.engine.parking.park(turn, run)
        return 0.0

    def settle(self, turn: Turn, run: Run, failure: Failure, tries: int) -> bool:
        """Do what the rules say now with the messages of a run that was refused; whether some of them wait."""
        waits, may_pass = False, action_for(failure.reason) is Action.RETRY
        for policy in dict.fromkeys(policy for policy, rows in turn.policies(run) if rows):
            retried = may_pass and tries < policy.retry_times
            held = policy.then == "hold" and not (failure.reason in TOO_LONG and policy.too_long == "segment")
            if retried or held or not self.give_up(turn, run, policy, failure):
                waits = True
            if run not in turn.runs:
                break
        return waits and run in turn.runs

    def parked_failed(self, turn: Turn, parked: Parked, unit: Unit, outcome: Outcome) -> None:
        """The next attempt of what was parked was refused too: again later, or what the rule says comes then."""
        engine, failure = self.engine, outcome.failures[0]
        engine.counters.mq_errors[engine.queue_manager.name, "put", mqrc_label(failure.reason)] += 1
        self.last_text = f"{name_of_reason(failure.reason)}: {failure.text}"
        run = run_of(unit.puts[failure.puts]) if failure.puts >= 0 else parked.run
        judged = failure.puts >= 0 and concerns_destination(failure.reason)
        if judged and run in turn.targets and not self.settle(turn, run, failure, parked.tries):
            engine.resubmit(turn)
            return
        policy = turn.targets.get(run) or turn.targets[parked.run]
        wait = min(policy.retry_first * 2 ** min(parked.tries, 16), policy.retry_longest)
        engine.counters.mq_backouts[engine.queue_manager.name, policy.rule] += 1
        engine.parking.refused(parked, wait)
        engine.abandon()

    def give_up(self, turn: Turn, run: Run, policy: Policy, failure: Failure) -> bool:
        """The retries are used up: what the rule says comes next with its messages. False: they have to wait."""
        rows = {row for row in range(len(turn.runs[run].heads)) if turn.policy((run, row)) == policy}
        if failure.reason in TOO_LONG and policy.too_long == "segment" and self.segment(turn, run, rows):
            return True
        if policy.then == "hold":  # it cannot be cut
            return False
        if policy.then == "disconnect":
            self.disconnect(turn, run, rows, failure)
        elif policy.then == "drop":
            self.drop(turn, run, rows, failure)
        else:
            return self.dead_letter(turn, run, rows, failure)
        return True

    def drop(self, turn: Turn, run: Run, rows: set[int], failure: Failure) -> None:
        """Acknowledged and counted."""
        accounting.dropped(self.engine.counters, turn, ((run, row) for row in rows), policy_for(failure.reason).drop)
        turn.without(run, rows)

    def disconnect(self, turn: Turn, run: Run, rows: set[int], failure: Failure) -> None:
        """Those who published to it are told why and lose their connection: nothing of this turn is acknowledged to
        them, so they send it again. What was released (QoS 2) is staged as before its PUBREL."""
        engine = self.engine
        joints = [joint for joint in turn.joint if any(one == run and row in rows for one, row in joint.rows)]
        for one, going in (turn.tied((), joints) | {run: rows | turn.tied((), joints).get(run, set())}).items():
            accounting.dropped(engine.counters, turn, ((one, row) for row in going), policy_for(failure.reason).drop)
            for row in going:
                released = turn.released.get(one, {}).pop(row, None)
                if released is not None:
                    self.restage(turn, released)
            turn.without(one, going)
        reason = reasons.reason_from_mqrc(failure.reason)
        for connection in turn.contributors.pop(run, set()) | turn.unanswered.pop(run, set()):
            turn.replies.pop(connection, None)
            engine.parking.forget(connection)
            engine.refuse(connection, reason, "other", f"{puts_name(run)}: {name_of_reason(failure.reason)}")

    def restage(self, turn: Turn, released: Released) -> None:
        """A QoS 2 publication is as if its PUBREL had not come."""
        if qos2.stage_again(self.engine, turn, released):
            return
        session, packet_id, token = released
        takes = turn.takes.get((STAGED, session.key))
        if takes is None or token not in takes.tokens:
            return  # with several destinations it is met more than once
        takes.tokens.remove(token)
        if turn.parked is not None:
            turn.parked.released.remove(released)
        session.releasing.discard(packet_id)
        self._stage_back(session, packet_id, token)

    def _stage_back(self, session: Session, packet_id: int, token: Token) -> None:
        """The staged message is there still: its packet identifier names it again."""

        def found(stored: Stored | MQError | None) -> None:
            if isinstance(stored, MQError):  # the queue manager is away
                self.engine.scheduler.later(_AGAIN_SECONDS, lambda: self._stage_back(session, packet_id, token))
            elif stored is not None and not session.over:
                session.inbound[packet_id] = qos2.read_staged(stored)[0]
                session.staged_tokens[packet_id] = token

        staged = partial(rows_of, self.engine.queue_manager, STAGED, session.key)
        self.engine.ask(lambda: next((stored for stored in staged() if stored.token == token), None), found)

    def segment(self, turn: Turn, run: Run, rows: set[int]) -> bool:
        """Cut what is too long into segments; False when nothing could be cut."""
        engine, puts = self.engine, turn.runs[run]
        longest, now = engine.queue_manager.max_length(puts.queue), engine.scheduler.now()
        parts: list[list[tuple[bytes, bytes]]] = []
        try:
            for row, (head, body) in enumerate(zip(puts.heads, puts.bodies, strict=True)):
                fits = row not in rows or len(head) - MQMD_LENGTH + len(body) <= longest
                self._cuts += not fits
                name = f"{now!r} {self._cuts}".encode()
                parts.append([(head, body)] if fits else segments(head, body, longest, name))
        except Refused:
            return False
        if turn.rewrite(run, parts) >= 0:
            return False
        turn.segmented.add(run)
        return True

    def dead_letter(self, turn: Turn, run: Run, rows: set[int], failure: Failure) -> bool:
        """Messages behind an MQDLH each: all of these rows, or those that are too long for their queue. False when the
        dead-letter queue is what refused."""
        engine, puts = self.engine, turn.runs[run]
        queue, manager = engine.dead_letter_queue, engine.queue_manager
        if not queue or puts.queue == queue:
            return False
        rows = self._too_long(puts, rows) if failure.reason in TOO_LONG else rows
        room, now = manager.max_length(queue), engine.scheduler.now()
        dead_run: Run = (queue, "", 0, puts.persistent, b"", True, False)
        why = policy_for(failure.reason).dead_letter
        elsewhere: dict[int, Row] = {}
        for row in sorted(rows):
            head, body = puts.heads[row], puts.bodies[row]
            self.report(turn, head, body, failure.reason)
            if reports.discards(head):
                accounting.dropped(engine.counters, turn, [(run, row)], policy_for(failure.reason).drop)
                continue
            dead = deadletter.build(
                head, body, reason=failure.reason, queue=puts.queue, now=now, max_length=room,
                queue_manager=puts.queue_manager or manager.name,
            )  # fmt: skip
            turn.aim(dead_run, DEAD_LETTER_POLICY)
            elsewhere[row] = turn.put(dead_run, dead.head, dead.body)
            cause = Cause(turn.policy((run, row)).rule, why, accounting.qos_of(turn, (run, row)))
            turn.causes.setdefault(dead_run, {})[elsewhere[row][1]] = cause
        if elsewhere and run in turn.segmented:
            turn.segmented.add(dead_run)
        turn.without(run, rows, elsewhere)
        for column in (turn.contributors, turn.unanswered):
            if elsewhere and run in column:
                column.setdefault(dead_run, set()).update(column[run])
        return True

    def _too_long(self, puts: Puts, rows: set[int]) -> set[int]:
        """Those that are longer than the queue takes; all of them where the queue manager counts otherwise."""
        longest = self.engine.queue_manager.max_length(puts.queue)
        long = {row for row in rows if len(puts.heads[row]) - MQMD_LENGTH + len(puts.bodies[row]) > longest}
        return long or rows

    def report(self, turn: Turn, head: bytes, body: bytes, reason: int) -> None:
        """An exception report, where the message asks for one: the gateway is who could not deliver it."""
        made = reports.exception(head[:MQMD_LENGTH], head[MQMD_LENGTH:] + body, reason)
        if made is not None:
            put_report(turn, made)


def run_of(puts: Puts) -> Run:
    """The destination of a run."""
    where = (puts.queue, puts.queue_manager, puts.priority, puts.persistent, puts.key)
    return (*where, puts.syncpoint, puts.retain)


def puts_name(run: Run) -> str:
    """A destination in words."""
    return f"{run[0]} at {run[1]}" if run[1] else run[0]
