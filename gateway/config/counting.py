"""Counts with their noun: `1 file`, `2 files`."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`; `many` where that is not the word with an s, or where a verb follows: `one` has its own."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
