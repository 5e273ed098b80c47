"""Reads that take their time: asked for, and answered in a later turn of the reactor's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from gateway.errors import MQError

Answer = Callable[[Any], None]
"""Told what a read found, or the exception it ended with."""


@runtime_checkable
class Asks(Protocol):
    """Implemented by remote queue managers: no device is held up by one that does not answer."""

    def ask(self, read: Callable[[], Any], answered: Answer) -> None:
        """`read` is called in a thread of its own, in the order of asking: it makes nothing but calls of `fetch`,
        `load`, `depth`, `backout` and `subscribe` of this queue manager. `answered` is called in the reactor, never
        before this returns; with an MQError when there is no answer in time."""

    def briefly(self, read: Callable[[], Any]) -> Any:
        """What `read` finds, for somebody who waits: a fraction of a second, then MQError."""


def found_or_raised(read: Callable[[], Any]) -> Any:
    """What a read finds, or the MQError it ends with."""
    try:
        return read()
    except MQError as error:
        return error
