"""Rows as Parquet files that the reading tasks write themselves: what goes through Spark is a row for each file.

Rows that are only to be landed need not leave the process that decoded them: handing them to Spark and having it write
them costs five times as much. A file counts only when its row has arrived at the driver; what a killed or repeated task
has left behind under another name is nobody's and goes with the folder.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.pipeline.land.durable import sync_file
from gateway.pipeline.source.columns import FILES, arrow_schema

COMPRESSION, LEVEL = "zstd", 1
"""Smaller than snappy by a factor of five on telemetry, and no slower."""
GROUP_BYTES = 64 << 20
"""Of a row group, before it is encoded: what a task holds at most."""
NEVER_REPEAT = ("seq", "msg_id", "payload")
"""A dictionary of these would be thrown away half-way."""
LOOKED_FOR = ("queue", "seq", "put_ts", "recv_ts", "topic", "client_id", "dlq_reason", "dlq_dest_q", "header_error")
"""With least and greatest value in the file's end, so that readers can skip files. Others cost more than they save."""


def write_rows(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write all batches of a task to one file, on disk when this yields what the driver must know of it."""
    first = next(batches, None)
    if first is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{secrets.token_hex(8)}.parquet"
    try:
        rows = _write(target, first, batches)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    sync_file(target)
    told = {"file": target.name, "rows": rows, "bytes": target.stat().st_size}
    yield pa.RecordBatch.from_pylist([told], schema=arrow_schema(FILES))


def _write(target: Path, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> int:
    rows, group, size = 0, [first], first.nbytes
    with pq.ParquetWriter(target, first.schema, **layout(first.schema)) as writer:
        for batch in others:
            if size > GROUP_BYTES:
                rows += _write_group(writer, group)
                group, size = [], 0
            group.append(batch)
            size += batch.nbytes
        return rows + _write_group(writer, group)


def _write_group(writer: pq.ParquetWriter, group: list[pa.RecordBatch]) -> int:
    writer.write_table(pa.Table.from_batches(group))
    return sum(batch.num_rows for batch in group)


def layout(schema: pa.Schema) -> dict[str, Any]:
    """How the columns are written."""
    repeating = [name for name in schema.names if name not in (*NEVER_REPEAT, "properties")]
    if "properties" in schema.names:
        repeating += ["properties.key_value.key", "properties.key_value.value"]
    return {
        "compression": COMPRESSION,
        "compression_level": LEVEL,
        "use_dictionary": repeating,
        "write_statistics": [name for name in LOOKED_FOR if name in schema.names] or False,
        "store_schema": False,  # Spark, DuckDB and Delta know the types from Parquet's own
    }
