"""What is done with each of many copies for a session, in C (`_copies.c`) where there was a compiler at installation:
the identifier before what is stored, the packets, and the PUBACKs that answer them. Pure.

The Python below does the same; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from struct import unpack_from
from typing import Any

from gateway.mqtt.packets import V5
from gateway.ports.batch import Token
from gateway.session.copies import Copies
from gateway.session.publication import varint

_LONGEST = 0x0FFF_FFFF
"""Of what follows the remaining length of a packet."""
PUBACK, PUBREC, PUBCOMP = 0x40, 0x50, 0x70
"""First bytes of what subscribers answer."""
_REASONS = {
    PUBACK: frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}),
    PUBREC: frozenset({0x00, 0x10}),
    PUBCOMP: frozenset({0x00, 0x92}),
}
"""Reason codes with which each is like one without."""


def numbered_in_python(
    payloads: list[bytes], first: int, blocks: list[bytes] | None = None, back: bytes = b"", /
) -> list[bytes]:
    """What is stored of each: its packet identifier and the payload. With properties of each: these with their length,
    and `back`, before the identifier."""
    found = [number.to_bytes(2, "little") + payload for number, payload in enumerate(payloads, first)]
    if blocks is None:
        return found
    return [len(block).to_bytes(4, "little") + block + back + one for block, one in zip(blocks, found, strict=True)]


def wire_in_python(
    first: int, topic: bytes | list[bytes], middle: bytes, packet_id: int, bodies: list[bytes], begin: int, end: int,
    width: int, longest: int, blocks: list[bytes] | None = None, back: bytes = b"", /,
) -> bytes | None:  # fmt: skip
    """The PUBLISH packets of some copies: `first` is their first byte, `middle` stands between packet identifier and
    payload, `width` bytes of each body before its payload. With properties of each: these come after the properties in
    `middle` and before those in `back`. A list of topics has one for each. None: one would be longer than allowed."""
    out: list[bytes] = []
    topics = repeat(topic, end - begin) if isinstance(topic, bytes) else topic
    before, known, last = b"", -1, None
    named, fixed = b"", 0
    for at, own in zip(range(begin, end), topics, strict=True):
        if own != last:
            last, known, named = own, -1, len(own).to_bytes(2, "big") + own
            fixed = len(named) + (2 if first & 6 else 0) - width
        body = bodies[at]
        if blocks is not None:
            block = middle_of(middle, blocks[at], back)
        else:
            block = middle
        length = fixed + len(block) + len(body)
        if length != known:
            known, digits = length, varint(length)
            if 1 + len(digits) + length > longest or length > _LONGEST:
                return None
            before = bytes((first,)) + digits + named
        out.append(before)
        if first & 6:
            out.append((packet_id + at - begin).to_bytes(2, "big"))
        out += (block, body[width:])
    return b"".join(out)


def middle_of(front: bytes, block: bytes, back: bytes) -> bytes:
    """All properties of one copy, with their length."""
    return varint(len(front) + len(block) + len(back)) + front + block + back


def settle_in_python(
    data: bytes, offset: int, first: int, version_5: bool, inflight: dict[int, Any], tokens: list[Token], /
) -> tuple[int, int, int]:
    """Remove what the PUBACKs, or PUBCOMPs, at `offset` answer from what is in flight, and add the tokens of what is
    stored of it. `first` is their first byte.

    Only those without properties are looked at, and for messages of which nobody wants reports. Returns the offset of
    the first packet that is anything else, how many were answered, and the payload bytes of those stored."""
    ids, stops = packet_ids(data, offset, first, version_5, inflight)
    at = size = 0
    while at < len(ids):
        found = inflight.get(ids[at])
        if found is None or not (found.qos == 1 if first == PUBACK else found.released):
            break
        if type(found) is Copies:
            count = in_order(found, ids, at, inflight)
            place = ids[at] - found.first
            if found.tokens:
                tokens += found.tokens[place : place + count]
                size += sum(map(len, found.bodies[place : place + count])) - count * found.width
            for packet_id in ids[at : at + count]:
                del inflight[packet_id]
            at += count
            continue
        if found.publication.report:
            break
        del inflight[ids[at]]
        if found.token is not None:
            tokens.append(found.token)
            size += len(found.publication.payload)
        at += 1
    return (stops[at - 1] if at else offset), at, size


def packet_ids(
    data: bytes, offset: int, first: int, version_5: bool, inflight: dict[int, Any]
) -> tuple[Sequence[int], Sequence[int]]:
    """What acknowledgements of a kind at `offset` name, and where each ends, as far as they have neither properties nor
    a reason that matters: none where the first one answers nothing, and no more than are in flight, because whoever
    calls comes again for the rest."""
    if int.from_bytes(data[offset + 2 : offset + 4]) not in inflight:
        return (), ()
    number = min((len(data) - offset) >> 2, len(inflight))
    end = offset + 4 * number
    if data[offset:end:4] == bytes((first,)) * number and data[offset + 1 : end : 4] == b"\x02" * number:
        return unpack_from(f">{2 * number}H", data, offset)[1::2], range(offset + 4, end + 4, 4)
    ids: list[int] = []
    stops: list[int] = []
    reasons = _REASONS[first]
    while offset + 4 <= len(data) and data[offset] == first and len(ids) < len(inflight):
        stop = offset + 2 + data[offset + 1]
        whole = stop <= len(data) and (
            stop == offset + 4
            or (version_5 and stop == offset + 5 and data[offset + 4] in reasons)
            or (version_5 and stop == offset + 6 and data[offset + 4] in reasons and not data[offset + 5])
        )
        if not whole:
            break
        ids.append(data[offset + 2] << 8 | data[offset + 3])
        stops.append(stop)
        offset = stop
    return ids, stops


def in_order(found: Copies, ids: Sequence[int], at: int, inflight: dict[int, Any]) -> int:
    """How many of these identifiers are of copies in the order in which they were sent."""
    most = min(len(found.bodies) - (ids[at] - found.first), len(ids) - at)
    some = ids[at : at + most]
    first = ids[at]
    if tuple(some) == tuple(range(first, first + most)) and [*map(inflight.get, some)].count(found) == most:
        return most
    return 1


numbered: Callable[..., list[bytes]] = numbered_in_python
wire: Callable[..., bytes | None] = wire_in_python
settle: Callable[[bytes, int, int, bool, dict[int, Any], list[Token]], tuple[int, int, int]] = settle_in_python
compiled: Any = None
with suppress(ModuleNotFoundError):
    import gateway.session._copies as compiled

    numbered, wire, settle = compiled.numbered, compiled.wire, compiled.settle


def packets_of(
    copies: Copies, first_id: int, begin: int, end: int, version: int, now: float, longest: int, alias: bytes = b"",
    topic: bytes | None = None,
) -> bytes | None:  # fmt: skip
    """The packets of some of the copies; None: one would be longer than allowed."""
    middle, back = copies.middle(version, now, alias)
    named: bytes | list[bytes] = copies.like.topic if topic is None else topic
    if copies.likes is not None:
        named = [like.topic for like in copies.likes[begin:end]]
    return wire(
        0x30 | copies.qos << 1 | copies.retain, named, middle, first_id, copies.bodies, begin,
        end, copies.width, longest, copies.blocks if version == V5 else None, back,
    )  # fmt: skip
