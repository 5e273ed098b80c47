"""The end of a gateway process: connections are handed back, what is under way is committed, what cannot be is left.

What a queue or the queue manager refuses was acknowledged to nobody: its device sends it again, to another gateway or
to the next life of this one. So it is not waited for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gateway.config.counting import counted
from gateway.mqtt import reasons
from gateway.observe import logs

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway

log = logs.get("mqgate")
LOOK_SECONDS = 0.02
PATIENCE = 1.0
"""Seconds in which a queue or the queue manager that refuses may think better of it."""


class Stopping:
    """The drain of one gateway."""

    def __init__(self, gateway: Gateway, seconds: float) -> None:
        self._gateway = gateway
        self._until = time.monotonic() + seconds
        self._held_since = 0.0
        self._left = False

    def begin(self) -> None:
        """Take no more connections, tell clients, let what is under way be committed."""
        gateway, engine = self._gateway, self._gateway.engine
        log.info("draining", f"{counted(len(engine.connections), 'connection is', 'connections are')} handed back")
        engine.draining = True
        gateway.service.stopping("connections are handed back")
        gateway.listeners.stop_accepting()
        for connection in list(engine.connections):
            engine.leave(connection)
        engine.flush()
        self._look()

    def _look(self) -> None:
        gateway, now = self._gateway, time.monotonic()
        over = gateway.engine.idle and not gateway.engine.parking.waiting
        if now > self._until:
            self._leave_held("the drain has taken as long as it may")
            over = True
        elif not over and self._only_held():
            self._held_since = self._held_since or now
            if now - self._held_since >= PATIENCE:
                self._leave_held(self._why())
                over = gateway.engine.idle or not gateway.connected
        else:
            self._held_since = 0.0
        if now > self._until or (over and not gateway.hub.count):
            gateway.stop()
        else:
            gateway.reactor.callLater(LOOK_SECONDS, self._look)

    def _only_held(self) -> bool:
        """Whether nothing that is left goes through for now."""
        return not self._gateway.connected or self._gateway.engine.idle

    def _why(self) -> str:
        if not self._gateway.connected:
            return "the queue manager is away"
        queues = sorted({address.queue for address in self._gateway.engine.parking.waiting})
        some = ", ".join(queues[:5]) + (" and others" if len(queues) > 5 else "")
        return f"{some} {'takes' if len(queues) == 1 else 'take'} nothing now"

    def _leave_held(self, why: str) -> None:
        """Say what is not waited for, and tell those who wait that nobody will answer."""
        if self._left:
            return
        self._left = True
        engine = self._gateway.engine
        count = engine.batch.rows + engine.parking.rows + (0 if engine.idle else engine.running.rows)
        if count:
            left = counted(count, "message is", "messages are")
            log.warning(
                "drain.left",
                f"{left} left: {why}; nobody had an acknowledgement for what is left, so it is sent again",
                count=count,
            )
        moved = bool(engine.limits.server_reference)
        reason = reasons.USE_ANOTHER_SERVER if moved else reasons.SERVER_SHUTTING_DOWN
        for connection in list(engine.connections):
            engine.refuse(connection, reason, "draining", "the gateway is stopping")
        engine.flush()
