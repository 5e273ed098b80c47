"""Expired messages that nobody comes across are discarded in the background, in bounded steps, with their reports."""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.batch import MQMD_LENGTH
from gateway.queue_manager import descriptor
from gateway.queue_manager.batch.stored_messages import complete
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.placement import Placer
from gateway.queue_manager.objects.topics import Topics
from gateway.queue_manager.store.unit import LaneTakes, Message, StoreUnit

EVERY = 30.0
"""Seconds between looks."""
AT_ONCE = 2000
"""Messages looked at in one step: the reactor must not stand still."""


class Expirer:
    """Looks through the queues that were given messages with an expiry. After a restart: through all that hold any."""

    def __init__(self, core: Core, placer: Placer, topics: Topics) -> None:
        self._core = core
        self._topics = topics
        self._placer = placer
        self._after: int | None = None
        self._name = ""
        """The queue the last step did not reach the end of."""
        core.expiring.update({name: 0 for name in core.queues if core.store.depth(name)})
        self._timer: Callable[[], None] = core.scheduler.later(EVERY, self._look)

    def close(self) -> None:
        """No more looks."""
        self._timer()

    def _look(self) -> None:
        core = self._core
        with core.entered():
            if core.closed:
                return
            now = int(core.now() * 1_000_000)
            due = self._name or next((name for name, earliest in core.expiring.items() if earliest <= now), "")
            self._end_subscriptions()
            more = bool(due) and self._step(due, now)
        self._timer = core.scheduler.later(0.05 if more else EVERY, self._look)

    def _step(self, name: str, now: int) -> bool:
        """One step through one queue; True while there is more to look at."""
        core = self._core
        messages = core.store.fetch(name, b"", AT_ONCE, self._after) if name in core.queues else []
        if self._after is None:
            core.expiring[name] = 1 << 62
        left = [one.expiry for one in messages if one.expiry > now]
        core.expiring[name] = min([core.expiring.get(name, 1 << 62), *left])
        expired = [one for one in messages if 0 < one.expiry <= now]
        if expired:
            self.discard(name, b"", expired)
        whole = len(messages) < AT_ONCE
        self._after, self._name = (None, "") if whole else (messages[-1].token, name)
        if whole and core.expiring[name] == 1 << 62:
            del core.expiring[name]
        return not whole or any(earliest <= now for earliest in core.expiring.values())

    def _end_subscriptions(self) -> None:
        """Those whose SubExpiry is over; their managed queues go with them."""
        core = self._core
        try:
            for definition in self._topics.expired():
                if definition.number("DURABLE") == 1:
                    core.save((), (definition,))
                core.uninstall(definition)
        except MQError:  # the disk is away: the next look tries again
            return

    def discard(self, name: str, key: bytes, expired: list[Message]) -> None:
        """They go, and those that ask for it are reported."""
        unit = StoreUnit(takes=[LaneTakes(name, key, [one.token for one in expired])])
        for one in expired:
            if descriptor.integer(one.head, "report") & mq.MQRO_EXPIRATION:
                md = complete(one, self._core.name)
                self._placer.report(md, one.head[MQMD_LENGTH:] + one.body, mq.MQFB_EXPIRATION, unit)
        try:
            self._core.commit(unit)
        except MQError:  # the disk is away: the next look finds them again
            return
