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
"""Between the properties and the length of what is JSON: no subscription identifiers, no packet identifier."""
_MOST_ORIGINS = 1024


class Forwarded(NamedTuple):
    """What lies on the queue: a publication of another gateway's client, or a gateway's message to itself."""

    publication: Publication
    origin: str = ""
    """The gateway it was published at."""
    number: int = 0
    """Numbers of a gateway ascend with its publications."""
    to: list[str] = []  # noqa: RUF012 -- nobody changes it
    """All gateways it was put for with `direct`; of what has no number, those where nobody took it."""
    direct: bool = False
    """For subscriptions that are not shared."""
    groups: list[str] = []  # noqa: RUF012
    """Shared subscriptions of which this gateway gives it to one member."""
    client: str = ""
    """For the session of this client alone, which has moved here."""
    epoch: int = 0
    """How often that session had moved by then: one that was begun anew since then is not meant."""
    held: bool = False
    """Put by this gateway for itself: whether the session gets it from the gateway where it was is not known yet."""
    left: str = ""
    """Was put for this gateway, which is no more, and is for sessions that had just moved on from there."""
    fence: int = 0
    """No publication: a gateway's message to itself, behind all that was put for it before; its number. It concerns
    the session of `client`."""
    device: str = ""
    """A message from a queue for the session of this client, wherever it is, as it lay on its queue: that is the topic
    of `publication`, its descriptor the report. `to` are the gateways where the session is not."""
    rule: str = ""
    """The rule that addresses it."""
    request: str = ""
    """The record of the request that it answers, in hexadecimal."""
    unread: bool = False
    """For the sessions of a gateway that is no more, which nobody had read yet, whatever they subscribe to; it is not
    one of `to`."""
    redirects: int = 0
    """How often it was sent after a session that moves. Of one for a shared subscription: not 0 if gateways with
    members have passed it on, and how often it has gone back to them."""
    whose: list[str] = []  # noqa: RUF012
    """Of one with `left`: put for each of these, which are no more either, for the sessions that were theirs last;
    empty: for one alone, or an earlier release would have to read it."""
    unread_at: list[str] = []  # noqa: RUF012
    """All gateways it was put for with `unread`, unless an earlier release would have to read it."""


def encode_forwarded(forwarded: Forwarded) -> tuple[bytes, bytes]:
    """The prefix of the stored record, and its body."""
    publication = forwarded.publication
    text = encode_json({name: value for name, value in zip(_FULL, forwarded[1:], strict=True) if value})
    prefix = encode_prefix(publication, publication.qos, publication.retain, ())
    return prefix, _PACKET_ID + len(text).to_bytes(_LENGTH, "little") + text + publication.payload


def decode_forwarded(data: bytes) -> Forwarded:
    """What lies on the queue. ValueError or TypeError."""
    publication = decode_publication(data)[0]
    begin = _LENGTH + int.from_bytes(publication.payload[:_LENGTH], "little")
    about = decode_json(publication.payload[_LENGTH:begin])
    publication.payload = publication.payload[begin:]
    return Forwarded(publication, **{_FULL[name]: value for name, value in about.items()})


_FULL = dict(zip("ontdgcehlfarqumwv", Forwarded._fields[1:], strict=True))


def around_number(origin: str, to: list[str], digits: int) -> tuple[bytes, bytes]:
    """What stands before and behind a number of so many digits in the bodies of publications of a gateway's clients for
    the same others, of which no shared subscription wants them: they differ in number and payload alone."""
    before = encode_json({"o": origin})[:-1] + _NUMBER
    after = b"," + encode_json({"t": to, "d": True})[1:]
    length = len(before) + digits + len(after)
    return _PACKET_ID + length.to_bytes(_LENGTH, "little") + before, after


class Usual(NamedTuple):
    """A publication for all subscriptions here that are not shared, of a client of another gateway."""

    front: Front
    block: bytes
    """Its properties."""
    payload: bytes
    origin: str
    number: int


class UsualRecords:
    """Decodes such, as they are put by all releases so far: what is said of them in JSON differs in the number alone,
    and is decoded once."""

    def __init__(self) -> None:
        self._origins: dict[tuple[bytes, bytes], str] = {}
        """By what stands before and behind the number; empty: these are not usual."""
        self._last = b""
        self._front: Front | None = None
        """Of the last record, which begins so."""

    def decode(self, data: bytes) -> Usual | None:
        """None: it is another one, or cannot be read."""
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
    """The shared subscriptions that are to be served here. One whose last member has gone meanwhile has nobody."""
    names = set(forwarded.groups)
    return [group for group in route.shared if group.name in names]
