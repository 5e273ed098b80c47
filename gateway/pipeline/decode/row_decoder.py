"""Decodes chunks into record batches with exactly the columns asked for. This is the data source's fast path.

Each distinct head is decoded once (`head_table.py`) and its values are taken by number; identifiers and times that the
queue manager derives are computed as columns. Three cases: heads repeat (`_static`); they differ only in values of
fixed length, which are cut out first (`volatile_values.py`); or they differ altogether (`varying_headers.py`). Header
bytes at the start of a body are expected to be the packet identifier, which has no column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.pipeline.decode.arrays import WHOLE, Array, front, identifiers, override, whole_data
from gateway.pipeline.decode.columns import MessageColumn, arrow_schema, arrow_type, columns_of
from gateway.pipeline.decode.head_table import (
    MOST_DECODED,
    NO_TIME,
    UNDECODED,
    HeadTable,
    identity_columns,
    said_by_any,
)
from gateway.pipeline.decode.message_parts import headers, payloads
from gateway.pipeline.decode.varying_headers import decode_varying
from gateway.pipeline.decode.volatile_values import VolatileValues, restored
from gateway.pipeline.journal.chunks import Chunk
from gateway.ports.batch import MQMD_LENGTH
from gateway.queue_manager.store.place import id_prefix

Found = dict[str, Any]
"""Columns by name; those that begin with _ are numpy arrays for the row columns."""

DECODERS = 4
FEW_HEADS = 256
"""This many new heads are decoded one by one without looking for what they have in common."""
OVERRIDDEN = {"msg_id": "_msg_id", "correl_id": "_correl_id", "put_ts": "_put_micros", "backout_count": "_backouts"}
"""Columns for which a row's own value overrides its head's."""


class RowDecoder:
    """Makes record batches of chunks, for one set of columns. Keeps decoded heads from chunk to chunk."""

    def __init__(self, queue_manager: str, columns: Sequence[MessageColumn]) -> None:
        self.columns = tuple(columns)
        self.schema = arrow_schema(self.columns)
        self.queue_manager = queue_manager
        self._prefix = np.frombuffer(id_prefix(queue_manager), dtype=np.uint8)
        self._table = HeadTable(self.columns)
        self._volatile = VolatileValues()
        self._masking = False
        self._names = {column.name for column in self.columns}
        self._raw = bool({"mqmd", "headers"} & self._names)
        self._looks_inside = any(column.part != "place" for column in self.columns)
        self.heads = self._table.head_numbers
        self.keep = self._table.keep

    def batch(self, chunk: Chunk) -> pa.RecordBatch:
        """The rows of a chunk. Fastest when the chunk's reader was given `heads`."""
        found = self._found(chunk) if self._looks_inside else {}
        made = pa.RecordBatch.from_arrays(
            [self._column(column, chunk, found) for column in self.columns], schema=self.schema
        )
        self._table.forget()
        return made

    def _found(self, chunk: Chunk) -> Found:
        seen, undecoded = self._table.seen_before
        numbers = self._table.numbers(chunk)
        new = self._table.undecoded(numbers)
        if len(new) > max(FEW_HEADS, chunk.rows // 4):
            found = self._masked(chunk) if self._masking else None
            if found is None and not few_distinct_heads(len(new), int((new < seen).sum()), undecoded, MOST_DECODED):
                found = self._masked(chunk) if not self._masking else None
                self._masking = found is not None
                return found or self._varying(chunk)
            if found is not None:
                return found
        return self._static(chunk, numbers) or self._varying(chunk)

    def _masked(self, chunk: Chunk) -> Found | None:
        """The columns if heads differ only in values that can be cut out; else None."""
        masked = self._volatile.apply(chunk)
        if masked is None:
            return None
        numbers = self._table.numbers(masked.chunk)
        found = self._static(masked.chunk, numbers)
        if found is None:
            return None
        of_row = self._table.decoded(masked.chunk, numbers)[masked.chunk.head_of]
        heads = [plan.head for plan in self._table.plans]
        found.pop("_index", None)  # it points to masked heads
        return found if restored(found, masked, heads, of_row) else None

    def _static(self, chunk: Chunk, numbers: Array) -> Found | None:
        """The columns if all values are in heads; None if header bytes in a body are not as expected."""
        table, plans = self._table, self._table.decoded(chunk, numbers)
        if table.array("_slow")[plans[plans != UNDECODED]].any():
            return None
        of_row = plans[chunk.head_of]
        found: Found = {}
        if {"payload", "headers"} & self._names:
            skips = table.array("_skip")[of_row]
            payload = payloads(chunk.bodies, skips)
            if payload is None:
                return None
            found["payload"] = payload
            found["_skips"] = skips
        index = pa.array(of_row)
        for column in self.columns:
            if column.part == "head":
                found[column.name] = table.column(column.name, index)
        for own, name in OVERRIDDEN.items():
            if own in self._names:
                values = table.array(name)
                found[name] = values[of_row] if values is not None else None
        if self._raw:
            found["_index"] = index
        return found

    def _varying(self, chunk: Chunk) -> Found:
        found = decode_varying(chunk, self.columns, np.arange(chunk.rows))
        heads, of_row = found["_heads"]
        said = said_by_any(identity_columns(heads))
        return found | {name: None if values is None else values[of_row] for name, values in said.items()}

    # ---- columns

    def _column(self, column: MessageColumn, chunk: Chunk, found: Found) -> pa.Array:
        if column.name in found:
            return found[column.name]
        make = getattr(self, f"_make_{column.name}")
        return make(chunk, found)

    def _make_qmgr(self, chunk: Chunk, _found: Found) -> pa.Array:
        return pa.repeat(pa.scalar(self.queue_manager, pa.string()), chunk.rows)

    def _make_queue(self, chunk: Chunk, _found: Found) -> pa.Array:
        names = sorted({queue for queue, _, _ in chunk.places})
        number = {name: at for at, name in enumerate(names)}
        index = np.repeat([number[queue] for queue, _, _ in chunk.places], [rows for _, _, rows in chunk.places])
        return pa.array(names, pa.string()).take(pa.array(index))

    def _make_priority(self, chunk: Chunk, _found: Found) -> pa.Array:
        rows = [rows for _, _, rows in chunk.places]
        return pa.array(np.repeat(np.array([each for _, each, _ in chunk.places], dtype=np.int8), rows))

    def _make_seq(self, chunk: Chunk, _found: Found) -> pa.Array:
        return pa.array(chunk.numbers)

    def _make_msg_id(self, chunk: Chunk, found: Found) -> pa.Array:
        """The row's own MsgId, or the head's, or the one generated from the message number."""
        ids = np.empty((chunk.rows, 24), dtype=np.uint8)
        ids[:, :16] = self._prefix
        ids[:, 16:] = chunk.numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
        override(ids, found["_msg_id"])
        override(ids, chunk.msg_ids)
        return identifiers(ids)

    def _make_correl_id(self, chunk: Chunk, found: Found) -> pa.Array:
        ids = found["_correl_id"]
        if ids is None:
            ids = np.zeros((chunk.rows, 24), dtype=np.uint8)
        override(ids, chunk.correl_ids)
        return identifiers(ids)

    def _make_put_ts(self, chunk: Chunk, found: Found) -> pa.Array:
        own = found["_put_micros"]
        times = chunk.put_micros if own is None else np.where(own != NO_TIME, own, chunk.put_micros)
        unsaid = times == NO_TIME  # of a message that was browsed: a store knows when it was put
        return pa.array(times, mask=unsaid if unsaid.any() else None).cast(arrow_type("timestamp"))

    def _make_backout_count(self, chunk: Chunk, found: Found) -> pa.Array:
        counts = found["_backouts"]
        if counts is None:
            counts = np.zeros(chunk.rows, dtype=np.int32)
        for number, count in chunk.backouts.items():
            counts[chunk.numbers == number] = count
        return pa.array(counts)

    def _make_mqmd(self, chunk: Chunk, found: Found) -> pa.Array:
        if "_index" in found:
            return self._table.column("mqmd", found["_index"])
        return pc.binary_slice(chunk.heads, 0, MQMD_LENGTH).take(pa.array(chunk.head_of))

    def _inside(self, chunk: Chunk, found: Found) -> pa.Array:
        """The heads after the descriptor, by row."""
        if "_index" in found:
            return self._table.column("_inside", found["_index"])
        return pc.binary_slice(chunk.heads, MQMD_LENGTH, WHOLE).take(pa.array(chunk.head_of))

    def _make_headers(self, chunk: Chunk, found: Found) -> pa.Array:
        """The bytes between descriptor and payload; from the lengths alone where the heads tell them."""
        if "_skips" in found:
            skips = found["_skips"]
            if skips.any() and "_index" in found:
                return headers(self._table.whole("_inside"), found["_index"].to_numpy(), chunk.bodies, skips)
            inside = self._inside(chunk, found)
            return pc.binary_join_element_wise(inside, front(chunk.bodies, skips), b"") if skips.any() else inside
        data = whole_data(chunk, np.arange(chunk.rows))
        lengths = pc.subtract(pc.binary_length(data), pc.binary_length(found["payload"])).to_numpy()
        return front(data, lengths)


@lru_cache(DECODERS)
def decoder_of(queue_manager: str, names: tuple[str, ...]) -> RowDecoder:
    """This process's decoder for these columns. Spark keeps its workers from batch to batch, and a fleet's heads
    are the same in each of them: decoding a thousand of them costs as much as reading a hundred thousand rows."""
    return RowDecoder(queue_manager, columns_of(names))


LEAST_SEEN = 8
"""The fewest heads seen before that tell anything."""


def few_distinct_heads(heads: int, again: int, seen: int, bound: int) -> bool:
    """Whether all distinct heads would fit twice into `bound`, so that decoding each once pays.

    In a small chunk of a large fleet all heads differ, and yet each comes back with its device. Estimates the number of
    distinct heads by capture-recapture (Lincoln-Petersen): from the share of this chunk's heads that were seen before
    (`again` of `heads`), and the number `seen` before it.
    """
    return again >= LEAST_SEEN and 2 * heads * seen <= again * bound
