"""Publications behind a wide one that may go along with it because they differ from it in the payload alone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import ProtocolError
from gateway.mqtt.packets import V5
from gateway.mqtt.primitives import decode_varint
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.session.session import Plain
    from gateway.session.staged_run import StagedRun

_PUBREL = b"\x62\x02"


def length_alike(publication: Publication, version: int, data: bytearray, at: int) -> int:
    """The length of a whole packet at `at` that has a publication like this one, and no properties; 0 if there is
    none."""
    if not data.startswith(publication.first.to_bytes(1, "big"), at):
        return 0
    try:
        length, begin = decode_varint(bytes(data[at : at + 5]), 1)
    except ProtocolError:
        return 0
    named = len(publication.topic).to_bytes(2, "big") + publication.topic
    end, block = at + begin + length, at + begin + len(named) + 2 * (publication.qos > 0)
    if (
        end > len(data)
        or (publication.qos and data[block - 2 : block] == b"\0\0")  # that is no packet identifier
        or not data.startswith(named, at + begin)
        or (version == V5 and data[block : block + 1] != b"\0")
    ):
        return 0
    payload = end - block - (version == V5)
    return end - at if 0 <= payload <= len(publication.payload) else 0


def length_of_pubrel(
    publication: Publication, inbound: dict[int, Publication | Plain | StagedRun], data: bytearray, at: int
) -> int:  # fmt: skip
    """The length of a whole PUBREL at `at` that releases a publication like this one, on the same topic; 0 if there is
    none."""
    if not data.startswith(_PUBREL, at) or at + 4 > len(data):
        return 0
    staged = inbound.get(int.from_bytes(data[at + 2 : at + 4]))
    if isinstance(staged, tuple):
        topic, _, first, *more = staged
        return 4 if topic == publication.topic and not (first ^ publication.first) & 7 and not more else 0
    if not isinstance(staged, Publication) or staged.topic != publication.topic:
        return 0
    return 4 if are_alike(publication, staged) else 0


def are_alike(one: Publication, other: Publication) -> bool:
    """Whether one run can hold both, provided that the same filters match."""
    return one.first == other.first and not other.properties and not other.expires
