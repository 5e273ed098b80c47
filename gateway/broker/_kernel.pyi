from gateway.broker.route import Route
from gateway.broker.turn import Run

def take(
    data: bytes,
    offset: int,
    first: int,
    version_5: bool,
    max_packet: int,
    max_payload: int,
    cache: dict[bytes, Route],
    run: Run,
    heads: list[bytes],
    bodies: list[bytes],
    pubacks: list[bytes],
    replies: list[bytes],
    /,
) -> int: ...
def topic(data: bytes, offset: int, max_packet: int, /) -> bytes | None: ...
