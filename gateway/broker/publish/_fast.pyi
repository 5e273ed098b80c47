from collections.abc import Sequence

from gateway.broker.publish.answered import committed_in_python as committed
from gateway.broker.publish.answered import ordinary_in_python as ordinary
from gateway.broker.publish.route import Route
from gateway.broker.publish.shared_routes import join_in_python as join
from gateway.broker.publish.taking import take_in_python as take
from gateway.ports.batch import Token

__all__ = ["TopicCache", "committed", "configure", "join", "length", "ordinary", "pair", "take"]

class TopicCache(dict[bytes, Route]): ...

def configure(classes: tuple[type, ...], numbers: tuple[int, ...], /) -> None: ...
def pair(into: dict[int, Token], ids: list[int], tokens: Sequence[Token], /) -> None: ...
def length(column: list[bytes], /) -> int: ...
