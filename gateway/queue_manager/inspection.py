"""Shows queues and messages without getting them, and lets an operator put, remove and clear.

Used by the command line, on a stopped queue manager, and by the administration API, on a running one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from gateway.errors import MQError, StoreCorrupt
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.ports.batch import MQMD_LENGTH, Failure, Outcome, Unit
from gateway.ports.inspection import PAGE_BYTES, QueueRow, Seen
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.stored_messages import as_got, complete
from gateway.queue_manager.commands.display_rows import describe
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.objects import clearing
from gateway.queue_manager.objects.catalogue import Definition
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.store.unit import LaneTakes, Message, StoreUnit

RUNBOOK = "docs/runbooks/damaged-frame.md"
LISTED = ("DESCR", "GET", "PUT", "RNAME", "TARGET", "USAGE")
"""The attributes that a list shows of queues: there may be thousands, each with some fifty attributes."""
_NO_MESSAGES = {"QALIAS": "an alias", "QREMOTE": "a remote queue", "QMODEL": "a model"}
KINDS = {"QLOCAL": "local", "QALIAS": "alias", "QREMOTE": "remote", "QMODEL": "model"}


class Inspection:
    """Implements `ports.inspection.Inspects`."""

    def __init__(self, queue_manager: EmbeddedQueueManager) -> None:
        self._queue_manager = queue_manager
        self._core = queue_manager.core
        self._put_times: dict[str, tuple[int, float]] = {}
        """The token and put time of each queue's first message: its frame is read once for each message."""

    def close(self) -> None:
        """Nothing to close."""

    @staticmethod
    def token(text: str) -> int:
        """The number of a message in its store."""
        return int(text)

    def queues(self, pattern: str = "*") -> Iterator[QueueRow]:
        """Every queue whose name matches `pattern`, by name."""
        with self._core.entered():
            found = [one for one in self._definitions() if fnmatch.fnmatchcase(one.name, pattern)]
        for definition in sorted(found, key=lambda one: one.name):
            with self._core.entered():
                yield self._row(definition, LISTED)

    def queue(self, name: str) -> QueueRow:
        """One queue. Raises MQError 2085 if there is none."""
        with self._core.entered():
            meant = ""
            for definition in self._definitions():
                if definition.name == name:
                    return self._row(definition)
                if definition.name.upper() == name.upper():
                    meant = f"; {definition.name!r} is one: capitals and small letters are different names"
        raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"there is no queue {name!r}{meant}")

    def oldest(self, name: str) -> float | None:
        """When the oldest message of a local queue was put; None if there is no message or no such queue."""
        with self._core.entered():
            local = self._core.queues.get(name)
            return None if local is None else self._oldest(local)

    def _definitions(self) -> Iterator[Definition]:
        for kind in KINDS:
            yield from self._core.catalogue.matching((kind,))

    def _row(self, definition: Definition, only: tuple[str, ...] | None = None) -> QueueRow:
        attributes = describe(self._core, definition, only)
        local = self._core.queues.get(definition.name)
        if definition.kind != "QLOCAL" or local is None:
            return QueueRow(definition.name, KINDS[definition.kind], None, None, None, attributes)
        depth = self._core.depth(local)
        return QueueRow(definition.name, "local", depth, local.max_depth, self._oldest(local), attributes)

    def _oldest(self, local: LocalQueue) -> float | None:
        token = self._core.store.first(local.name, b"")
        known, put_time = self._put_times.get(local.name, (None, 0.0))
        if token is None:
            self._put_times.pop(local.name, None)
            return None
        if token != known:
            try:
                put_time = self._core.store.fetch(local.name, b"", 1, None, locked=True)[0].put_time / 1e6
            except StoreCorrupt:
                put_time = 0.0
            self._put_times[local.name] = token, put_time
        return put_time or None

    def _local(self, name: str) -> LocalQueue:
        local = self._core.queues.get(name)
        if local is not None:
            return local
        other = self._core.catalogue.get("QUEUE", name)
        if other is None:
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"there is no local queue {name!r}")
        base = other.text("TARGET") if other.kind == "QALIAS" else ""
        where = f": those put there are on {base!r}" if base else ""
        text = f"{name!r} is {_NO_MESSAGES[other.kind]}, and has no messages of its own{where}"
        raise MQError(mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, text)

    def _gettable(self, name: str) -> LocalQueue:
        """A local queue from which messages may be got and browsed: GET(DISABLED) holds for operators too, until they
        alter it. CLEAR QLOCAL gets nothing, and is not refused for it."""
        local = self._local(name)
        if local.get_inhibited:
            raise MQError(mq.MQRC_GET_INHIBITED, f"ALTER QLOCAL('{name}') GET(ENABLED) allows it")
        return local

    def browse(self, name: str, limit: int = 50, after: int | None = None) -> list[Seen]:
        """The next messages in the order of delivery, without removing or locking them. State queues are browsed one
        key after the other: they may hold a million messages."""
        with self._core.entered():
            local = self._gettable(name)
            found, room, some = list[Seen](), PAGE_BYTES, 1
            while room > 0 and len(found) < limit:
                page = self._page(local, b"", min(some, limit - len(found)), after)
                found += page
                if len(page) < some:
                    break
                after = page[-1].token
                room -= sum(len(seen.data) for seen in page)
                some = max(1, min(4 * some, room * len(found) // (PAGE_BYTES - room or 1)))
            if not found and after is None:
                found = list(islice(self._keyed(local), limit))
            return found

    def _page(self, local: LocalQueue, key: bytes, limit: int, after: int | None) -> list[Seen]:
        """The next messages; damaged ones are shown as such."""
        store, damaged = self._core.store, dict[int, str]()
        try:
            messages = store.fetch(local.name, key, limit, after, locked=True)
        except StoreCorrupt:
            messages, damaged = store.fetch_around_damage(local.name, key, limit, after)
        return [
            _damaged(one.token, damaged[one.token]) if one.token in damaged else self._seen(local, one)
            for one in messages
        ]

    def _keyed(self, local: LocalQueue) -> Iterator[Seen]:
        """The messages of one key after the other, until there are enough bytes of them."""
        room, store = PAGE_BYTES, self._core.store
        for key in store.keys(local.name):
            after = None
            while page := self._page(local, key, 1, after):
                yield page[0]
                after = page[0].token
                room -= len(page[0].md) + len(page[0].data)
                if room <= 0:
                    return

    def _seen(self, local: LocalQueue, message: Message) -> Seen:
        expires = message.expiry / 1e6
        md = as_got(message, self._core.name, self._core.now())
        data = message.head[MQMD_LENGTH:] + message.body
        locked = message.token in local.locked
        return Seen(message.token, md, data, message.put_time / 1e6, message.backout, expires, locked)

    def message(self, name: str, token: int) -> Seen:
        """One message. Raises MQError 2033 if it is no longer on the queue."""
        with self._core.entered(), _told_of_damage():
            local = self._gettable(name)
            message = self._core.store.read(local.name, b"", token)
            if message is None:
                raise MQError(mq.MQRC_NO_MSG_AVAILABLE, "the message is no longer on the queue")
            return self._seen(local, message)

    def prepare_find(self, name: str) -> bool:
        """Do a part of the work that the first `find` by MsgId needs; returns whether all of it is done."""
        with self._core.entered(), _told_of_damage():
            return self._core.store.prepare_find(self._gettable(name).name, b"", "msg_id")

    def find(self, name: str, *, msg_id: bytes | None = None, correl_id: bytes | None = None) -> list[Seen]:
        """Find messages by identifier."""
        with self._core.entered(), _told_of_damage():
            local = self._gettable(name)
            found = self._core.store.find(local.name, b"", msg_id, correl_id)
            return [self._seen(local, message) for message in found]

    def remove(self, name: str, tokens: list[int]) -> int:
        """Get messages, except those in a unit of work, and confirm the delivery of those that ask for it (MQMD.Report:
        MQRO_COD is for whatever deletes the message by getting it). Returns how many were got. Damaged messages are
        removed too, and nobody is told what they were."""
        with self._core.entered():
            local = self._gettable(name)
            free = [token for token in tokens if token not in local.locked]
            messages = [one for token in free if (one := self._read(local, token)) is not None]
            unit = StoreUnit(takes=[LaneTakes(local.name, b"", [one.token for one in messages])])
            for one in messages:
                if one.head and one.head[descriptor.REPORT] != descriptor.NO_REPORT:
                    md, data = as_got(one, self._core.name, self._core.now()), one.head[MQMD_LENGTH:] + one.body
                    self._queue_manager.placer.confirm_delivery(md, data, unit)
            self._core.commit(unit)
            return len(messages)

    def _read(self, local: LocalQueue, token: int, key: bytes = b"") -> Message | None:
        try:
            return self._core.store.read(local.name, key, token)
        except StoreCorrupt:
            return Message(token, b"", b"", 0, 0, 0)

    def clear(self, name: str) -> Iterator[int]:
        """Remove every message that is in no unit of work, some at a time; yields how many each time. They are not
        read, and nobody is told: CLEAR QLOCAL delivers nothing."""
        with self._core.entered():
            local = self._local(name)
            pieces = clearing.pieces(self._core, local.name)
        while True:
            with self._core.entered():
                tokens = next(pieces, None)
                if tokens is None:
                    return
                some = [token for token in tokens if token not in local.locked]
                before = self._core.depth(local)
                self._core.commit(StoreUnit(takes=[LaneTakes(local.name, b"", some)]))
                removed = before - self._core.depth(local)
            yield removed

    def commit(self, unit: Unit) -> Outcome:
        """Commit a unit of the batch port and wait for it. On a full disk a unit that puts messages and takes none is
        refused."""
        full = self._core.store.storage_full
        if full is not None and unit.puts and not (unit.takes or unit.moves):
            return Outcome([Failure(-1, mq.MQRC_STORAGE_MEDIUM_FULL, f"{full.where}: {full.why}")])
        outcomes: list[Outcome] = []
        with self._core.entered():
            self._core.committer.settle()
            gone = self._gone(unit)
            if gone is not None:
                return Outcome([Failure(-1, gone.reason, str(gone))])
            self._queue_manager.submit(unit, lambda _unit, outcome: outcomes.append(outcome))
            while not outcomes:
                self._core.committer.run()
                self._core.committer.settle()
        return outcomes[0]

    def _gone(self, unit: Unit) -> MQError | None:
        """Why a message that is to be taken cannot be had: a program may have got it since it was looked at, and what
        is put elsewhere would exist twice. None if all can be had."""
        for takes in unit.takes:
            local = self._gettable(takes.queue)
            for token in takes.tokens:
                if isinstance(token, int) and self._read(local, token, takes.key) is None:
                    return MQError(mq.MQRC_NO_MSG_AVAILABLE, "the message is no longer on the queue")
                if token in local.locked:
                    return MQError(2042, "somebody has it in a unit of work")
        return None

    def msg_id_of(self, token: object, head: bytes) -> str:
        """The MsgId of a message that was put with `head`."""
        if any(head[mqmd.MSG_ID]) or not isinstance(token, int):
            return hex_of(head, mqmd.MSG_ID)
        return hex_of(complete(Message(token, head, b"", 0, 0, 0), self._core.name), mqmd.MSG_ID)


@contextmanager
def _told_of_damage() -> Iterator[None]:
    """Raise what MQGET would raise for damage that is met within."""
    try:
        yield
    except StoreCorrupt as error:
        raise MQError(mq.MQRC_OBJECT_DAMAGED, f"{error}: {RUNBOOK}") from error


def _damaged(token: int, why: str) -> Seen:
    """Stands for a message of which nothing can be read; nobody gets it."""
    return Seen(token, mqmd.build(), b"", 0, 0, 0, locked=True, damaged=f"damaged: {why}: {RUNBOOK}")


def hex_of(md: bytes, where: slice) -> str:
    """An identifier in a descriptor, as hexadecimal digits."""
    return md[where].hex().upper()


def correl_id_of(md: bytes) -> str:
    """The CorrelId in a descriptor, as hexadecimal digits."""
    return hex_of(md, mqmd.CORREL_ID)
