"""Batch reads of IBM MQ queues by browsing, for instance to look at dead letters. The messages stay on the queues.

A browse has no message numbers that could be read again (`seq` is the position in this browse), so streams go through a
drainer. Each queue is browsed by one task over a connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.pipeline.errors import QueueUnreachable, WrongOption
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.queue_access import BatchExtent, Piece
from gateway.queue_manager.store.head_numbers import HeadNumbers

EVERYTHING = 1 << 62
CHUNK_BYTES = 32 * 1024 * 1024
ONLY_LOOKING = (
    "option 'connection' is for looking at queues of IBM MQ in batch reads: to stream from them run "
    "`mqgate pipeline drain QUEUE` and give the journal's path or its url; to write give a gateway's url"
)


class QueueManagerAddress(NamedTuple):
    """How to connect to the queue manager. The password is read from its file where it is used."""

    name: str
    connection: str
    channel: str
    ccdt: str
    user: str
    password_file: str
    cipher: str
    key_repository: str
    driver: str

    def connect(self) -> Any:
        """A session of the binding. Raises QueueUnreachable, which says why there is none."""
        from gateway.backends.ibm.driver import ConnectSettings, load
        from gateway.errors import DriverUnavailable
        from gateway.mq.reason_policy import explain

        password = Path(self.password_file).read_text(encoding="utf-8").split("\n", 1)[0] if self.password_file else ""
        settings = ConnectSettings(
            self.name, self.connection, self.channel, self.user, password, self.ccdt, self.cipher, self.key_repository
        )
        try:
            return load(self.driver).connect(settings)
        except MQError as error:
            raise QueueUnreachable(f"{error}: {explain(error.reason)}") from error
        except DriverUnavailable as error:
            raise QueueUnreachable(str(error)) from error


class BrowsePiece(NamedTuple):
    """One queue; `high` bounds the position in the browse."""

    server: QueueManagerAddress
    queue: str
    high: int

    def chunks(self, rows: int, heads: HeadNumbers | None = None) -> Iterator[Any]:
        """The messages that are on the queue now, in its order."""
        del heads
        from gateway.pipeline.drain.ibm_queue import GotMessage, browsed

        session = self.server.connect()
        try:
            messages: list[GotMessage] = []
            first = size = 0
            for message in browsed(session, self.queue):
                if first + len(messages) >= self.high:
                    break
                messages.append(message)
                size += len(message.data)
                if len(messages) >= rows or size >= CHUNK_BYTES:
                    yield chunk_of(self.queue, messages, first)
                    first, size, messages = first + len(messages), 0, []
            if messages:
                yield chunk_of(self.queue, messages, first)
        finally:
            session.disconnect()


def chunk_of(queue: str, messages: list[Any], first: int) -> Any:
    """The columns of browsed messages, with heads shared as a store shares them."""
    import numpy as np
    import pyarrow as pa

    from gateway.pipeline.decode.head_table import NO_TIME
    from gateway.pipeline.journal.chunks import Chunk

    parts = [message.parts() for message in messages]
    encoded = pa.array([head for head, _, _ in parts], pa.binary()).dictionary_encode()
    ids = np.frombuffer(b"".join(message.msg_id + message.correl_id for message in messages), dtype=np.uint8).reshape(
        -1, 48
    )
    return Chunk(
        _runs(queue, [message.priority for message in messages]),
        np.arange(first, first + len(messages), dtype=np.int64),
        np.array([micros or NO_TIME for _, _, micros in parts], dtype=np.int64),
        encoded.dictionary,
        encoded.indices.to_numpy().astype(np.int64),
        pa.array([body for _, body, _ in parts], pa.binary()),
        np.ascontiguousarray(ids[:, :24]),
        np.ascontiguousarray(ids[:, 24:]),
        {},
    )


def _runs(queue: str, priorities: list[int]) -> list[tuple[str, int, int]]:
    """Queue, priority and rows of consecutive messages with the same priority."""
    return [(queue, priority, len(list(same))) for priority, same in groupby(priorities)]


class BrowseAccess:
    """Access for batch reads only: everything that needs message numbers is refused."""

    def __init__(self, options: Options) -> None:
        self.server = QueueManagerAddress(
            options.queue_manager, options.connection, options.channel, options.ccdt, options.user,
            options.password_file, options.cipher, options.key_repository, options.driver,
        )  # fmt: skip
        self.queues = [name.strip() for name in options.queue.split(",") if name.strip()]
        if any("*" in name for name in self.queues):
            raise WrongOption(f"option 'queue' is {options.queue!r}: name the queues of IBM MQ one by one, with commas")

    def extent(self, queues: str, low: int, rows: int | None, size: int | None = None) -> BatchExtent:
        """The depth of the queues, which the queue manager is asked for. Raises QueueUnreachable with MQ's error if one
        does not exist."""
        del queues, low, rows, size
        session = self.server.connect()
        try:
            return BatchExtent(
                EVERYTHING, sum(int(session.inquire(name, mq.MQIA_CURRENT_Q_DEPTH)) for name in self.queues)
            )
        except MQError as error:
            raise QueueUnreachable(str(error)) from error
        finally:
            session.disconnect()

    def pieces(self, queues: str, low: int, high: int, parts: int) -> list[Piece]:
        """One part for each queue."""
        del queues, low, parts
        return [BrowsePiece(self.server, queue, high) for queue in self.queues]

    def _refused(self, *_given: Any, **_named: Any) -> NoReturn:
        raise WrongOption(ONLY_LOOKING)

    acquire = acknowledge = release = next_number = journal = count = number_at = put = _refused
