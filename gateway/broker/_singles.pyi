from collections.abc import Callable

from gateway.broker.route import Route
from gateway.mqtt.reader import Reader
from gateway.session.connection import Connection

def classes(connection: type[Connection], reader: type[Reader], route: type[Route], /) -> None: ...
def take(
    arrived: list[tuple[Connection, bytes]],
    opened: Callable[[Route], tuple[list[bytes], list[bytes], set[Connection]]],
    replies: dict[Connection, list[bytes]],
    pending: dict[Connection, int],
    pubacks: list[bytes],
    now: float,
    generation: int,
    longest: int,
    /,
) -> tuple[list[tuple[Connection, bytes]], int, int]: ...
