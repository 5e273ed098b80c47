"""The heads that a process has seen, decoded once each, as columns: a row's values are taken by its head's number.

Every head is numbered when it is first seen (`store.head_numbers`), which is cheap; the caller decides which are worth
decoding. The number of heads kept is bounded.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gateway.pipeline.decode.arrays import Array, head_column, repeated, single
from gateway.pipeline.decode.columns import MessageColumn
from gateway.pipeline.decode.heads import Head, decode_head
from gateway.pipeline.journal.chunks import Chunk, NumberedHeads, places_of, seen_heads
from gateway.ports.batch import MQMD_LENGTH
from gateway.queue_manager.store.head_numbers import new_head_numbers

MOST_DECODED = 32_768
"""Decoded heads kept from chunk to chunk, and in a worker from task to task."""
MOST_HEADS = 2 * MOST_DECODED
MOST_HEAD_BYTES = 64 * 1024 * 1024
"""Bounds for the heads that are numbered, decoded or not."""
PACKET_ID_TAIL = re.compile(rb"[0-9]{1,5}</msgId></mqtt> *")
UNDECODED = -1
NO_TIME = -(2**63)
"""Stands for the put time of a descriptor that has none: any other number is a time, before 1970 too."""


@dataclass(slots=True)
class HeadPlan:
    """How the rows that share a head are read."""

    head: Head
    skip: int
    """Header bytes at the start of each body."""
    prefix: bytes
    """Payload bytes at the end of the head."""
    varying: bool
    """Whether header bytes in the body have a value of some column."""


class HeadTable:
    """Decoded heads, for some columns."""

    def __init__(self, columns: Sequence[MessageColumn]) -> None:
        self._columns = [column for column in columns if column.part == "head"]
        self._raw = {"mqmd", "headers"} & {column.name for column in columns}
        self.head_numbers = new_head_numbers()
        self.plans: list[HeadPlan] = []
        self._plan_of = np.empty(0, dtype=np.int32)
        self._kept_for = UNDECODED
        self._clear()

    def _clear(self) -> None:
        self.plans = []
        self._plan_of = np.full(len(self.head_numbers), UNDECODED, dtype=np.int32)
        self._arrays: dict[str, Any] = {}
        self._whole: dict[str, Any] = {}
        self._repeated: dict[str, Any] = {}

    # ---- numbers

    @property
    def seen_before(self) -> tuple[int, int]:
        """How many heads earlier chunks had, and how many of these were not decoded."""
        return len(self._plan_of), len(self._plan_of) - len(self.plans)

    def numbers(self, chunk: Chunk) -> Array:
        """The numbers of the chunk's heads: as its reader gave them, otherwise looked up here."""
        numbered = chunk.numbered
        if numbered is None or not numbered.valid_for(self.head_numbers):
            numbered = self._number(chunk.heads)
        new = len(self.head_numbers) - len(self._plan_of)
        if new:
            self._plan_of = np.concatenate((self._plan_of, np.full(new, UNDECODED, dtype=np.int32)))
        return numbered.numbers

    def _number(self, heads: pa.BinaryArray) -> NumberedHeads:
        self.head_numbers.begin()
        places = np.frombuffer(places_of(self.head_numbers, heads), dtype=np.uint32)
        _heads, numbered = seen_heads(self.head_numbers)
        return NumberedHeads(numbered.head_numbers, numbered.generation, numbered.numbers[places])

    def undecoded(self, numbers: Array) -> Array:
        """The numbers of heads that have not been decoded."""
        return numbers[self._plan_of[numbers] == UNDECODED]

    # ---- decoding

    def decoded(self, chunk: Chunk, numbers: Array) -> Array:
        """The places of the chunk's heads in the columns. New heads are decoded with the first body they come with;
        heads that no row has are left undecoded."""
        plans = self._plan_of[numbers]
        unknown = np.flatnonzero(plans == UNDECODED)
        if len(unknown):
            self._decode(chunk, numbers, unknown)
            plans = self._plan_of[numbers]
        return plans

    def _decode(self, chunk: Chunk, numbers: Array, unknown: Array) -> None:
        first = np.full(len(chunk.heads), -1, dtype=np.int64)
        first[chunk.head_of[::-1]] = np.arange(chunk.rows - 1, -1, -1)
        unknown = unknown[first[unknown] >= 0]
        heads = chunk.heads.take(pa.array(unknown)).to_pylist()
        bodies = chunk.bodies.take(pa.array(first[unknown])).to_pylist()
        if not heads:
            return
        made = [plan_of(head, body) for head, body in zip(heads, bodies, strict=True)]
        self._plan_of[numbers[unknown]] = np.arange(len(self.plans), len(self.plans) + len(made), dtype=np.int32)
        self.plans += made
        self._make(made, heads)

    def _make(self, plans: Sequence[HeadPlan], heads: Sequence[bytes]) -> None:
        """Add newly decoded heads to the columns."""
        new = columns_over([plan.head for plan in plans], self._columns) | {
            "_skip": np.array([plan.skip for plan in plans], dtype=np.int64),
            "_slow": np.array([plan.varying or bool(plan.prefix) for plan in plans], dtype=bool),
        }
        if self._raw:
            new["mqmd"] = pa.array([head[:MQMD_LENGTH] for head in heads], pa.binary())
            new["_inside"] = pa.array([head[MQMD_LENGTH:] for head in heads], pa.binary())
        self._whole = {name: joined(self._whole.get(name), values) for name, values in new.items()}
        arrays = {name: single(values) for name, values in self._whole.items() if isinstance(values, pa.Array)}
        self._repeated = {}
        self._arrays = self._whole | arrays | said_by_any({name: self._whole[name] for name in SILENT})

    def column(self, name: str, index: pa.Array) -> pa.Array:
        """The values of rows with these places. A column with one value for all is made once and cut to length."""
        values, rows = self._arrays[name], len(index)
        if not isinstance(values, pa.Scalar):
            return values.take(index)
        made = self._repeated.get(name)
        if made is None or len(made) < rows:
            made = self._repeated[name] = repeated(values, rows)
        return made.slice(0, rows)

    def array(self, name: str) -> Any:
        """A column over the decoded heads: an Arrow array, a scalar if all are the same, or a numpy array; None for
        identifiers and the like that no head has."""
        return self._arrays[name]

    def whole(self, name: str) -> pa.Array:
        """A column over the decoded heads, as an array even if all are the same."""
        return self._whole[name]

    # ---- what stays

    def keep(self) -> None:
        """Exempt decoded heads from garbage collection. Spark's worker collects after each task, and going through a
        thousand heads and every loaded module costs it more than reading ten thousand rows."""
        if self._kept_for != len(self.plans):
            self._kept_for = len(self.plans)
            gc.freeze()

    def forget(self) -> None:
        """Forget heads that were not decoded when there are too many heads; all heads when too many were decoded."""
        if (
            len(self.head_numbers) <= MOST_HEADS
            and self.head_numbers.size <= MOST_HEAD_BYTES
            and len(self.plans) <= MOST_DECODED
        ):
            return
        kept = (
            np.flatnonzero(self._plan_of != UNDECODED)
            if len(self.plans) <= MOST_DECODED
            else np.empty(0, dtype=np.int64)
        )
        self.head_numbers.keep(kept.astype(np.uint32).tobytes())
        if len(kept) and self.head_numbers.size <= MOST_HEAD_BYTES // 2:
            self._plan_of = self._plan_of[kept]
            return
        self.head_numbers.keep(b"")
        self._clear()


def plan_of(head: bytes, body: bytes) -> HeadPlan:
    """Decode a head with the first body it came with, and find where its headers end."""
    md, inside = head[:MQMD_LENGTH], head[MQMD_LENGTH:]
    decoded = decode_head(md, inside + body)
    if decoded.values["header_error"] is not None:
        return HeadPlan(decoded, 0, inside, varying=True)  # the same head may come with an undamaged body
    skip = decoded.body_at - len(inside)
    if skip <= 0:
        return HeadPlan(decoded, 0, inside[decoded.body_at :], varying=False)
    only_packet_id = PACKET_ID_TAIL.fullmatch(body[:skip]) is not None
    return HeadPlan(decoded, skip, b"", varying=not only_packet_id)


def columns_over(heads: Sequence[Head], columns: Sequence[MessageColumn]) -> dict[str, Any]:
    """The values of heads, as columns over the heads."""
    return {column.name: head_column(column, heads) for column in columns} | identity_columns(heads)


def identity_columns(heads: Sequence[Head]) -> dict[str, Array]:
    """Values of descriptors that rows may override: identifiers as rows of 24 bytes, put times, backout counts."""
    micros = [NO_TIME if head.put_micros is None else head.put_micros for head in heads]
    return {
        "_msg_id": np.frombuffer(b"".join(head.msg_id for head in heads), dtype=np.uint8).reshape(-1, 24),
        "_correl_id": np.frombuffer(b"".join(head.correl_id for head in heads), dtype=np.uint8).reshape(-1, 24),
        "_put_micros": np.array(micros, dtype=np.int64),
        "_backouts": np.array([head.backout_count for head in heads], dtype=np.int32),
    }


SILENT = {"_msg_id": 0, "_correl_id": 0, "_put_micros": NO_TIME, "_backouts": 0}
"""The value of a head that has none."""


def said_by_any(columns: dict[str, Array]) -> dict[str, Array | None]:
    """The columns; None for each for which no head has a value: nothing need be taken from it row by row."""
    return {name: None if (values == SILENT[name]).all() else values for name, values in columns.items()}


def joined(before: Any, after: Any) -> Any:
    """A column with another appended to it."""
    if before is None:
        return after
    return pa.concat_arrays([before, after]) if isinstance(after, pa.Array) else np.concatenate((before, after))
