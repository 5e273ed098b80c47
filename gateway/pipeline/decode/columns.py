"""The columns of the data source `mqqueue`: names, kinds, and which message part each is read from. Pure.

One list gives Spark's schema, Arrow's schema, the reference page and the column pruning of `columns`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gateway.pipeline.errors import WrongOption

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["string", "binary", "boolean", "tinyint", "int", "bigint", "timestamp", "map"]
Part = Literal["place", "head", "row", "body"]
"""What a column is read from. place: where the message lies. head: the decoded head, once for all rows that share it.
row: differs by row. body: the bytes of the body."""


class MessageColumn(NamedTuple):
    """A column of the data source."""

    name: str
    kind: Kind
    part: Part
    what: str


COLUMNS = (
    MessageColumn("qmgr", "string", "place", "queue manager"),
    MessageColumn("queue", "string", "place", "queue"),
    MessageColumn("seq", "bigint", "place", "message number in the queue manager's store, ascending in commit order"),
    MessageColumn("msg_id", "binary", "row", "MsgId, 24 bytes"),
    MessageColumn("correl_id", "binary", "row", "CorrelId, 24 bytes"),
    MessageColumn("group_id", "binary", "head", "GroupId, 24 bytes"),
    MessageColumn("msg_seq_number", "int", "head", "MsgSeqNumber within the group"),
    MessageColumn("msg_type", "int", "head", "MsgType: 1 request, 2 reply, 4 report, 8 datagram"),
    MessageColumn("report", "int", "head", "Report options"),
    MessageColumn("feedback", "int", "head", "Feedback code of a report"),
    MessageColumn("expiry", "int", "head", "Expiry as put, in tenths of a second; -1 never"),
    MessageColumn("ccsid", "int", "head", "character set of the payload, after all headers"),
    MessageColumn("encoding", "int", "head", "Encoding of the payload, after all headers"),
    MessageColumn("backout_count", "int", "row", "BackoutCount"),
    MessageColumn("put_appl_type", "int", "head", "PutApplType"),
    MessageColumn("persistence", "tinyint", "head", "Persistence: 0 or 1"),
    MessageColumn("priority", "tinyint", "place", "Priority, 0 to 9"),
    MessageColumn("format", "string", "head", "Format of the payload, after all headers"),
    MessageColumn("reply_to_q", "string", "head", "ReplyToQ"),
    MessageColumn("reply_to_qmgr", "string", "head", "ReplyToQMgr"),
    MessageColumn("user_id", "string", "head", "UserIdentifier"),
    MessageColumn("put_appl_name", "string", "head", "PutApplName"),
    MessageColumn("appl_identity", "string", "head", "ApplIdentityData"),
    MessageColumn("put_ts", "timestamp", "row", "PutDate and PutTime, UTC; null where the message does not say"),
    MessageColumn("topic", "string", "head", "MQTT topic (Top of the folder mqps)"),
    MessageColumn("client_id", "string", "head", "MQTT client"),
    MessageColumn("content_type", "string", "head", "MQTT 5 content type"),
    MessageColumn("qos", "tinyint", "head", "MQTT quality of service"),
    MessageColumn("retain", "boolean", "head", "MQTT retain flag"),
    MessageColumn("recv_ts", "timestamp", "head", "when the gateway received it, if the mapping writes `received`"),
    MessageColumn("properties", "map", "head", "message properties: the usr folder by name, others as folder.name"),
    MessageColumn("payload", "binary", "body", "the bytes after all headers"),
    MessageColumn("dlq_reason", "int", "head", "reason in the dead-letter header"),
    MessageColumn("dlq_dest_q", "string", "head", "queue it was meant for"),
    MessageColumn("dlq_dest_qmgr", "string", "head", "queue manager it was meant for"),
    MessageColumn("header_error", "string", "head", "why a header cannot be read; the payload begins with it then"),
)

RAW_COLUMNS = (
    MessageColumn(
        "mqmd", "binary", "row", "the MQMD as stored, 364 bytes; MsgId and put time may be blank where derived"
    ),
    MessageColumn("headers", "binary", "row", "the header bytes in front of the payload"),
)

SOURCE = "source"
SOURCE_COLUMN = MessageColumn(SOURCE, "string", "place", "name of the job's source, where it has several")
"""In the tables of a job with several sources: message numbers are unique within one."""

FILES = (
    MessageColumn("file", "string", "place", "name of a Parquet file in the folder of option staging"),
    MessageColumn("rows", "bigint", "place", "messages in it"),
    MessageColumn("bytes", "bigint", "place", "its size"),
    MessageColumn("put_times", "binary", "place", "put times of its hundredths, little-endian microseconds"),
    MessageColumn("foreign_text", "boolean", "place", "whether it may have text in another character set than UTF-8"),
)
"""The columns with option staging: files of messages instead of messages."""

MAY_BE_NULL = frozenset({
    "put_ts", "topic", "client_id", "content_type", "qos", "retain", "recv_ts", "dlq_reason", "dlq_dest_q",
    "dlq_dest_qmgr", "header_error",
})  # fmt: skip
"""Columns of which a message may have no value: what headers say, and when it was put, which programs may leave blank
(MQPMO_NO_CONTEXT, MQPMO_SET_ALL_CONTEXT). The rest of the descriptor, place and payload every message has."""

BY_NAME = {column.name: column for column in (*COLUMNS, *RAW_COLUMNS)}


def select_columns(names: str, *, include_raw: bool = False) -> tuple[MessageColumn, ...]:
    """The columns of option `columns` (comma-separated; empty: all)."""
    if not names.strip():
        return (*COLUMNS, *RAW_COLUMNS) if include_raw else COLUMNS
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    return tuple(_column(name) for name in wanted)


def columns_of(names: Iterable[str]) -> tuple[MessageColumn, ...]:
    """The columns of a schema that the user gave."""
    return tuple(_column(name) for name in names)


def _column(name: str) -> MessageColumn:
    if name not in BY_NAME:
        raise WrongOption(f"the data source has no column {name!r}; it has {', '.join(BY_NAME)}")
    return BY_NAME[name]


def arrow_type(kind: Kind) -> pa.DataType:
    """The Arrow type that Spark expects for a kind, exactly."""
    import pyarrow as pa

    types: dict[str, Any] = {
        "string": pa.string,
        "binary": pa.binary,
        "boolean": pa.bool_,
        "tinyint": pa.int8,
        "int": pa.int32,
        "bigint": pa.int64,
        "timestamp": lambda: pa.timestamp("us", tz="UTC"),
        "map": lambda: pa.map_(pa.string(), pa.field("value", pa.string(), nullable=True)),
    }
    return types[kind]()


def arrow_schema(columns: Iterable[MessageColumn]) -> pa.Schema:
    """The schema of the record batches."""
    import pyarrow as pa

    return pa.schema([pa.field(column.name, arrow_type(column.kind), nullable=True) for column in columns])


def spark_schema(columns: Iterable[MessageColumn], *, not_null: bool = False) -> Any:
    """The schema for Spark, built by hand because its DDL parser needs a running context, which workers lack.
    `not_null`: declare the columns that are never null as such."""
    from pyspark.sql import types as t

    kinds = {
        "string": t.StringType(),
        "binary": t.BinaryType(),
        "boolean": t.BooleanType(),
        "tinyint": t.ByteType(),
        "int": t.IntegerType(),
        "bigint": t.LongType(),
        "timestamp": t.TimestampType(),
        "map": t.MapType(t.StringType(), t.StringType(), valueContainsNull=True),
    }
    return t.StructType(
        [
            t.StructField(column.name, kinds[column.kind], nullable=not not_null or column.name in MAY_BE_NULL)
            for column in columns
        ]
    )
