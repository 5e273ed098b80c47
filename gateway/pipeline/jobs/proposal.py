"""Proposing a job for what is on a queue: looks at messages and finds a decoder, columns, their types, keys and times.
The proposal is the text of a job, to be read and changed by whoever wants the tables. Works without Spark."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from gateway.config.counting import counted
from gateway.errors import MQError
from gateway.mq.character_sets.ccsid import says_another
from gateway.pipeline.decode.columns import select_columns
from gateway.pipeline.decode.payloads import STRING, decoder, text_of
from gateway.pipeline.errors import PipelineError, WrongOption
from gateway.pipeline.jobs.job import CARRIED
from gateway.pipeline.source.http_access import access_by
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.running_gateway import running_gateway

LOOKED_AT = ("queue", "client_id", "properties", "payload", "dlq_reason", "format", "ccsid", "encoding")
DECODERS = ("json", "cbor", "sparkplug_b")
MOST = 0.9
"""The share of the messages for which a decoder must give a document to be chosen."""
DEEPEST = 3
OF_THE_TABLE = ("error", "payload", "status", "batch")
MOST_COLUMNS = 200
"""The most columns: a document whose names are data would otherwise make a column of each of them."""
MOST_TOLD = 20
ESCAPED = re.compile("[^ -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""What YAML has no character for, or takes for the end of a line."""
WORDS = ("true", "false", "null")
"""What YAML does not take for text."""
TIMES = re.compile(r"(^|_)(ts|time|timestamp|at|date|when)$")
COUNTERS = ("n", "seq", "sequence", "counter", "count")
DEVICES = ("device", "device_id", "deviceid", "sensor", "sensor_id", "serial", "id")
UNITS = (("s", 1e9, 1e10), ("ms", 1e12, 1e13), ("us", 1e15, 1e16))
"""The ranges of numbers that are times between 2001 and 2286, by unit."""


KindOf = Callable[[Sequence[Any]], tuple[str, str]]
"""Tells the type of some values, and the unit if they are times."""


@dataclass(slots=True)
class ProposedColumn:
    """A column of the silver table."""

    name: str
    path: str
    kind: str
    unit: str = ""
    but: str = ""
    """What is left for the user to decide."""

    def line(self) -> str:
        """The column's line in the job."""
        words = [f"name: {self.name}"]
        words += [f"from: {quoted(self.path)}"] if self.path != f"payload.{self.name}" else []
        words += [f"type: {self.kind}"] if self.kind != "string" else []
        words += [f"unit: {self.unit}"] if self.unit else []
        return "      - {" + ", ".join(words) + "}" + (f"  # {self.but}" if self.but else "")


@dataclass(slots=True)
class Proposal:
    """What was found on a queue."""

    decode: str
    columns: list[ProposedColumn]
    decoded: int
    messages: int
    key: str = ""
    event_time: str = ""
    left_out: dict[str, str] = field(default_factory=dict)
    """Paths for which there is no column, each with the reason."""
    dead_letters: bool = False


def messages_on(options: Options, most: int) -> list[dict[str, Any]]:
    """The oldest messages on the queues, without removing any. Raises WrongOption if there are none."""
    from gateway.pipeline.decode.row_decoder import RowDecoder

    access = access_by(options)
    access.journal(options.queue)  # refuses a folder and an address of two
    end = access.extent(options.queue, 0, most).next
    decode = RowDecoder(options.queue_manager, select_columns(",".join(LOOKED_AT), include_raw=False))
    pieces = access.pieces(options.queue, 0, end, 1)
    batches = [decode.batch(chunk) for piece in pieces for chunk in piece.chunks(most)]
    found = [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="lossy")]
    if not found:
        raise WrongOption(
            f"there is no persistent message on {options.queue}, and others are not read: publish some at QoS 1 or 2 "
            "(or say `persistence: persistent` in the mapping), or name another queue"
        )
    return found


def propose(rows: Sequence[Mapping[str, Any]]) -> Proposal:
    """Propose the decoder, the columns and their types."""
    letters = [row for row in rows if row["dlq_reason"] is None]
    decode, documents = best_decoder([in_utf_8(row) for row in letters])
    values: dict[str, list[Any]] = {}
    left_out: dict[str, str] = {}
    for document in documents:
        flatten(document, "payload", values, left_out)
    found = Proposal(decode, [], len(documents), len(rows), left_out=left_out)
    found.dead_letters = len(letters) < len(rows)
    for path, some in read_together(values, left_out).items():
        _add(found, path, some, partial(kind_of, path))
    for name, some in properties_of(letters).items():
        _add(found, f"properties.{name}", some, lambda texts: (text_kind(texts), ""))
    from_clients = sum(bool(row["client_id"]) for row in letters) >= MOST * max(1, len(letters))
    names = [column.name for column in found.columns]
    devices = [name for name in DEVICES if name in names]
    found.key = next(iter(devices), "client_id" if from_clients else "")
    found.event_time = next((column.name for column in found.columns if column.kind == "timestamp"), "")
    return found


def in_utf_8(row: Mapping[str, Any]) -> bytes:
    """The payload as decoders of text get it: converted from the character set that its message names."""
    payload: bytes = row["payload"] or b""
    if row["format"] == STRING and says_another(row["ccsid"]):
        with suppress(MQError):
            return text_of(payload, row["ccsid"], row["encoding"]).encode()
    return payload


def best_decoder(payloads: Sequence[bytes]) -> tuple[str, list[dict[str, Any]]]:
    """The decoder that gives a document with fields for most payloads, and these documents."""
    for name in (*DECODERS, "text" if all(map(is_text, payloads)) else "raw"):
        with suppress(PipelineError):  # a package that CBOR needs is not here
            documents = documents_of(name, payloads)
            if payloads and len(documents) >= MOST * len(payloads):
                return name, documents
    return "raw", []


def documents_of(name: str, payloads: Sequence[bytes]) -> list[dict[str, Any]]:
    """The documents with fields that a decoder makes of some payloads."""
    texts, _ = decoder(name)(payloads)
    documents = [value for text in texts if text is not None and isinstance(value := json.loads(text), dict)]
    return [value for value in documents if name != "sparkplug_b" or value.get("metrics")]


def is_text(payload: bytes) -> bool:
    """Whether a payload is UTF-8."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_together(values: Mapping[str, list[Any]], left_out: dict[str, str]) -> dict[str, list[Any]]:
    """The paths that one table can read, with their values: those that most documents have. A field that is a value in
    most documents and an object in others is read whole, as text."""
    there = {path: sum(value is not None for value in some) for path, some in values.items()}
    steps: dict[str, str] = {}
    objects: dict[str, int] = {}
    read: set[str] = set()
    for path in sorted(values, key=lambda path: -there[path]):
        *above, _ = whole = list(accumulate(path.split("."), "{}.{}".format))
        alike = [steps[one.lower()] for one in whole if steps.get(one.lower(), one) != one]
        inside = [one for one in above if one in read]
        if alike:
            left_out[path] = f"{quoted(alike[0])} differs only in case"
        elif inside:
            left_out[path] = f"{quoted(inside[0])} is a value in more messages"
            objects[inside[0]] = max(there[path], objects.get(inside[0], 0))
        elif path in objects:
            left_out[path] = "it is an object in more messages"
        elif len(read) == MOST_COLUMNS:
            left_out[path] = "more messages have other fields, and these are columns enough"
        else:
            steps |= {one.lower(): one for one in whole}
            objects |= {one: max(there[path], objects.get(one, 0)) for one in above}
            read.add(path)
    return {path: [*some, *["{}"] * objects.get(path, 0)] for path, some in values.items() if path in read}


def flatten(value: Mapping[str, Any], path: str, values: dict[str, list[Any]], left_out: dict[str, str]) -> None:
    """Add the fields of a document by their paths. Lists, and names that a path cannot have, are left out."""
    for name, one in value.items():
        below = f"{path}.{name}"
        if "." in name or not name:
            left_out[below] = "a path has a name between dots"
        elif not is_unicode(name):
            left_out[below] = "its name is no text"
        elif isinstance(one, list):
            left_out[below] = "a list, and a column has one value"
        elif isinstance(one, dict):
            if below.count(".") < DEEPEST:
                flatten(one, below, values, left_out)
            else:
                left_out[below] = "it lies too deep"
        else:
            values.setdefault(below, []).append(one)


def kind_of(path: str, values: Iterable[Any]) -> tuple[str, str]:
    """The type of a field, and the unit if it is a time."""
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, bool) for value in there):
        return "boolean", ""
    if there and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in there):
        if TIMES.search(path.rpartition(".")[2].lower()):
            for unit, low, high in UNITS:
                if all(low <= value < high for value in there):
                    return "timestamp", unit
        whole = all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in there)
        return ("bigint" if whole else "double"), ""
    if there and all(isinstance(value, str) and is_moment(value) for value in there):
        return "timestamp", ""
    return "string", ""


def is_moment(text: str) -> bool:
    """Whether a text is a date with a time, by ISO 8601."""
    if len(text) < len("2026-11-23T12:00"):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def text_kind(values: Sequence[str]) -> str:
    """The type of a property, whose values are texts."""
    if all(map(is_moment, values)):
        return "timestamp"
    for kind, pattern in (("bigint", r"[+-]?\d{1,18}"), ("double", r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")):
        if all(re.fullmatch(pattern, value) for value in values):
            return kind
    return "string"


def properties_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The properties that at least half of the messages have, with their values."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, value in (row["properties"] or {}).items():
            if "." not in name and value is not None:
                found.setdefault(name, []).append(value)
    return {name: values for name, values in found.items() if 2 * len(values) >= len(rows)}


def of_most(values: Sequence[Any], kind: KindOf) -> str:
    """What to tell the user about a column that is text because of some of its values, while most are of one other
    type; empty if there is nothing to tell."""
    sorts: dict[str, list[Any]] = {}
    for value in values:
        one, unit = kind([value])
        sorts.setdefault("number" if unit or one in ("bigint", "double") else one, []).append(value)
    sorts.pop("string", None)
    most = max(sorts.values(), key=len, default=[])
    if 2 * len(most) <= len(values):
        return ""
    (one, unit), share = kind(most), f"{len(most):,} of {len(values):,} values ({len(most) / len(values):.0%})"
    wanted = f"type: {one}" + (f", unit: {unit}" if unit else "")
    return f"{share} are {one}: with `{wanted}` the other rows would be in quarantine"


def _add(found: Proposal, path: str, values: Sequence[Any], kind_of_all: KindOf) -> None:
    kind, unit = kind_of_all(values)
    but = of_most([value for value in values if value is not None], kind_of_all) if kind == "string" else ""
    taken = {column.name for column in found.columns} | set(OF_THE_TABLE)
    last = path.rpartition(".")[2]
    for name in (plain_name(last), plain_name(path.partition(".")[2]), plain_name(path)):
        if name not in taken and name not in CARRIED:
            found.columns.append(ProposedColumn(name, path, kind, unit, but))
            return
    found.left_out[path] = "its name is taken"


def plain_name(text: str) -> str:
    """A name for a table or column, made from a text."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()
    name = re.sub(r"[^a-z0-9]+", "_", apart).strip("_")[:60]
    return name if name[:1].isalpha() and name not in WORDS else f"c_{name}".rstrip("_")


def quoted(text: str) -> str:
    """A text as a YAML value, on one line. Devices choose the names of fields: what YAML does not take, or takes for
    the end of a line, is escaped."""
    if re.fullmatch(r"[A-Za-z][\w.]*", text) and text.lower() not in WORDS:
        return text
    return ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(text, ensure_ascii=False))


def is_unicode(text: str) -> bool:
    """Whether a text can be written: JSON has names with half a character."""
    return not any("\ud800" <= one <= "\udfff" for one in text)


def job_text(found: Proposal, options: Options, warehouse: str) -> str:
    """The text of the job. If a gateway runs on the folder, it is to keep the cursors."""
    name = plain_name(options.queue)
    source = [f"queue: {quoted(options.queue)}", f"group: {name}"]
    source += [f"path: {quoted(os.path.abspath(options.path))}"] if options.path else []  # noqa: PTH100 - links stay
    there = running_gateway(Path(options.path)) if options.path and not options.url else None
    url, token = there or (options.url, options.token_file)
    for key, value in (("url", url), ("token_file", token), ("ca_file", options.ca_file)):
        source += [f"{key}: {quoted(os.path.abspath(value) if key != 'url' else value)}"] if value else []  # noqa: PTH100
    lines = [
        f"# Proposed from {counted(found.messages, 'message')}; {found.decoded:,} of them decoded as {found.decode}.",
        "# Read it, take out what you do not need, then: mqgate pipeline check, and run --once.",
        "version: 1", f"name: {name}", f"source: {{{', '.join(source)}}}", f"warehouse: {quoted(warehouse)}",
    ]  # fmt: skip
    left_out = list(found.left_out.items())
    lines += [f"# left out: {quoted(path)}: {why}" for path, why in left_out[:MOST_TOLD]]
    lines += [f"# left out: {len(left_out) - MOST_TOLD:,} more"] if len(left_out) > MOST_TOLD else []
    if found.columns:
        lines += ["silver:", "  - table: readings", f"    decode: {found.decode}"]
        lines += [f"    event_time: {found.event_time}"] if found.event_time else []
        lines += [f"    key: [{found.key}]"] if found.key else []
        lines += ["    columns:", *(column.line() for column in found.columns)]
    return "\n".join([*lines, *_gold(found)]) + "\n"


def _gold(found: Proposal) -> list[str]:
    numbers = [column.name for column in found.columns if column.kind == "double"]
    counter = next((column.name for column in found.columns if column.name in COUNTERS and column.kind == "bigint"), "")
    tables = []
    if found.columns and found.key:
        tables += ["{table: devices, kind: last}"]
        tables += (
            [f"{{table: averages_1m, kind: window, every: 1m, values: [{', '.join(numbers)}]}}"] if numbers else []
        )
        tables += [f"{{table: gaps, kind: gaps, sequence: {counter}}}"] if counter else []
    tables += ["{table: dead_letters, kind: dead_letters}"] if found.dead_letters else []
    return ["gold:", *(f"  - {one}" for one in tables)] if tables else []
