"""Data conversion as MQGMO_CONVERT does it: built-in formats between character sets and encodings, header by header.

Each header is converted according to what describes it, and afterwards says what follows it in the new form. What
cannot be converted stays as it is, and the fields before it keep describing it correctly. The reason code says why; it
is a warning, and the message is delivered all the same.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gateway.errors import HeaderError, MQError
from gateway.mq import mqmd
from gateway.mq.character_sets import ccsid as charsets
from gateway.mq.constants import (
    MQENC_NATIVE,
    MQFMT_COMMAND_1,
    MQFMT_COMMAND_2,
    MQFMT_IMS_VAR_STRING,
    MQFMT_NONE,
    MQFMT_STRING,
    MQRC_CONVERTED_MSG_TOO_BIG,
    MQRC_CONVERTED_STRING_TOO_BIG,
    MQRC_FORMAT_ERROR,
    MQRC_NONE,
    MQRC_NOT_CONVERTED,
)
from gateway.mq.conversion_headers import Target, header_converted
from gateway.mq.headers.chain import Chain, described_by, walk_far
from gateway.mq.headers.header import Described

_LONGEST_SEGMENT = 65_535 - 4
_TEXT_FORMATS = {MQFMT_STRING, MQFMT_COMMAND_1, MQFMT_COMMAND_2}


class Converted(NamedTuple):
    """A message as MQGET with MQGMO_CONVERT returns it."""

    md: bytes
    data: bytes
    reason: int = MQRC_NONE
    """0, or the warning to give: 2110, 2111, 2115, 2119, 2120, 2190."""
    text: str = ""
    substituted: int = 0
    """Number of characters that the target character set does not have."""


def convert(
    md: bytes,
    data: bytes,
    *,
    encoding: int = MQENC_NATIVE,
    ccsid: int = 0,
    default_ccsid: int = 1208,
    max_length: int | None = None,
    headers_only: bool = False,
) -> Converted:
    """Returns the message in the getter's `encoding` and `ccsid` (0: the queue manager's, `default_ccsid`).

    `max_length` is the getter's buffer: data that does not fit it after conversion gives 2120 and stays unconverted.
    `headers_only` leaves the payload as it is: what a channel does with headers on arrival.
    """
    said = described_by(md)
    described = said._replace(ccsid=said.ccsid or default_ccsid)
    wanted = encoding or MQENC_NATIVE, ccsid if ccsid > 0 else default_ccsid
    if not data or (described.encoding, described.ccsid) == wanted:
        return Converted(md, data)
    if described.format == MQFMT_NONE:
        return Converted(md, data, MQRC_FORMAT_ERROR, "the Format is blank: nothing says what the bytes are")
    try:
        target = Target(*wanted, charsets.target_codec(wanted[1], wanted[0]))
    except MQError as wrong:
        return Converted(md, data, wrong.reason, str(wrong))
    made = _message(mqmd.with_described(md, *described), data, target, headers_only=headers_only)
    if max_length is not None and len(made.data) > max_length:
        why = f"{len(made.data)} bytes after conversion do not fit the buffer of {max_length}"
        return Converted(md, data, MQRC_CONVERTED_MSG_TOO_BIG, why)
    return made if made.data != data or made.reason == MQRC_NONE else made._replace(md=_kept(md, made.md, described))


def _kept(md: bytes, made: bytes, described: Described) -> bytes:
    """Returns the descriptor as it came if nothing was converted (a CodedCharSetId of 0 stays 0), otherwise with the
    new description of its data."""
    return md if described_by(made) == described else made


def _message(md: bytes, data: bytes, target: Target, *, headers_only: bool) -> Converted:
    chain, broken = walk_far(md, data)
    reason, text = (MQRC_FORMAT_ERROR, str(broken)) if broken else (MQRC_NONE, "")
    body, substituted, follows = chain.payload, 0, chain.body
    if not broken and not headers_only:
        try:
            body, substituted, follows = _payload(chain, target)
        except MQError as wrong:
            reason, text = wrong.reason, str(wrong)
    return _headers(md, chain, target, Converted(b"", body, reason, text, substituted), follows)


def _payload(chain: Chain, target: Target) -> tuple[bytes, int, Described]:
    body = chain.body
    if not chain.payload or (body.format == MQFMT_NONE and chain.headers):
        return chain.payload, 0, body
    if body.format in _TEXT_FORMATS:
        source = charsets.source_codec(body.ccsid, body.encoding)
        raw, substituted = charsets.converted(chain.payload, source, target.codec)
    elif body.format == MQFMT_IMS_VAR_STRING:
        raw, substituted = _segments(chain.payload, body, target)
    else:
        name = body.format.decode("ascii", "replace").rstrip()
        raise MQError(MQRC_FORMAT_ERROR, f"Format {name!r} is not built in and no conversion for it is known here", 1)
    return raw, substituted, Described(target.encoding, target.ccsid, body.format)


def _segments(raw: bytes, body: Described, target: Target) -> tuple[bytes, int]:
    """Convert IMS segments: LL (two bytes, which count themselves and ZZ), ZZ, text. Returns the bytes and how many
    characters were substituted."""
    source = charsets.source_codec(body.ccsid, body.encoding)
    order: Literal["big", "little"] = "big" if body.encoding & 15 == 1 else "little"
    new_order: Literal["big", "little"] = "big" if target.order == ">" else "little"
    parts, substituted, at = [], 0, 0
    while at < len(raw):
        length = int.from_bytes(raw[at : at + 2], order)
        if not 4 <= length <= len(raw) - at:
            raise MQError(MQRC_FORMAT_ERROR, f"LL {length} at {at} is not between 4 and {len(raw) - at}", 1)
        text, count = charsets.converted(raw[at + 4 : at + length], source, target.codec)
        if len(text) > _LONGEST_SEGMENT:
            why = f"the segment at {at} has {len(text)} bytes after conversion, more than LL can say"
            raise MQError(MQRC_CONVERTED_STRING_TOO_BIG, why, 1)
        parts.append((len(text) + 4).to_bytes(2, new_order) + raw[at + 2 : at + 4] + text)
        at, substituted = at + length, substituted + count
    return b"".join(parts), substituted


def _headers(md: bytes, chain: Chain, target: Target, made: Converted, follows: Described) -> Converted:
    """Convert headers from the last to the first, so that each can say what now follows it.

    The first one that cannot be converted stays as it is, and so does everything behind it.
    """
    parts = [made.data]
    reason, text, substituted = made.reason, made.text, made.substituted
    for header in reversed(chain.headers):
        try:
            raw, count = header_converted(header, target, follows)
        except (MQError, HeaderError) as wrong:
            reason, text = _reason(wrong), str(wrong)
            parts, substituted = [chain.data[header.offset :]], 0
            follows = Described(*_before(md, chain, header.offset))
            continue
        parts.append(raw)
        substituted += count
        follows = Described(target.encoding, target.ccsid, _before(md, chain, header.offset).format)
    return Converted(mqmd.with_described(md, *follows), b"".join(reversed(parts)), reason, text, substituted)


def _reason(wrong: MQError | HeaderError) -> int:
    if isinstance(wrong, MQError):
        return wrong.reason
    return MQRC_FORMAT_ERROR if wrong.structure != "MQENC" else MQRC_NOT_CONVERTED


def _before(md: bytes, chain: Chain, offset: int) -> Described:
    """Returns what describes the header at `offset` in the message as it came."""
    found = described_by(md)
    for header in chain.headers:
        if header.offset >= offset:
            break
        found = header.follows
    return found
