"""Which of a gateway's keys may have something on a queue that also holds messages for the subscriptions of other
gateways.

Those messages are left alone: no other gateway can see what this one marks, so a message for another gateway's
subscription would reach it only when that mark has run out, or the next one has, and behind younger ones. A cursor that
marks nothing stands at the end of the queue and is told of arrivals; messages are read, and marked, by their key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from time import monotonic

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.structures import correl_id_of, get_options, match_md
from gateway.errors import MQError
from gateway.mq import constants as mq

_AGAIN_SECONDS, _KEYS_A_SECOND = 1.0, 50
"""After how many seconds each key is looked at again, and how many keys in a second if there are many: the cursor does
not see a backout, a higher priority, or a mark of another gateway that has run out."""
_HEADS = 100
"""How many arrivals are looked at before messages are read."""
_LOOK = mq.MQGMO_BROWSE_NEXT | mq.MQGMO_ACCEPT_TRUNCATED_MSG | mq.MQGMO_FAIL_IF_QUIESCING


class SharedByKey:
    """The state of one connection. Keys may be added or removed."""

    def __init__(
        self, connection: Connection, queue: str, keys: Callable[[], Collection[bytes]], milliseconds: int,
        with_room: Callable[[Iterable[bytes]], bytes],
    ) -> None:  # fmt: skip
        """`milliseconds`: the longest wait; `with_room`: returns the first of some keys of which more may be read."""
        self._session = connection.session
        self._handle = connection.open_browse(queue)
        self._keys = keys
        self._with_room = with_room
        self._wait = get_options(_LOOK | mq.MQGMO_WAIT, mq.MQMO_NONE, milliseconds)
        self._at_once = get_options(_LOOK | mq.MQGMO_NO_WAIT, mq.MQMO_NONE)
        self._due: dict[bytes, None] = {}
        self._all_due = float("-inf")

    def next_key(self) -> bytes:
        """Returns a key that may have something and may be read. Empty if there is none after a wait, or if only keys
        that have had their share have something; in that case it does not wait."""
        keys = self._keys()
        if monotonic() >= self._all_due:
            self._all_due = monotonic() + max(_AGAIN_SECONDS, len(keys) / _KEYS_A_SECOND)
            self._due.update(dict.fromkeys(keys))
        elif not self._due:
            self._look(self._wait)
            keys = self._keys()
        for gone in self._due.keys() - keys:
            del self._due[gone]
        if not self._due:
            return b""
        key = self._with_room(self._due)
        if not key:
            self._look(self._at_once)
            key = self._with_room(self._due)
        return key

    def has_more(self, key: bytes) -> None:
        """A key may have more; the others have their turns first."""
        self._due.pop(key, None)
        self._due[key] = None

    def has_no_more(self, key: bytes) -> None:
        """All messages of a key that could be seen have been read."""
        self._due.pop(key, None)

    def _look(self, options: Callable[[], bytes]) -> None:
        """Move the cursor over what has arrived; first, with these options, perhaps wait for it."""
        own = {key.ljust(24, b"\0"): key for key in self._keys()}
        for _ in range(_HEADS):
            answer = self._session.mqget(self._session.handle, self._handle, match_md(), options(), 0)
            if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
                return
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(int(answer[-1]), "MQGET")
            options = self._at_once
            found = own.get(correl_id_of(answer[1]))
            if found is not None:
                self._due[found] = None
