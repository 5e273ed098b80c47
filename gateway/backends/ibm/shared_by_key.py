"""Which of a gateway's keys may have something on a queue where subscriptions of other gateways have messages, too.

Those are left alone: what one gateway marks no other one can see, so that a message of another one's subscription
would come to that when its mark has run out, or when the next one has, and behind younger ones. A cursor that marks
nothing stands at the end of the queue and is told of arrivals; messages are read, and marked, by their key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from time import monotonic

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.structures import correl_id_of, get_options, match_md
from gateway.errors import MQError
from gateway.mq import constants as mq

_AGAIN_SECONDS, _KEYS_A_SECOND = 1.0, 50
"""After so long each key is looked at again, of many so many in a second: a backout, a higher priority, or a mark of
another gateway that has run out, is not seen by the cursor."""
_HEADS = 100
"""So many arrivals are looked at before messages are read."""
_LOOK = mq.MQGMO_BROWSE_NEXT | mq.MQGMO_ACCEPT_TRUNCATED_MSG | mq.MQGMO_FAIL_IF_QUIESCING


class SharedByKey:
    """On one connection. The keys may become more or fewer."""

    def __init__(
        self, connection: Connection, queue: str, keys: Callable[[], Collection[bytes]], milliseconds: int,
        with_room: Callable[[Iterable[bytes]], bytes],
    ) -> None:  # fmt: skip
        """`milliseconds`: the longest wait; `with_room`: the first of some keys of which more may be read."""
        self._session = connection.session
        self._handle = connection.open_browse(queue)
        self._keys = keys
        self._with_room = with_room
        self._wait = get_options(_LOOK | mq.MQGMO_WAIT, mq.MQMO_NONE, milliseconds)
        self._at_once = get_options(_LOOK | mq.MQGMO_NO_WAIT, mq.MQMO_NONE)
        self._due: dict[bytes, None] = {}
        self._all_due = float("-inf")

    def next_key(self) -> bytes:
        """One that may have something, and may be read; empty: none has, after a wait, or those that have had more than
        their share, and then nothing is waited for here."""
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
        """Perhaps; the others have their turns first."""
        self._due.pop(key, None)
        self._due[key] = None

    def has_no_more(self, key: bytes) -> None:
        """All its messages that could be seen have been read."""
        self._due.pop(key, None)

    def _look(self, options: Callable[[], bytes]) -> None:
        """Move the cursor over what has arrived, and first, with these options, perhaps wait for it."""
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
