"""The standard output where it has no buffer, as in the container (`PYTHONUNBUFFERED`): written whole.

A write to a disk that becomes full takes what there is room for, and is no error yet. With a buffer Python writes the
rest, and that is one; without, the rest would be left out unseen, and a message that was taken from its queue lost.
"""

from __future__ import annotations

import io
from typing import Any, TextIO


class Whole(io.FileIO):
    """A file whose `write` writes everything, or raises OSError."""

    def write(self, data: Any, /) -> int:
        """Until nothing is left."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            written = super().write(left)
            if written is None:
                raise BlockingIOError("the output takes no more now")
            left = left[written:]
        return size


def whole(output: TextIO) -> TextIO:
    """The output; another one for the same file if its writes could be cut short."""
    if not isinstance(getattr(output, "buffer", None), io.FileIO):
        return output
    return io.TextIOWrapper(
        Whole(output.fileno(), "w", closefd=False), output.encoding, output.errors, write_through=True
    )
