"""Work in steps: what is read one step at a time where the queue manager is remote, and what has to be waited for.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from gateway.broker.context import Context
from gateway.errors import MQError

_T = TypeVar("_T")
Steps = Generator[Callable[[], Any] | None, Any, _T]
"""Yields at each step what is to be read, and is sent what was found; yields None where others may take a turn, or
`WAIT`."""
Reads = Generator[Callable[[], Any], Any, _T]
"""Yields nothing but what is to be read at each step."""


def WAIT() -> None:  # noqa: N802 -- a value to be compared with
    """Yielded by work that waits and is continued by a call."""


def waited_for(context: Context, begin: Callable[[Callable[[], None]], None], go_on: Callable[[], None]) -> Steps[None]:
    """Hand `begin` a function to be called when what is waited for is done. If it is not called at once, yield `WAIT`,
    and have `go_on` called in a later turn."""
    called: list[bool] = []
    waits: list[bool] = []

    def call() -> None:
        called.append(True)
        if waits:
            context.scheduler.later(0.0, go_on)

    begin(call)
    if not called:
        waits.append(True)
        yield WAIT


def ask_in_steps(context: Context, reads: Reads[_T], answered: Callable[[_T | MQError], None]) -> None:
    """Have `answered` called with the result of the reads, or with the error that one of them met."""

    def go_on(found: Any) -> None:
        if isinstance(found, MQError):
            answered(found)
            return
        try:
            read = reads.send(found)
        except StopIteration as end:
            answered(end.value)
            return
        except Exception as error:  # noqa: BLE001 -- whoever asked tries again
            answered(context.unexpected(ask_in_steps.__name__, error))
            return
        context.ask(read, go_on)

    go_on(None)
