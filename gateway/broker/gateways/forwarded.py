"""A publication as one gateway puts it on `MQGATE.FORWARD` for another. Pure."""

from __future__ import annotations

from typing import NamedTuple

from gateway.broker.publish.route import Route, Shared
from gateway.session.publication import Publication
from gateway.session.record import decode_json, decode_publication, encode_json, encode_prefix

_PACKET_ID = b"\0\0"
_LENGTH = 4


class Forwarded(NamedTuple):
    """What lies on the queue: a publication of another gateway's client, or a gateway's message to itself."""

    publication: Publication
    origin: str = ""
    """The gateway it was published at."""
    number: int = 0
    """Numbers of a gateway ascend with its publications."""
    to: list[str] = []  # noqa: RUF012 -- nobody changes it
    """All gateways it was put for."""
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
    redirects: int = 0
    """How often it was sent after a session that moves."""


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


_FULL = dict(zip("ontdgcehlfarqm", Forwarded._fields[1:], strict=True))


def around_number(origin: str, to: list[str], digits: int) -> tuple[bytes, bytes]:
    """What stands before and behind a number of so many digits in the bodies of publications of a gateway's clients for
    the same others, of which no shared subscription wants them: they differ in number and payload alone."""
    before = encode_json({"o": origin})[:-1] + b',"n":'
    after = b"," + encode_json({"t": to, "d": True})[1:]
    length = len(before) + digits + len(after)
    return _PACKET_ID + length.to_bytes(_LENGTH, "little") + before, after


def groups_of(route: Route, forwarded: Forwarded) -> list[Shared]:
    """The shared subscriptions that are to be served here. One whose last member has gone meanwhile has nobody."""
    return [group for group in route.shared if group.name in forwarded.groups]
