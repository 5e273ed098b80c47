"""The journal's store as the queue manager asks for it: `storage.MessageStore` over `journal.store.Store`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.queue_manager.journal.prepared import Prepared, StoreOptions
from gateway.queue_manager.journal.store import Store
from gateway.queue_manager.store.place import NUMBER_MASK, PRIORITIES
from gateway.queue_manager.store.unit import Message, StoreUnit

SCAN = 256


class JournalStore:
    """See the module."""

    def __init__(self, path: Path, name: str, clock: Callable[[], float], options: StoreOptions | None = None) -> None:
        self.store = Store.open(path, clock=clock, options=replace(options or StoreOptions(), queue_manager=name))

    def prepare(self, unit: StoreUnit, now: float) -> Prepared:
        """One frame."""
        return self.store.prepare(unit, now)

    def write(self, frame: Any) -> None:
        """Durable on return."""
        self.store.write(frame)

    def apply(self, frame: Any) -> None:
        """Let it be seen."""
        self.store.apply(frame)

    def abort(self, frame: Any) -> None:
        """It was not written."""
        self.store.abort(frame)

    def maintain(self, now: float) -> Prepared | None:
        """One step of recycling, or of coming back after a failure."""
        return self.store.maintain(now)

    @property
    def under_maintenance(self) -> bool:
        """Whether a segment has been read in part."""
        return self.store.under_maintenance

    def load(self, queue: str) -> Iterable[tuple[bytes, Message]]:
        """Every message with its key, in order of arrival."""
        found = [(key, message) for key in self.store.keys(queue) for message in self._all(queue, key)]
        return sorted(found, key=lambda one: one[1].token & NUMBER_MASK)

    def _all(self, queue: str, key: bytes) -> Iterable[Message]:
        after = -1
        while messages := self.store.fetch(queue, key, limit=SCAN, after=after, locked=True):
            yield from messages
            after = messages[-1].token

    def fetch(
        self, queue: str, key: bytes, limit: int, after: int | None = None, *, locked: bool = False
    ) -> list[Message]:
        """The next messages by priority and arrival."""
        return self.store.fetch(queue, key, limit=limit, after=-1 if after is None else after, locked=locked)

    def lock(self, _queue: str, _key: bytes, tokens: Sequence[int]) -> None:
        """Not to be seen by others."""
        self.store.lock(tokens)

    def unlock(self, queue: str, key: bytes, tokens: Sequence[int]) -> None:
        """Seen again."""
        self.store.unlock(queue, key, tokens)

    def read(self, queue: str, key: bytes, token: int) -> Message | None:
        """This message, if it is there."""
        return self.store.get(queue, key, token)

    def find(
        self, queue: str, key: bytes, msg_id: bytes | None, correl_id: bytes | None, group_id: bytes | None = None
    ) -> Sequence[int]:
        """By identifiers, in the order of delivery; locked ones too."""
        if msg_id is None and correl_id is None and group_id is None:
            return [message.token for message in self._all(queue, key)]
        return self.store.find(queue, key, msg_id=msg_id, correl_id=correl_id, group_id=group_id)

    def depth(self, queue: str, key: bytes = b"", least: int = 0) -> int:
        """How many."""
        if least:
            return sum(self.store.depth(queue, key, priority) for priority in range(least, PRIORITIES))
        return self.store.depth(queue, key)

    def oldest(self, queue: str) -> int:
        """When the oldest was put."""
        return self.store.oldest(queue)

    def state(self) -> dict[bytes, bytes]:
        """The small records."""
        return dict(self.store.states())

    def close(self) -> None:
        """Give the directory back."""
        self.store.close()
