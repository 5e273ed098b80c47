"""What is done with whole columns of messages, compiled where there was a compiler at installation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress


def length_in_python(column: list[bytes]) -> int:
    """The total number of bytes in a column's values."""
    return sum(map(len, column))


length_of: Callable[[list[bytes]], int] = length_in_python
with suppress(ModuleNotFoundError):
    import gateway.broker.publish._fast as compiled_columns

    length_of = compiled_columns.length
