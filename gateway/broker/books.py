"""The broker's books. For each rule, what was received equals what was put, dead-lettered, dropped and is held. Pure.

Each figure is counted where the decision is made. A message counts as received when its unit of work is committed, or
when it is parked; then it is held until it is committed. As long as nothing fails, nothing is done here for single
messages; only messages of a sampled trace are reported one by one, if there is an exporter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gateway.bridge.segments import is_further
from gateway.bridge.trace import sampled
from gateway.broker.marks import Mark
from gateway.broker.publish.columns import length_of
from gateway.errors import Refused
from gateway.mq.reason_policy import policy_for
from gateway.mqtt.packets import Properties
from gateway.ports.counters import Direction
from gateway.rules.feedback import Feedback

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Destination, Row
    from gateway.ports.batch import Puts
    from gateway.ports.counters import Counters, DropReason, TransformReason

NO_RULE = "_none"
_UNMARKED = Mark()
_NOT_BUILT: dict[int, TransformReason] = {
    Feedback.NAME_NOT_VALID: "template", Feedback.VALUE_MISSING: "template", Feedback.VALUE_NOT_VALID: "template",
    Feedback.TOPIC_NOT_VALID: "template", Feedback.SCHEMA: "schema", Feedback.TEXT_NOT_VALID: "payload",
}  # fmt: skip


def rule_of(row: Row) -> str:
    """The rule that a row belongs to; for a dead letter, the rule that could not put it."""
    destination, number = row
    mark = destination.marks.get(number, _UNMARKED)
    return destination.policy(number).rule if mark.cause is None else mark.cause.rule


def qos_of(row: Row) -> int:
    """The QoS that a row came with, as far as known: what is not persistent counts as 0, and -1 means that it came from
    a queue."""
    destination, number = row
    mark = destination.marks.get(number, _UNMARKED)
    if mark.released is not None:
        return 2
    return int(destination.address.persistent) if mark.cause is None else mark.cause.qos


def not_built(counters: Counters, rule: str, why: Refused, client_id: str = "", **about: object) -> None:
    """Count a message that a rule could not build, to a queue or to devices. `about`: its topic, or its queue."""
    series = rule, _NOT_BUILT.get(why.feedback, "other")
    counters.transform_errors[series] += 1
    counters.examples.note("transform_errors", series, client_id, why=str(why), **about)


def messages(rows: Iterable[Row]) -> Iterator[Row]:
    """One row for each message; for a message in segments, the first."""
    for row in rows:
        destination, number = row
        if not destination.segmented or not is_further(destination.puts.heads[number]):
            yield row


def received(counters: Counters, batch: Batch, rows: Iterable[Row]) -> None:
    """Count rows as received, whatever becomes of them."""
    if batch.parked is not None:
        return  # they were counted when they were parked
    for (rule, qos), count in Counter((rule_of(row), qos_of(row)) for row in messages(rows)).items():
        _received(counters, rule, qos, count)


def _received(counters: Counters, rule: str, qos: int, count: int) -> None:
    if count and rule != NO_RULE and qos >= 0:
        counters.mqtt_publish_received[rule, qos] += count
        counters.route_matched[rule] += count


def dropped(counters: Counters, batch: Batch, rows: Iterable[Row], reason: DropReason) -> None:
    """Count rows that are given up."""
    rows = list(messages(rows))
    received(counters, batch, rows)
    for rule, count in Counter(map(rule_of, rows)).items():
        counters.messages_dropped[rule, reason] += count
    if rows:
        counters.examples.note("messages_dropped", (rule_of(rows[0]), reason), queue=rows[0][0].address.queue)


def refused(
    counters: Counters, rule: str, qos: int, reason: DropReason, *, client_id: str, topic: str, queue: str | None = None
) -> None:
    """Count a publication that was answered with a reason code instead of being put."""
    _received(counters, rule, qos, 1)
    series = (rule or NO_RULE, reason)
    counters.messages_dropped[series] += 1
    counters.examples.note("messages_dropped", series, client_id, topic=topic, queue=queue)


def committed(counters: Counters, queue_manager: str, batch: Batch) -> int:
    """Count what a batch has put; returns how many messages of rules that is."""
    bridged = 0
    for destination in batch.destinations.values():
        puts = destination.puts
        rows = len(puts.heads)
        if not rows:
            continue
        bridged += rows
        if destination.plain and not puts.lost and batch.parked is None:  # nearly always
            _count_plain(counters, destination.taker or queue_manager, destination.policies[0][1].rule, puts)
            continue
        dead_letters = destination.dead_letters
        if dead_letters:
            received(counters, batch, ((destination, row) for row in dead_letters))
            _count_dead_letters(counters, destination, dead_letters)
        taker = destination.taker or queue_manager
        _count_puts(counters, taker, batch, destination, NO_RULE if dead_letters else "")
        if puts.lost:
            _lost(counters, taker, destination)
    for mixed in batch.mixed:
        bridged += len(mixed.puts.heads)
        _count_plain(counters, queue_manager, mixed.policy.rule, mixed.puts)
    for moves in batch.moves.values():
        for move in moves:
            rule = move.policy.rule
            counters.mq_put_messages[queue_manager, rule] += move.rows
            counters.mq_put_bytes[queue_manager, rule] += move.size
            _received(counters, rule, 2, move.rows)
            bridged += move.rows
    return bridged


def _count_plain(counters: Counters, queue_manager: str, rule: str, puts: Puts) -> None:
    """Count whole messages of one rule, none of which releases a staged one."""
    rows, series = len(puts.heads), (queue_manager, rule)
    counters.mq_put_messages[series] += rows
    counters.mq_put_bytes[series] += length_of(puts.heads) + length_of(puts.bodies)
    _received(counters, rule, int(puts.persistent), rows)


def _count_dead_letters(counters: Counters, destination: Destination, rows: Iterable[int]) -> None:
    for _, row in messages((destination, row) for row in rows):
        cause = destination.marks[row].cause
        if cause is not None:
            counters.dlq_messages[cause.rule, cause.reason] += 1


def placed(counters: Counters, queue_manager: str, batch: Batch) -> None:
    """Count and remove rows out of syncpoint, which are on their queues although the unit was refused."""
    for destination in list(batch.destinations.values()):
        puts = destination.puts
        if not puts.placed:
            continue
        left = set(puts.too_long)
        rows = [row for row in range(puts.placed) if row not in left]
        received(counters, batch, ((destination, row) for row in rows))
        whole = messages((destination, row) for row in rows)
        taker = destination.taker or queue_manager
        for policy, count in Counter(destination.policy(row) for _, row in whole).items():
            counters.mq_put_messages[taker, policy.rule] += count
        counters.mq_put_bytes[taker, destination.policies[0][1].rule] += sum(
            len(puts.heads[row]) + len(puts.bodies[row]) for row in rows
        )
        _lost(counters, taker, destination)
        puts.placed, puts.tokens, puts.too_long = 0, (), ()
        batch.without(destination, rows)


def _lost(counters: Counters, queue_manager: str, destination: Destination) -> None:
    """Count rows out of syncpoint that were refused when it could no longer be told which; being QoS 0 they are
    lost."""
    puts = destination.puts
    lost, puts.lost = puts.lost, 0
    reason = policy_for(puts.lost_reason).drop
    for policy, rows in destination.rows_by_policy():
        count = min(lost, rows)
        if count:
            counters.mq_put_messages[queue_manager, policy.rule] -= count
            counters.messages_dropped[policy.rule, reason] += count
        lost -= count


def _count_puts(counters: Counters, queue_manager: str, batch: Batch, destination: Destination, instead: str) -> None:
    """Count a destination as a whole, or in as many parts as there are rules."""
    puts, first, policies = destination.puts, 0, destination.rows_by_policy()
    alone = len(policies) == 1
    for policy, rows in policies:
        rule, last = instead or policy.rule, first + rows
        heads, bodies = (puts.heads, puts.bodies) if alone else (puts.heads[first:last], puts.bodies[first:last])
        if destination.segmented:
            rows -= sum(map(is_further, heads))
        counters.mq_put_messages[queue_manager, rule] += rows
        counters.mq_put_bytes[queue_manager, rule] += length_of(heads) + length_of(bodies)
        if batch.parked is None and not instead:
            second = destination.releases if alone else sum(first <= row < last for row in destination.released)
            _received(counters, rule, 2, second)
            _received(counters, rule, int(destination.address.persistent), rows - second)
        first = last


def finished(counters: Counters, queue_manager: str, batch: Batch, now: float) -> None:
    """Count a batch that was committed at this moment: by destination, never by message."""
    took = now - batch.started
    since_read = now - (batch.opened or batch.started)
    bridged = committed(counters, queue_manager, batch)
    counters.mq_call_seconds[queue_manager, "commit"].observe(took)
    counters.mq_batch_messages[queue_manager].observe(batch.rows)
    acknowledged = sum(batch.pending.values())
    if acknowledged:
        counters.mqtt_puback_seconds[1].observe_many(since_read, acknowledged)
    if batch.staged_rows:
        counters.mqtt_puback_seconds[2].observe_many(since_read, batch.staged_rows)
    if bridged:
        counters.bridge_latency_seconds["in"].observe_many(since_read, bridged)


# -- spans --


class Hop(NamedTuple):
    """A message of a sampled trace on its way through the gateway."""

    received: str
    """The `traceparent` it came with."""
    sent: str
    """The one it goes on with; its parent is the span of this hop."""
    direction: Direction
    rule: str
    topic: str
    client_id: str
    qos: int
    length: int


def note_hop(
    batch: Batch, on_hop: Callable[[Hop], Callable[[], None]] | None, before: Properties, after: Properties,
    direction: Direction, rule: str, topic: str, client_id: str, qos: int, length: int,
) -> None:  # fmt: skip
    """Begin the span of a message whose trace context was exchanged; it ends with the commit of the batch."""
    if on_hop is None:
        return
    received, sent = sampled(before), sampled(after)
    if received and sent != received:
        hop = Hop(received, sent, direction, rule, topic, client_id, qos, length)
        batch.after.append(on_hop(hop))
