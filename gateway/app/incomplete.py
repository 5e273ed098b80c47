"""What stays on a consumed queue because segments of a message, or messages of a group, have not come: said once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gateway.observe import logs

if TYPE_CHECKING:
    from gateway.broker.deliver.consumers import Consumers
    from gateway.ports.sources import Incomplete

PATIENCE_SECONDS = 10.0
"""What came less than this ago may be on its way."""
log = logs.get("mqgate")


class Stays:
    """See the module. `look` is called once a second."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers
        self.now: dict[str, Incomplete] = {}
        """By queue."""

    def look(self) -> None:
        """A line in the log when that begins on a queue, and one when it is over."""
        late = time.time() - PATIENCE_SECONDS
        before, self.now = self.now, {queue: one for queue, one in self._consumers.incomplete() if one.since < late}
        for queue, one in self.now.items():
            if queue not in before:
                log.warning("queue.incomplete", _said(one), queue=queue)
        for queue in before:
            if queue not in self.now:
                log.info("queue.complete", "nothing on this queue is incomplete any more", queue=queue)

    def troubles(self) -> Iterator[str]:
        """For the operator."""
        for queue, one in self.now.items():
            yield f"queue {queue}: {_said(one)}"


def _said(one: Incomplete) -> str:
    what = "groups of messages" if one.whole_group else "messages in segments"
    return (
        f"{one.number} {what} lack parts and stay, the oldest for {time.time() - one.since:.0f} s "
        f"(GroupId {one.group_id.hex()}): the rest has not come, is too much, or is held by a program"
    )
