"""What is done with whole columns of messages, compiled where there was a compiler at installation."""

from __future__ import annotations

try:
    import gateway.broker.publish._fast as compiled_columns
except ModuleNotFoundError:
    compiled = False
else:
    compiled = True


def length_in_python(column: list[bytes]) -> int:
    """The bytes of a column's values together."""
    return sum(map(len, column))


length_of = compiled_columns.length if compiled else length_in_python
