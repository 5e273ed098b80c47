"""Decodes one message's descriptor and headers into the values of the `head` columns, with the codecs of `gateway.mq`.

Called once for each distinct head of a batch. A header that cannot be read gives a row with `header_error`, whose
payload begins with that header. No content of a message raises an exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import mqmd
from gateway.mq.headers import chain, rfh2
from gateway.mq.headers.header import Described, Header
from gateway.mq.headers.rfh2_folder import Element, parse_folder, unescape

Value = str | int | bool | bytes | None
Properties = tuple[tuple[str, str | None], ...]

TYPED = {("mqps", "Top"), ("mqps", "Ret"), ("mqtt", "clientId"), ("mqtt", "qos"), ("mqtt", "contentType")}
"""Elements that have a column of their own and are left out of `properties`."""
UNSHOWN = TYPED | {("mqtt", "msgId"), ("mqtt", "dup")}
"""Elements left out of `properties`. The packet identifier means nothing once the message is acknowledged."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_ERROR = 200
MICROS_FROM, MILLIS_FROM = 10**14, 10**11
"""A time written as a number above these counts microseconds or milliseconds, otherwise seconds."""
FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, which readers of tables can show. A device may write any number as a property."""


class Head(NamedTuple):
    """A decoded head."""

    values: dict[str, Value]
    properties: Properties
    body_at: int
    """Length of all headers in the message data."""
    correl_id: bytes
    msg_id: bytes
    """As in the descriptor; NUL when the queue manager generates it."""
    put_micros: int | None
    """As in the descriptor; None when the commit time counts."""
    backout_count: int


def decode_head(md: bytes, data: bytes) -> Head:
    """Decode a head. `data` must begin with all headers. Headers before a damaged one count: a dead letter keeps its
    reason even if the message in it is damaged."""
    walked, broken = chain.walk_far(md, data)
    values: dict[str, Value] = {}
    properties: dict[str, str | None] = {}
    body_at, body = 0, chain.described_by(md)
    for header in walked.headers:
        try:
            read_header(header, values, properties)
        except HeaderError as error:
            broken = error
            break
        body_at, body = header.offset + len(header.raw), header.follows
    if broken is None and len(walked.headers) == chain.MAX_HEADERS:
        broken = HeaderError("chain", "Format", body_at, f"more than {chain.MAX_HEADERS} headers")
    error_text = str(broken)[:MAX_ERROR] if broken else None
    return head_of(md, values | body_values(body) | {"header_error": error_text}, tuple(properties.items()), body_at)


def body_values(body: Described) -> dict[str, Value]:
    """Character set, encoding and format of the payload, from the last header or the descriptor."""
    return {"ccsid": body.ccsid, "encoding": body.encoding, "format": text(body.format)}


def head_of(md: bytes, values: dict[str, Value], properties: Properties, body_at: int) -> Head:
    """A head from its descriptor and the values of its headers."""
    descriptor = mqmd.unpack(md)
    values |= {
        "group_id": descriptor.group_id,
        "msg_seq_number": descriptor.msg_seq_number,
        "msg_type": descriptor.msg_type,
        "report": descriptor.report,
        "feedback": descriptor.feedback,
        "expiry": descriptor.expiry,
        "put_appl_type": descriptor.put_appl_type,
        "persistence": clipped(descriptor.persistence),
        "reply_to_q": clean(descriptor.reply_to_q),
        "reply_to_qmgr": clean(descriptor.reply_to_q_mgr),
        "user_id": clean(descriptor.user_identifier),
        "put_appl_name": clean(descriptor.put_appl_name),
        "appl_identity": clean(descriptor.appl_identity_data),
    }
    micros = put_micros(descriptor.put_date, descriptor.put_time)
    return Head(values, properties, body_at, descriptor.correl_id, descriptor.msg_id, micros, descriptor.backout_count)


def read_header(header: Header, values: dict[str, Value], properties: dict[str, str | None]) -> None:
    """Add the values of one header: dead-letter fields, MQTT fields, properties. Raises HeaderError if it is
    damaged."""
    if header.name == "MQDLH":
        values |= dead_letter_values(header)
    elif header.name == "MQRFH2":
        for folder in list(folders_of(header)):
            read_folder(folder, values, properties)


def dead_letter_values(header: Header) -> dict[str, Value]:
    """The reason and destination of a dead letter."""
    return {
        "dlq_reason": header.number("Reason"),
        "dlq_dest_q": header.text("DestQName"),
        "dlq_dest_qmgr": header.text("DestQMgrName"),
    }


def folders_of(header: Header) -> Iterator[Element]:
    """The folders of one MQRFH2."""
    for folder in rfh2.parse(header.raw, order=header.order).texts():
        if folder.strip():
            yield parse_folder(folder, header.offset)


def read_folder(folder: Element, values: dict[str, Value], properties: dict[str, str | None]) -> None:
    """Add typed elements to their columns, all others to `properties`: usr by name, others as folder.name."""
    for path, element in leaves(folder):
        name = ".".join(path)
        if (folder.name, name) in UNSHOWN:
            values |= typed_value(folder.name, name, element_text(element) or "")
            continue
        if folder.name == "mcd":
            continue
        shown = element_text(element)
        properties[name if folder.name == "usr" else f"{folder.name}.{name}"] = shown
        if (folder.name, name) == ("usr", "received") and shown:
            values["recv_ts"] = moment(shown)


def leaves(element: Element, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Element]]:
    """The elements with values below a folder, with their paths."""
    for child in element.children:
        below = (*path, child.name)
        if child.children:
            yield from leaves(child, below)
        else:
            yield below, child


def element_text(element: Element) -> str | None:
    """The value of an element as text; None for xsi:nil."""
    if element.attributes.get("xsi:nil") in ("true", "1"):
        return None
    return unescape(element.text)


def typed_value(folder: str, name: str, shown: str) -> dict[str, Value]:
    """The column and value of a typed element; empty when the text is not of its type."""
    if (folder, name) == ("mqps", "Top"):
        return {"topic": shown}
    if (folder, name) == ("mqps", "Ret"):
        return {"retain": shown.strip() in ("1", "true")}
    if (folder, name) == ("mqtt", "clientId"):
        return {"client_id": shown}
    if (folder, name) == ("mqtt", "contentType"):
        return {"content_type": shown}
    if (folder, name) == ("mqtt", "qos") and shown.strip() in ("0", "1", "2"):
        return {"qos": int(shown)}
    return {}


def clean(shown: str) -> str:
    """Text without surrogates: bytes that are not UTF-8 become the replacement character."""
    return shown.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def text(raw: bytes) -> str:
    """A character field of the descriptor in ASCII."""
    return raw.partition(b"\0")[0].decode("ascii", "replace").rstrip(" ")


def clipped(number: int) -> int:
    """A number as a tinyint; -1 for one that does not fit, which only damage explains."""
    return number if -128 <= number <= 127 else -1


def put_micros(date: str, time: str) -> int | None:
    """PutDate YYYYMMDD and PutTime HHMMSSTH as microseconds since the epoch; None if they are blank, not a time, or
    outside the years 1 to 9999."""
    if len(date) != 8 or len(time) < 6 or not (date + time).isdigit() or not (date + time).isascii():
        return None
    try:
        day = datetime(int(date[:4]), int(date[4:6]), int(date[6:8]), tzinfo=UTC)
    except ValueError:
        return None
    hours, minutes, seconds = int(time[:2]), int(time[2:4]), int(time[4:6])
    if hours > 24 or minutes > 59 or seconds > 61:  # 60 and 61 come from clocks that keep leap seconds (MQMD, PutTime)
        return None
    hundredths = (hours * 3600 + minutes * 60 + seconds) * 100 + int(time[6:8].ljust(2, "0"))
    micros = int(day.timestamp()) * 1_000_000 + hundredths * 10_000
    return micros if micros <= LAST_MICROS else None


def moment(shown: str) -> int | None:
    """A time written by a mapping: ISO 8601, or a number of milliseconds or microseconds since the epoch. None for
    anything else, and for what is outside the years 1 to 9999."""
    micros = _micros(shown)
    return micros if micros is not None and FIRST_MICROS <= micros <= LAST_MICROS else None


def _micros(shown: str) -> int | None:
    if shown.removeprefix("-").isdecimal():
        number = int(shown[:20])
        size = abs(number)
        return number if size > MICROS_FROM else number * 1000 if size > MILLIS_FROM else number * 1_000_000
    try:
        when = datetime.fromisoformat(shown)
    except ValueError:
        return None
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)
