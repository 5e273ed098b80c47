"""Standard output where it has no buffer, as in the container (`PYTHONUNBUFFERED`), made to write everything.

A write to a disk that becomes full takes what there is room for, which is not an error yet. With a buffer Python writes
the rest, which then is one; without a buffer the rest would be left out silently, and a message that was taken from its
queue would be lost.
"""

from __future__ import annotations

import io
from typing import Any, TextIO


class Whole(io.FileIO):
    """A file whose `write` writes everything, or raises OSError."""

    def write(self, data: Any, /) -> int:
        """Write until nothing is left; returns the length."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            written = super().write(left)
            if written is None:
                raise BlockingIOError("the output takes no more now")
            left = left[written:]
        return size


def whole(output: TextIO) -> TextIO:
    """Returns the output, or another one for the same file if its writes could be incomplete."""
    if not isinstance(getattr(output, "buffer", None), io.FileIO):
        return output
    return io.TextIOWrapper(
        Whole(output.fileno(), "w", closefd=False), output.encoding, output.errors, write_through=True
    )
