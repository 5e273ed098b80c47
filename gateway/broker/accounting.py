"""What a rule has received is what it put, dead-lettered, dropped and holds: counted where each is decided. Pure.

A message counts as received when the unit of work it is part of is committed, or when it is parked; then it is held
until that is committed. Nothing of this is done by message on the way that has no failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.bridge.segments import is_further
from gateway.broker.publish.columns import length_of

if TYPE_CHECKING:
    from gateway.broker.batch import Batch, Row
    from gateway.broker.engine import Engine
    from gateway.ports.batch import Address, Puts
    from gateway.ports.counters import Counters, DropReason

NO_RULE = "_none"
_Q_FULL = 2053


def rule_of(batch: Batch, row: Row) -> str:
    """Whose message a row is; a dead letter's is that of the rule that could not put it."""
    address, number = row
    cause = batch.causes.get(address, {}).get(number)
    return cause.rule if cause is not None else batch.policy(row).rule


def qos_of(batch: Batch, row: Row) -> int:
    """The QoS a row came with, as far as it is known: that of what is not persistent counts as 0; -1: from a queue."""
    address, number = row
    if number in batch.released.get(address, ()):
        return 2
    cause = batch.causes.get(address, {}).get(number)
    return cause.qos if cause is not None else int(address.persistent)


def messages(batch: Batch, rows: Iterable[Row]) -> Iterable[Row]:
    """Of these rows one for each message: of one in segments its first."""
    if not batch.segmented:
        return rows
    return [row for row in rows if row[0] not in batch.segmented or not is_further(batch.puts[row[0]].heads[row[1]])]


def received(counters: Counters, batch: Batch, rows: Iterable[Row]) -> None:
    """These rows count as received from now on, whatever becomes of them."""
    if batch.parked is not None:
        return  # they were counted when they were parked
    rows = messages(batch, rows)
    for (rule, qos), count in Counter((rule_of(batch, row), qos_of(batch, row)) for row in rows).items():
        _received(counters, rule, qos, count)


def _received(counters: Counters, rule: str, qos: int, count: int) -> None:
    if count and rule != NO_RULE and qos >= 0:
        counters.mqtt_publish_received[rule, qos] += count
        counters.route_matched[rule] += count


def dropped(counters: Counters, batch: Batch, rows: Iterable[Row], reason: DropReason) -> None:
    """These rows are given up for good."""
    rows = list(messages(batch, rows))
    received(counters, batch, rows)
    for rule, count in Counter(rule_of(batch, row) for row in rows).items():
        counters.messages_dropped[rule, reason] += count


def refused(counters: Counters, rule: str, qos: int, reason: DropReason) -> None:
    """A publication that was answered with a reason code instead of being put."""
    _received(counters, rule, qos, 1)
    counters.messages_dropped[rule or NO_RULE, reason] += 1


def committed(counters: Counters, queue_manager: str, batch: Batch) -> int:
    """Count what a batch has put; how many messages of rules that is."""
    bridged = 0
    marked = bool(batch.aims or batch.causes or batch.segmented) or batch.parked is not None
    for address, puts in batch.puts.items():
        policy = batch.targets.get(address)
        if policy is None or not puts.heads:
            continue
        bridged += len(puts.heads)
        if not marked and not puts.lost and not batch.releases(address):  # nearly always
            _count_plain(counters, queue_manager, policy.rule, int(address.persistent), puts)
            continue
        causes = batch.causes.get(address)
        if causes:
            received(counters, batch, ((address, row) for row in causes))
            for _, row in messages(batch, ((address, row) for row in causes)):
                counters.dlq_messages[causes[row].rule, causes[row].reason] += 1
        _count_puts(counters, queue_manager, batch, address, NO_RULE if causes else "")
        if puts.lost:
            _lost(counters, queue_manager, batch, address)
    for moves in batch.run_changes.moves.values():
        for one in moves:
            rule = one.policy.rule
            counters.mq_put_messages[queue_manager, rule] += one.rows
            counters.mq_put_bytes[queue_manager, rule] += one.size
            _received(counters, rule, 2, one.rows)
            bridged += one.rows
    return bridged


def placed(counters: Counters, queue_manager: str, batch: Batch) -> None:
    """Rows out of syncpoint that are on their queues although the unit was refused: counted, and out of the batch."""
    for address, puts in list(batch.puts.items()):
        if not puts.placed:
            continue
        rows = range(puts.placed)
        received(counters, batch, ((address, row) for row in rows))
        whole = messages(batch, ((address, row) for row in rows))
        for policy, count in Counter(batch.policy(row) for row in whole).items():
            counters.mq_put_messages[queue_manager, policy.rule] += count
        counters.mq_put_bytes[queue_manager, batch.targets[address].rule] += sum(
            len(puts.heads[row]) + len(puts.bodies[row]) for row in rows
        )
        _lost(counters, queue_manager, batch, address)
        puts.placed, puts.tokens = 0, ()
        batch.without(address, rows)


def _lost(counters: Counters, queue_manager: str, batch: Batch, address: Address) -> None:
    """Rows out of syncpoint that were refused when it could no longer be told which: at QoS 0 they are gone."""
    puts = batch.puts[address]
    lost, puts.lost = puts.lost, 0
    for policy, rows in batch.policies(address):
        count = min(lost, rows)
        if count:
            counters.mq_put_messages[queue_manager, policy.rule] -= count
            counters.messages_dropped[policy.rule, "queue_full" if puts.lost_reason == _Q_FULL else "other"] += count
        lost -= count


def _count_plain(counters: Counters, queue_manager: str, rule: str, qos: int, puts: Puts) -> None:
    """A run of one rule, in which every row is a message as it came: what `_count_puts` does of that."""
    rows = len(puts.heads)
    counters.mq_put_messages[queue_manager, rule] += rows
    counters.mq_put_bytes[queue_manager, rule] += length_of(puts.heads) + length_of(puts.bodies)
    _received(counters, rule, qos, rows)


def _count_puts(counters: Counters, queue_manager: str, batch: Batch, address: Address, instead: str) -> None:
    """A run as a whole, or in as many parts as there are rules."""
    puts, first = batch.puts[address], 0
    policies = batch.policies(address)
    alone = len(policies) == 1
    for policy, rows in policies:
        rule, last = instead or policy.rule, first + rows
        if address in batch.segmented:
            rows -= sum(map(is_further, puts.heads[first:last]))
        counters.mq_put_messages[queue_manager, rule] += rows
        heads, bodies = (puts.heads, puts.bodies) if alone else (puts.heads[first:last], puts.bodies[first:last])
        counters.mq_put_bytes[queue_manager, rule] += length_of(heads) + length_of(bodies)
        if batch.parked is None and not instead:
            second = (
                batch.releases(address)
                if alone
                else sum(first <= row < last for row in batch.released.get(address, ()))
            )
            _received(counters, rule, 2, second)
            _received(counters, rule, int(address.persistent), rows - second)
        first = last


def finished(engine: Engine, batch: Batch, now: float) -> None:
    """A batch was committed at this moment: counted by run, never by message."""
    took = now - batch.started
    since_read = now - (batch.opened or batch.started)
    name, counters = engine.queue_manager.name, engine.counters
    bridged = committed(counters, name, batch)
    counters.mq_call_seconds[name, "commit"].observe(took)
    counters.mq_batch_messages[name].observe(batch.rows)
    acknowledged = sum(batch.pending.values())
    if acknowledged:
        counters.mqtt_puback_seconds[1].observe_many(since_read, acknowledged)
    if batch.staged or batch.run_changes.staged:
        staged = sum(len(ids) for _, ids in batch.staged.values())
        staged += sum(len(held.ids) for _, several in batch.run_changes.staged.values() for held in several)
        counters.mqtt_puback_seconds[2].observe_many(since_read, staged)
    if bridged:
        counters.bridge_latency_seconds["in"].observe_many(since_read, bridged)
