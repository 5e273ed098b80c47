"""Messages that cannot be read, because the disk has damaged their frame while the queue manager runs. Who reads a
queue for devices gets those around them; they stay where they are, and are told of once.
"""

from __future__ import annotations

from sys import maxsize
from time import monotonic

from gateway.errors import MQError, StoreCorrupt
from gateway.mq.constants import MQRC_OBJECT_DAMAGED
from gateway.queue_manager.store.place import NUMBER_MASK
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import Message

AT_ONCE_SECONDS = 0.1
"""For so long is read at a time what the disk has damaged: a whole segment of small frames takes 10 s, a failing disk
hours."""
SLOW_SECONDS = 0.0001
"""A message, of frames that are read: what is known to be damaged is passed in a tenth of it."""
Place = tuple[str, str]
"""A queue, and what is damaged there."""


class Damage:
    """The messages that could not be read. Called with the queue manager's lock held."""

    def __init__(self, store: MessageStore) -> None:
        self.in_order: set[str] = set()
        """Queues whose messages may leave in their order alone: one that cannot be read stops those behind it."""
        self._stops: dict[tuple[str, bytes], str] = {}
        self._store = store
        self._known: set[int] = set()
        self._untold: dict[Place, list[int]] = {}

    def fetch(self, queue: str, key: bytes, limit: int, after: int | None = None) -> list[Message]:
        """The next messages that can be read, locked ones too, perhaps fewer than there are; none: none is behind.
        MQError where so much is damaged that others have their turn first: what has been read is known next time."""
        slow = 0.0
        while True:
            began = monotonic()
            found, damaged = self._store.fetch_around_damage(queue, key, limit, after, AT_ONCE_SECONDS)
            spent = monotonic() - began
            self._note(queue, damaged)
            if damaged and queue in self.in_order:
                first = next(at for at, one in enumerate(found) if one.token in damaged)
                self._stops[queue, key] = damaged[found[first].token]
                return found[:first]
            whole = [one for one in found if one.token not in damaged]
            if whole or not found:
                return whole
            after = found[-1].token
            if spent > len(found) * SLOW_SECONDS:
                slow += spent
            if slow >= AT_ONCE_SECONDS:
                why = damaged[after]
                raise MQError(MQRC_OBJECT_DAMAGED, f"so is much before it: what is behind comes in a while: {why}")

    def stops(self, queue: str, key: bytes) -> str:
        """What cannot be read and stopped the last fetch from a queue whose messages leave in order, if anything."""
        return self._stops.pop((queue, key), "")

    def load(self, queue: str) -> list[tuple[bytes, Message]]:
        """Every message that can be read, with its key, in the order of arrival."""
        found: list[tuple[bytes, Message]] = []
        for key in self._store.keys(queue):
            messages, damaged = self._store.fetch_around_damage(queue, key, maxsize, None)
            self._note(queue, damaged)
            found += [(key, one) for one in messages if one.token not in damaged]
        return sorted(found, key=lambda one: one[1].token & NUMBER_MASK)

    def read(self, queue: str, key: bytes, token: int) -> Message | None:
        """One message, if it is there and can be read."""
        try:
            return self._store.read(queue, key, token)
        except StoreCorrupt as error:
            self._note(queue, {token: str(error)})
            return None

    def _note(self, queue: str, damaged: dict[int, str]) -> None:
        for token, why in damaged.items():
            if token not in self._known:
                self._known.add(token)
                self._untold.setdefault((queue, why), []).append(token)

    def untold(self) -> dict[Place, list[int]]:
        """The tokens of those that were met since the last time."""
        untold, self._untold = self._untold, {}
        return untold
