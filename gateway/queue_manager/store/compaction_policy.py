"""Which segment's survivors are carried forward next, if any. Pure arithmetic over extents.

The aim is a journal of at most twice what is live, plus the current segment and what is prepared ahead. Frames of
single messages count with their own length, not with the block they are padded to, so that segments full of them are
worth merging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.queue_manager.store.space import Extent

SLACK = 1.5
"""Sealed segments may take this many times the live bytes in them before anything is carried forward."""
WORTH, WORTH_PRESSED = 0.8, 0.9
"""A segment with a larger share of live bytes is not carried for its own space, only to free others that wait for it;
on a full disk not even then, since it might not fit into the one segment that is kept for carried messages."""

NEARLY_EMPTY = 1 / 16
"""A segment with a smaller share of live bytes is carried whether or not space is needed: little is written for a
segment that becomes free."""
SAID_BYTES = 16
"""The most bytes that it takes, nearly always, to write one statement again."""
LITTLE = 1 / 2
"""The share of a segment that is little enough to write for freeing it."""


def segment_to_carry(
    extents: Iterable[Extent], size_of: Callable[[int], int], allowed: int = 0, *, pressed: bool = False
) -> Extent | None:
    """The sealed segment to carry forward, or None if there is no need. `allowed` bytes beyond the slack are no need:
    one segment that is half empty is not worth the writing. `pressed`: the disk is full, and whatever frees a segment
    is worth it."""
    sealed = [extent for extent in extents if extent.sealed]
    if not sealed:
        return None
    held = [extent for extent in sealed if extent.readable and (extent.live or extent.state)]
    nearly_empty = [extent for extent in held if extent.live_bytes < NEARLY_EMPTY * size_of(extent.slot)]
    if nearly_empty:
        return min(nearly_empty, key=_live_bytes)
    space = sum([size_of(extent.slot) for extent in sealed])
    if not pressed and space <= SLACK * sum([extent.live_bytes for extent in sealed]) + allowed:
        return None
    most = WORTH_PRESSED if pressed else WORTH
    worth = [extent for extent in held if extent.live_bytes < most * size_of(extent.slot)]
    awaited = {serial for extent in sealed if not extent.live and not extent.state for serial in extent.refs}
    roots = [extent for extent in (worth if pressed else held) if extent.serial in awaited]
    if roots:
        return min(roots, key=_live_bytes)
    gains = [extent for extent in worth if not _is_compact(extent, size_of(extent.slot))]
    return min(gains, key=lambda extent: extent.live_bytes / size_of(extent.slot), default=None)


def _is_compact(extent: Extent, size: int) -> bool:
    """Whether everything in a segment is live, and no more is left unused at its end than carrying it again would
    leave. Frames of carried messages are up to an eighth of a small segment, so on a full disk such segments could be
    carried from one into the next for ever."""
    first_put, end_put = extent.numbers
    only_carried = first_put == end_put
    return extent.live == extent.rows and (only_carried or extent.live_bytes >= LITTLE * size)


def segment_to_say_again(extents: Iterable[Extent], size_of: Callable[[int], int]) -> Extent | None:
    """On a full disk: a segment without anything live that waits for others only because of its statements about their
    messages, and whose statements take little to write again. None if there is none."""
    waiting = [
        extent
        for extent in extents
        if extent.sealed and extent.readable and not (extent.live or extent.state or extent.moves)
        and extent.said * SAID_BYTES <= size_of(extent.slot) * LITTLE
    ]  # fmt: skip
    return min(waiting, key=lambda extent: extent.said, default=None)


def _live_bytes(extent: Extent) -> int:
    return extent.live_bytes


def excess(extents: Iterable[Extent], size_of: Callable[[int], int], segment: int) -> int:
    """How many segments are in use beyond what twice the live bytes would fill."""
    space = 0
    for extent in extents:
        space += size_of(extent.slot) - 2 * extent.live_bytes
    return max(0, -(-space // segment))
