"""Consumer groups: cursors, leases, and which messages may be purged. Pure functions from record to record.

A group reads some queues for one driver at a time. Its cursor is the number below which everything has landed and is in
Spark's commit log. Messages leave the queue later, when two further batches have landed and the purge delay has passed:
Spark does not synchronise its checkpoint, so after a power loss it may ask for the last batches again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from gateway.config.counting import counted
from gateway.pipeline.errors import LeaseHeld, LeaseLost, WrongOption
from gateway.pipeline.journal.lookup import Lookup, matching

STATE_PREFIX = b"pipeline/group/"
MARKS = 64
BATCHES_KEPT = 2

Mark = tuple[float, int]
"""When a cursor was acknowledged, and the cursor."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A group, as its state record in the store holds it."""

    name: str
    queues: str
    consume: bool = True
    delay: float = 600.0
    cursor: int = 0
    epoch: int = 0
    owner: str = ""
    expires: float = 0.0
    marks: list[Mark] = field(default_factory=list)
    purged: int = 0

    @property
    def key(self) -> bytes:
        """The key of its state record."""
        return STATE_PREFIX + self.name.encode()

    def encode(self) -> bytes:
        """The state record of the group."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, record: bytes) -> ConsumerGroup:
        """The group of a state record."""
        return cls.from_json(json.loads(record))

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ConsumerGroup:
        """The group in a state record or a reply of the service, without fields that only a later release knows."""
        known = {each.name: value[each.name] for each in fields(cls) if each.name in value}
        return cls(**{**known, "marks": [(when, cursor) for when, cursor in value["marks"]]})


def groups_in(state: Mapping[bytes, bytes]) -> list[ConsumerGroup]:
    """All groups in a store's state records."""
    return [ConsumerGroup.decode(record) for key, record in state.items() if key.startswith(STATE_PREFIX)]


def shown(group: ConsumerGroup, lookup: Lookup, now: float) -> dict[str, Any]:
    """A group with its lag and for how many seconds its lease still runs, as `mqgate pipeline status` and the service
    show it."""
    value = asdict(group)
    value.pop("marks")
    last = group.marks[-1][0] if group.marks else None
    return value | {
        "lag": lookup.count(group.queues, group.cursor),
        "acknowledged": last,
        "left": max(0.0, group.expires - now),
    }


def acquire(known: ConsumerGroup | None, wanted: ConsumerGroup, owner: str, ttl: float, now: float) -> ConsumerGroup:
    """Give the lease to `owner`, with a new epoch. Raises LeaseHeld while another owner's lease runs."""
    if known is None:
        known = wanted
    if known.queues != wanted.queues:
        raise WrongOption(
            f"consumer group {wanted.name!r} reads {known.queues!r}, not {wanted.queues!r}: choose another group "
            f"name, or remove the old group with `mqgate pipeline groups remove JOB.yaml {wanted.name}`"
        )
    taken = known.owner not in ("", owner) and known.expires > now
    if taken and not is_dead(known.owner, owner.rpartition(":")[0]):
        raise LeaseHeld(who_reads(known.name, known.owner, known.expires - now))
    return replace(
        known, owner=owner, epoch=known.epoch + 1, expires=now + ttl, consume=wanted.consume, delay=wanted.delay
    )


def who_reads(name: str, owner: str, left: float) -> str:
    """The sentence for a driver that finds another one reading as its group."""
    return (
        f"consumer group {name!r} is read by {owner} for {counted(round(left), 'more second')}: "
        "stop that driver, wait until its lease has run out, or use another group"
    )


def is_dead(owner: str, here: str) -> bool:
    """Whether an owner, `host:process`, was a process of this host that has ended."""
    host, _, process = owner.rpartition(":")
    if host != here or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def held(known: ConsumerGroup | None, epoch: int) -> ConsumerGroup:
    """The group. Raises LeaseLost unless the lease is still of this epoch."""
    if known is None:
        raise LeaseLost("this consumer group was removed while a job read it: start the job again if it shall go on")
    if known.epoch == epoch:
        return known
    if not known.owner:
        raise LeaseLost(f"the cursor of consumer group {known.name!r} was moved: start the job to read from there")
    raise LeaseLost(
        f"another driver, {known.owner}, has taken over this consumer group: two jobs use the same group; give one of "
        "them another"
    )


def acknowledge(known: ConsumerGroup | None, epoch: int, cursor: int, ttl: float, now: float) -> ConsumerGroup:
    """Move the cursor: everything below it is in the commit log. It never goes back."""
    group = held(known, epoch)
    if cursor <= group.cursor:
        return replace(group, expires=now + ttl)
    return replace(group, cursor=cursor, expires=now + ttl, marks=thinned([*group.marks, (now, cursor)]))


def thinned(marks: list[Mark]) -> list[Mark]:
    """At most MARKS marks: every second one of the older half is dropped."""
    while len(marks) > MARKS:
        marks = [*marks[0 : MARKS // 2 : 2], *marks[MARKS // 2 :]]
    return marks


def moved(known: ConsumerGroup | None, name: str, cursor: int) -> ConsumerGroup:
    """Set the cursor by hand, back or forth. The owner of the lease loses it."""
    if known is None:
        raise WrongOption(f"there is no consumer group {name!r}: `mqgate pipeline status` lists them")
    return replace(known, cursor=cursor, marks=[], epoch=known.epoch + 1, owner="", expires=0.0)


def release(known: ConsumerGroup | None, epoch: int) -> ConsumerGroup:
    """Give the lease back."""
    return replace(held(known, epoch), owner="", expires=0.0)


def purgeable(group: ConsumerGroup, now: float) -> int:
    """The number below which this group no longer needs messages."""
    if not group.consume:
        return group.cursor
    old_enough = [cursor for when, cursor in group.marks[:-BATCHES_KEPT] if when + group.delay <= now]
    quiet = group.cursor if group.marks and group.marks[-1][0] + 2 * group.delay <= now else 0
    return max([group.purged, quiet, *old_enough])


def due(groups: Iterable[ConsumerGroup], queues: Iterable[str], now: float) -> dict[str, int]:
    """For each queue that a consuming group reads, the number below which no group needs its messages."""
    listed = list(groups)
    found: dict[str, int] = {}
    for queue in queues:
        readers = [group for group in listed if matching(group.queues, [queue])]
        if any(group.consume for group in readers):
            found[queue] = min(purgeable(group, now) for group in readers)
    return found


def purged(group: ConsumerGroup, below: int) -> ConsumerGroup:
    """Record a purge: marks below it are dropped."""
    return replace(group, purged=max(group.purged, below), marks=[mark for mark in group.marks if mark[1] > below])
