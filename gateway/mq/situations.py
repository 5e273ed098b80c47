"""The four situations in which MQ adds headers to a message, and how these are undone, as functions of a message.

On a transmission queue (MQXQH, with an MQMDE where version 1 cannot say everything); undeliverable (MQDLH); for several
destinations at once (MQDH and its records); in a group or cut into segments (grouping.py). Messages are `(md, data)`
with md in our own form; names, identifiers and the time come from the caller.
"""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import mqmd
from gateway.mq.character_sets.ccsid import codec_of
from gateway.mq.constants import MQAT_QMGR, MQENC_NATIVE
from gateway.mq.headers import dlh, mde, xqh
from gateway.mq.headers.chain import described_by, first
from gateway.mq.headers.header import Header

HEADER_CCSID = 1208
"""Character set of the headers written here."""
_ONLY_AT_DESTINATION = 0x3FF00
"""MQRO_ACCEPT_UNSUP_IF_XMIT_MASK: report options (COA, COD) that must not act on a transmission queue."""


class Putter(NamedTuple):
    """Who puts, as the queue manager knows it; the time is GMT in MQ's form."""

    user: str
    application: str
    application_type: int
    date: str
    time: str
    accounting_token: bytes = b""


class Arrived(NamedTuple):
    """A message taken off a transmission queue: its destination and the message itself."""

    remote_q_name: str
    remote_q_mgr_name: str
    md: bytes
    data: bytes


def to_transmission(
    md: bytes,
    data: bytes,
    remote_q_name: str,
    remote_q_mgr_name: str,
    *,
    msg_id: bytes,
    putter: Putter,
    ccsid: int = 1208,
) -> tuple[bytes, bytes]:
    """Returns the message as it lies on a transmission queue. `msg_id` is new; `putter` is the queue manager."""
    header = xqh.build(remote_q_name, remote_q_mgr_name, md, ccsid=ccsid)
    return separate_descriptor(md, msg_id=msg_id, putter=putter, ccsid=ccsid), header + data


def separate_descriptor(md: bytes, *, msg_id: bytes, putter: Putter, ccsid: int) -> bytes:
    """Returns the descriptor that the queue manager writes for the message on the transmission queue."""
    made = mqmd.patch(
        mqmd.with_described(md, MQENC_NATIVE, ccsid, xqh.FORMAT),
        report=mqmd.number(md, mqmd.AT_REPORT) & ~_ONLY_AT_DESTINATION,
        msg_id=msg_id,
        correl_id=md[mqmd.MSG_ID],
        backout_count=0,
        put_appl_type=MQAT_QMGR,
        put_appl_name=putter.application,
        put_date=putter.date,
        put_time=putter.time,
        appl_origin_data="",
    )
    return made[: mqmd.GROUP_ID.start] + mqmd.NO_VERSION_2_FIELDS


def from_transmission(md: bytes, data: bytes) -> Arrived:
    """Returns the message as it arrives: without header and separate descriptor, and with the embedded descriptor and
    its MQMDE made into one."""
    header = _first(md, data, "MQXQH")
    inner = native_descriptor(header)
    rest = data[xqh.LENGTH :]
    return Arrived(
        header.text("RemoteQName"), header.text("RemoteQMgrName"), *absorb_extension(inner, rest, arrived=True)
    )


def native_descriptor(header: Header) -> bytes:
    """Returns the descriptor embedded in an MQXQH in our own form, whatever byte order and character set it is in."""
    raw = header["MsgDesc"]
    assert isinstance(raw, bytes)  # noqa: S101  the layout says so
    if header.order == "<" and header.codec in {"utf-8", "ascii", "iso8859-1"}:
        return mqmd.version_2(raw)
    return mqmd.unpack(raw, order=header.order, codec=header.codec).pack()


def _first(md: bytes, data: bytes, name: str) -> Header:
    # Only the first header is read: what follows it may be cut or damaged, and the message still has to be delivered.
    header = first(md, data)
    if header is None or header.name != name:
        found = header.name if header else "no header"
        raise HeaderError(name, "StrucId", 0, f"the message begins with {found}, but its Format is {md[mqmd.FORMAT]!r}")
    return header


def absorb_extension(md: bytes, data: bytes, *, arrived: bool = False) -> tuple[bytes, bytes]:
    """Returns the message with the MQMDE in front of its data put into its descriptor, as MQPUT does it.

    It is data instead if it is not valid, if the descriptor has version-2 fields of its own that are not at their
    defaults, and if it is not native. `arrived`: it came over a channel, which makes headers native.
    """
    if md[mqmd.FORMAT] != mde.FORMAT or mde.is_needed(mqmd.version_2(md)):
        return md, data
    described = described_by(md)
    codec = codec_of(described.ccsid) or "utf-8"
    order = ">" if described.encoding & 15 == 1 else "<"
    native = order == "<" and data[:4] == b"MDE "
    if not native and not (arrived and data[:4] in {b"MDE ", "MDE ".encode(codec)}):
        return md, data
    try:
        merged = mde.merge(md, data, order=order)
    except HeaderError:
        return md, data
    if data[:4] != b"MDE ":
        merged = mqmd.with_format(merged, merged[mqmd.FORMAT].decode(codec, "replace").encode("ascii", "replace"))
    return merged, data[mde.LENGTH :]


class DeadLetter(NamedTuple):
    """A message for the dead-letter queue; `truncated` when its data was cut to fit."""

    md: bytes
    data: bytes
    truncated: bool


def to_dead_letter(
    md: bytes, data: bytes, reason: int, dest_q_name: str, dest_q_mgr_name: str, *, putter: Putter, max_length: int = 0
) -> DeadLetter:
    """Returns the message with an MQDLH in front, cut to `max_length` bytes of data (0: any length).

    MsgId, CorrelId, persistence and context stay as they are; `putter` goes into the header.
    """
    header = dlh.build(
        reason,
        dest_q_name,
        dest_q_mgr_name,
        md,
        put_appl_type=putter.application_type,
        put_appl_name=putter.application,
        put_date=putter.date,
        put_time=putter.time,
    )
    whole = header + data
    cut = bool(max_length) and len(whole) > max_length
    if cut and max_length < dlh.LENGTH:
        raise HeaderError(
            "MQDLH", "StrucId", 0, f"a queue for {max_length} bytes cannot hold the header's 172: raise its MAXMSGL"
        )
    described = mqmd.with_described(md, MQENC_NATIVE, HEADER_CCSID, dlh.FORMAT)
    return DeadLetter(described, whole[:max_length] if cut else whole, cut)


class Revived(NamedTuple):
    """A message from the dead-letter queue without its header."""

    header: dlh.Dlh
    md: bytes
    data: bytes


def from_dead_letter(md: bytes, data: bytes) -> Revived:
    """Returns the message as it was before: Format, Encoding and CodedCharSetId restored."""
    found = _first(md, data, "MQDLH")
    header = dlh.parse(data, order=found.order, codec=found.codec)
    return Revived(header, mqmd.with_described(md, *found.follows), data[dlh.LENGTH :])
