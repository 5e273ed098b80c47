"""Counts with their nouns: `1 file`, `2 files`."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`. `many` is for nouns whose plural is not the word with an s, or if a verb follows, which
    `one` then has too."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
