from typing import Any

from gateway.ports.batch import Token
from gateway.session.copies import Copies
from gateway.session.publication import Publication

def configure(copies: type[Copies], item: type[Any], publication: type[Publication], /) -> None: ...
def numbered(
    payloads: list[bytes], first: int, blocks: list[bytes] | None = None, back: bytes = b"", /
) -> list[bytes]: ...
def wire(
    first: int,
    topic: bytes,
    middle: bytes,
    packet_id: int,
    bodies: list[bytes],
    begin: int,
    end: int,
    width: int,
    longest: int,
    blocks: list[bytes] | None = None,
    back: bytes = b"",
    /,
) -> bytes | None: ...
def settle(
    data: bytes, offset: int, first: int, version_5: bool, inflight: dict[int, Any], tokens: list[Token], /
) -> tuple[int, int, int]: ...
