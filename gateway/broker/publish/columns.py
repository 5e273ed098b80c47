"""What is done with whole columns of messages, compiled where there was a compiler at installation."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.ports.batch import Token

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


def pair(into: dict[int, Token], ids: list[int], tokens: Sequence[Token]) -> None:
    """The token of each packet id, now that they are stored."""
    if compiled:
        compiled_columns.pair(into, ids, tokens)
    else:
        into.update(zip(ids, tokens, strict=True))
