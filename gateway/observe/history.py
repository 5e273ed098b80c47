"""The last ten minutes in samples, for the charts of the admin page. Pure: the caller passes the time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

STEP_SECONDS = 5.0
KEPT = 120
"""Samples: ten minutes."""

RATES = ("received", "put", "sent")
LEVELS = ("connections", "spool_bytes", "latency_p99_ms")


class History:
    """A ring of samples; totals are shown as rates, levels as they are."""

    def __init__(self) -> None:
        self._before: tuple[float, Mapping[str, float | None]] | None = None
        self._samples: deque[dict[str, float | None]] = deque(maxlen=KEPT)

    def sample(self, now: float, values: Mapping[str, float | None]) -> None:
        """Take a sample: the totals of `RATES` and the levels of `LEVELS`. Called every `STEP_SECONDS`."""
        before, self._before = self._before, (now, values)
        if before is None or now <= before[0]:
            return
        row: dict[str, float | None] = {name: values.get(name) for name in LEVELS}
        for name in RATES:
            grown = (values.get(name) or 0) - (before[1].get(name) or 0)
            row[name] = round(max(0.0, grown) / (now - before[0]), 2)
        self._samples.append({"time": now, **row})

    def columns(self) -> dict[str, object]:
        """The body of GET /history."""
        names = ("time", *RATES, *LEVELS)
        return {"step_seconds": STEP_SECONDS, **{name: [row[name] for row in self._samples] for name in names}}
