"""How an address says that one of several queue managers takes a message. Pure.

Lanes and batches know addresses by the name of a queue manager only, as text. So several queue managers are a text too,
one that no queue manager can be called, which carries everything else that has to be known of them.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Self


class Spread(str):
    """Several queue managers, one of which takes a message."""

    __slots__ = ("after_all", "in_turn", "names")

    names: tuple[str, ...]
    """The names of the queue managers. One that is away is passed over."""
    in_turn: bool
    """Whether they take messages in turn; if not, the first that is not away takes each."""
    after_all: bool
    """Whether all of them must have been available first, because any of them may have the message already."""

    def __new__(cls, names: Sequence[str], *, in_turn: bool = False, after_all: bool = False) -> Self:
        made = super().__new__(cls, ("&" if after_all else "") + ("|" if in_turn else ">").join(names))
        made.names, made.in_turn, made.after_all = tuple(names), in_turn, after_all
        return made

    def chosen(self, *, after_all: bool) -> Spread:
        """The same queue managers with this `after_all`."""
        return self if after_all == self.after_all else Spread(self.names, in_turn=self.in_turn, after_all=after_all)


def first_of(names: Sequence[str], client_id: str) -> Spread:
    """The address by which all messages of a client go to the same queue manager, as long as that is available."""
    at = zlib.crc32(client_id.encode("utf-8", "surrogatepass")) % len(names)
    return Spread((*names[at:], *names[:at]))


def names_of(queue_manager: str) -> tuple[str, ...]:
    """The names of the queue managers that an address names."""
    return queue_manager.names if isinstance(queue_manager, Spread) else (queue_manager,)


def in_words(queue_manager: str) -> str:
    """The queue manager of an address as text for people."""
    if not isinstance(queue_manager, Spread):
        return queue_manager
    if queue_manager.in_turn:
        return f"{', '.join(queue_manager.names)} in turn"
    first, *others = queue_manager.names
    return first + "".join(f", or {name} while that is away" for name in others)
