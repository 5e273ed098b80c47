"""Rows of recent frames, kept in memory within a bound, so that consumers who keep up never read the disk."""

from __future__ import annotations

from collections import OrderedDict

from gateway.queue_manager.journal.decode import Rows

FRAME_BITS = 44


class RowCache:
    """Use of a segment and frame -> its rows; the oldest go first.

    Frames of an earlier use of a segment are never asked for again and age out: dropping a whole segment's rows at once
    would be a pause of tens of milliseconds.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._rows: OrderedDict[int, Rows] = OrderedDict()

    def get(self, serial: int, frame: int) -> Rows | None:
        """The rows, if they are here."""
        return self._rows.get(serial << FRAME_BITS | frame)

    def keep(self, serial: int, frame: int, rows: Rows) -> None:
        """Remember; forgets the oldest beyond the bound."""
        if rows.size > self.limit:
            return
        self._rows[serial << FRAME_BITS | frame] = rows
        self.size += rows.size
        while self.size > self.limit:
            self.size -= self._rows.popitem(last=False)[1].size
