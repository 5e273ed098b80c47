"""Which segment's survivors are carried forward next, if any. Pure arithmetic over extents.

The aim is a journal of at most twice what is live (plus the current segment and what is prepared ahead). Frames of
single messages count with their own length, not with the block they are padded to, so that segments full of them are
worth merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.queue_manager.store.space import Extent

SLACK = 1.5
"""Sealed segments may take this many times the live bytes in them before anything is carried forward."""
WORTH = 0.8
"""A segment with a larger share of live bytes is not carried for its own space, only to free others that wait for it.
"""

NEARLY_EMPTY = 1 / 16
"""A segment with a smaller share of live bytes is carried whether or not space is needed: little is written for a
segment that becomes free.
"""


def segment_to_carry(extents: Iterable[Extent], size_of: Callable[[int], int], allowed: int = 0) -> Extent | None:
    """The sealed segment to carry forward, or None if there is no need. `allowed` bytes beyond the slack are no need:
    one segment that is half empty is not worth the writing.
    """
    sealed = [extent for extent in extents if extent.sealed]
    held = [extent for extent in sealed if extent.readable and (extent.live or extent.state)]
    nearly_empty = [extent for extent in held if extent.live_bytes < NEARLY_EMPTY * size_of(extent.slot)]
    if nearly_empty:
        return min(nearly_empty, key=_live_bytes)
    space = sum([size_of(extent.slot) for extent in sealed])
    if space <= SLACK * sum([extent.live_bytes for extent in sealed]) + allowed:
        return None
    awaited = {serial for extent in sealed if not extent.live and not extent.state for serial in extent.refs}
    roots = [extent for extent in held if extent.serial in awaited]
    if roots:
        return min(roots, key=_live_bytes)
    worth = [extent for extent in held if extent.live_bytes < WORTH * size_of(extent.slot)]
    return min(worth, key=lambda extent: extent.live_bytes / size_of(extent.slot), default=None)


def _live_bytes(extent: Extent) -> int:
    return extent.live_bytes


def excess(extents: Iterable[Extent], size_of: Callable[[int], int], segment: int) -> int:
    """How many segments are in use beyond what twice the live bytes would fill."""
    space = 0
    for extent in extents:
        space += size_of(extent.slot) - 2 * extent.live_bytes
    return max(0, -(-space // segment))
