"""The data for the charts of the admin page: ten minutes in steps of five seconds and a day in steps of a minute, for
the gateway, and for each queue, rule and client as far as there is room. Pure: the caller passes the time.

Numbers are kept as 32-bit floats in arrays: a series takes some 6 KB for each of its columns.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

STEP_SECONDS = 5.0
MINUTE = 60.0
RECENT = 120
"""Samples of five seconds: ten minutes."""
DAY = 1440
"""Samples of a minute."""
IDLE_SAMPLES = 720
"""After an hour with nothing but zeros a series gives its place to another one."""
UNKNOWN = math.nan


@dataclass(frozen=True, slots=True)
class Kind:
    """What is kept for each thing of a kind, and for how many of them."""

    rates: tuple[str, ...]
    """Totals, shown as their growth per second."""
    levels: tuple[str, ...] = ()
    most: int = 1

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the values, in their order."""
        return self.rates + self.levels


GATEWAY = ("gateway", "")
KINDS = {
    "gateway": Kind(
        ("received", "put", "sent", "dropped", "dead_lettered"), ("connections", "spool_bytes", "latency_p99_ms")
    ),
    "queue": Kind(("put", "got"), ("depth",), 200),
    "rule": Kind(("matched", "failed"), (), 200),
    "client": Kind(("received", "sent"), (), 500),
}
Name = tuple[str, str]
"""Kind and name."""
Totals = Mapping[str, float | None]
Row = tuple[float, ...]


@dataclass(slots=True)
class Series:
    """The values of one name, beginning with sample number `first`."""

    first: int
    columns: list[array[float]]


class Ring:
    """Samples of all series at one interval."""

    def __init__(self, step: float, kept: int) -> None:
        self.step, self.kept = step, kept
        self._times = array("d")
        self._first = 0
        """The number of the sample at `_times[0]`."""
        self._series: dict[Name, Series] = {}

    def add(self, now: float, rows: Mapping[Name, Row]) -> None:
        """Add a sample; a series that is not in it has no value at that time."""
        number = self._first + len(self._times)
        self._times.append(now)
        for name, row in rows.items():
            series = self._series.get(name)
            if series is None:
                series = self._series[name] = Series(number, [array("f") for _ in row])
            for column, value in zip(series.columns, row, strict=True):
                column.extend([UNKNOWN] * (number - series.first - len(column)))
                column.append(value)
        if len(self._times) >= self.kept + max(1, self.kept // 8):
            self._trim(len(self._times) - self.kept)

    def _trim(self, many: int) -> None:
        del self._times[:many]
        self._first += many
        for series in self._series.values():
            for column in series.columns:
                del column[: max(0, self._first - series.first)]
            series.first = max(series.first, self._first)

    @property
    def last(self) -> float:
        """The time of the last sample."""
        return self._times[-1] if self._times else 0.0

    def forget(self, name: Name) -> None:
        """Drop a series."""
        self._series.pop(name, None)

    def newest(self, name: Name) -> list[float | None]:
        """Returns the last sample of a series; empty if it has none."""
        series, at = self._series.get(name), self._first + len(self._times) - 1
        if series is None or not 0 <= at - series.first < len(series.columns[0]):
            return []
        return [None if math.isnan(value := one[at - series.first]) else round(value, 3) for one in series.columns]

    def _since(self, since: float) -> list[int]:
        """Returns the positions of the samples since then. Samples that were taken for the same time before the clock
        was set back, or for a later one, come from a wrong clock and are left out."""
        found: list[int] = []
        later = math.inf
        for at in range(len(self._times) - 1, max(0, len(self._times) - self.kept) - 1, -1):
            if since <= self._times[at] < later:
                later = self._times[at]
                found.append(at)
        return found[::-1]

    def columns(self, name: Name, since: float) -> dict[str, Any]:
        """Returns the samples of a series since then, as columns."""
        samples = self._since(since)
        names = KINDS[name[0]].columns
        series = self._series.get(name) or Series(0, [array("f") for _ in names])
        found: dict[str, Any] = {"step_seconds": self.step, "time": [self._times[at] for at in samples]}
        for title, column in zip(names, series.columns, strict=True):
            begin = self._first - series.first
            shown = [column[begin + at] if 0 <= begin + at < len(column) else UNKNOWN for at in samples]
            found[title] = [None if math.isnan(value) else round(value, 3) for value in shown]
        return found


@dataclass(slots=True)
class _Minute:
    """What has been sampled of a series since the last whole minute."""

    number: int = 0
    sums: list[float] = field(default_factory=list)


class History:
    """Takes totals and levels, and keeps rates and levels."""

    def __init__(self) -> None:
        self._recent, self._day = Ring(STEP_SECONDS, RECENT), Ring(MINUTE, DAY)
        self._before: dict[Name, tuple[float, Totals]] = {}
        self._minutes: dict[Name, _Minute] = {}
        self._active: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
        """By kind and name: the last sample in which the series was not all zeros."""
        self._full_until = dict.fromkeys(KINDS, 0)
        """By kind: the sample before which none can have been idle for long enough."""
        self._samples = 0

    def names(self, kind: str) -> list[str]:
        """Returns the names of a kind that have a series."""
        return list(self._active[kind])

    def sample(self, now: float, totals: Mapping[Name, Totals]) -> dict[Name, Row] | None:
        """Take a sample. Called every `STEP_SECONDS`; returns the rows of a minute when one is complete."""
        self._samples += 1
        rows = {name: row for name, given in totals.items() if (row := self._row(now, name, given)) is not None}
        if not rows:
            return None
        self._recent.add(now, rows)
        for name, row in rows.items():
            self._gather(name, row)
        if self._samples * STEP_SECONDS % MINUTE:
            return None
        whole = {name: _whole(name, minute) for name, minute in self._minutes.items() if minute.number}
        self._minutes.clear()
        self._day.add(now, whole)
        return whole

    def _row(self, now: float, name: Name, given: Totals) -> Row | None:
        before = self._before.get(name)
        if before is None and not self._room(name):
            return None
        self._before[name] = (now, given)
        self._active[name[0]].setdefault(name[1], self._samples)
        if before is None or now <= before[0]:
            return None
        kind, seconds = KINDS[name[0]], now - before[0]
        rates = [max(0.0, (given.get(one) or 0) - (before[1].get(one) or 0)) / seconds for one in kind.rates]
        levels = [UNKNOWN if (value := given.get(one)) is None else float(value) for one in kind.levels]
        row = (*rates, *levels)
        if any(value > 0 for value in row):
            self._active[name[0]][name[1]] = self._samples
        return row

    def _room(self, name: Name) -> bool:
        """Whether there is room for one more of its kind, perhaps by dropping one that is idle."""
        kind, active = name[0], self._active[name[0]]
        if len(active) < KINDS[kind].most:
            return True
        if self._samples < self._full_until[kind]:
            return False
        oldest = min(active, key=active.__getitem__)
        self._full_until[kind] = active[oldest] + IDLE_SAMPLES
        if self._samples < self._full_until[kind]:
            return False
        del active[oldest]
        self._before.pop((kind, oldest), None)
        self._minutes.pop((kind, oldest), None)
        self._recent.forget((kind, oldest))
        self._day.forget((kind, oldest))
        return True

    def _gather(self, name: Name, row: Row) -> None:
        minute = self._minutes.setdefault(name, _Minute())
        minute.number += 1
        if not minute.sums:
            minute.sums = list(row)
            return
        rates = len(KINDS[name[0]].rates)
        for at, value in enumerate(row):
            old = minute.sums[at]
            minute.sums[at] = old + value if at < rates else value if math.isnan(old) else max(old, value)

    def restore(self, now: float, minutes: Iterable[tuple[float, Mapping[Name, Row]]]) -> None:
        """Take over minutes of an earlier process, oldest first."""
        for time, rows in minutes:
            if now - DAY * MINUTE < time < now:
                for kind, name in (known := [one for one in rows if one[1] in self._active[one[0]] or self._room(one)]):
                    self._active[kind][name] = self._samples
                self._day.add(time, {name: rows[name] for name in known})

    def queue_rates(self, queue: str) -> tuple[float, float] | None:
        """Returns the messages per second put to a queue and got from it, in the last sample."""
        found = self._recent.newest(("queue", queue))
        return (found[0] or 0.0, found[1] or 0.0) if found else None

    def rates(self) -> dict[str, float | None]:
        """Returns the rates of the gateway in the last sample."""
        found = self._recent.columns(GATEWAY, self._recent.last)
        return {name: (found[name] or [None])[-1] for name in KINDS["gateway"].rates}

    def columns(self, name: Name = GATEWAY, seconds: float = RECENT * STEP_SECONDS, now: float = 0) -> dict[str, Any]:
        """Returns the body of GET /history: in steps of five seconds as far as they reach, otherwise of a minute."""
        ring = self._recent if seconds <= RECENT * STEP_SECONDS else self._day
        return ring.columns(name, now - seconds if now else 0)


def _whole(name: Name, minute: _Minute) -> Row:
    """Returns a minute: rates are its mean, levels the highest value."""
    rates = len(KINDS[name[0]].rates)
    return tuple(value / minute.number if at < rates else value for at, value in enumerate(minute.sums))
