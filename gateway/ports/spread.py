"""How an address says that one of several queue managers takes a message, in characters no name in MQ has. Pure.

`QM2>QM3`: the first of them that is not away. `QM2|QM3`: each in turn, but for those that are away. `&` before that:
none of them before all have been there, because any of them may have the message already.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

_FIRST, _TURN, _ALL = ">", "|", "&"


def first_of(names: Sequence[str], client_id: str) -> str:
    """The messages of a client go to the same of them, as long as that is there."""
    at = zlib.crc32(client_id.encode("utf-8", "surrogatepass")) % len(names)
    return _FIRST.join((*names[at:], *names[:at]))


def in_turn(names: Sequence[str]) -> str:
    """Each in turn."""
    return _TURN.join(names)


def is_spread(queue_manager: str) -> bool:
    """Whether an address names several queue managers."""
    return _FIRST in queue_manager or _TURN in queue_manager


def is_in_turn(queue_manager: str) -> bool:
    """Whether each of those takes a message in turn."""
    return _TURN in queue_manager


def after_all(queue_manager: str) -> str:
    """The same, when all of them have been there."""
    return _ALL + queue_manager


def waits_for_all(queue_manager: str) -> bool:
    """Whether all of them have to have been there first."""
    return queue_manager.startswith(_ALL)


def chosen_from(queue_manager: str) -> str:
    """What is chosen from when all have been there."""
    return queue_manager.removeprefix(_ALL)


def names_of(queue_manager: str) -> list[str]:
    """The queue managers that an address names."""
    queue_manager = chosen_from(queue_manager)
    return queue_manager.split(_TURN if _TURN in queue_manager else _FIRST)


def in_words(queue_manager: str) -> str:
    """An address's queue manager for people."""
    names = names_of(queue_manager)
    if is_in_turn(queue_manager):
        return f"{', '.join(names)} in turn"
    return names[0] + "".join(f", or {name} while that is away" for name in names[1:])
