"""What a rule has received is what it put, dead-lettered, dropped and holds: counted where each is decided. Pure.

A message counts as received when the unit of work it is part of is committed, or when it is parked; then it is held
until that is committed. Nothing of this is done by message on the way that has no failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.bridge.segments import is_further
from gateway.broker.publish.fast import length_of

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.turn import Row, Run, Turn
    from gateway.ports.batch import Puts
    from gateway.ports.counters import Counters, DropReason

NO_RULE = "_none"
_Q_FULL = 2053


def rule_of(turn: Turn, row: Row) -> str:
    """Whose message a row is; a dead letter's is that of the rule that could not put it."""
    run, number = row
    cause = turn.causes.get(run, {}).get(number)
    return cause.rule if cause is not None else turn.policy(row).rule


def qos_of(turn: Turn, row: Row) -> int:
    """The QoS a row came with, as far as it is known: that of what is not persistent counts as 0; -1: from a queue."""
    run, number = row
    if number in turn.released.get(run, ()):
        return 2
    cause = turn.causes.get(run, {}).get(number)
    return cause.qos if cause is not None else int(run[3])


def messages(turn: Turn, rows: Iterable[Row]) -> Iterable[Row]:
    """Of these rows one for each message: of one in segments its first."""
    if not turn.segmented:
        return rows
    return [row for row in rows if row[0] not in turn.segmented or not is_further(turn.runs[row[0]].heads[row[1]])]


def received(counters: Counters, turn: Turn, rows: Iterable[Row]) -> None:
    """These rows count as received from now on, whatever becomes of them."""
    if turn.parked is not None:
        return  # they were counted when they were parked
    rows = messages(turn, rows)
    for (rule, qos), count in Counter((rule_of(turn, row), qos_of(turn, row)) for row in rows).items():
        _received(counters, rule, qos, count)


def _received(counters: Counters, rule: str, qos: int, count: int) -> None:
    if count and rule != NO_RULE and qos >= 0:
        counters.mqtt_publish_received[rule, qos] += count
        counters.route_matched[rule] += count


def dropped(counters: Counters, turn: Turn, rows: Iterable[Row], reason: DropReason) -> None:
    """These rows are given up for good."""
    rows = list(messages(turn, rows))
    received(counters, turn, rows)
    for rule, count in Counter(rule_of(turn, row) for row in rows).items():
        counters.messages_dropped[rule, reason] += count


def refused(counters: Counters, rule: str, qos: int, reason: DropReason) -> None:
    """A publication that was answered with a reason code instead of being put."""
    _received(counters, rule, qos, 1)
    counters.messages_dropped[rule or NO_RULE, reason] += 1


def committed(counters: Counters, queue_manager: str, turn: Turn) -> int:
    """Count what a turn has put; how many messages of rules that is."""
    bridged = 0
    marked = bool(turn.aims or turn.causes or turn.segmented) or turn.parked is not None
    for run, puts in turn.runs.items():
        policy = turn.targets.get(run)
        if policy is None or not puts.heads:
            continue
        bridged += len(puts.heads)
        if not marked and not puts.lost and not turn.releases(run):  # nearly always
            _count_plain(counters, queue_manager, policy.rule, int(run[3]), puts)
            continue
        causes = turn.causes.get(run)
        if causes:
            received(counters, turn, ((run, row) for row in causes))
            for _, row in messages(turn, ((run, row) for row in causes)):
                counters.dlq_messages[causes[row].rule, causes[row].reason] += 1
        _count_puts(counters, queue_manager, turn, run, NO_RULE if causes else "")
        if puts.lost:
            _lost(counters, queue_manager, turn, run)
    for moves in turn.held.moves.values():
        for one in moves:
            rule = one.policy.rule
            counters.mq_put_messages[queue_manager, rule] += one.rows
            counters.mq_put_bytes[queue_manager, rule] += one.size
            _received(counters, rule, 2, one.rows)
            bridged += one.rows
    return bridged


def placed(counters: Counters, queue_manager: str, turn: Turn) -> None:
    """Rows out of syncpoint that are on their queues although the unit was refused: counted, and out of the turn."""
    for run, puts in list(turn.runs.items()):
        if not puts.placed:
            continue
        rows = range(puts.placed)
        received(counters, turn, ((run, row) for row in rows))
        whole = messages(turn, ((run, row) for row in rows))
        for policy, count in Counter(turn.policy(row) for row in whole).items():
            counters.mq_put_messages[queue_manager, policy.rule] += count
        counters.mq_put_bytes[queue_manager, turn.targets[run].rule] += sum(
            len(puts.heads[row]) + len(puts.bodies[row]) for row in rows
        )
        _lost(counters, queue_manager, turn, run)
        puts.placed, puts.tokens = 0, ()
        turn.without(run, rows)


def _lost(counters: Counters, queue_manager: str, turn: Turn, run: Run) -> None:
    """Rows out of syncpoint that were refused when it could no longer be told which: at QoS 0 they are gone."""
    puts = turn.runs[run]
    lost, puts.lost = puts.lost, 0
    for policy, rows in turn.policies(run):
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


def _count_puts(counters: Counters, queue_manager: str, turn: Turn, run: Run, instead: str) -> None:
    """A run as a whole, or in as many parts as there are rules."""
    puts, first = turn.runs[run], 0
    policies = turn.policies(run)
    alone = len(policies) == 1
    for policy, rows in policies:
        rule, last = instead or policy.rule, first + rows
        if run in turn.segmented:
            rows -= sum(map(is_further, puts.heads[first:last]))
        counters.mq_put_messages[queue_manager, rule] += rows
        heads, bodies = (puts.heads, puts.bodies) if alone else (puts.heads[first:last], puts.bodies[first:last])
        counters.mq_put_bytes[queue_manager, rule] += length_of(heads) + length_of(bodies)
        if turn.parked is None and not instead:
            second = turn.releases(run) if alone else sum(first <= row < last for row in turn.released.get(run, ()))
            _received(counters, rule, 2, second)
            _received(counters, rule, int(run[3]), rows - second)
        first = last


def finished(engine: Engine, turn: Turn, now: float) -> None:
    """A turn was committed at this moment: counted by run, never by message."""
    took = now - turn.started
    since_read = now - (turn.opened or turn.started)
    name, counters = engine.queue_manager.name, engine.counters
    bridged = committed(counters, name, turn)
    counters.mq_call_seconds[name, "commit"].observe(took)
    counters.mq_batch_messages[name].observe(turn.rows)
    acknowledged = sum(turn.pending.values())
    if acknowledged:
        counters.mqtt_puback_seconds[1].observe_many(since_read, acknowledged)
    if turn.staged or turn.held.staged:
        staged = sum(len(ids) for _, ids in turn.staged.values())
        staged += sum(len(held.ids) for _, several in turn.held.staged.values() for held in several)
        counters.mqtt_puback_seconds[2].observe_many(since_read, staged)
    if bridged:
        counters.bridge_latency_seconds["in"].observe_many(since_read, bridged)
