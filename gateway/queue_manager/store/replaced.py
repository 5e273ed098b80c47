"""State records that are replaced: the one message of a key gives its place to another. In C (`_replaced.c`) where
there was a compiler at installation. No input or output.

A frame describes them like any other puts and takes: a reader knows nothing of this. But in a batch every device may
replace a record, and then the records are handled as columns, and the lanes of their keys change in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct

from gateway.ports.batch import Replace
from gateway.queue_manager.store.lanes import Lane
from gateway.queue_manager.store.place import ROW_BITS, VOLATILE
from gateway.queue_manager.store.unit import LaneName

Records = dict[bytes, bytes | None]
"""Bodies by key; None: the record is removed."""
_GROUP, _TAKE = Struct("<II"), Struct("<IIQ")
"""As in `journal.layout`."""


def records_of_in_python(replaces: Sequence[Replace], /) -> tuple[dict[str, Records], int]:
    """The replacing bodies by queue and key, of which the last one of a key counts; and how many bytes they are."""
    found: dict[str, Records] = {}
    size = 0
    for queue, key, body in replaces:
        found.setdefault(queue, {})[key] = body
        size += len(body or b"")
    return found, size


def _only_run(lane: Lane | None, rank: int) -> int:
    """The index, in the runs of a lane of this rank, of the run that is its one message, with no other lane below it;
    -1 if the lane does not hold exactly one message in this way."""
    if lane is None or lane.depth != 1 or lane.rank != rank or lane.lower is not None or lane.removed:
        return -1
    return lane.start if lane.runs[lane.start + 1] == 1 else -1


def stand_alone_in_python(
    lanes: dict[bytes, Lane], rank: int, records: Records, keys: list[bytes], numbers: list[int], bodies: list[bytes], /
) -> Records:
    """Append, for each record that can be replaced in place, its key, the number of the one message that is there, and
    its body. Returns the other records."""
    others: Records = {}
    for key, body in records.items():
        lane = lanes.get(key)
        at = _only_run(lane, rank)
        if lane is None or body is None or at < 0 or lane.runs[at + 2] >> ROW_BITS & VOLATILE:
            others[key] = body
            continue
        keys.append(key)
        numbers.append(lane.runs[at])
        bodies.append(body)
    return others


def links_in_python(
    queue: str, rank: int, keys: list[bytes], numbers: list[int], known: dict[bytes, int],
    define: Callable[[LaneName], int], /,
) -> tuple[bytes, bytes]:  # fmt: skip
    """The groups and the takes of such records, one message each, as a frame has them. `known` has the numbers of lanes
    by key; for a lane that is not there, `define` gives the number, which is added."""
    groups, takes = [], []
    for key, number in zip(keys, numbers, strict=True):
        lane = known.get(key)
        if lane is None:
            lane = known[key] = define((queue, key, rank))
        groups.append(_GROUP.pack(lane, 1))
        takes.append(_TAKE.pack(lane, 1, number))
    return b"".join(groups), b"".join(takes)


def put_in_place_in_python(
    lanes: dict[bytes, Lane], rank: int, keys: list[bytes], numbers: list[int], first: int, place: int, /
) -> tuple[list[tuple[int, int]], list[int]]:
    """Replace in each lane the one message, which has that number, by the next one from `first` and `place` on. Returns
    where the old messages were, as (place, count), and the rows for which nothing was changed because the lane did not
    hold that one message."""
    places, others = [], []
    for row, (key, number) in enumerate(zip(keys, numbers, strict=True)):
        lane = lanes.get(key)
        at = _only_run(lane, rank)
        if lane is None or at < 0 or lane.runs[at] != number:
            others.append(row)
            continue
        places.append(lane.runs[at + 2])
        lane.runs[at], lane.runs[at + 2] = first + row, place + row
    been: list[tuple[int, int]] = []
    for each in sorted(places):
        if been and sum(been[-1]) == each:
            been[-1] = been[-1][0], been[-1][1] + 1
        else:
            been.append((each, 1))
    return been, others


records_of, stand_alone = records_of_in_python, stand_alone_in_python
links, put_in_place = links_in_python, put_in_place_in_python
with suppress(ModuleNotFoundError):
    import gateway.queue_manager.store._rows as compiled_rows

    records_of, stand_alone = compiled_rows.records_of, compiled_rows.stand_alone
    links, put_in_place = compiled_rows.links, compiled_rows.put_in_place
