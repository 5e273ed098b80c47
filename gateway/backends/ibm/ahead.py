"""Messages of one queue that are read ahead, between the thread that reads and the one that hands them out. Pure.

What is read is marked for MARKINT (`watcher`), so that no other gateway gets it. A message whose mark may have run out
is not handed out before this gateway has marked it again; until then it keeps its place, and nothing behind it with the
same key is handed out. So after a stall:

* nothing is lost: a message is on its queue until the unit of work that takes it is committed. What is dropped here has
  gone from its queue, or another gateway has marked it; should that one not take it, the cursor finds it again;
* nothing is doubled: the mark that counts is younger than `lifetime`, as before the stall. And what was handed out is
  known until its unit of work has ended, however long that takes and whatever becomes of marks: the next claim of its
  key says that it has. What was being read before that claim could still be the message that was taken; so it is known
  until the next look at the queue begins, which cannot see any more what was taken;
* nothing changes places: the messages of one key are handed out as they were read. One that the cursor meets again
  while it waits, because its mark has run out, has been marked again by that, and stays where it is.

A message goes behind younger ones only if it was another gateway's, or was backed out: it comes when the cursor comes
to it.

Where the subscriptions of a gateway share a queue, each by its key, one that is held back must not hold up the others:
beyond half of the room a key gets only its share, and a key that has nothing waiting is always read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gateway.backends.ibm.gatherer import same_group
from gateway.backends.ibm.structures import correl_id_of
from gateway.ports.batch import Stored, Token

AHEAD, AHEAD_BYTES = 400, 8 << 20
"""How many messages are read ahead, and how many bytes; then the thread waits until some of them are asked for."""
FEWEST_AHEAD = 20
"""If they are asked for so slowly that marks run out, fewer are read ahead, down to this many."""


@dataclass(slots=True, eq=False)
class Read:
    """A message that was read and has not been handed out yet."""

    stored: Stored
    marked: float
    """When its mark, or that of the group it belongs to, was made at the earliest. At the latest it was made at
    `answered`: the gateway may have stood still in between."""
    answered: float


class Ahead:
    """Messages read and not handed out yet. Filled by one thread, emptied by another."""

    def __init__(self, arrived: Callable[[], None], *, shares: bool = False) -> None:
        """`arrived` is called in the filling thread when there is something after there was nothing. `shares`: that
        thread reads by key, and asks before each message which key has room (`with_room`)."""
        self._arrived = arrived
        self._shares = shares
        self._lock = threading.Lock()
        self._messages: dict[Token, Read] = {}
        self._known: set[Token] = set()
        """Tokens of `_messages`, of those handed out last, which may still be on the queue, and of `_ended`."""
        self._handed_out: dict[bytes, list[Token]] = {}
        self._ended: set[Token] = set()
        """Tokens of messages whose unit of work has ended since the filling thread began to look at the queue."""
        self._left: dict[bytes, dict[Token, Read]] = {}
        """What was read and nobody claims now, by its key in 24 bytes. It keeps its order for whoever claims it again,
        and is marked again only then, because another gateway may want it."""
        self._keys: set[bytes] = set()
        """Keys that were ever claimed."""
        self._bytes = 0
        self._of_key: dict[bytes, list[int]] = {}
        """Where keys have shares: how many of `_messages`, and how many bytes, belong to each key in 24 bytes."""
        self._most = AHEAD
        self._empty = True
        """Whether the last claim got nothing: then `arrived` is called at the next message."""
        self.room = threading.Event()
        """Set when the filling thread has something to do."""
        self.lifetime = float("inf")
        """Seconds for which a message may be handed out after it was marked."""
        self.lapsed = False
        """Whether messages were asked for whose marks may have run out: they have to be marked again."""

    # The filling thread

    def looking(self) -> None:
        """A look at the queue begins: what is added until the next call was read in it."""
        with self._lock:
            self._known -= self._ended
            self._ended.clear()

    def add(self, stored: Stored, marked: float, *others: Stored, answered: float = 0.0) -> None:
        """Add a message that was read, or all messages of a group. One that waits here already is marked again; one
        whose unit of work may be in progress is skipped."""
        with self._lock:
            if stored.token in self._known:
                self._renew(stored.token, marked, answered)
                return
            left = self._left.get(correl_id_of(stored.md))
            for one in (stored, *others):
                if left is not None:
                    self._known.add(one.token)
                    left[one.token] = Read(one, marked, max(marked, answered))
                    continue
                self._known.add(one.token)
                self._messages[one.token] = Read(one, marked, max(marked, answered))
                self._count(one, 1)
            if left is not None:
                return
            if self._full(1) and not self._shares:
                self._drop_other_keys()
            self._make_room()
            tell, self._empty = self._empty, False
        if tell:
            self._arrived()

    def with_room(self, keys: Iterable[bytes]) -> bytes:
        """Returns the first of these keys of which more may be read; empty if there is none, and `room` says when that
        may change."""
        with self._lock:
            found = next((key for key in keys if self._has_room(key)), b"")
            if found:
                self.room.set()
            elif not self.lapsed:
                self.room.clear()
        return found

    def due(self, now: float) -> list[Read]:
        """Returns the messages that have to be marked again before they may be handed out, in order; of a group the
        first."""
        found: list[Read] = []
        with self._lock:
            for one in self._messages.values():
                if now - one.marked <= self.lifetime:
                    continue
                if not (found and same_group(found[-1].stored.token, one.stored.token)):
                    found.append(one)
        return found

    def renewed(self, token: Token, marked: float, answered: float = 0.0) -> None:
        """A message has been marked again, with all of its group."""
        with self._lock:
            self._renew(token, marked, answered)

    def met(self, msg_id: bytes, marked: float, answered: float) -> None:
        """The cursor has come to the first segment of a message from a transmission queue. A message that waits here
        and begins with it is thereby marked again, before its other segments are reached."""
        with self._lock:
            for token in self._messages:
                if isinstance(token, bytes) and len(token) > len(msg_id) and token.startswith(msg_id):
                    self._renew(token, marked, answered)
                    return

    def _renew(self, token: Token, marked: float, answered: float) -> None:
        for one in self._with_its_group(token):
            one.marked = max(one.marked, marked)
            one.answered = max(one.marked, one.answered, answered)

    def _with_its_group(self, token: Token) -> list[Read]:
        """Returns a message that waits here with all of its group; empty if it does not wait here."""
        if token not in self._messages:
            return []
        if not same_group(token, token):
            return [self._messages[token]]
        return [one for one in self._messages.values() if same_group(token, one.stored.token)]

    def drop(self, token: Token) -> None:
        """Forget a message that is no longer this gateway's, and its group."""
        with self._lock:
            for one in self._with_its_group(token):
                del self._messages[one.stored.token]
                self._known.discard(one.stored.token)
                self._count(one.stored, -1)

    def in_time(self) -> None:
        """What was due is marked again, or dropped: those who were refused it may ask again."""
        with self._lock:
            self.lapsed = False
            self._make_room()
            tell, self._empty = self._empty, False
        if tell:
            self._arrived()

    def forget(self) -> None:
        """The connection is lost and the marks with it: forget what was not claimed, which other gateways may have
        now."""
        with self._lock:
            self._known.difference_update(self._messages, *self._left.values())
            self._messages.clear()
            self._left = {key: {} for key in self._left}
            self._bytes = 0
            self._of_key.clear()
            self._empty = True
            self.lapsed = False
            self.room.set()

    # The one that hands them out

    def looked(self) -> None:
        """The queue was read directly: call `arrived` at the next message."""
        with self._lock:
            self._empty = True

    def leave(self, key: bytes) -> None:
        """Nobody claims this key until somebody does again: what is read ahead of it takes no room from others."""
        with self._lock:
            self._keys.discard(key)
            padded = key.ljust(24, b"\0")
            left = self._left.setdefault(padded, {})
            left.update({token: one for token, one in self._messages.items() if correl_id_of(one.stored.md) == padded})
            for token, one in left.items():
                if self._messages.pop(token, None) is not None:
                    self._count(one.stored, -1)
            if self._shares or not self._full(2):
                self.room.set()

    def _come_back(self, padded: bytes) -> None:
        left = self._left.pop(padded)
        self._messages = {**left, **self._messages}
        for one in left.values():
            self._count(one.stored, 1)

    def take(self, key: bytes, limit: int, now: float) -> list[Stored]:
        """Returns the next messages, of a key if one is given; more than `limit` only for the rest of a group. The
        units of work of those with the same key that were handed out before have ended: they are taken, or are to come
        again."""
        with self._lock:
            self._keys.add(key)
            self._ended.update(self._handed_out.pop(key, ()))
            page: list[Stored] = []
            padded = key.ljust(24, b"\0") if key else b""
            if padded in self._left:
                self._come_back(padded)
            for token, one in self._messages.items():
                if len(page) >= limit and not same_group(page[-1].token, token):
                    break
                if key and correl_id_of(one.stored.md) != padded:
                    continue
                if now - one.marked > self.lifetime:
                    self._lapse()
                    break
                page.append(one.stored)
            for stored in page:
                del self._messages[stored.token]
                self._count(stored, -1)
            if page and (padded not in self._of_key if self._shares else not self._messages):
                self._most = min(AHEAD, 2 * self._most)
            if page:
                self._handed_out[key] = [stored.token for stored in page]
            else:
                self._empty = True
            if self.lapsed or not self._full(2) or (page and self._shares):
                self.room.set()
        return page

    def _lapse(self) -> None:
        if not self.lapsed:
            self._most = max(FEWEST_AHEAD, self._most // 2)
        self.lapsed = True

    def _full(self, part: int) -> bool:
        return len(self._messages) >= self._most // part or self._bytes >= AHEAD_BYTES // part

    def _make_room(self) -> None:
        if self._full(1) and not self.lapsed and not self._shares:
            self.room.clear()

    def _count(self, stored: Stored, by: int) -> None:
        """Count a message added or removed."""
        length = by * len(stored.data)
        self._bytes += length
        if not self._shares:
            return
        padded = correl_id_of(stored.md)
        waiting = self._of_key.setdefault(padded, [0, 0])
        waiting[0] += by
        waiting[1] += length
        if not waiting[0]:
            del self._of_key[padded]

    def _has_room(self, key: bytes) -> bool:
        waiting = self._of_key.get(key.ljust(24, b"\0"))
        if waiting is None or not self._full(2):
            return True
        share = 2 * max(1, len(self._keys))
        return not self._full(1) and waiting[0] < self._most // share and waiting[1] < AHEAD_BYTES // share

    def _drop_other_keys(self) -> None:
        """Forget messages with keys that are not claimed here: on a queue shared by key they would fill the room."""
        if not self._keys or b"" in self._keys:
            return
        wanted = {key.ljust(24, b"\0") for key in self._keys}
        others = [token for token, one in self._messages.items() if correl_id_of(one.stored.md) not in wanted]
        self._known.difference_update(others)
        for token in others:
            self._count(self._messages.pop(token).stored, -1)
