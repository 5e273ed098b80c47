"""Who publishes what: the key under which everything that is prepared for publications may be kept."""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """A publication without packet identifier, properties and payload."""

    client_id: str
    username: str
    topic: str
    qos: int
    retain: bool = False
    dup: bool = False
    listener: str = ""
    will: bool = False
