"""The data source `mqqueue` for Spark: batch and streaming reader, batch and streaming writer.

Order of calls that the protocol rests on (Spark 4.2 and later): `latestOffset(start)` is called only when the batch
that ended at `start` is in the commit log, `commit` only when a further batch has data. So the cursor moves in both,
and the depth of a queue reaches zero without further messages. `read` runs in other processes, any number of times.

Writing: tasks build messages, the driver puts a batch in one unit of work together with its number. A batch that Spark
repeats after a crash finds its number there and adds nothing.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from gateway.pipeline.decode.columns import FILES, select_columns, spark_schema
from gateway.pipeline.errors import DataLost, QueueUnreachable, WrongOption
from gateway.pipeline.failpoint import failpoint
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.puts import PutTarget, encode_part, write_part
from gateway.pipeline.source.bounds import Bounds, push
from gateway.pipeline.source.browse import BrowseAccess
from gateway.pipeline.source.http_access import access_by
from gateway.pipeline.source.options import Options, put_queue
from gateway.pipeline.source.queue_access import BatchExtent, LeaseRenewal, Piece, QueueAccess
from gateway.pipeline.source.tasks import TaskReader

Offset = dict[str, int]
LEAST_ROWS = 2_000
"""A partition with fewer rows is not worth a task."""


class MqQueueDataSource(DataSource):
    """`spark.read.format("mqqueue")` and the like."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.parsed = Options.read(dict(options))

    @classmethod
    def name(cls) -> str:
        """The name for format() and USING."""
        return "mqqueue"

    def schema(self) -> Any:
        """The columns asked for; with staging, those that describe files (`FILES`)."""
        options = self.parsed
        if options.staging:
            return spark_schema(FILES)
        chosen = select_columns(options.columns, include_raw=options.include_raw)
        return spark_schema(chosen, not_null=options.not_null)

    def reader(self, schema: Any) -> DataSourceReader:
        """A batch read. Spark refuses a reader with pushdown unless its setting allows it, so pushdown is an option."""
        pushdown = self.parsed.pushdown and not self.parsed.staging
        return (PushdownReader if pushdown else QueueReader)(self.parsed, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read."""
        return QueueStreamReader(self.parsed, schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """A batch write."""
        return QueueWriter(self.parsed, schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        """A streaming write, each batch once."""
        checkpoint = dict(self.options).get("checkpointlocation", "")
        return QueueStreamWriter(self.parsed, schema, overwrite=overwrite, checkpoint=checkpoint)


def access_of(options: Options) -> QueueAccess:
    """The access that the options ask for: with `path` messages are read from files; with `url` cursors are kept by the
    gateway; with `connection` or `ccdt` queues of IBM MQ are browsed."""
    if options.connection or options.ccdt:
        return BrowseAccess(options)
    if options.url or options.path:
        return access_by(options)
    raise QueueUnreachable(
        "say where the queue is: option path (data folder of an embedded queue manager), url (administration address "
        "of a running gateway, with tokenFile), or connection and channel (IBM MQ, to look at)"
    )


class QueuePartition(InputPartition):
    """A part of a batch; without a piece there is nothing to read."""

    def __init__(self, piece: Piece | None, bounds: Bounds | None = None) -> None:
        super().__init__(None)
        self.piece = piece
        self.bounds = bounds


class QueueReader(DataSourceReader):
    """Batch read, for backfill and replay: all messages between two numbers or times."""

    def __init__(self, options: Options, schema: Any) -> None:
        self.tasks = TaskReader.of(options, schema)
        self.bounds = Bounds(
            options.starting_seq or 0, options.ending_seq, options.starting_micros, options.ending_micros
        )

    def partitions(self) -> list[QueuePartition]:
        """The parts of a snapshot: messages put later are not read."""
        options, access = self.tasks.options, access_of(self.tasks.options)
        end = access.extent(options.queue, self.bounds.low, None)
        high = end.next if self.bounds.high is None else min(self.bounds.high, end.next)
        pieces = access.pieces(options.queue, self.bounds.low, high, parts_for(options, end.messages))
        bounds = self.bounds if self.bounds.filters_rows else None
        return [QueuePartition(piece, bounds) for piece in pieces] or [QueuePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a task."""
        return self.tasks.read(partition.piece, partition.bounds)


class PushdownReader(QueueReader):
    """Batch read that takes over Spark's conditions on seq."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Narrow the bounds; return the filters that are left for Spark."""
        self.bounds, left = push(self.bounds, filters)
        return left


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming read. The module's docstring says in which order Spark makes the calls."""

    def __init__(self, options: Options, schema: Any) -> None:
        self.tasks = TaskReader.of(options, schema)
        self.options = options
        self.group = options.consumer_group or "spark"
        if options.ending_seq is not None or options.ending_micros is not None:
            raise WrongOption(
                "a stream has no end: leave endingSeq and endingTimestamp out, or read in batch (spark.read)"
            )
        self.owner = f"{socket.gethostname()}:{os.getpid()}"
        self._access: QueueAccess | None = None
        self._lease: ConsumerGroup | None = None
        self._renewal: LeaseRenewal | None = None
        self._end: Offset | None = None
        self._until: BatchExtent | None = None
        self._compared = False

    def __getstate__(self) -> dict[str, Any]:
        """The state without what belongs to the driver: tasks get a copy of the reader, too."""
        return {**self.__dict__, "_access": None, "_lease": None, "_renewal": None, "_until": None}

    # ---- the driver's side

    @property
    def access(self) -> QueueAccess:
        """The access, opened when first needed, in the process that plans."""
        if self._access is None:
            self._access = access_of(self.options)
        return self._access

    def _leased(self) -> ConsumerGroup:
        if self._lease is None:
            wanted = ConsumerGroup(self.group, self.options.queue, self.options.consume, self.options.purge_delay)
            self._lease = self.access.acquire(wanted, self.owner, self.options.lease_ttl)
            self._renewal = LeaseRenewal(self.access, self._lease, self.options.lease_ttl)
            weakref.finalize(self, self._renewal.over.set)  # also where nobody calls `stop`
        return self._lease

    def initialOffset(self) -> Offset:  # noqa: N802
        """The group's cursor, unless the query says where to begin."""
        lease, options = self._leased(), self.options
        start = lease.cursor if options.starting_seq is None else options.starting_seq
        self._compare_numbers(start)
        if options.starting_micros is not None:
            start = max(start, self.access.number_at(options.queue, options.starting_micros))
        return {"messages": 0, "next": start}

    def _compare_numbers(self, start: int) -> None:
        """Raise DataLost if a query goes on at a number that the queue manager has not reached: its messages get
        numbers that others had, and would be taken for those, passed over and purged."""
        if self._compared:
            return
        end = self.access.next_number(self.options.queue)
        if end is not None and end < start:
            raise DataLost(
                f"this query goes on at message number {start} of {self.options.queue}, and the queue manager has only "
                f"come to {end}: it was made anew, or restored from a backup, and its numbers begin again. Nothing was "
                "read. Give a job's source another name in `sources`, and any other query another checkpoint"
            )
        self._compared = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of one batch."""
        return ReadMaxRows(self.options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Have the query end with the messages that are on the queues now."""
        self._until = self.access.extent(self.options.queue, 0, None)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Acknowledge the batch that ended at `start`, which is in the commit log; return the end of the next one."""
        lease = self._leased()
        self._compare_numbers(start["next"])
        failpoint("commitlog.after")
        failpoint("plan.before")
        end = self._end = self._planned(start, limit)
        caught_up = end["next"] == start["next"]
        self.access.acknowledge(self.group, lease.epoch, start["next"], self.options.lease_ttl, last=caught_up)
        failpoint("offsets.before")
        return end

    def _planned(self, start: Offset, limit: ReadLimit) -> Offset:
        rows, size = limits(limit, self.options)
        extent = self.access.extent(self.options.queue, start["next"], rows, size)
        if not extent.messages and self.options.idle_wait:
            extent = self._wait_for_messages(start, rows, size)
        if not extent.messages:
            return start
        high = extent.next
        if self._until is not None and high > self._until.next:
            high = max(start["next"], self._until.next)
            extent = BatchExtent(high, self.access.count(self.options.queue, start["next"], high))
            if not extent.messages:
                return start
        return {"messages": start["messages"] + extent.messages, "next": high}

    def _wait_for_messages(self, start: Offset, rows: int | None, size: int | None) -> BatchExtent:
        """Ask again for a bounded time, so that an idle query need not run empty triggers."""
        until = time.monotonic() + self.options.idle_wait
        while True:
            extent = self.access.extent(self.options.queue, start["next"], rows, size)
            if extent.messages or time.monotonic() >= until:
                return extent
            time.sleep(0.02)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The messages after the end of the last batch, shown as the backlog in the query's progress."""
        if self._end is None:
            return None
        rest = self.access.extent(self.options.queue, self._end["next"], None)
        return {"messages": self._end["messages"] + rest.messages, "next": rest.next}

    def partitions(self, start: Offset, end: Offset) -> list[QueuePartition]:
        """Cut a batch that Spark has logged into parts. All its messages must still be there. After a restart Spark
        calls this before latestOffset; without the lease another driver could be landing the same batch."""
        self._leased()
        self._compare_numbers(start["next"])
        failpoint("offsets.after")
        low, high, planned = start["next"], end["next"], end["messages"] - start["messages"]
        if high <= low:
            # The checkpoint lost its newest files: its first batch is still logged, but ends before startingSeq, where
            # a job that has landed it begins.
            return [QueuePartition(None)]
        pieces = self.access.pieces(self.options.queue, low, high, parts_for(self.options, planned))
        present = self.access.count(self.options.queue, low, high)
        if present < planned and self.options.fail_on_data_loss:
            raise DataLost(
                f"{planned - present} of {planned} messages between {low} and {high} are gone from "
                f"{self.options.queue}: another consumer takes messages from these queues, or they expired or were "
                "purged. Give the pipeline queues of its own; to go on without them set failOnDataLoss to false"
            )
        return [QueuePartition(piece) for piece in pieces]

    def commit(self, end: Offset) -> None:
        """Acknowledge as `latestOffset` does; Spark calls this before the next batch."""
        lease = self._leased()
        self.access.acknowledge(self.group, lease.epoch, end["next"], self.options.lease_ttl)

    def stop(self) -> None:
        """Give the lease back, so that the next driver need not wait for it."""
        if self._renewal is not None:
            self._renewal.end()
        if self._lease is not None and self._access is not None:
            self._access.release(self.group, self._lease.epoch)
            self._lease = None

    # ---- the tasks' side

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Runs in a task, without removing anything."""
        return self.tasks.read(partition.piece, partition.bounds)


def limits(limit: ReadLimit, options: Options) -> tuple[int | None, int | None]:
    """The most rows and the most bytes of one batch."""
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows, options.max_bytes
    if isinstance(limit, ReadMaxBytes):
        return None, limit.max_bytes
    if isinstance(limit, ReadAllAvailable):
        return None, None
    return options.max_messages, options.max_bytes


def parts_for(options: Options, rows: int) -> int:
    """The number of partitions: as many as asked for, but fewer for few rows."""
    return max(1, min(options.partitions, rows // LEAST_ROWS))


@dataclass
class TaskMessages(WriterCommitMessage):
    """The messages that one task has made."""

    data: bytes
    file: str = ""
    """With option staging, the file that holds the messages instead."""

    def read(self) -> bytes:
        """The messages."""
        return Path(self.file).read_bytes() if self.file else self.data


def staged(folder: str, data: bytes) -> TaskMessages:
    """Write a task's messages to a file in a folder that driver and executors share, so that Spark need not carry them;
    returns the message that names the file."""
    target = Path(folder) / f"{secrets.token_hex(8)}.arrow"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return TaskMessages(b"", str(target))


def drop(messages: list[Any]) -> None:
    """Delete the staged files."""
    for message in messages:
        if message is not None and message.file:
            Path(message.file).unlink(missing_ok=True)


class _Writing:
    """What the batch writer and the stream writer share."""

    def __init__(self, options: Options, schema: Any, *, overwrite: bool, checkpoint: str = "") -> None:
        if overwrite:
            raise WrongOption('mode "overwrite" would clear the queue: write with mode "append"')
        put_queue(options.queue)
        if "payload" not in schema.fieldNames():
            raise WrongOption("rows written to mqqueue need a column `payload` (binary or string)")
        self.options = options
        self.txn = options.txn or (
            hashlib.blake2b(checkpoint.encode(), digest_size=8).hexdigest() if checkpoint else ""
        )

    def write(self, iterator: Iterator[Any]) -> TaskMessages:
        """Make messages of rows; runs in a task."""
        options = self.options
        template = {
            "persistence": options.persistence,
            "priority": options.priority,
            "expiry": options.expiry,
            "format": options.format,
        }
        data = write_part(encode_part(batch, template) for batch in iterator)
        return staged(options.staging, data) if options.staging else TaskMessages(data)

    def put(self, messages: list[Any], batch: int) -> int:
        """Put the messages of all tasks in one unit of work; runs in the driver."""
        options = self.options
        target = PutTarget(options.queue, options.priority, options.expiry, options.persistence == 1)
        parts = [message.read() for message in messages if message is not None]
        count = access_of(options).put(target, parts, self.txn, batch)
        drop(messages)
        return count

    def abort(self, messages: list[Any], batchId: int = 0) -> None:  # noqa: N803, ARG002
        """Delete staged files, as nothing was put."""
        drop(messages)


class QueueWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("mqqueue")`. With option txn, writing the same again adds nothing."""

    def commit(self, messages: list[Any]) -> None:
        """Called when all tasks are done."""
        self.put(messages, 0)


class QueueStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("mqqueue")`. The query's checkpoint, or option txn, names its batches."""

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Called when all tasks of the batch are done."""
        self.put(messages, batchId)
