"""Pages of many whole messages: one is made at a time, as each takes several times the memory of its messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator

from gateway.net.calls import Answered, Call, Later

Steps = Callable[[], Iterator[None]]
Work = Generator[None, None, tuple[int, object]]
"""The work for an answer, step by step; it returns status and answer at the end."""


class Pages:
    """The pages that wait to be made: those who ask take turns, and a page whose client is gone is not made."""

    def __init__(self, in_slices: Callable[[str, Steps], None], name: str) -> None:
        self._in_slices = in_slices
        self._name = name
        self._asked: dict[tuple[str, str], deque[Steps]] = {}
        """By who asks; whose turn it is comes first."""

    def later(self, call: Call, work: Work) -> Later:
        """The page that this work makes."""
        later = Later(lambda told: self._add(call, lambda: _steps(work, told, later)))
        return later

    def _add(self, call: Call, steps: Steps) -> None:
        self._asked.setdefault((call.caller.user, call.peer), deque()).append(steps)
        self._in_slices(self._name, self._made)

    def _made(self) -> Iterator[None]:
        try:
            while self._asked:
                yield from self._next()()
        except Exception:
            if self._asked:  # they wait for nobody else
                self._in_slices(self._name, self._made)
            raise

    def _next(self) -> Steps:
        who = next(iter(self._asked))
        theirs = self._asked.pop(who)
        steps = theirs.popleft()
        if theirs:
            self._asked[who] = theirs  # behind the others
        return steps


def _steps(work: Work, told: Answered, later: Later) -> Iterator[None]:
    try:
        while later.is_wanted():
            next(work)
            yield
    except StopIteration as over:
        told(over.value)
    except Exception as error:  # noqa: BLE001 -- distinguished where it is answered
        told(error)
