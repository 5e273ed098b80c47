"""Reads that take time: they are asked for, and answered in a later turn of the reactor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from gateway.errors import MQError

Answer = Callable[[Any], None]
"""Called with what a read has found, or with the exception that ended it."""


@runtime_checkable
class Asks(Protocol):
    """Implemented by remote queue managers, so that one that does not answer holds up no device."""

    def ask(self, read: Callable[[], Any], answered: Answer) -> None:
        """Have `read` called in a thread of its own, in the order of asking. It may only call `fetch`, `load`, `depth`,
        `backout` and `subscribe` of this queue manager. `answered` is called in the reactor and never before this
        returns, with an MQError if there is no answer in time."""

    def briefly(self, read: Callable[[], Any]) -> Any:
        """What `read` finds, for a caller who waits for a fraction of a second. Raises MQError after that."""


def found_or_raised(read: Callable[[], Any]) -> Any:
    """What a read finds, or the MQError that ends it."""
    try:
        return read()
    except MQError as error:
        return error
