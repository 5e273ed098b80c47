"""Rows of recent frames, kept in memory within a bound, so that consumers who keep up never read the disk."""

from __future__ import annotations

from gateway.backends.embedded.journal.decode import Rows
from gateway.backends.embedded.store.place import slot_of


class RowCache:
    """Frame -> its rows; the oldest go first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._rows: dict[int, Rows] = {}

    def get(self, frame: int) -> Rows | None:
        """The rows, if they are here."""
        return self._rows.get(frame)

    def keep(self, frame: int, rows: Rows) -> None:
        """Remember; forgets the oldest beyond the bound."""
        if rows.size > self.limit:
            return
        self._rows[frame] = rows
        self.size += rows.size
        while self.size > self.limit:
            self.size -= self._rows.pop(next(iter(self._rows))).size

    def forget_slot(self, slot: int) -> None:
        """The segment will be used again: its places mean something else then."""
        for frame in [frame for frame in self._rows if slot_of(frame) == slot]:
            self.size -= self._rows.pop(frame).size
