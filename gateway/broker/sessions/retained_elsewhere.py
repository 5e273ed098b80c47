"""Retained messages of several gateways on the same state queues: one set, which each keeps in memory. Pure.

When a gateway retains, clears or lets a message expire, it tells the others in the same unit of work. They read the
record anew: what lies on the queue decides, so that all of them agree in the end, whoever was last. Before a new
subscription gets its retained messages, a message of the gateway to itself has come back: by then it has read what was
acknowledged to any publisher before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from itertools import islice
from math import inf
from typing import NamedTuple

from gateway.broker.context import Context
from gateway.broker.publish.retained import Retained
from gateway.errors import MQError
from gateway.ports.batch import Stored, Token
from gateway.ports.ownership import LONG_MESSAGES, Message
from gateway.ports.state_queues import RETAINED
from gateway.session.publication import Publication
from gateway.session.record import decode_publication, key_of

_LONG_TOPIC = 8192
"""Gateways of earlier releases read short messages only: they learn of what is retained on a longer topic at their next
start."""
_AT_ONCE = 100
"""Records that are read with one request to the queue manager."""
_SEVERAL = 4
"""Records of one topic that are read with one request: gateways that retain on it at the same moment leave one each."""
_AGAIN_SECONDS, _RETRY_SECONDS = 0.05, 1.0


class _Record(NamedTuple):
    """What lies on the queue for a topic."""

    topic: str
    last: Stored | None
    superseded: list[Token]
    """Records that another gateway wrote at the same moment and that lie before the last one."""


class RetainedElsewhere:
    """Tells the other gateways what is retained here, and reads what they have retained."""

    def __init__(
        self, context: Context, retained: Retained, instance: str, peers: Callable[[], Collection[str]],
        reads: Callable[[str], int], write: Callable[[str, Message], None],
    ) -> None:  # fmt: skip
        """`reads`: what another gateway reads of what is put for it."""
        self.context = context
        self.retained = retained
        retained.on_change, retained.is_others = self._changed_here, self._is_others
        retained.has_others = lambda: bool(self.peers())
        self.instance = instance
        self.peers = peers
        self.reads = reads
        self.write = write
        self._stale: dict[str, int] = {}
        """Topics whose record has to be read, in this order, each with the number of the look that asked for it."""
        self._looks = 0
        self._reading: dict[str, int] = {}
        """The topics that are being read now."""
        self._changed: set[str] = set()
        """The topics among them that have been retained or cleared here in the meantime."""
        self._number = 0
        self._waiting: dict[int, Callable[[], None]] = {}
        """Calls that wait until this gateway's message to itself has come back."""
        self._then: deque[tuple[int, Callable[[], None]]] = deque()
        """Calls that wait until everything up to a look has been read."""

    # -- what happens here --

    def _changed_here(self, topic: str) -> None:
        """Tell the others that a topic is retained or cleared here with the open batch."""
        if topic in self._reading:
            self._changed.add(topic)
        peers = self.peers()
        is_long = bool(peers) and len(topic.encode()) > _LONG_TOPIC
        for peer in peers:
            if not is_long or self.reads(peer) >= LONG_MESSAGES:
                self.write(peer, {"kind": "retained", "topic": topic})

    def _is_others(self, topic: str) -> bool:
        """Whether another gateway may have put something new in place of a message that has expired here: then the
        record is read, and removed only if it is the one that has expired."""
        if not self.peers():
            return False
        self._look(topic)
        return True

    def when_current(self, call: Callable[[], None]) -> None:
        """Make a call when the open batch is committed and what others had retained before is known here."""
        if not self.peers():
            self.context.batch.after.append(call)
            return
        self._number += 1
        self._waiting[self._number] = call
        self.write(self.instance, {"kind": "current", "number": self._number})

    # -- messages --

    def on_message(self, message: Message) -> None:
        """Take the message that another gateway has retained or cleared something, or a message of this gateway to
        itself."""
        if message["kind"] == "retained":
            self._look(message["topic"])
        elif message["kind"] == "current" and message["from"] == self.instance:
            self._came_back(self._waiting.pop(message["number"], None))

    def _came_back(self, call: Callable[[], None] | None) -> None:
        if call is None:
            return
        self._then.append((self._looks, call))
        self._go_on()

    # -- reading --

    def _look(self, topic: str) -> None:
        self._note(topic)
        self._read()

    def _note(self, topic: str) -> None:
        self._looks += 1
        self._stale.setdefault(topic, self._looks)

    def _read(self) -> None:
        if self._reading or not self._stale:
            return
        self._reading = topics = dict(islice(self._stale.items(), _AT_ONCE))
        for topic in topics:
            del self._stale[topic]
        # a commit that is under way may have returned when the answer comes, and what was read is older all the same
        self._changed = set(filter(self._is_under_way, topics))
        self.context.ask(lambda: [self._record(topic) for topic in topics], self._found)

    def _record(self, topic: str) -> _Record:
        fetch, key = self.context.queue_manager.fetch, key_of(topic)
        rows = page = fetch(RETAINED, key, _SEVERAL)
        while len(page) == _SEVERAL:
            page = fetch(RETAINED, key, _SEVERAL, page[-1].token)
            rows = rows + page
        return _Record(topic, rows[-1] if rows else None, [row.token for row in rows[:-1]])

    def _found(self, found: list[_Record] | MQError) -> None:
        topics, self._reading = self._reading, {}
        if isinstance(found, MQError):  # it is away for the moment
            self._stale = topics | {topic: look for topic, look in self._stale.items() if topic not in topics}
            self.context.scheduler.later(_RETRY_SECONDS, self._read)
            return
        again = {topic for topic in topics if topic in self._changed or self._is_under_way(topic)}
        for record in found:
            if record.topic not in again:
                self.context.set_aside.run("retained", record.topic, lambda record=record: self._know(record))  # type: ignore[misc]
        for topic in again:
            self._note(topic)
        if again:
            self.context.scheduler.later(_AGAIN_SECONDS, self._read)
        else:
            self._read()
        self._go_on()

    def _is_under_way(self, topic: str) -> bool:
        """Whether a topic is being retained or cleared here."""
        context, lane = self.context, (RETAINED, key_of(topic))
        batches = [context.batch, *context.attempts, *([context.running] if context.committing else [])]
        return any(lane in batch.replaces for batch in batches)

    def _know(self, record: _Record) -> None:
        batch, key = self.context.batch, key_of(record.topic)
        for token in record.superseded:
            batch.take(RETAINED, key, token)
        if record.last is None:
            self.retained.forget(record.topic)
            return
        publication: Publication = decode_publication(record.last.data)[0]
        if publication.expired(self.context.now):
            self.retained.forget(record.topic)
            batch.take(RETAINED, key, record.last.token)
        else:
            self.retained.restore(publication)

    def _go_on(self) -> None:
        """Make the calls for which enough has been read. A topic that is looked at again because it is being retained
        here delays no call: what is known of it is newer than what was asked for."""
        oldest = min([*islice(self._reading.values(), 1), *islice(self._stale.values(), 1)], default=inf)
        while self._then and self._then[0][0] < oldest:
            _, call = self._then.popleft()
            self.context.set_aside.run("call", "retained messages of a subscription", call)
            self.context.close_full()
