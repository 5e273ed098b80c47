"""Two packed integers: a token names a message, a place says where its row lies.

token = (9 - priority) << 60 | number. Numbers are given out once, in the order of commits, for the life of a store,
so that tokens compare in the order of delivery: higher priorities first, first in first out within one. place = frame
<< 20 | row; frame = slot << 20 | block (of 4 KiB) for frames in a segment, or VOLATILE | serial for non-persistent
batches. Both fit an unsigned 64-bit column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

PRIORITIES = 10
NUMBER_BITS = 60
NUMBER_MASK = (1 << NUMBER_BITS) - 1
ROW_BITS = 20
MAX_ROWS = 1 << ROW_BITS
ROW_MASK = MAX_ROWS - 1
BLOCK_BITS = 20
VOLATILE = 1 << 43
MAX_SLOT = (VOLATILE >> BLOCK_BITS) - 1
MSG_ID_PREFIX = b"AMQ "


def token_of(priority: int, number: int) -> int:
    """The token of message `number` in a lane of `priority`."""
    return (PRIORITIES - 1 - priority) << NUMBER_BITS | number


def priority_of(token: int) -> int:
    """The priority that a token holds."""
    return PRIORITIES - 1 - (token >> NUMBER_BITS)


def wanted(numbers: Iterable[int], onward: Callable[[int], int]) -> Iterator[int]:
    """Those of ascending tokens that are wanted. For a token, `onward` returns the first wanted one from it on; it is
    not asked about tokens before that."""
    free = -1
    for number in numbers:
        if number < free:
            continue
        free = onward(number)
        if free == number:
            yield number


def frame_of(slot: int, block: int) -> int:
    """The frame part of a place in a segment."""
    return slot << BLOCK_BITS | block


def slot_of(frame: int) -> int:
    """The segment slot of a frame."""
    return frame >> BLOCK_BITS


def block_of(frame: int) -> int:
    """The first block of a frame within its segment."""
    return frame & ((1 << BLOCK_BITS) - 1)


def id_prefix(queue_manager: str) -> bytes:
    """The first 16 bytes of every MsgId made here: `AMQ ` and 12 characters of the queue manager's name."""
    return MSG_ID_PREFIX + queue_manager.encode("ascii", "replace")[:12].ljust(12)
