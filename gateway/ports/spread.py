"""How an address says that one of several queue managers takes a message. Pure.

Lanes and batches know addresses by the name of a queue manager alone, as a text: so several of them are a text too,
which no queue manager can be called, with all that is to be known of them beside it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Self


class Spread(str):
    """Several queue managers."""

    __slots__ = ("after_all", "in_turn", "names")

    names: tuple[str, ...]
    """The queue managers. One that is away is passed over."""
    in_turn: bool
    """Whether each of them takes a message in turn; else the first that is not away does."""
    after_all: bool
    """Whether all of them have to have been there first, because any of them may have the message already."""

    def __new__(cls, names: Sequence[str], *, in_turn: bool = False, after_all: bool = False) -> Self:
        made = super().__new__(cls, ("&" if after_all else "") + ("|" if in_turn else ">").join(names))
        made.names, made.in_turn, made.after_all = tuple(names), in_turn, after_all
        return made

    def chosen(self, *, after_all: bool) -> Spread:
        """The same, when all of them have been there, or now."""
        return self if after_all == self.after_all else Spread(self.names, in_turn=self.in_turn, after_all=after_all)


def first_of(names: Sequence[str], client_id: str) -> Spread:
    """The messages of a client go to the same of them, as long as that is there."""
    at = zlib.crc32(client_id.encode("utf-8", "surrogatepass")) % len(names)
    return Spread((*names[at:], *names[:at]))


def names_of(queue_manager: str) -> tuple[str, ...]:
    """The queue managers that an address names."""
    return queue_manager.names if isinstance(queue_manager, Spread) else (queue_manager,)


def in_words(queue_manager: str) -> str:
    """An address's queue manager for people."""
    if not isinstance(queue_manager, Spread):
        return queue_manager
    if queue_manager.in_turn:
        return f"{', '.join(queue_manager.names)} in turn"
    first, *others = queue_manager.names
    return first + "".join(f", or {name} while that is away" for name in others)
