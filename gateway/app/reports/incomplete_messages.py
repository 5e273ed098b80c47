"""Messages that stay on a consumed queue because segments, or other messages of their group, are missing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from gateway.observe import logs

if TYPE_CHECKING:
    from gateway.ports.sources import Incomplete

PATIENCE_SECONDS = 10.0
"""Parts that arrived more recently than this may be followed by the others."""
log = logs.get("mqgate")


class IncompleteMessages:
    """The incomplete messages of all consumed queues. `ask` lists them by queue; `look` is called once a second."""

    def __init__(self, ask: Callable[[], Iterable[tuple[str, Incomplete]]]) -> None:
        self._ask = ask
        self.now: dict[str, Incomplete] = {}
        """By queue."""

    def look(self) -> None:
        """Log a line when the first one is seen on a queue, and one when none is left."""
        late = time.time() - PATIENCE_SECONDS
        before, self.now = self.now, {queue: one for queue, one in self._ask() if one.since < late}
        for queue, one in self.now.items():
            if queue not in before:
                log.warning("queue.incomplete", _text(one), queue=queue)
        for queue in before:
            if queue not in self.now:
                log.info("queue.complete", "nothing on this queue is incomplete any more", queue=queue)

    def problems(self) -> Iterator[str]:
        """Yields one sentence for each queue, for the operator."""
        for queue, one in self.now.items():
            yield f"queue {queue}: {_text(one)}"


def _text(one: Incomplete) -> str:
    what = "groups of messages" if one.whole_group else "messages in segments"
    return (
        f"{one.number} {what} lack parts and stay, the oldest for {time.time() - one.since:.0f} s "
        f"(GroupId {one.group_id.hex()}): the others have not arrived, are too large, or are held by a program"
    )
