"""A publication as one gateway puts it on `MQGATE.FORWARD` for another. Pure."""

from __future__ import annotations

import struct
from typing import NamedTuple

from gateway.broker.publish.route import Route, Shared
from gateway.session.publication import Publication
from gateway.session.record import Front, decode_front, decode_json, decode_publication, encode_json, encode_prefix

_PACKET_ID = b"\0\0"
_LENGTH = 4
_NUMBER = b',"n":'
_BEFORE_TEXT = b"\0" + _PACKET_ID
"""The bytes between the properties and the length of the JSON: no subscription identifiers, no packet identifier."""
_MOST_ORIGINS = 1024


class Forwarded(NamedTuple):
    """What lies on the queue: a publication of another gateway's client, or a message of a gateway to itself."""

    publication: Publication
    origin: str = ""
    """The gateway at which it was published."""
    number: int = 0
    """Its number; a gateway numbers its publications in ascending order."""
    to: list[str] = []  # noqa: RUF012 -- nobody changes it
    """All gateways for which it was put with `direct`; for one without a number, those where nobody took it."""
    direct: bool = False
    """Whether it is for subscriptions that are not shared."""
    groups: list[str] = []  # noqa: RUF012
    """Shared subscriptions to one member of each of which this gateway gives it."""
    client: str = ""
    """If set: it is for the session of this client alone, which has moved here."""
    epoch: int = 0
    """How often that session had moved by then: a session that was begun anew since then is not meant."""
    held: bool = False
    """Whether this gateway has put it for itself, because it is not known yet if the session gets it from the gateway
    where it was."""
    left: str = ""
    """The gateway, which is no more, for which it was put; it is for sessions that had just moved on from there."""
    fence: int = 0
    """If not 0: no publication, but the number of a gateway's message to itself, behind all that was put for it before.
    It concerns the session of `client`."""
    device: str = ""
    """If set: a message from a queue, as it lay there, for the session of this client, wherever that is. The queue is
    the topic of `publication`, the message descriptor its report. `to` are the gateways where the session is not."""
    rule: str = ""
    """The rule that addresses it to the device."""
    request: str = ""
    """The record of the request that it answers, in hexadecimal."""
    unread: bool = False
    """Whether it is for the sessions of a gateway that is no more, which nobody had read yet, whatever they subscribe
    to; that gateway is not one of `to`."""
    redirects: int = 0
    """How often it was sent after a session that moves. For a shared subscription: not 0 if gateways with members have
    passed it on, and how often it has gone back to them."""
    whose: list[str] = []  # noqa: RUF012
    """With `left`: the gateways, which are no more either, for each of which it was put, for the sessions that were
    theirs last. Empty: for one alone, or an earlier release would have to read it."""
    unread_at: list[str] = []  # noqa: RUF012
    """All gateways for which it was put with `unread`, unless an earlier release would have to read it."""


def encode_forwarded(forwarded: Forwarded) -> tuple[bytes, bytes]:
    """Encode it; returns the prefix of the stored record, and its body."""
    publication = forwarded.publication
    text = encode_json({name: value for name, value in zip(_FULL, forwarded[1:], strict=True) if value})
    prefix = encode_prefix(publication, publication.qos, publication.retain, ())
    return prefix, _PACKET_ID + len(text).to_bytes(_LENGTH, "little") + text + publication.payload


def decode_forwarded(data: bytes) -> Forwarded:
    """Decode what lies on the queue. Raises ValueError or TypeError if it cannot be read."""
    publication = decode_publication(data)[0]
    begin = _LENGTH + int.from_bytes(publication.payload[:_LENGTH], "little")
    about = decode_json(publication.payload[_LENGTH:begin])
    publication.payload = publication.payload[begin:]
    return Forwarded(publication, **{_FULL[name]: value for name, value in about.items()})


_FULL = dict(zip("ontdgcehlfarqumwv", Forwarded._fields[1:], strict=True))


def around_number(origin: str, to: list[str], digits: int) -> tuple[bytes, bytes]:
    """What stands before and after a number with this many digits in the bodies of publications of one gateway's
    clients for the same other gateways, if no shared subscription wants them: such bodies differ in number and payload
    alone."""
    before = encode_json({"o": origin})[:-1] + _NUMBER
    after = b"," + encode_json({"t": to, "d": True})[1:]
    length = len(before) + digits + len(after)
    return _PACKET_ID + length.to_bytes(_LENGTH, "little") + before, after


class Usual(NamedTuple):
    """A publication of another gateway's client that is for all subscriptions here that are not shared."""

    front: Front
    block: bytes
    """Its properties."""
    payload: bytes
    origin: str
    number: int


class UsualRecords:
    """Decodes usual publications as all releases so far put them: their JSON differs in the number alone, so that it is
    decoded only once."""

    def __init__(self) -> None:
        self._origins: dict[tuple[bytes, bytes], str] = {}
        """The origin by what stands before and after the number; empty: such records are not usual."""
        self._last = b""
        self._front: Front | None = None
        """The decoded front of the last record, which begins with `_last`."""

    def decode(self, data: bytes) -> Usual | None:
        """Decode a record; None if it is not usual, or cannot be read."""
        front = self._front
        if front is None or not data.startswith(self._last):
            try:
                front = self._front = decode_front(data)
            except (ValueError, struct.error):
                self._front = None
                return None
            self._last = data[: front.end]
        begin = front.end + _LENGTH
        end = begin + int.from_bytes(data[front.end : begin], "little")
        text = end + len(_BEFORE_TEXT) + _LENGTH
        stop = text + int.from_bytes(data[text - _LENGTH : text], "little")
        at = data.find(_NUMBER, text, stop) + len(_NUMBER)
        behind = data.find(b",", at, stop)
        if at < text or behind < 0 or data[end : text - _LENGTH] != _BEFORE_TEXT or stop > len(data):
            return None
        number, around = data[at:behind], (data[text:at], data[behind:stop])
        origin = self._origins.get(around)
        if origin is None:
            origin = self._learn(around)
        if not origin or not number.isdigit() or number[:1] == b"0":
            return None
        return Usual(front, data[begin:end], data[stop:], origin, int(number))

    def _learn(self, around: tuple[bytes, bytes]) -> str:
        try:
            about = decode_json(b"1".join(around))
        except (ValueError, TypeError):
            about = {}
        origin, to = about.get("o"), about.get("t")
        usual = about == {"o": origin, "n": 1, "t": to, "d": True} and isinstance(origin, str) and isinstance(to, list)
        if len(self._origins) >= _MOST_ORIGINS:
            self._origins.clear()
        self._origins[around] = found = str(origin) if usual else ""
        return found


def groups_of(route: Route, forwarded: Forwarded) -> list[Shared]:
    """The shared subscriptions that are to be served here. One whose last member has gone meanwhile is left out."""
    names = set(forwarded.groups)
    return [group for group in route.shared if group.name in names]
