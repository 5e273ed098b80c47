"""Ranges of message numbers, which Spark's offsets name and the manifest records. Pure.

A store gives every message a number when it becomes visible, in the order of commits and over all queues. An offset is
`{"next": number, "messages": count}`: everything below `next` on the job's queues, and how many messages that was since
the query began. The count shows when another consumer has taken a message from a planned range.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

STREAM = "stream"
"""In a job with several sources, the column that says of each file which stream its numbers are of."""
Span = tuple[int, int]
"""First number, and the number after the last."""
File = TypeVar("File")
Ranges = list[tuple[str, int, int]]
"""Name of a stream (job and queues), first number, and the number after the last."""


def range_id(pieces: Ranges) -> str:
    """The name of a batch, 16 hexadecimal digits, from what it covers: a new checkpoint restarts Spark's numbers."""
    canonical = json.dumps(sorted(pieces), separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def condition(pieces: Ranges) -> str:
    """The SQL condition for the rows of these ranges."""
    return " OR ".join(f"(seq >= {low} AND seq < {high})" for _, low, high in pieces) or "false"


def by_stream(files: Iterable[tuple[str | None, File]], pieces: Ranges) -> list[tuple[list[File], str]]:
    """The files with the SQL condition for those of their rows that lie in the ranges. Numbers of one stream mean
    nothing in another; files without a stream are those of the only one."""
    found: dict[str | None, list[File]] = {}
    for stream, file in files:
        found.setdefault(stream, []).append(file)
    return [
        (some, condition([piece for piece in pieces if stream in (None, piece[0])])) for stream, some in found.items()
    ]


@dataclass(slots=True)
class Landed:
    """The numbers that have landed, as disjoint intervals by stream."""

    intervals: dict[str, list[Span]] = field(default_factory=dict)

    def add(self, pieces: Ranges) -> None:
        """Add the ranges of a landed batch."""
        for name, low, high in pieces:
            self.intervals[name] = merged([*self.intervals.get(name, []), (low, high)])

    def missing(self, pieces: Ranges) -> Ranges:
        """The part of a batch that has not landed yet: nothing of a repeated batch. After a lost or deleted checkpoint
        batches have other bounds and overlap landed ones, and only the rest may land."""
        return [
            (name, start, end)
            for name, low, high in pieces
            for start, end in without(low, high, self.intervals.get(name, []))
        ]

    def next(self, name: str) -> int:
        """The number at which a job without a checkpoint goes on."""
        spans = self.intervals.get(name)
        return spans[-1][1] if spans else 0


def without(low: int, high: int, taken: Iterable[Span]) -> list[Span]:
    """The parts of [low, high) outside disjoint intervals, which are in order."""
    left = []
    for start, end in taken:
        if low < min(start, high):
            left.append((low, min(start, high)))
        low = max(low, end)
    return [*left, (low, high)] if low < high else left


def merged(spans: Iterable[Span]) -> list[Span]:
    """The intervals in order, adjoining ones joined."""
    result: list[Span] = []
    for low, high in sorted(spans):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result
