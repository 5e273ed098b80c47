"""Discards expired messages in the background, in bounded steps, and sends the reports they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gateway.errors import MQError, StoreCorrupt
from gateway.mq import constants as mq
from gateway.ports.batch import MQMD_LENGTH
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.stored_messages import complete
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.placement import Placer
from gateway.queue_manager.objects.topics import Topics
from gateway.queue_manager.store.unit import LaneTakes, Message, StoreUnit

EVERY = 30.0
"""Seconds between searches."""
AT_ONCE, AT_ONCE_BYTES, AT_ONCE_SECONDS = 2000, 4 << 20, 0.01
"""The limits of one step, so that the reactor is not held up: messages examined, about how many bytes of them are read,
and about how long that may take. Where messages lie far from each other, as those of sessions do, much is read for
each."""


class Expirer:
    """Searches the queues on which messages with an expiry were put, and after a restart every queue with messages."""

    def __init__(self, core: Core, placer: Placer, topics: Topics) -> None:
        self._core = core
        self._topics = topics
        self._placer = placer
        self._after: int | None = None
        self._name = ""
        """The queue whose end the last step did not reach."""
        core.expiring.update({name: 0 for name in core.queues if core.store.depth(name)})
        self._timer: Callable[[], None] = core.scheduler.later(EVERY, self._search)

    def close(self) -> None:
        """Stop searching."""
        self._timer()

    def _search(self) -> None:
        core = self._core
        with core.entered():
            if core.closed:
                return
            now = int(core.now() * 1_000_000)
            due = self._name or next((name for name, earliest in core.expiring.items() if earliest <= now), "")
            self._end_subscriptions()
            more = bool(due) and self._step(due, now)
        self._timer = core.scheduler.later(0.05 if more else EVERY, self._search)

    def _step(self, name: str, now: int) -> bool:
        """Do one step through one queue; returns True if there is more to search."""
        core = self._core
        messages, whole = self._next_messages(name) if name in core.queues else ([], True)
        if self._after is None:
            core.expiring[name] = 1 << 62
        left = [one.expiry for one in messages if one.expiry > now]
        if whole:
            left += [max(expiry, now + int(EVERY * 1_000_000)) for expiry in self._in_units_of_work(name)]
        core.expiring[name] = min([core.expiring.get(name, 1 << 62), *left])
        expired = [one for one in messages if 0 < one.expiry <= now]
        if expired:
            self.discard(name, b"", expired)
        self._after, self._name = (None, "") if whole else (messages[-1].token, name)
        if whole and core.expiring[name] == 1 << 62:
            del core.expiring[name]
        return not whole or any(earliest <= now for earliest in core.expiring.values())

    def _next_messages(self, name: str) -> tuple[list[Message], bool]:
        """Returns the messages that are examined next, and whether they are the last. How many are read at a time
        follows from the size of those before them and from the time these took."""
        found, size, after = list[Message](), 0, self._after
        monotonic = self._core.scheduler.monotonic
        begun, spent = monotonic(), 0.0
        while len(found) < AT_ONCE and size < AT_ONCE_BYTES and spent < AT_ONCE_SECONDS:
            some = 1 if not found else min(4 * len(found), (AT_ONCE_BYTES - size) * len(found) // (size or 1) + 1)
            if spent:
                some = min(some, int((AT_ONCE_SECONDS - spent) * len(found) / spent) + 1)
            some = min(some, AT_ONCE - len(found))
            messages = self._readable(name, some, after)
            found += messages
            size += sum(len(one.head) + len(one.body) for one in messages)
            if len(messages) < some:
                return found, True
            after, spent = found[-1].token, monotonic() - begun
        return found, False

    def _readable(self, name: str, some: int, after: int | None) -> list[Message]:
        """Returns the next messages. It is not known when one that cannot be read expires, so it is returned without an
        expiry and stays."""
        core = self._core
        try:
            return core.store.fetch(name, b"", some, after)
        except StoreCorrupt:
            tokens = core.store.tokens_after(name, b"", after, some)
            return [core.damage.read(name, b"", token) or Message(token, b"", b"", 0, 0, 0) for token in tokens]

    def _in_units_of_work(self, name: str) -> Iterator[int]:
        """Yields when messages in units of work expire, which may be backed out; 0 stands for all that are not
        examined."""
        queue, size = self._core.queues.get(name), 0
        locked = () if queue is None else tuple(queue.locked)
        for count, token in enumerate(locked):
            if count >= AT_ONCE or size >= AT_ONCE_BYTES:
                yield 0
                return
            message = self._core.damage.read(name, b"", token)
            if message is not None:
                size += len(message.head) + len(message.body)
                if message.expiry:
                    yield message.expiry

    def _end_subscriptions(self) -> None:
        """Delete subscriptions whose SubExpiry has passed, with their managed queues, and retained publications that
        have expired."""
        core = self._core
        try:
            if retained := self._topics.retained_and_expired():
                self._topics.clear_retained(retained)
            for definition in self._topics.expired():
                if definition.number("DURABLE") == 1:
                    core.save((), (definition,))
                core.uninstall(definition)
        except MQError:  # the store cannot be written: the next search tries again
            return

    def discard(self, name: str, key: bytes, expired: list[Message]) -> None:
        """Remove expired messages, and report those that ask for it."""
        unit = StoreUnit(takes=[LaneTakes(name, key, [one.token for one in expired])])
        for one in expired:
            if descriptor.integer(one.head, "report") & mq.MQRO_EXPIRATION:
                md = complete(one, self._core.name)
                self._placer.report(md, one.head[MQMD_LENGTH:] + one.body, mq.MQFB_EXPIRATION, unit)
        try:
            self._core.commit(unit)
        except MQError:  # the store cannot be written: the next search finds them again
            return
