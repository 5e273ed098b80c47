"""Conditions that the reader itself applies: ranges of seq, and of put times given as options. What cannot be taken
over stays Spark's: put_ts too, since a message may bring a put time of its own that only its descriptor knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """Half-open ranges of message numbers and put times."""

    low: int = 0
    high: int | None = None
    from_micros: int | None = None
    to_micros: int | None = None

    @property
    def filters_rows(self) -> bool:
        """Whether rows must be looked at; numbers alone are bounded by the plan."""
        return self.from_micros is not None or self.to_micros is not None

    def apply(self, batch: Any, chunk: Any) -> Any:
        """The rows within the times, by the put times of the journal."""
        import pyarrow as pa

        keep = chunk.put_micros >= (self.from_micros or 0)
        if self.to_micros is not None:
            keep &= chunk.put_micros < self.to_micros
        return batch if keep.all() else batch.filter(pa.array(keep))


def push(bounds: Bounds, filters: Iterable[Any]) -> tuple[Bounds, list[Any]]:
    """Bounds narrowed by those filters that can be, and the filters left for Spark."""
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
