from gateway.broker.publish.answered import committed_in_python as committed
from gateway.broker.publish.answered import keep_tokens_in_python as keep_tokens
from gateway.broker.publish.answered import ordinary_in_python as ordinary
from gateway.broker.publish.route import Route
from gateway.broker.publish.shared_routes import join_in_python as join
from gateway.broker.publish.taking import take_in_python as take

__all__ = ["TopicCache", "committed", "configure", "join", "keep_tokens", "length", "ordinary", "take"]

class TopicCache(dict[bytes, Route]): ...

def configure(classes: tuple[type, ...], numbers: tuple[int, ...], /) -> None: ...
def length(column: list[bytes], /) -> int: ...
