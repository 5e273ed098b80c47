"""Requests of devices that no application has answered: forgotten when their time is over, so that they do not pile up.

A request that says how long it lives (MQTT 5 message expiry) is kept that long, others for a week. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gateway.bridge.request import Request
from gateway.broker.sessions.asking import ask
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.ports.batch import Stored
from gateway.ports.state_queues import REQUESTS

if TYPE_CHECKING:
    from gateway.broker.engine import Engine

EVERY = 3600.0
"""Seconds between looks."""
LONGEST = 7 * 86_400
GRACE = 60
"""Seconds an answer may be late: clocks differ."""


class Requests:
    """Looks through the stored requests now and then."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._next = 0.0

    def tick(self, now: float) -> None:
        """Forget those whose time is over."""
        if now < self._next:
            return
        self._next = now + EVERY
        ask(self._engine, lambda: list(self._engine.queue_manager.load(REQUESTS)), self._found)

    def _found(self, found: list[tuple[bytes, Stored]] | MQError) -> None:
        if isinstance(found, MQError):  # it is away: nothing is in a hurry
            return
        for key, stored in found:
            expiry = Request.decode(stored.data).expiry or LONGEST
            put = _put_at(stored.md)
            if put and put + min(expiry, LONGEST) + GRACE < self._engine.now:
                self._engine.turn.replace(REQUESTS, key, None)


def _put_at(md: bytes) -> float:
    """PutDate and PutTime as seconds since the epoch; 0 where there are none."""
    text = mqmd.text(md, mqmd.PUT_DATE) + mqmd.text(md, mqmd.PUT_TIME)
    if len(text) < 14 or not text[:14].isdecimal():
        return 0.0
    try:
        return datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
