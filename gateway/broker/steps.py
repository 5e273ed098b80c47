"""Work in steps: what is read where the queue manager is remote, and what has to be waited for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from gateway.broker.context import Context
from gateway.errors import MQError

_T = TypeVar("_T")
Steps = Generator[Callable[[], Any] | None, Any, _T]
"""Yields what is to be read at each step, and is sent what was found; None, where others get their turn; or `WAIT`."""
Reads = Generator[Callable[[], Any], Any, _T]
"""Yields what is to be read at each step alone."""


def WAIT() -> None:  # noqa: N802 -- a value to be compared with
    """Yielded by what goes on when it is called again."""


def waited_for(context: Context, begin: Callable[[Callable[[], None]], None], go_on: Callable[[], None]) -> Steps[None]:
    """What `begin` is given is called. If that is not at once, `WAIT` is yielded, and `go_on` called in a later
    turn."""
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
    """Have `answered` called with what the reads come to, or with what one of them has met."""

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
