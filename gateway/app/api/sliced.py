"""Answers that look at perhaps a million things: computed in slices, between serving what clients send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

from gateway.net.calls import Answered, Later

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

_numbers = count(1)


def sliced(engine: Engine, steps: Iterator[None], answer: Callable[[], object]) -> Later:
    """Returns the answer that will be there after the last step."""

    def begin(answered: Answered) -> None:
        def work() -> Iterator[None]:
            try:
                yield from steps
                found = 200, answer()
            except Exception as error:  # noqa: BLE001 -- distinguished where it is answered
                answered(error)
            else:
                answered(found)

        engine.context.slices.run(f"answer {next(_numbers)}", work)

    return Later(begin)
