"""Restoring salvaged messages into a queue manager: each once, by its message identifier.

How much of a file has been restored is noted in the same frame as the messages: a restoration that was interrupted goes
on where it was, and one that has ended does nothing when it is run again. Messages that are on their queue already are
not put a second time, so that the rest of a damaged journal can be added to one that went on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_128

from gateway.errors import StoreError
from gateway.mq.mqmd import LENGTH as HEAD_LENGTH
from gateway.ports.state_queues import OUT, PREFIX, STAGED
from gateway.queue_manager.batch.stored_messages import complete
from gateway.queue_manager.core import OBJECT_STATE, Core
from gateway.queue_manager.descriptor import MSG_ID
from gateway.queue_manager.journal import failpoint
from gateway.queue_manager.journal.layout import MAX_KEY
from gateway.queue_manager.objects.catalogue import decode_definition
from gateway.queue_manager.store.unit import ID_LENGTH, LanePuts, Message, StoreUnit

DONE = b"restored/"
"""Prefix of the state records that say how far a file has been restored."""
BATCH, BATCH_BYTES = 500, 4 << 20
UNNAMED = "?"
"""The queue of a message whose queue is not known, because the frame that named it is lost. A segment names each of its
queues once, in the first frame that uses it; other segments do not."""
FOR_UNNAMED = "RESTORED.UNNAMED"
"""The queue for such messages if none is given, so that none stays in the file: their topic may be in their headers."""
_SEVERAL = frozenset({STAGED, OUT})
"""State queues that hold several messages for a key; the others have one record for each key."""

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Sum:
    """What a restoration has done."""

    messages: int = 0
    present: int = 0
    """Messages that were on their queue already."""
    unnamed: int = 0
    """Restored messages whose queue is not known."""
    records: int = 0
    before: int = 0
    """Bytes of the file that an earlier run has restored."""
    queues: Counter[str] = field(default_factory=Counter)
    """Restored messages by queue."""


class Restoration:
    """Restores one file of `journal salvage` into a queue manager."""

    def __init__(self, core: Core, file: Path, define: Callable[[str], None], unnamed: str = "") -> None:
        """`unnamed`: the queue for messages whose own is not known; empty: one that `define` makes."""
        self._core = core
        self._file = file
        self._define = define
        self._unnamed = unnamed or FOR_UNNAMED
        self._total = file.stat().st_size
        self._key = DONE + _digest(file).encode()
        self.sum = Sum()

    def run(self, progress: Progress | None = None) -> Sum:
        """Restore what has not been restored yet; returns what was done. Raises StoreError or MQError."""
        queues, records = self._survey()
        self._check_queues(queues, records)
        self._restore_records(records)
        self._pass(self._key, lambda queue: queue != UNNAMED, progress)
        if UNNAMED in queues:
            if self._unnamed not in self._core.queues:
                self._define(self._unnamed)
            self._pass(self._key + b"?", lambda queue: queue == UNNAMED, progress)
        return self.sum

    def _pass(self, done: bytes, wanted: Callable[[str], bool], progress: Progress | None) -> None:
        """Restore the messages of some queues, from where the record `done` says that an earlier run was
        interrupted."""
        at = int(self._core.store.state().get(done, b"0"))
        self.sum.before = max(self.sum.before, at)
        unit, size = StoreUnit(), 0
        for line, end in self._lines(at):
            if wanted(line.get("queue", "")) and "queue" in line:
                size += self._add(unit, line)
                if len(unit.puts) >= BATCH or size >= BATCH_BYTES:
                    self._commit(unit, done, end)
                    unit, size = StoreUnit(), 0
            if progress is not None:
                progress(end, self._total)
        if at < self._total:
            self._commit(unit, done, self._total)

    def _lines(self, at: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
        """The lines of the file from an offset on, each with the offset of the next. Raises StoreError for a line that
        is damaged."""
        with self._file.open("rb") as file:
            file.seek(at)
            for line in file:
                at += len(line)
                try:
                    yield _checked(json.loads(line)), at
                except (ValueError, TypeError, KeyError, RecursionError) as error:
                    text = f"{self._file}, before byte {at}: not a line of `mqgate journal salvage`: {error}"
                    raise StoreError(text) from error

    def _survey(self) -> tuple[set[str], dict[bytes, bytes]]:
        """The queues of the file's messages, and its records."""
        queues: set[str] = set()
        records: dict[bytes, bytes] = {}
        for line, _ in self._lines():
            if "queue" in line:
                queues.add(line["queue"])
            elif "state" in line:
                records[bytes.fromhex(line["state"])] = bytes.fromhex(line["value"])
        return queues, records

    def _check_queues(self, queues: set[str], records: dict[bytes, bytes]) -> None:
        known = set(self._core.queues)
        for key, value in records.items():
            if key.startswith(OBJECT_STATE):
                try:
                    definition = decode_definition(value)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                    raise StoreError(
                        f"nothing was restored: the record {key!r} of {self._file} is no definition: {error}"
                    ) from error
                known |= {definition.name} if definition.kind == "QLOCAL" else set()
        wanted = queues - {UNNAMED} | ({self._unnamed} if UNNAMED in queues else set())
        missing = sorted(wanted - known - {FOR_UNNAMED})
        if missing:
            define = ", ".join(f"DEFINE QLOCAL({name})" for name in missing)
            raise StoreError(f"nothing was restored: queues are not defined here; run `mqgate mqsc` with {define}")

    def _restore_records(self, records: dict[bytes, bytes]) -> None:
        """Restore definitions and other records that do not exist here."""
        present = self._core.store.state()
        fresh = {key: value for key, value in records.items() if key not in present and not key.startswith(DONE)}
        self.sum.records = len(fresh)
        if fresh:
            self._core.commit(StoreUnit(state=dict(fresh)))

    def _add(self, unit: StoreUnit, line: dict[str, Any]) -> int:
        """Add a message to the unit, unless it is there already; returns the number of bytes added."""
        queue, key, msg_id = line["queue"], bytes.fromhex(line["key"]), bytes.fromhex(line["msg_id"])
        unnamed = queue == UNNAMED
        if unnamed:
            queue, key = self._unnamed, b""
        if self._is_there(queue, key, msg_id):
            self.sum.present += 1
            return 0
        head, body = bytes.fromhex(line["head"]), bytes.fromhex(line["body"])
        unit.puts.append(LanePuts(
            queue, key, line["priority"], heads=[head], bodies=[body], msg_ids=[msg_id],
            expiries=[line["expiry"]] if line["expiry"] else None, put_times=[line["put_time"]],
        ))  # fmt: skip
        self.sum.messages += 1
        self.sum.unnamed += unnamed
        self.sum.queues[queue] += 1
        return len(head) + len(body)

    def _is_there(self, queue: str, key: bytes, msg_id: bytes) -> bool:
        store = self._core.store
        if queue.startswith(PREFIX) and key and queue not in _SEVERAL:
            return store.depth(queue, key) > 0
        return any(True for _ in store.find(queue, key, msg_id, None))

    def _commit(self, unit: StoreUnit, done: bytes, at: int) -> None:
        """Put what was gathered, and note that the file has been restored up to here."""
        if failpoint.armed:
            failpoint.reach("restore.messages")
        unit.state[done] = b"%d" % at
        self._core.commit(unit)


def _checked(line: Any) -> dict[str, Any]:
    """A line as `line_of` makes it, or one of a record. Raises ValueError, TypeError or KeyError if it is damaged."""
    if not isinstance(line, dict):
        raise TypeError("it is no object")
    if "queue" in line:
        lengths = [len(bytes.fromhex(line[name])) for name in ("key", "msg_id", "head", "body")]
        numbers = [line[name] for name in ("priority", "put_time", "expiry")]
        fits = isinstance(line["queue"], str) and all(type(one) is int and 0 <= one < 1 << 63 for one in numbers)
        key, msg_id, head, _ = lengths
        if not fits or line["priority"] > 9 or key > MAX_KEY or msg_id != ID_LENGTH or head < HEAD_LENGTH:
            raise ValueError("it is no message")
    else:
        if len(bytes.fromhex(line["state"])) > MAX_KEY:
            raise ValueError("it is no record")
        bytes.fromhex(line["value"])
    return line


def _digest(file: Path) -> str:
    """A digest that tells a file from others."""
    digest = xxh3_128()
    with file.open("rb") as opened:
        for piece in iter(lambda: opened.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def line_of(queue: str, key: bytes, priority: int, message: Message, queue_manager: str) -> str:
    """A message as a line of the file."""
    return json.dumps({
        "queue": queue, "key": key.hex(), "priority": priority, "put_time": message.put_time,
        "expiry": message.expiry, "msg_id": complete(message, queue_manager)[MSG_ID].hex(),
        "head": message.head.hex(), "body": message.body.hex(),
    })  # fmt: skip
