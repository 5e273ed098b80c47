"""Sequence ranges by lane: what a batch covers, as offsets name it and the manifest remembers it. Pure.

A lane is a queue and a priority; sequences count up within it. An offset is `{"QUEUE/4": next sequence}`. A lane that
an offset does not name starts at 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

Offset = dict[str, int]
Span = tuple[int, int]
Pieces = list[tuple[str, int, int]]
"""Lane, first sequence, next sequence."""


def lane_name(queue: str, priority: int) -> str:
    """`QUEUE/4`; no MQ name ends in a slash and a number by accident, because / is split from the right."""
    return f"{queue}/{priority}"


def lane_of(name: str) -> tuple[str, int]:
    """Queue and priority of a lane's name."""
    queue, _, priority = name.rpartition("/")
    return queue, int(priority)


def between(start: Mapping[str, int], end: Mapping[str, int]) -> Pieces:
    """The ranges that `end` adds to `start`."""
    return [(name, start.get(name, 0), end[name]) for name in sorted(end) if end[name] > start.get(name, 0)]


def rows_of(pieces: Pieces) -> int:
    """Sequences covered. Rows are as many unless something is missing or was never there."""
    return sum(high - low for _, low, high in pieces)


def range_id(pieces: Pieces) -> str:
    """Sixteen hexadecimal digits naming a batch by what it covers, not by a number that a new checkpoint restarts."""
    canonical = json.dumps(sorted(pieces), separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=8).hexdigest()


def condition(pieces: Pieces) -> str:
    """SQL for the rows of these ranges."""
    terms = []
    for name, low, high in pieces:
        queue, priority = lane_of(name)
        terms.append(f"(queue = '{queue}' AND priority = {priority} AND seq >= {low} AND seq < {high})")
    return " OR ".join(terms) or "false"


def split_budget(backlogs: Mapping[str, int], rows: int) -> Offset:
    """How many messages each lane may give: shares in proportion to backlog, at least one where there is any."""
    total = sum(backlogs.values())
    if total <= rows:
        return dict(backlogs)
    shares = {name: min(have, max(1, rows * have // total)) for name, have in backlogs.items() if have}
    left = rows - sum(shares.values())
    for name in sorted(shares, key=lambda lane: shares[lane] - backlogs[lane]):
        more = max(0, min(left, backlogs[name] - shares[name]))
        shares[name] += more
        left -= more
    return shares


def split_range(low: int, high: int, parts: int, least: int = 1) -> list[Span]:
    """`parts` nearly equal pieces, none under `least` rows unless it is the only one."""
    rows = high - low
    parts = max(1, min(parts, rows // max(1, least)))
    cuts = [low + rows * part // parts for part in range(parts + 1)]
    return [(first, last) for first, last in pairwise(cuts) if last > first]


@dataclass(slots=True)
class Landed:
    """Which sequences have landed, as disjoint intervals by lane."""

    intervals: dict[str, list[Span]] = field(default_factory=dict)

    def add(self, pieces: Pieces) -> None:
        """Remember a landed batch."""
        for name, low, high in pieces:
            self.intervals[name] = merged([*self.intervals.get(name, []), (low, high)])

    def missing(self, pieces: Pieces) -> Pieces:
        """What of a batch has not landed yet. A repeated batch gives nothing; after a lost or deleted checkpoint a
        batch is cut differently and overlaps what is there, and only the rest may land."""
        return [
            (name, start, end)
            for name, low, high in pieces
            for start, end in without(low, high, self.intervals.get(name, []))
        ]

    def next(self) -> Offset:
        """Where a job without a checkpoint goes on."""
        return {name: spans[-1][1] for name, spans in self.intervals.items() if spans}


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
