"""Messages that cannot be read, because the disk has damaged their frame while the queue manager runs. A reader of the
queue for devices gets the messages around them; they stay where they are, and are reported once."""

from __future__ import annotations

from itertools import islice
from sys import maxsize
from time import monotonic
from typing import NamedTuple

from gateway.errors import MQError, StoreCorrupt
from gateway.mq.constants import MQRC_OBJECT_DAMAGED
from gateway.queue_manager.store.place import NUMBER_BITS, NUMBER_MASK
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import Message

AT_ONCE_SECONDS = 0.1
"""Seconds for reading damaged messages at a time: a whole segment of small frames takes 10 s, a failing disk hours."""
SLOW_SECONDS = 0.0001
"""Seconds for a message whose frame is read; passing over one that is known to be damaged takes a tenth of that."""
PASSED_SECONDS = 60.0
"""Seconds for which damaged messages are passed over at once; after that they are tried again."""
LOOKED_AT = 500
"""Keys of which it is looked, at a time, whether the damaged messages are gone: every session has one."""
Place = tuple[str, str]
"""A queue, and what is damaged there."""
Keyed = tuple[str, bytes]
"""A queue and a key."""


class Passed(NamedTuple):
    """Tokens of one priority between which every message that is there is damaged; new ones only come behind them."""

    first: int
    last: int
    until: float


class Damage:
    """The messages that could not be read. Called with the queue manager's lock held."""

    def __init__(self, store: MessageStore) -> None:
        self.in_order: set[str] = set()
        """Queues whose messages may leave only in their order: one that cannot be read stops those behind it."""
        self._stops: dict[Keyed, str] = {}
        self._store = store
        self._known: dict[Keyed, dict[int, None]] = {}
        """The tokens of damaged messages, in the order in which they were met."""
        self._passed: dict[Keyed, Passed] = {}
        self._untold: dict[Place, list[int]] = {}

    def fetch(self, queue: str, key: bytes, limit: int, after: int | None = None) -> list[Message]:
        """The next messages that can be read, locked ones too; they may be fewer than there are, and none means that
        there are none behind. Raises MQError if so much is damaged that others have their turn first: what has been
        read is known next time."""
        slow = 0.0
        after = self._behind_passed(queue, key, after)
        while True:
            began = monotonic()
            found, damaged = self._store.fetch_around_damage(queue, key, limit, after, AT_ONCE_SECONDS)
            spent = monotonic() - began
            self._note(queue, key, damaged)
            if damaged and queue in self.in_order:
                first = next(at for at, one in enumerate(found) if one.token in damaged)
                self._stops[queue, key] = damaged[found[first].token]
                return found[:first]
            whole = [one for one in found if one.token not in damaged]
            if whole or not found:
                return whole
            after = self._pass(queue, key, found, after)
            if spent > len(found) * SLOW_SECONDS:
                slow += spent
            if slow >= AT_ONCE_SECONDS:
                why = damaged[after]
                raise MQError(MQRC_OBJECT_DAMAGED, f"so is much before it: what is behind comes in a while: {why}")

    def _behind_passed(self, queue: str, key: bytes, after: int | None) -> int | None:
        """The token after which to go on: behind what is known to be damaged, if nothing else comes before that. Going
        through a hundred thousand damaged messages would take each caller a tenth of a second."""
        passed = self._passed.get((queue, key))
        if passed is None:
            return after
        begin = after
        if begin is None or begin < passed.first:
            begin = self._store.first(queue, key)
        if begin is None or monotonic() >= passed.until:
            del self._passed[queue, key]
            return after
        return passed.last if passed.first <= begin <= passed.last else after

    def _pass(self, queue: str, key: bytes, damaged: list[Message], after: int | None) -> int:
        """Note that all of these messages, the first ones after a token, are damaged; returns the token of the last."""
        first, last = damaged[0].token, damaged[-1].token
        passed = self._passed.get((queue, key))
        if passed is None:
            passed = Passed(first, last, monotonic() + PASSED_SECONDS)
        elif passed.last == after:
            passed = passed._replace(last=last)
        if passed.first >> NUMBER_BITS == passed.last >> NUMBER_BITS:
            self._passed[queue, key] = passed
        return last

    def stops(self, queue: str, key: bytes) -> str:
        """Why the message that stopped the last fetch from a queue whose messages leave in order cannot be read; empty
        if none did."""
        return self._stops.pop((queue, key), "")

    def load(self, queue: str) -> list[tuple[bytes, Message]]:
        """Every message that can be read, with its key, in the order of arrival."""
        found: list[tuple[bytes, Message]] = []
        for key in self._store.keys(queue):
            messages, damaged = self._store.fetch_around_damage(queue, key, maxsize, None)
            self._note(queue, key, damaged)
            found += [(key, one) for one in messages if one.token not in damaged]
        return sorted(found, key=lambda one: one[1].token & NUMBER_MASK)

    def read(self, queue: str, key: bytes, token: int) -> Message | None:
        """The message with this token, if it is there and can be read."""
        try:
            return self._store.read(queue, key, token)
        except StoreCorrupt as error:
            self._note(queue, key, {token: str(error)})
            return None

    def _note(self, queue: str, key: bytes, damaged: dict[int, str]) -> None:
        known = self._known.setdefault((queue, key), {}) if damaged else {}
        for token, why in damaged.items():
            if token not in known:
                known[token] = None
                self._untold.setdefault((queue, why), []).append(token)

    def untold(self) -> dict[Place, list[int]]:
        """The tokens of damaged messages that were met since the last time, by place."""
        for queue, key in list(islice(self._known, LOOKED_AT)):
            self._forget_gone(queue, key)
        untold, self._untold = self._untold, {}
        return untold

    def _forget_gone(self, queue: str, key: bytes) -> None:
        """Forget the damaged messages before the first message that is there: they have been removed."""
        first, known = self._store.first(queue, key), self._known.pop((queue, key))
        while known and (first is None or next(iter(known)) < first):
            del known[next(iter(known))]
        if known:
            self._known[queue, key] = known  # behind the others, whose turn it is
        else:
            self._passed.pop((queue, key), None)
