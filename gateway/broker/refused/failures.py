"""When a unit of work cannot be committed: what happens to which message, decided by reason code and rule. Pure.

Nothing of a failed unit was committed, so the batch is changed (messages dead-lettered, dropped or refused) and
submitted again; everything that came after it has waited behind it. Only what the queue manager cannot do at all is
retried as it is, with growing pauses: the acknowledgements stay withheld meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gateway.bridge import reports
from gateway.bridge.message import read_message
from gateway.bridge.segments import segments
from gateway.broker import books
from gateway.broker.batch import Batch, Row
from gateway.broker.context import Context
from gateway.broker.dead_letters import DeadLetters, Undelivered
from gateway.broker.marks import Cause, Mark
from gateway.broker.publish import qos2
from gateway.broker.refused import restaging
from gateway.broker.undo import Undo
from gateway.errors import MQError, Refused
from gateway.mq import constants as mq
from gateway.mq.constants import name_of_reason
from gateway.mq.reason_policy import TOO_LONG, Action, action_for, concerns_destination, policy_for
from gateway.mqtt import reasons
from gateway.ports.batch import MQMD_LENGTH, Address, Failure, Outcome, Puts, Stored, Token, Unit
from gateway.ports.counters import DisconnectReason, mqrc_label
from gateway.ports.state_queues import STAGED, rows_of

if TYPE_CHECKING:
    from gateway.broker.batch import Destination
    from gateway.broker.marks import Released
    from gateway.broker.publish.router import Router
    from gateway.broker.refused.exception_reports import ExceptionReports
    from gateway.broker.refused.parked import Parked
    from gateway.broker.refused.parking import Parking
    from gateway.ports.failure_policy import Policy
    from gateway.session.session import Session

_AGAIN_SECONDS = 1.0
_ROOM_FOR_LESS = frozenset({mq.MQRC_Q_FULL, mq.MQRC_Q_SPACE_NOT_AVAILABLE, mq.MQRC_SYNCPOINT_LIMIT_REACHED})
"""A smaller unit of work may be taken."""

LOOKED_AT = 65_536
"""Bytes behind a head that are read to name a message in the log."""


class Failures:
    """Decides what becomes of a batch whose commit failed."""

    def __init__(
        self, context: Context, router: Router, parking: Parking, staged_runs: qos2.StagedRuns,
        exception_reports: ExceptionReports,
    ) -> None:  # fmt: skip
        self.context = context
        self.router = router
        self.parking = parking
        self.exception_reports = exception_reports
        self.staged_runs = staged_runs
        self._pause = 0.0
        self.last_text = ""
        self._cuts = 0
        """Messages cut into segments: it makes the GroupIds of equal ones differ."""

    def handle(self, batch: Batch, unit: Unit, outcome: Outcome) -> None:
        """Change the batch so that it can be committed, or wait and submit it as it is."""
        context = self.context
        wait = 0.0
        if any(puts.placed for puts in unit.puts):
            context.or_end(self.place, batch)
        if batch.parked is not None:
            self.parked_failed(batch, batch.parked, unit, outcome)
            return
        if batch.moves:
            context.or_end(self.staged_runs.write_all_out, batch)
            context.resubmit(batch)
            return
        waiting: list[Destination] = []
        for failure in outcome.failures:
            self._count(unit, failure)
            self.last_text = f"{name_of_reason(failure.reason)}: {failure.text}"
            if failure.puts < 0:
                if context.storage_full is None or not batch.destinations:
                    wait = max(wait, self.hold())
                else:  # what else is in the batch may have room, or makes it
                    waiting += batch.destinations.values()
                continue
            wait = max(wait, self.destination_failed(batch, unit.puts[failure.puts], failure, waiting))
        context.or_end(self.parking.park, batch, list(dict.fromkeys(waiting)))
        context.counters.mq_backouts[context.queue_manager.name, "_none"] += 1
        if wait:
            context.scheduler.later(wait, lambda: context.resubmit(batch))
        else:
            context.resubmit(batch)

    def _settled(self, batch: Batch, destination: Destination, failure: Failure, tries: int) -> bool:
        """`settle`; if that meets a defect, the messages wait: they are not lost, and nobody else waits for them."""
        undo = Undo(batch)
        try:
            waits = self.settle(batch, destination, failure, tries)
        except Exception as error:  # noqa: BLE001 -- as said above
            undo.take_back(batch)
            self.context.set_aside.keep("call", destination.address.name, error)
            return True
        undo.keep()
        return waits

    def place(self, batch: Batch) -> None:
        """Remove what was put out of syncpoint: it is no part of the next attempt."""
        context, before = self.context, batch.rows
        books.placed(context.counters, context.queue_manager.name, batch)
        if batch.parked is not None:
            self.parking.placed(batch.parked, before - batch.rows)

    def hold(self) -> float:
        """Hold everything, as the queue manager or its disk cannot commit; returns the seconds to the next attempt."""
        if not self.context.held_since:
            self.context.held_since = self.context.scheduler.now()
        self._pause = min(self._pause * 2 or 0.1, 10.0)
        return self._pause

    def recovered(self) -> None:
        """End a time of holding: a commit has succeeded."""
        self.context.held_since, self._pause = 0.0, 0.0

    def destination_failed(self, batch: Batch, puts: Puts, failure: Failure, waiting: list[Destination]) -> float:
        """Handle the refusal of one destination's puts: it is among `waiting` then if messages of it have to wait.
        Returns the seconds to wait before the next attempt, 0 when the batch was changed."""
        if puts.key:  # the gateway's own state, without which it can promise nothing
            return self.hold()
        destination = batch.destinations.get(Address.of(puts))
        if destination is None or failure.elsewhere:
            return 0.0  # its rows went with those of another one, or go to another queue manager
        if not failure.away and not concerns_destination(failure.reason):
            return self.hold()
        if failure.away or self._settled(batch, destination, failure, 0):
            waiting.append(destination)
        return 0.0

    def settle(self, batch: Batch, destination: Destination, failure: Failure, tries: int) -> bool:
        """Do what its rules say with the messages of a destination that refused; returns whether some of them wait."""
        waits, may_pass = False, action_for(failure.reason) is Action.RETRY
        given_up: dict[tuple[str, str], set[Policy]] = {}
        for policy in dict.fromkeys(policy for policy, rows in destination.rows_by_policy() if rows):
            retried = may_pass and tries < policy.retry_times
            if retried or (policy.then == "hold" and not _is_cut(policy, failure)):
                waits = True
            else:
                given_up.setdefault((policy.then, policy.too_long), set()).add(policy)
        for policies in given_up.values():
            waits = not self.give_up(batch, destination, policies, failure) or waits
            if not destination.rows:
                break
        return waits and destination.rows > 0

    def _count(self, unit: Unit, failure: Failure) -> None:
        """Count a failure, with the queue it was for."""
        counters, reason = self.context.counters, mqrc_label(failure.reason)
        name = failure.queue_manager or self.context.queue_manager.name
        counters.mq_errors[name, "put", reason] += 1
        queue = unit.puts[failure.puts].queue if failure.puts >= 0 else None
        counters.examples.note("mq_errors", (name, "put", reason), queue=queue, why=failure.text)

    def parked_failed(self, batch: Batch, parked: Parked, unit: Unit, outcome: Outcome) -> None:
        """Handle the refusal of a parked destination's next attempt: try again later, or do what its rule says."""
        context, failure = self.context, outcome.failures[0]
        if all(one.elsewhere for one in outcome.failures):
            context.resubmit(batch)
            return
        failure = next(one for one in outcome.failures if not one.elsewhere)
        if not failure.away and not parked.halved:  # counted when it was parked, and nothing was tried; or just now
            self._count(unit, failure)
        self.last_text = parked.why = f"{name_of_reason(failure.reason)}: {failure.text}"
        destination, policy = None, parked.policy
        if failure.puts >= 0:
            destination = batch.destinations.get(Address.of(unit.puts[failure.puts]))
        if destination is not None:
            judged = concerns_destination(failure.reason) and not failure.away
            if judged and parked.away:  # its retries begin when its queue manager answers
                parked.tries = 0
            parked.away = failure.away
            if destination.address != parked.address:
                policy = destination.policies[0][1]
            if judged and not self._settled(batch, destination, failure, parked.tries):
                context.resubmit(batch)
                return
            for_less = judged and failure.reason in _ROOM_FOR_LESS
            if for_less and context.or_end(self.parking.halve, parked, destination):
                context.resubmit(batch)
                return
        doublings = 0 if parked.away else min(parked.tries, 16)  # a target that is away is asked nothing
        wait = min(policy.retry_first * 2**doublings, policy.retry_longest)
        context.counters.mq_backouts[context.queue_manager.name, policy.rule] += 1
        context.or_end(self.parking.refused, parked, wait)
        context.abandon()

    def give_up(self, batch: Batch, destination: Destination, policies: Collection[Policy], failure: Failure) -> bool:
        """Do what rules say of their messages when their retries are used up; False: they have to wait. Rules that say
        the same are dealt with together: what one client has published stays in its order on the dead-letter queue."""
        policy = next(iter(policies))
        rows = destination.rows_of(policies)
        if _is_cut(policy, failure) and self.segment(batch, destination, rows):
            return True
        if policy.then == "hold":  # it cannot be cut
            return False
        if policy.then == "stay":
            self.stay(batch, destination, rows)
        elif policy.then == "disconnect":
            self.disconnect(batch, destination, rows, failure)
        elif policy.then == "drop":
            self.drop(batch, destination, rows, failure)
        else:
            return self.dead_letter(batch, destination, rows, failure)
        return True

    def drop(self, batch: Batch, destination: Destination, rows: set[int], failure: Failure) -> None:
        """Drop rows: they are counted, and acknowledged to their publishers."""
        reason = policy_for(failure.reason).drop
        books.dropped(self.context.counters, batch, ((destination, row) for row in rows), reason)
        batch.without(destination, rows)

    def disconnect(self, batch: Batch, destination: Destination, rows: set[int], failure: Failure) -> None:
        """Disconnect those who published to it, with the reason: nothing of this batch is acknowledged to them, so
        they send it again. QoS 2 publications that were released are staged as before their PUBREL."""
        context = self.context
        links = [
            link
            for link in batch.links.at((destination,))
            if any(one is destination and row in rows for one, row in link.rows)
        ]
        linked = batch.with_linked((), links)
        undone: dict[Session, None] = {}
        for one, going in (linked | {destination: rows | linked.get(destination, set())}).items():
            reason = policy_for(failure.reason).drop
            books.dropped(context.counters, batch, ((one, row) for row in going), reason)
            for row in going:
                mark = one.marks.pop(row, None)
                if mark is not None and mark.released is not None:
                    self._restage(batch, mark.released)
                    undone[mark.released[0]] = None
            batch.without(one, going)
        self._tell_nothing(undone, *_words_of(destination, failure))
        for connection in destination.contributors | destination.unanswered:
            batch.replies.pop(connection, None)
            self.parking.forget(connection)
            context.refuse(connection, *_words_of(destination, failure))
        destination.contributors.clear()
        destination.unanswered.clear()

    def _tell_nothing(self, undone: Mapping[Session, None], reason: int, why: DisconnectReason, text: str) -> None:
        """Their clients are back already, or have been, and may have sent the PUBREL again that is being undone: that
        it is not known any more is the answer in the open batch, or in one that was closed since."""
        for batch in self.context.waiting if undone else ():
            for connection in [one for one in batch.replies if one.session in undone]:
                del batch.replies[connection]
                self.context.refuse(connection, reason, why, text)

    def stay(self, batch: Batch, destination: Destination, rows: set[int]) -> None:
        """Leave what cannot be set aside where it was. What came from a device has no such place: nothing of this batch
        is acknowledged to it, so that it sends it again."""
        context, text = self.context, f"{destination.address.name}: {self.last_text}"
        for connection in context.set_aside.refused(batch, destination, rows, text):
            batch.replies.pop(connection, None)
            self.parking.forget(connection)
            context.refuse(connection, reasons.QUOTA_EXCEEDED, "defect", text)
        destination.contributors.clear()
        destination.unanswered.clear()

    def restage(self, batch: Batch, released: Released) -> None:
        """Undo one PUBREL, of what cannot be set aside."""
        self._restage(batch, released)
        self._tell_nothing({released[0]: None}, reasons.SERVER_BUSY, "other", "what it has released is staged again")

    def _restage(self, batch: Batch, released: Released) -> None:
        """Undo the PUBREL of a QoS 2 publication."""
        if restaging.stage_again(self.router, batch, released):
            return
        session, packet_id, token = released
        takes = batch.takes.get((STAGED, session.staged_key))
        if takes is None or token not in takes.tokens:
            return  # done already: it has several destinations
        takes.tokens.remove(token)
        if batch.parked is not None:
            batch.parked.released.remove(released)
        session.end_release(packet_id)
        session.read_back |= {packet_id}
        self._stage_back(session, packet_id, token)

    def _stage_back(self, session: Session, packet_id: int, token: Token) -> None:
        """Read the staged message, which is still stored, so that its packet identifier names it again."""

        def found(stored: Stored | MQError | None) -> None:
            if isinstance(stored, MQError):  # the queue manager is away
                self.context.scheduler.later(_AGAIN_SECONDS, lambda: self._stage_back(session, packet_id, token))
                return
            session.read_back -= {packet_id}
            if stored is not None and session.ended:  # it ended while this was being read
                self.context.batch.taken(STAGED, session.staged_key).append(token)
            elif stored is not None:
                session.inbound[packet_id] = qos2.read_staged(stored)[0]
                session.staged_tokens[packet_id] = token

        staged = partial(rows_of, self.context.queue_manager, STAGED, session.staged_key)
        self.context.ask(lambda: next((stored for stored in staged() if stored.token == token), None), found)

    def segment(self, batch: Batch, destination: Destination, rows: set[int]) -> bool:
        """Cut messages that are too long into segments; False when nothing could be cut."""
        context, puts = self.context, destination.puts
        longest, now = context.queue_manager.max_length(puts.queue), context.scheduler.now()
        parts: list[list[tuple[bytes, bytes]]] = []
        try:
            for row, (head, body) in enumerate(zip(puts.heads, puts.bodies, strict=True)):
                fits = row not in rows or len(head) - MQMD_LENGTH + len(body) <= longest
                self._cuts += not fits
                name = f"{now!r} {self._cuts}".encode()
                parts.append([(head, body)] if fits else segments(head, body, longest, name))
        except Refused:
            return False
        if batch.rewrite(destination, parts) >= 0:
            return False
        destination.segmented = True
        return True

    def dead_letter(self, batch: Batch, destination: Destination, rows: set[int], failure: Failure) -> bool:
        """Put messages on the dead-letter queue instead, each behind an MQDLH: all of these rows, or those of them that
        are too long for their queue. False: it is the dead-letter queue that refused."""
        context, puts, why = self.context, destination.puts, policy_for(failure.reason)
        if context.dead_letter_queue in {"", puts.queue}:
            return False
        rows = self._too_long(puts, rows) if failure.reason in TOO_LONG else rows
        manager = failure.queue_manager or puts.queue_manager
        alike = Undelivered(b"", b"", failure.reason, puts.queue, manager, puts.persistent)
        letters = DeadLetters(context, batch, alike, context.scheduler.now())
        elsewhere: dict[int, Row] = {}
        marks: dict[tuple[str, int], Mark] = {}
        for row in sorted(rows):
            head, body = puts.heads[row], puts.bodies[row]
            if reports.concerns_failure(head):
                head = self.exception_reports.put(batch, head, body, failure.reason)
                letters.interrupt()
                if reports.discards(head):
                    books.dropped(context.counters, batch, [(destination, row)], why.drop)
                    continue
            elsewhere[row] = letter = letters.put(head, body)
            cause = destination.policy(row).rule, books.qos_of((destination, row))
            mark = marks.get(cause)
            if mark is None:
                said = Cause(cause[0], why.dead_letter, cause[1])
                mark = marks[cause] = Mark(cause=said)
                self._note(puts.queue, said, head, body)
            letter[0].mark(letter[1], mark)
        batch.without(destination, rows, elsewhere)
        for there in {there for there, _ in elsewhere.values()}:
            there.segmented |= destination.segmented
            there.contribute_like(destination)
        return True

    def _note(self, queue: str, cause: Cause, head: bytes, body: bytes) -> None:
        """An example of dead letters with this cause, if there is none yet."""
        examples, series = self.context.counters.examples, (cause.rule, cause.reason)
        if not examples.has("dlq_messages", series):
            client_id, topic = _origin(head, body)
            examples.note("dlq_messages", series, client_id, topic=topic, queue=queue)

    def _too_long(self, puts: Puts, rows: set[int]) -> set[int]:
        """The rows that are longer than their queue takes; all of them where the queue manager counts otherwise."""
        longest = self.context.queue_manager.max_length(puts.queue)
        long = {row for row in rows if len(puts.heads[row]) - MQMD_LENGTH + len(puts.bodies[row]) > longest}
        return long or rows


def _words_of(destination: Destination, failure: Failure) -> tuple[int, DisconnectReason, str]:
    """What clients are disconnected with."""
    text = f"{destination.address.name}: {name_of_reason(failure.reason)}"
    return reasons.reason_from_mqrc(failure.reason), "other", text


def _is_cut(policy: Policy, failure: Failure) -> bool:
    """Whether what its queue does not take is put in segments."""
    return failure.reason in TOO_LONG and policy.too_long == "segment"


def _origin(head: bytes, body: bytes) -> tuple[str, str | None]:
    """Client and topic of a publication, as far as its headers say; they may end in what was put as the body."""
    try:
        message = read_message(head[:MQMD_LENGTH], head[MQMD_LENGTH:] + body[:LOOKED_AT])
    except Refused:
        return "", None
    client_id, topic = message.property("mqtt", "clientId"), message.property("mqps", "Top")
    return str(client_id or ""), None if topic is None else str(topic)
