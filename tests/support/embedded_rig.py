"""What the tests of the embedded queue manager share: opening one, and its messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from schedulers import ManualScheduler

from gateway.errors import MQError
from gateway.ports.mqi import GetOptions, Got, ObjectDescriptor, PutOptions, PutResult
from gateway.queue_manager.descriptor import default_descriptor
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions
from gateway.queue_manager.store.memory import MemoryStore


def md(**fields: int | bytes) -> bytes:
    """A descriptor with the MQI's defaults."""
    return default_descriptor(**fields)


SMALL = StoreOptions(segment_bytes=2 << 20, spare_segments=1, background=False)
"""A store that opens quickly."""
OPEN_ALL = 2 | 8 | 16 | 32 | 64
"""Input shared, browse, output, inquire, set."""


def forget_volatile(store: MemoryStore) -> None:
    """Do what a restart does to a store: non-persistent messages are gone."""
    for shelves in store._shelves.values():
        for shelf in shelves.values():
            for token in [token for token, (_, persistent) in shelf.entries.items() if not persistent]:
                shelf.remove(token)


class MqiRig:
    """A queue manager behind the MQI port, whichever backend it is, with the shortest words for the usual calls."""

    def __init__(self, path: Path | None, objects: str = "", users: dict[str, str] | None = None) -> None:
        self.path = path
        self.users = users
        self.scheduler = ManualScheduler()
        self.queue_manager = EmbeddedQueueManager.open(
            path, "QM1", self.scheduler, objects, users=users, store_options=SMALL
        )
        self.connection = self.queue_manager.connect(application="tests", user="ana")

    def restart(self) -> None:
        self.queue_manager.close()
        store = self.queue_manager.core.store
        if isinstance(store, MemoryStore):
            forget_volatile(store)
            self.queue_manager = EmbeddedQueueManager("QM1", store, self.scheduler)
            self.queue_manager.start("", self.users or {})
        else:
            self.queue_manager = EmbeddedQueueManager.open(
                self.path, "QM1", self.scheduler, users=self.users, store_options=SMALL
            )
        self.connection = self.queue_manager.connect(application="tests", user="ana")

    def mqsc(self, text: str) -> list[str]:
        report = self.queue_manager.mqsc(text)
        assert report.ok, report.lines
        return report.lines

    def open(self, name: str, options: int = OPEN_ALL, **others: object) -> int:
        return self.connection.open(ObjectDescriptor(name, **others), options).handle  # type: ignore[arg-type]

    def put(self, handle: int | str, data: bytes = b"", options: int = 4, descriptor: bytes | None = None) -> PutResult:
        given = PutOptions(options)
        if isinstance(handle, str):
            return self.connection.put1(ObjectDescriptor(handle), descriptor or md(), given, data)
        return self.connection.put(handle, descriptor or md(), given, data)

    def get(
        self, handle: int, options: int = 4, descriptor: bytes | None = None, length: int = 1 << 20, **others: object
    ) -> Got:
        return self.connection.get(handle, descriptor or md(), GetOptions(options, **others), length)  # type: ignore[arg-type]

    def drain(self, handle: int, options: int = 4) -> list[bytes]:
        found = []
        while True:
            try:
                found.append(self.get(handle, options).data)
            except MQError as error:
                if error.reason != 2033:
                    raise
                return found

    def depth(self, name: str) -> int:
        handle = self.open(name, 32)
        value = self.connection.inquire(handle, [3]).integers[0]
        self.connection.close(handle)
        return value


@contextmanager
def refused(reason: int) -> Iterator[None]:
    """The call inside fails with this reason code."""
    with pytest.raises(MQError) as caught:
        yield
    assert caught.value.reason == reason, caught.value
