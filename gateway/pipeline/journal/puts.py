"""Messages to be put, built from rows: one head for each distinct descriptor and set of properties, bodies as they are.

Parts of a batch travel from Spark's tasks to its driver, and on to a gateway, as small Arrow streams.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.mq import mqmd
from gateway.mq.character_sets.ccsid import CCSID_UTF_8
from gateway.mq.constants import MQENC_NATIVE
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.pipeline.errors import WrongOption


class PutTarget(NamedTuple):
    """The queue that a batch is put on, and the attributes of its messages."""

    queue: str
    priority: int
    expiry: float
    persistent: bool


@dataclass(slots=True)
class PutColumns:
    """Heads and bodies as parallel columns, as the store takes them."""

    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


BUILT_FROM = (
    "properties", "topic", "retain", "client_id", "qos", "content_type", "correl_id", "format", "ccsid", "encoding",
)  # fmt: skip
"""The columns from which a head is built."""


def encode_part(batch: Any, template: Mapping[str, Any]) -> Any:
    """Rows as a batch of heads (dictionary-encoded) and bodies. The column `payload` is needed. A row with mqmd and
    headers is put as its message was; the head of any other is built from those columns of `BUILT_FROM` that are
    there."""
    import pyarrow as pa

    names = set(batch.schema.names)
    if "payload" not in names:
        raise WrongOption("rows written to mqqueue need a column `payload` (binary or string)")
    payload = batch.column("payload")
    if pa.types.is_string(payload.type) or pa.types.is_large_string(payload.type):
        names -= {"ccsid", "encoding"}  # of what the row was made of: a string becomes UTF-8
    payload = payload.cast(pa.binary()).fill_null(b"")
    kept = _as_they_were(batch) if {"mqmd", "headers"} <= names else [None] * batch.num_rows
    built = _built(batch, names, template) if None in kept else kept
    heads = [other if head is None else head for head, other in zip(kept, built, strict=True)]
    return pa.RecordBatch.from_arrays([pa.array(heads, pa.binary()).dictionary_encode(), payload], ["head", "body"])


def _as_they_were(batch: Any) -> list[bytes | None]:
    """The heads with which rows were landed; None for a row that was landed without one."""
    pairs = zip(batch.column("mqmd").to_pylist(), batch.column("headers").to_pylist(), strict=True)
    return [None if md is None else md + (headers or b"") for md, headers in pairs]


def _built(batch: Any, names: set[str], template: Mapping[str, Any]) -> list[bytes]:
    used = [name for name in BUILT_FROM if name in names]
    if not used:
        return [build_head(template, {})] * batch.num_rows
    known: dict[Any, bytes] = {}
    heads = []
    for values in zip(*(batch.column(name).to_pylist() for name in used), strict=True):
        key = tuple(tuple(value) if isinstance(value, list) else value for value in values)
        head = known.get(key)
        if head is None:
            head = known[key] = build_head(template, dict(zip(used, values, strict=True)))
        heads.append(head)
    return heads


def build_head(template: Mapping[str, Any], row: Mapping[str, Any]) -> bytes:
    """An MQMD, and an MQRFH2 if there are properties, or anything of MQTT."""
    body_format = str(row.get("format") or template["format"]).encode()[:8].ljust(8)
    fields: dict[str, Any] = {"persistence": template["persistence"], "priority": template["priority"]}
    if template.get("expiry", -1) >= 0:
        fields["expiry"] = int(template["expiry"] * 10)
    if row.get("correl_id"):
        fields["correl_id"] = bytes(row["correl_id"])[:24].ljust(24, b"\0")
    folders = list(_folders(row))
    fields["put_appl_name"] = "mqgate pipeline"
    payload: dict[str, Any] = {"encoding": row.get("encoding") or MQENC_NATIVE}
    payload["coded_char_set_id"] = row.get("ccsid") or CCSID_UTF_8
    if not folders:
        return mqmd.build(format=body_format, **fields, **payload)
    md = mqmd.build(format=rfh2.FORMAT, encoding=MQENC_NATIVE, coded_char_set_id=CCSID_UTF_8, **fields)
    return md + rfh2.build(folders, format_name=body_format, **payload)


def _folders(row: Mapping[str, Any]) -> Iterable[str]:
    """The folders from which `decode/heads.py` reads these columns."""
    properties = dict(row.get("properties") or [])
    own = {name: value for name, value in properties.items() if "." not in name}
    if own:
        yield folder("usr", own)
    if row.get("topic"):
        yield folder("mqps", [("Top", row["topic"]), *([("Ret", True)] if row.get("retain") else [])])
    device = [("clientId", row.get("client_id")), ("qos", row.get("qos")), ("contentType", row.get("content_type"))]
    said = [(name, value) for name, value in device if value is not None]
    if said:
        yield folder("mqtt", said)


def write_part(batches: Iterable[Any]) -> bytes:
    """Batches of `encode_part` as one stream."""
    import pyarrow as pa

    sink = io.BytesIO()
    schema = pa.schema([("head", pa.dictionary(pa.int32(), pa.binary())), ("body", pa.binary())])
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def joined_parts(parts: Iterable[bytes]) -> bytes:
    """Several streams as one."""
    import pyarrow as pa

    listed = list(parts)
    if len(listed) == 1:
        return listed[0]
    return write_part(batch for part in listed for batch in pa.ipc.open_stream(part))


def read_parts(parts: Iterable[bytes]) -> PutColumns:
    """The messages of some parts, in order. Rows with the same head share one object."""
    import pyarrow as pa

    messages = PutColumns()
    for part in parts:
        for batch in pa.ipc.open_stream(part):
            heads = batch.column("head")
            distinct = heads.dictionary.to_pylist()
            messages.heads.extend(map(distinct.__getitem__, heads.indices.to_pylist()))
            messages.bodies.extend(batch.column("body").to_pylist())
    return messages
