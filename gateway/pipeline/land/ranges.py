"""Ranges of message numbers: what a batch covers, as Spark's offsets name it and the manifest remembers it. Pure.

A store gives every message a number when it becomes visible, in the order of commits and over all queues. An offset is
`{"next": number, "messages": count}`: everything below `next` on the queues in question, and how many messages that
were since the query began, so that a message that somebody else took from a planned range is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field

Span = tuple[int, int]
"""First number, next number."""
Ranges = list[tuple[str, int, int]]
"""Name of a stream of messages (queue manager and queues), first number, next number."""


def range_id(pieces: Ranges) -> str:
    """Sixteen hexadecimal digits naming a batch by what it covers, not by a number that a new checkpoint restarts."""
    canonical = json.dumps(sorted(pieces), separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def condition(pieces: Ranges) -> str:
    """SQL for the rows of these ranges."""
    return " OR ".join(f"(seq >= {low} AND seq < {high})" for _, low, high in pieces) or "false"


@dataclass(slots=True)
class Landed:
    """Which numbers have landed, as disjoint intervals by stream."""

    intervals: dict[str, list[Span]] = field(default_factory=dict)

    def add(self, pieces: Ranges) -> None:
        """Remember a landed batch."""
        for name, low, high in pieces:
            self.intervals[name] = merged([*self.intervals.get(name, []), (low, high)])

    def missing(self, pieces: Ranges) -> Ranges:
        """What of a batch has not landed yet. A repeated batch gives nothing; after a lost or deleted checkpoint a
        batch is cut differently and overlaps what is there, and only the rest may land."""
        return [
            (name, start, end)
            for name, low, high in pieces
            for start, end in without(low, high, self.intervals.get(name, []))
        ]

    def next(self, name: str) -> int:
        """Where a job without a checkpoint goes on."""
        spans = self.intervals.get(name)
        return spans[-1][1] if spans else 0


def without(low: int, high: int, taken: Iterable[Span]) -> list[Span]:
    """The parts of [low, high) outside disjoint intervals in order."""
    left = []
    for start, end in taken:
        if low < min(start, high):
            left.append((low, min(start, high)))
        low = max(low, end)
    return [*left, (low, high)] if low < high else left


def merged(spans: Iterable[Span]) -> list[Span]:
    """Intervals in order with adjoining ones joined."""
    result: list[Span] = []
    for low, high in sorted(spans):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result
