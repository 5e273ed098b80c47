"""The bounds of a batch read: ranges of seq and of put times, from options or taken over from Spark's filters.

Filters on put_ts stay with Spark: a message may have a put time of its own, which only its descriptor tells.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """Half-open ranges of message numbers and of put times."""

    low: int = 0
    high: int | None = None
    from_micros: int | None = None
    to_micros: int | None = None

    @property
    def filters_rows(self) -> bool:
        """Whether rows have to be filtered by time; the plan already respects the numbers."""
        return self.from_micros is not None or self.to_micros is not None

    def apply(self, batch: Any, chunk: Any) -> Any:
        """The rows within the put times, which are taken from the journal."""
        import pyarrow as pa

        keep = chunk.put_micros >= (self.from_micros or 0)
        if self.to_micros is not None:
            keep &= chunk.put_micros < self.to_micros
        return batch if keep.all() else batch.filter(pa.array(keep))


def push(bounds: Bounds, filters: Iterable[Any]) -> tuple[Bounds, list[Any]]:
    """The bounds narrowed by the filters that can be taken over, and the filters left for Spark."""
    left = []
    for each in filters:
        narrowed = _narrowed(bounds, each)
        if narrowed is None:
            left.append(each)
        else:
            bounds = narrowed
    return bounds, left


def _narrowed(bounds: Bounds, given: Any) -> Bounds | None:
    name, attribute, value = type(given).__name__, getattr(given, "attribute", ()), getattr(given, "value", None)
    if attribute == ("seq",) and isinstance(value, int):
        return _by_number(bounds, name, value)
    if attribute == ("seq",) and name == "IsNotNull":
        return bounds
    return None


def _by_number(bounds: Bounds, name: str, value: int) -> Bounds | None:
    low, high = bounds.low, bounds.high
    spans = {
        "EqualTo": (value, value + 1),
        "GreaterThan": (value + 1, None),
        "GreaterThanOrEqual": (value, None),
        "LessThan": (0, value),
        "LessThanOrEqual": (0, value + 1),
    }
    if name not in spans:
        return None
    first, last = spans[name]
    ends = [end for end in (high, last) if end is not None]
    return replace(bounds, low=max(low, first), high=min(ends) if ends else None)
