"""MQDLH, the header of a message on a dead-letter queue: the reason, and the destination it was meant for."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.errors import HeaderError
from gateway.mq import layout, mqmd

LENGTH = 172
FORMAT = b"MQDEAD  "
DESCRIBED = slice(108, 124)
"""Encoding, CodedCharSetId and Format of the data that follows."""

_CODEC = {order: layout.codec("MQDLH", 1, order) for order in "<>"}


@dataclass(slots=True)
class Dlh:
    """One header as values; `encoding`, `coded_char_set_id` and `format` describe the data that follows."""

    reason: int
    dest_q_name: str
    dest_q_mgr_name: str
    encoding: int = 546
    coded_char_set_id: int = 0
    format: bytes = b"        "
    put_appl_type: int = 0
    put_appl_name: str = ""
    put_date: str = ""
    put_time: str = ""

    def pack(self, order: str = "<") -> bytes:
        """Returns the 172 bytes."""
        return _CODEC[order].pack(
            b"DLH ",
            1,
            self.reason,
            _name("DestQName", 12, self.dest_q_name),
            _name("DestQMgrName", 60, self.dest_q_mgr_name),
            self.encoding,
            self.coded_char_set_id,
            self.format.ljust(8),
            self.put_appl_type,
            self.put_appl_name.encode()[:28].ljust(28),
            self.put_date.encode().ljust(8),
            self.put_time.encode().ljust(8),
        )


def _name(field: str, at: int, name: str) -> bytes:
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) > 48:
        raise HeaderError("MQDLH", field, at, f"{name!r} is longer than 48 bytes: shorten it")
    return raw.ljust(48)


def build(
    reason: int,
    dest_q_name: str,
    dest_q_mgr_name: str,
    md: bytes,
    *,
    put_appl_type: int = 6,
    put_appl_name: str = "mqgate",
    put_date: str = "",
    put_time: str = "",
) -> bytes:
    """Returns the header for a message that `md` describes; the caller says who moves it, and when."""
    encoding, ccsid = mqmd.number(md, mqmd.AT_ENCODING), mqmd.number(md, mqmd.AT_CCSID)
    described = encoding, ccsid, md[mqmd.FORMAT]
    return Dlh(
        reason, dest_q_name, dest_q_mgr_name, *described, put_appl_type, put_appl_name, put_date, put_time
    ).pack()


def parse(data: bytes, at: int = 0, *, order: str = "<", codec: str = "utf-8") -> Dlh:
    """Read the header at `at`."""
    if len(data) - at < LENGTH:
        raise HeaderError("MQDLH", "StrucId", at, f"the data ends after {len(data) - at} bytes of 172")
    _, version, reason, queue, manager, encoding, ccsid, form, kind, name, date, time = _CODEC[order].unpack_from(
        data, at
    )
    if version != 1:
        raise HeaderError("MQDLH", "Version", at + 4, f"{version} is not 1: is the byte order right?")
    text = [
        raw.decode(codec, "surrogateescape").partition("\0")[0].rstrip(" ")
        for raw in (queue, manager, name, date, time)
    ]
    return Dlh(reason, text[0], text[1], encoding, ccsid, form, kind, text[2], text[3], text[4])
