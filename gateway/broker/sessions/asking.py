"""What the broker reads of a queue manager while devices are served: at once where it is here, later where it is far
away and may not answer. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.errors import MQError
from gateway.ports.asking import found_or_raised

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

_T = TypeVar("_T")


def ask(engine: Engine, read: Callable[[], _T], answered: Callable[[_T | MQError], None]) -> None:
    """Have `answered` called with what `read` finds, at once or in a later turn of the reactor's."""
    if engine.far is None:
        answered(found_or_raised(read))
        return

    def told(found: Any) -> None:
        engine.now = engine.scheduler.now()
        if isinstance(found, Exception) and not isinstance(found, MQError):
            raise found
        answered(found)
        engine.flush()

    engine.far.ask(read, told)
