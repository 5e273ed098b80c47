"""Chunks to record batches with exactly the columns asked for. The fast path of the data source.

Each distinct head is decoded once and taken by number; identifiers and times that the queue manager derives are
computed as columns. Where a part of the headers lies in the bodies, it is recognised as the packet identifier (which
says nothing) or handed to varying.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.backends.embedded.store.place import id_prefix
from gateway.pipeline.arrays import (
    WHOLE,
    Array,
    front,
    groups,
    head_column,
    identifiers,
    in_place,
    override,
    whole_data,
)
from gateway.pipeline.chunks import Chunk
from gateway.pipeline.columns import Column, arrow_schema, arrow_type
from gateway.pipeline.heads import Head, decode_head
from gateway.pipeline.varying import decode_varying
from gateway.ports.batch import MQMD_LENGTH

REMEMBERED = 65_536
"""Decoded heads kept from chunk to chunk."""
PACKET_ID_TAIL = re.compile(rb"[0-9]{1,5}</msgId></mqtt> *")
PACKET_ID_CLOSE = b"</msgId></mqtt>"


@dataclass(slots=True)
class Plan:
    """How the rows of one head are read."""

    head: Head
    skip: int
    """Header bytes at the start of each body."""
    prefix: bytes
    """Payload bytes at the end of the head."""
    varying: bool
    """Whether header bytes in the body say something that has a column."""


class RowDecoder:
    """Makes the batches of one task. Remembers the heads it has seen."""

    def __init__(self, queue_manager: str, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self.schema = arrow_schema(self.columns)
        self.queue_manager = queue_manager
        self._prefix = np.frombuffer(id_prefix(queue_manager), dtype=np.uint8)
        self._plans: dict[bytes, Plan] = {}
        self._looks_inside = any(column.part in ("head", "row", "body") for column in self.columns)

    def batch(self, chunk: Chunk) -> pa.RecordBatch:
        """The rows of a chunk."""
        if not self._looks_inside:
            return self._assembled(chunk, {})
        if len(chunk.heads) > max(256, chunk.rows // 4):
            return self._assembled(chunk, decode_varying(chunk, self.columns, np.arange(chunk.rows)))
        plans = self._plans_of(chunk)
        varying = np.array([plan.varying for plan in plans])
        if not varying.any():
            rows = self._static(chunk, plans)
            if rows is not None:
                return self._assembled(chunk, rows)
        return self._assembled(chunk, decode_varying(chunk, self.columns, np.arange(chunk.rows)))

    # ---- heads

    def _plans_of(self, chunk: Chunk) -> list[Plan]:
        """One plan for each distinct head."""
        first = np.zeros(len(chunk.heads), dtype=np.int64)
        first[chunk.head_of[::-1]] = np.arange(chunk.rows - 1, -1, -1)
        plans = []
        for number, head in enumerate(chunk.heads.to_pylist()):
            plan = self._plans.get(head)
            if plan is None:
                plan = self._remember(head, chunk.bodies[int(first[number])].as_py())
            plans.append(plan)
        return plans

    def _remember(self, head: bytes, body: bytes) -> Plan:
        if len(self._plans) >= REMEMBERED:
            self._plans.clear()
        plan = self._plans[head] = plan_of(head, body)
        return plan

    def _static(self, chunk: Chunk, plans: list[Plan]) -> dict[str, Any] | None:
        """The columns when each head says all there is to say; None when a row's header bytes are not as expected."""
        payload = self._payload(chunk, plans)
        if payload is None:
            return None
        heads = [plan.head for plan in plans]
        found: dict[str, Any] = {"payload": payload}
        index = pa.array(chunk.head_of)
        for column in self.columns:
            if column.part == "head":
                found[column.name] = head_column(column, heads).take(index)
        found["_heads"] = (heads, chunk.head_of)
        return found

    def _payload(self, chunk: Chunk, plans: list[Plan]) -> pa.Array | None:
        skips = np.array([plan.skip for plan in plans])
        prefixed = any(plan.prefix for plan in plans)
        if not skips.any() and not prefixed:
            return chunk.bodies
        if prefixed:
            return None
        return cut(chunk.bodies, skips[chunk.head_of])

    # ---- columns

    def _assembled(self, chunk: Chunk, found: dict[str, Any]) -> pa.RecordBatch:
        arrays = [self._column(column, chunk, found) for column in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, column: Column, chunk: Chunk, found: dict[str, Any]) -> pa.Array:
        if column.name in found:
            return found[column.name]
        make = getattr(self, f"_make_{column.name}")
        return make(chunk, found)

    def _make_qmgr(self, chunk: Chunk, _found: dict[str, Any]) -> pa.Array:
        return pa.repeat(pa.scalar(self.queue_manager, pa.string()), chunk.rows)

    def _make_queue(self, chunk: Chunk, _found: dict[str, Any]) -> pa.Array:
        names = sorted({queue for queue, _, _ in chunk.places})
        number = {name: at for at, name in enumerate(names)}
        index = np.repeat([number[queue] for queue, _, _ in chunk.places], [rows for _, _, rows in chunk.places])
        return pa.array(names, pa.string()).take(pa.array(index))

    def _make_priority(self, chunk: Chunk, _found: dict[str, Any]) -> pa.Array:
        rows = [rows for _, _, rows in chunk.places]
        return pa.array(np.repeat(np.array([each for _, each, _ in chunk.places], dtype=np.int8), rows))

    def _make_seq(self, chunk: Chunk, _found: dict[str, Any]) -> pa.Array:
        return pa.array(chunk.numbers)

    def _make_msg_id(self, chunk: Chunk, found: dict[str, Any]) -> pa.Array:
        """The row's own, else the head's, else the one that names the number."""
        ids = np.empty((chunk.rows, 24), dtype=np.uint8)
        ids[:, :16] = self._prefix
        ids[:, 16:] = chunk.numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
        override(ids, by_head(found, "msg_id"))
        override(ids, chunk.msg_ids)
        return identifiers(ids)

    def _make_correl_id(self, chunk: Chunk, found: dict[str, Any]) -> pa.Array:
        ids = by_head(found, "correl_id").copy()
        override(ids, chunk.correl_ids)
        return identifiers(ids)

    def _make_put_ts(self, chunk: Chunk, found: dict[str, Any]) -> pa.Array:
        heads, head_of = found["_heads"]
        own = np.array([-1 if head.put_micros is None else head.put_micros for head in heads], dtype=np.int64)[head_of]
        micros = np.where(own >= 0, own, chunk.put_micros)
        return pa.array(micros).cast(arrow_type("timestamp"))

    def _make_backout_count(self, chunk: Chunk, found: dict[str, Any]) -> pa.Array:
        heads, head_of = found["_heads"]
        counts = np.array([head.backout_count for head in heads], dtype=np.int32)[head_of]
        if chunk.backouts:
            for at, number in enumerate(chunk.numbers.tolist()):
                counts[at] = chunk.backouts.get(number, counts[at])
        return pa.array(counts)

    def _make_mqmd(self, chunk: Chunk, _found: dict[str, Any]) -> pa.Array:
        return pc.binary_slice(chunk.heads, 0, MQMD_LENGTH).take(pa.array(chunk.head_of))

    def _make_headers(self, chunk: Chunk, found: dict[str, Any]) -> pa.Array:
        """Everything between descriptor and payload."""
        data = whole_data(chunk, np.arange(chunk.rows))
        lengths = pc.subtract(pc.binary_length(data), pc.binary_length(found["payload"])).to_numpy()
        return front(data, lengths)


def plan_of(head: bytes, body: bytes) -> Plan:
    """Decode a head with the first body it came with, and see where its headers end."""
    md, inside = head[:MQMD_LENGTH], head[MQMD_LENGTH:]
    decoded = decode_head(md, inside + body)
    if decoded.values["header_error"] is not None:
        return Plan(decoded, 0, inside, varying=True)  # another body behind the same head may be whole
    skip = decoded.body_at - len(inside)
    if skip <= 0:
        return Plan(decoded, 0, inside[decoded.body_at :], varying=False)
    only_packet_id = PACKET_ID_TAIL.fullmatch(body[:skip]) is not None
    return Plan(decoded, skip, b"", varying=not only_packet_id)


def by_head(found: dict[str, Any], name: str) -> Array:
    """rows x 24 bytes of an identifier that stands in the heads."""
    heads, head_of = found["_heads"]
    joined = b"".join(getattr(head, name) for head in heads)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 24)[head_of]


def cut(bodies: pa.Array, skips: Array) -> pa.Array | None:
    """Bodies without their first bytes, which must be a packet identifier's; None when one is something else."""
    parts, order = [], []
    for skip, rows in groups(skips):
        some = bodies if len(rows) == len(bodies) else bodies.take(pa.array(rows))
        if skip and not only_packet_ids(pc.binary_slice(some, 0, skip)):
            return None
        parts.append(pc.binary_slice(some, skip, WHOLE) if skip else some)
        order.append(rows)
    return in_place(parts, order)


def only_packet_ids(tails: pa.Array) -> bool:
    """Whether all of these end a header with nothing but the packet identifier in it."""
    try:
        left = pc.ascii_trim(tails.cast(pa.string()), characters="0123456789 ")
    except pa.ArrowInvalid:
        return False
    return bool(pc.unique(left).to_pylist() == [PACKET_ID_CLOSE.decode()])
