"""What goes into a store and comes out of its first step: options, and a unit on its way to the disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.queue_manager.journal.decode import Rows
from gateway.queue_manager.journal.segment import Berth
from gateway.queue_manager.store.changes import Changes
from gateway.queue_manager.store.index import TokenRun
from gateway.queue_manager.store.unit import StoreUnit


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings of a store."""

    queue_manager: str = ""
    """Its name, which MsgIds made here begin with: with it, ids of other queue managers are never taken for ours."""
    segment_bytes: int = 64 << 20
    spare_segments: int = 3
    direct: bool = True
    background: bool = True
    cache_bytes: int = 64 << 20
    """Rows of recent frames kept in memory."""
    volatile_bytes: int = 64 << 20
    """Non-persistent messages kept in memory; more are spilled to a file that is not recovered."""
    max_bytes: int | None = None
    """What the segments may take together; None: what the disk has."""


class Usage(NamedTuple):
    """What a store takes, for metrics and `DISPLAY QMSTATUS`-like answers."""

    disk_bytes: int
    live_bytes: int
    segments: int
    spare_segments: int
    frames: int
    """Written since the store was made."""
    messages: int
    state_records: int
    cached_bytes: int
    volatile_bytes: int
    full: str
    """Why no new segment could be made; empty if one could."""


@dataclass(slots=True)
class Prepared:
    """A unit on its way: `write` it, then `apply` it. `missing` are tokens of takes and moves that were not there (any
    more).
    """

    unit: StoreUnit
    missing: list[int]
    generation: int
    sequence: int = 0
    berth: Berth | None = None
    buffer: memoryview | None = None
    frame: memoryview | None = None
    """What of the buffer is to be written: whole blocks."""
    changes: Changes | None = None
    volatile: Changes | None = None
    rows: Rows | None = None
    volatile_rows: Rows | None = None
    leaving: Sequence[TokenRun] = ()
    locked: Sequence[int] = ()
    carries: bool = False

    @property
    def needs_disk(self) -> bool:
        """Whether `write` does anything: non-persistent messages need no frame."""
        return self.berth is not None


def unit_of(units: Iterable[StoreUnit]) -> StoreUnit:
    """Several callers' units as one frame (group commit)."""
    joined = StoreUnit()
    for unit in units:
        joined.puts += unit.puts
        joined.takes += unit.takes
        joined.moves += unit.moves
        joined.backouts += unit.backouts
        joined.state.update(unit.state)
    return joined
