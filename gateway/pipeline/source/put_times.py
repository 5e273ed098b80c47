"""When the messages of a file were put: a hundred times that stand for all, which a task reports with its file. So the
driver knows how long messages waited without reading a file, however many rows there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

Times: TypeAlias = Any
"""A numpy array of microseconds since the epoch."""
HUNDREDTHS = (np.arange(100) + 0.5) / 100
LOOKED_AT = 500
"""The most rows of a record batch that are looked at."""
_WRITTEN_AS = "<i8"


class PutTimes:
    """Collects the put times of a file while it is written."""

    def __init__(self) -> None:
        self._parts: list[tuple[Times, int]] = []

    def add(self, times: Times) -> None:
        """Add the put times of some more rows."""
        if len(times):
            self._parts.append((times[:: -(-len(times) // LOOKED_AT)], len(times)))

    def as_bytes(self) -> bytes:
        """The hundredths as the row of the file has them; empty if there are none."""
        told: bytes = quantiles(self._parts, HUNDREDTHS).astype(_WRITTEN_AS).tobytes()
        return told


def waited(files: Iterable[tuple[bytes, int]], now: float) -> tuple[float, float] | None:
    """Seconds since the messages of some files were put: the median, and what 99 of 100 have not exceeded. `files`: for
    each, its hundredths and its number of rows."""
    parts = [(np.frombuffer(told, dtype=_WRITTEN_AS), rows) for told, rows in files if told]
    if not parts:
        return None
    late, median = quantiles(parts, np.array([0.01, 0.5])).tolist()  # the oldest have waited longest
    return max(0.0, now - median / 1_000_000), max(0.0, now - late / 1_000_000)


def quantiles(parts: Sequence[tuple[Times, int]], at: Times) -> Times:
    """Quantiles of times, each of which has its share of the rows of its part."""
    if not parts:
        return np.empty(0, dtype=np.int64)
    times = np.concatenate([values for values, _ in parts])
    weights = np.concatenate([np.full(len(values), rows / len(values)) for values, rows in parts])
    order = np.argsort(times, kind="stable")
    reached = np.cumsum(weights[order])
    found = np.searchsorted(reached, at * reached[-1])
    return times[order][np.minimum(found, len(times) - 1)]
