"""Rows to a queue: tasks build messages, the driver puts a batch in one unit of work together with its number.

A batch that Spark repeats after a crash finds its number there and adds nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from gateway.pipeline.failures import WrongOption
from gateway.pipeline.source.messages import Sending, encode_part, write_part
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.reach import access_of


@dataclass
class Part(WriterCommitMessage):
    """What one task has made."""

    data: bytes
    file: str = ""
    """Where the messages lie instead, with option staging."""

    def read(self) -> bytes:
        """The messages."""
        return Path(self.file).read_bytes() if self.file else self.data


def staged(folder: str, data: bytes) -> Part:
    """A task's messages as a file on a folder that driver and executors share, so that they need not travel through
    Spark's messages."""
    target = Path(folder) / f"{secrets.token_hex(8)}.arrow"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return Part(b"", str(target))


def drop(messages: list[Any]) -> None:
    """Staged files have served."""
    for message in messages:
        if message is not None and message.file:
            Path(message.file).unlink(missing_ok=True)


class _Writing:
    """What both writers share."""

    def __init__(self, options: Options, schema: Any, *, overwrite: bool, checkpoint: str = "") -> None:
        if overwrite:
            raise WrongOption('mode "overwrite" would clear the queue: write with mode "append"')
        if any(mark in options.queue for mark in "*,"):
            raise WrongOption(f"option 'queue' is {options.queue!r}: rows are written to one queue")
        if "payload" not in schema.fieldNames():
            raise WrongOption("rows written to mqqueue need a column `payload` (binary or string)")
        self.options = options
        self.txn = options.txn or (
            hashlib.blake2b(checkpoint.encode(), digest_size=8).hexdigest() if checkpoint else ""
        )

    def write(self, iterator: Iterator[Any]) -> Part:
        """In a task: rows to messages."""
        options = self.options
        template = {
            "persistence": options.persistence,
            "priority": options.priority,
            "expiry": options.expiry,
            "format": options.format,
        }
        data = write_part(encode_part(batch, template) for batch in iterator)
        return staged(options.staging, data) if options.staging else Part(data)

    def put(self, messages: list[Any], batch: int) -> int:
        """In the driver: all parts at once."""
        options = self.options
        sending = Sending(options.queue, options.priority, options.expiry, options.persistence == 1)
        parts = [message.read() for message in messages if message is not None]
        done = access_of(options).put(sending, parts, self.txn, batch)
        drop(messages)
        return done

    def abort(self, messages: list[Any], batchId: int = 0) -> None:  # noqa: N803, ARG002
        """Nothing has been put yet."""
        drop(messages)


class QueueWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("mqqueue")`: with option txn a repetition adds nothing."""

    def commit(self, messages: list[Any]) -> None:
        """All tasks are done."""
        self.put(messages, 0)


class QueueStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("mqqueue")`: batches by the query's checkpoint, or option txn."""

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """All tasks of the batch are done."""
        self.put(messages, batchId)
