from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gateway.broker.batch import ReleasedRows
from gateway.broker.publish.route import FastPath, Route
from gateway.ports.batch import Address, Token
from gateway.session.session import Session
from gateway.session.staged_run import StagedRun

Prepared: TypeAlias = dict[Address, tuple[Address, list[bytes], list[bytes], list[ReleasedRows] | None]]

class TopicCache(dict[bytes, Route]): ...

def configure(route: type[Route], direct: FastPath, staged: FastPath, staged_id: int, /) -> None: ...
def take(
    data: bytes,
    offset: int,
    version_5: bool,
    max_packet: int,
    max_payload: int,
    first: int,
    cache: dict[bytes, Route],
    missing: Callable[[int, bytes], Route],
    prepared: Prepared,
    replies: list[bytes],
    /,
) -> tuple[int, int]: ...
def stage_records(
    data: bytes,
    offset: int,
    version_5: bool,
    max_packet: int,
    max_payload: int,
    cache: dict[bytes, Route],
    missing: Callable[[int, bytes], Route],
    inbound: dict[int, Any],
    ids: list[int],
    heads: list[bytes],
    bodies: list[bytes],
    replies: list[bytes],
    /,
) -> tuple[int, int]: ...
def release_records(
    data: bytes,
    offset: int,
    caches: tuple[dict[bytes, Route], ...],
    inbound: dict[int, Any],
    tokens: dict[int, Token],
    prepared: Prepared,
    session: Session,
    taken: list[Token],
    replies: list[bytes],
    /,
) -> tuple[int, int]: ...
def pair(into: dict[int, Token], ids: list[int], tokens: Sequence[Token], /) -> None: ...
def topic(data: bytes, offset: int, max_packet: int, /) -> bytes | None: ...
def length(column: list[bytes], /) -> int: ...
def stage_run(
    data: bytes,
    offset: int,
    version_5: bool,
    max_packet: int,
    max_payload: int,
    least: int,
    most: int,
    tails: dict[int, bytes],
    inbound: dict[int, Any],
    run: StagedRun | None,
    ids: list[int],
    bodies: list[bytes],
    replies: list[bytes],
    /,
) -> tuple[int, int, int, int]: ...
def release_run(
    data: bytes, offset: int, inbound: dict[int, Any], run: StagedRun | None, ids: list[int], replies: list[bytes], /
) -> tuple[int, int, int]: ...
