"""The history of the gateway, its queues, rules and clients: sampled here, and kept across restarts in two small files
in the data directory. If a file cannot be written or read, only the history is lost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gateway.app.reports.gauges import totals_of
from gateway.observe.history import GATEWAY, KINDS, UNKNOWN, Name, Row, Totals
from gateway.queue_manager.embedded import EmbeddedQueueManager

if TYPE_CHECKING:
    from gateway.app.parts import Parts

T = TypeVar("T")
MAX_BYTES = 4 << 20
"""The most bytes of one file; a full one becomes the older of the two."""
MAX_LINES = 720
"""The most minutes of one file: half a day."""
NEW_CLIENTS = 200
"""How many connections are checked in one sample for clients that have no series yet."""
NEW_QUEUES = 400
"""The same for the queues of rules."""


class HistoryFile:
    """Minutes as JSON lines: the time, and for each series that was not all zeros its kind, name and values."""

    def __init__(self, directory: Path) -> None:
        self._path, self._older = directory / "history.jsonl", directory / "history.older.jsonl"
        self._lines = 0

    def read(self) -> Iterator[tuple[float, dict[Name, Row]]]:
        """Yields the minutes of both files. A line that is incomplete is left out."""
        for path in (self._older, self._path):
            self._lines = 0
            try:
                lines = path.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
            except OSError:
                continue
            for line in lines:
                self._lines += 1
                found = _parsed(line)
                if found is not None:
                    yield found

    def append(self, now: float, rows: Mapping[Name, Row]) -> None:
        """Write a minute."""
        shown = [[*name, [_short(value) for value in row]] for name, row in rows.items() if any(_counts(row))]
        line = json.dumps([round(now), shown], separators=(",", ":"), ensure_ascii=False) + "\n"
        try:
            if self._lines >= MAX_LINES or (self._path.exists() and self._path.stat().st_size > MAX_BYTES):
                self._path.replace(self._older)
                self._lines = 0
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
            self._lines += 1
        except (OSError, UnicodeEncodeError):
            return  # as on a full disk, which other parts of the gateway report


def _counts(row: Row) -> Iterator[bool]:
    return (value > 0 for value in row)


def _short(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _parsed(line: str) -> tuple[float, dict[Name, Row]] | None:
    try:
        time, series = json.loads(line)
        rows = {
            (str(kind), str(name)): tuple(UNKNOWN if value is None else _finite(value) for value in values)
            for kind, name, values in series
            if kind in KINDS and len(values) == len(KINDS[kind].columns)
        }
        return _finite(time), rows
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _finite(value: Any) -> float:
    """Returns a number that JSON can express: what is read here is shown by the API."""
    if math.isfinite(number := float(value)):
        return number
    raise ValueError(f"{value} cannot be shown in a chart")


class ByTurns(Generic[T]):
    """Looks at some of many things in each sample, and at the next ones in the next sample."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._left: Iterator[T] = iter(())

    def some(self, every: Callable[[], Iterable[T]]) -> list[T]:
        """Returns the next ones; `every` is asked when all have had their turn."""
        found = list(islice(self._left, self._at_once))
        if len(found) < self._at_once:
            self._left = iter(every())
            found += islice(self._left, self._at_once - len(found))
        return found


class Sampler:
    """Takes a sample of all parts, every few seconds."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._file = HistoryFile(parts.directory)
        self._connections, self._named = ByTurns[Any](NEW_CLIENTS), ByTurns[str](NEW_QUEUES)

    def restore(self, now: float) -> None:
        """Restore what an earlier process has kept."""
        self._parts.history.restore(now, self._file.read())

    def sample(self, now: float) -> None:
        """Look at everything once."""
        parts = self._parts
        times = parts.counters.mqtt_puback_seconds
        parts.recent.look([one + two for one, two in zip(times[1].buckets, times[2].buckets, strict=True)])
        parts.activity.look(now)
        totals = {GATEWAY: self._gateway(), **self._queues(), **self._rules(), **self._clients()}
        minute = parts.history.sample(now, totals)
        if minute is not None:
            self._file.append(now, minute)

    def _gateway(self) -> Totals:
        parts, room = self._parts, self._parts.room()
        return {
            **totals_of(parts.counters), "connections": len(parts.engine.connections),
            "spool_bytes": room.used if room else None, "latency_p99_ms": parts.latency()["p99"],
        }  # fmt: skip

    def _queues(self) -> dict[Name, Totals]:
        parts, manager = self._parts, self._parts.queue_manager
        names = {*self._queues_named(), parts.engine.context.dead_letter_queue} - {""}
        if not isinstance(manager, EmbeddedQueueManager):
            return {("queue", name): {"depth": parts.queue_status.depth(name)} for name in names}
        with manager.core.entered():
            queues = manager.core.queues
            names |= set(islice((one for one in queues if not one.startswith("SYSTEM.")), KINDS["queue"].most))
            return {
                ("queue", name): {"put": one.puts, "got": one.gets, "depth": manager.core.depth(one)}
                for name in sorted(names)
                if (one := queues.get(name)) is not None
            }

    def _queues_named(self) -> set[str]:
        """Returns queues that have a series, and some of the others that rules name, in turn: there may be ten
        thousand."""
        named = self._parts.named_queues()
        shown = named.intersection(self._parts.history.names("queue"))
        return {*shown, *self._named.some(lambda: sorted(named))}

    def _rules(self) -> dict[Name, Totals]:
        counters = self._parts.counters
        failed: dict[str, int] = {}
        counted: list[Mapping[Any, int]] = [
            counters.dlq_messages, counters.messages_dropped, counters.transform_errors,
        ]  # fmt: skip
        for counts in counted:
            for (rule, _), number in list(counts.items()):
                failed[rule] = failed.get(rule, 0) + number
        table = self._parts.table
        names = chain((route.rule.name for route in table.routes), (rule.name for rule in table.outbound))
        return {
            ("rule", name): {"matched": counters.route_matched[name], "failed": failed.get(name, 0)}
            for name in islice(names, KINDS["rule"].most)
        }

    def _clients(self) -> dict[Name, Totals]:
        """Returns clients that have a series, and some of the others that are connected, in turn."""
        engine = self._parts.engine
        names = set(self._parts.history.names("client"))
        fresh = self._connections.some(lambda: list(engine.connections))
        found = [engine.sessions.get(name) for name in names]
        found += [
            session for one in fresh if (session := one.session) is not None and session.received + session.delivered
        ]
        return {
            ("client", one.client_id): {"received": one.received, "sent": one.delivered}
            for one in found
            if one is not None
        }
