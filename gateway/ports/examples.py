"""Examples of what a counter has counted, for the log: which client, which topic, which queue.

The broker notes one where it counts; the report of the next second takes it. Pure, and bounded by the number of series:
for each, the first example of a few clients is kept until it is taken.
"""

from __future__ import annotations

from typing import Any

MAX_CLIENTS = 20
"""How many clients are named for each series between two reports; more are only counted."""

Fields = dict[str, object]


class Examples:
    """Examples of what was counted since they were last taken, by metric and series."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Any], dict[str, Fields]] = {}

    def note(self, metric: str, series: object, client_id: str = "", **fields: object) -> None:
        """Keep an example, unless there is one of this client already."""
        kept = self._kept.get((metric, series))
        if kept is None:
            kept = self._kept[metric, series] = {}
        if client_id not in kept and len(kept) < MAX_CLIENTS:
            kept[client_id] = {"client_id": client_id or None, **fields}

    def has(self, metric: str, series: object) -> bool:
        """Whether there is an example already."""
        return (metric, series) in self._kept

    def take(self, metric: str, series: object) -> list[Fields]:
        """Remove and return the examples of a series, the first of each client."""
        return list(self._kept.pop((metric, series), {}).values())
