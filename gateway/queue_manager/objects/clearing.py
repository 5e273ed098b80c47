"""Empties a queue in bounded steps. The messages are not read, and their tokens are asked for step by step: the tokens
of a queue with millions of messages took more memory than the process may have."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.queue_manager.core import Core
from gateway.queue_manager.store.place import NUMBER_MASK

CLEARED_AT_ONCE = 10_000


def pieces(core: Core, queue: str) -> Iterator[list[int]]:
    """Yields, in pieces, the tokens of the messages that are on a queue now. The queue may change between two pieces,
    by what the caller does with them and by others; messages that come meanwhile are in no piece."""
    end, after = core.store.next_number, None
    while some := core.store.tokens_after(queue, b"", after, CLEARED_AT_ONCE):
        old = [token for token in some if token & NUMBER_MASK < end]
        if old:
            yield old
        after = some[-1]
        if after & NUMBER_MASK >= end:  # the rest of this priority came later
            after |= NUMBER_MASK
