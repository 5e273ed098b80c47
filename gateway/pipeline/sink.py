"""Rows to a queue: tasks build messages, the driver puts a batch in one unit of work together with its number.

A batch that Spark repeats after a crash finds its number there and adds nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from gateway.pipeline.access import access_of
from gateway.pipeline.failures import WrongOption
from gateway.pipeline.messages import Sending, encode_part, write_part
from gateway.pipeline.options import Options


@dataclass
class Part(WriterCommitMessage):
    """What one task has made."""

    data: bytes


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
        return Part(write_part(encode_part(batch, template) for batch in iterator))

    def put(self, messages: list[Any], batch: int) -> int:
        """In the driver: all parts at once."""
        options = self.options
        sending = Sending(options.queue, options.priority, options.expiry, options.persistence == 1)
        parts = [message.data for message in messages if message is not None]
        return access_of(options).put(sending, parts, self.txn, batch)

    def abort(self, messages: list[Any], batchId: int = 0) -> None:  # noqa: N803
        """Nothing has been put yet."""


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
