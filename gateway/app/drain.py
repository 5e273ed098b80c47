"""The drain of a gateway process: connections are handed back, the open batch is committed, refused messages are
abandoned.

A message that a queue or the queue manager refuses has not been acknowledged: its device sends it again, to another
gateway or to this one after its restart. The drain therefore does not wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

from gateway.app.parts import Parts
from gateway.config.counting import counted
from gateway.mqi.serve import QUIESCE_SECONDS
from gateway.mqtt import reasons
from gateway.observe import logs
from gateway.observe.service import ServiceManager
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.session.connection import AUTHENTICATING, Connection

log = logs.get("mqgate")
LOOK_SECONDS = 0.02
LOOKS = 25
"""How often to check whether clients have been read to the end of what they had sent."""
_PACED_PART = 0.8
"""The part of the drain within which all connections are handed back, whatever the rate."""
PATIENCE = 1.0
"""How many seconds refused messages are tried again: a queue may take them after all."""


class Drain:
    """The drain of one gateway: `begin` starts it, `done` is called at its end."""

    def __init__(self, parts: Parts, service: ServiceManager, done: Callable[[], None]) -> None:
        process = parts.settings.process
        self._seconds, self._rate = process.drain_timeout, float(process.drain_rate)
        self._parts = parts
        self._service = service
        self._done = done
        self._began = time.monotonic()
        self._until = self._began + self._seconds
        self._handed_back: set[Connection] = set()
        self._held_since = 0.0
        self._left = False
        self._looks = 0
        self._undecided: dict[Connection, int] = {}
        """When a connection was last found being authenticated, as a number of looks."""

    def begin(self) -> None:
        """Accept no more connections, tell clients, and let what is in progress be committed."""
        parts, engine = self._parts, self._parts.engine
        parts.listeners.stop_accepting()
        engine.context.draining = True
        log.info("draining", f"{counted(len(engine.connections), 'connection is', 'connections are')} handed back")
        self._service.stopping("connections are handed back")
        if isinstance(parts.queue_manager, EmbeddedQueueManager):
            parts.queue_manager.quiesce()
        if self._rate:
            self._rate = max(self._rate, len(engine.connections) / max(LOOK_SECONDS, self._seconds * _PACED_PART))
        self._look()

    def _hand_back(self, now: float) -> None:
        """Hand back as many connections as the rate allows by now; without a rate all of them."""
        engine = self._parts.engine
        waiting = engine.connections.difference(self._handed_back)
        due = len(waiting)
        if self._rate:
            due = max(0, 1 + int((now - self._began) * self._rate) - len(self._handed_back))
        for connection in list(islice(filter(self._is_heard, waiting), due)):
            self._handed_back.add(connection)
            engine.endings.leave(connection)
        engine.flush()

    def _is_heard(self, connection: Connection) -> bool:
        """Whether everything that a client has sent so far has been taken: what it sent at QoS 0 it does not send
        again. A client that keeps sending is not waited for. One that is being authenticated has that long afterwards:
        what it sent behind its CONNECT is taken only then."""
        engine = self._parts.engine
        if connection.state == AUTHENTICATING:
            self._undecided[connection] = self._looks
        elif self._looks - self._undecided.get(connection, 0) > LOOKS:
            return True
        return engine.endings.is_heard(connection) and connection not in engine.put_off

    def _look(self) -> None:
        parts, now = self._parts, time.monotonic()
        self._looks += 1
        if now <= self._until:
            self._hand_back(now)
        if now <= self._until and not parts.engine.connections <= self._handed_back:
            parts.reactor.callLater(LOOK_SECONDS, self._look)
            return
        finished = parts.engine.context.idle and not parts.engine.parking.waiting
        if now > self._until:
            self._leave_held("the drain has reached its time limit")
            finished = True
        elif not finished and self._only_held():
            self._held_since = self._held_since or now
            if now - self._held_since >= PATIENCE:
                self._leave_held(self._why())
                finished = parts.engine.context.idle or not parts.connected
        else:
            self._held_since = 0.0
        if now > self._until or (finished and not parts.hub.count and not self._programs(now)):
            self._done()
        else:
            parts.reactor.callLater(LOOK_SECONDS, self._look)

    def _programs(self, now: float) -> bool:
        """Whether programs are connected that may still finish their work. Those that ask to be told have been told."""
        queue_manager = self._parts.queue_manager
        if not isinstance(queue_manager, EmbeddedQueueManager):
            return False
        return now - self._began < QUIESCE_SECONDS and bool(queue_manager.connections)

    def _only_held(self) -> bool:
        """Whether everything that is left is refused for now."""
        return not self._parts.connected or self._parts.engine.context.idle

    def _why(self) -> str:
        if not self._parts.connected:
            return "the queue manager is away"
        queues = sorted({address.queue for address in self._parts.engine.parking.waiting})
        some = ", ".join(queues[:5]) + (" and others" if len(queues) > 5 else "")
        return f"{some} {'takes' if len(queues) == 1 else 'take'} no messages now"

    def _leave_held(self, why: str) -> None:
        """Log what is left, and refuse the connections that wait for its acknowledgement."""
        if self._left:
            return
        self._left = True
        engine = self._parts.engine
        count = (
            sum(one.rows for one in engine.context.waiting)
            + engine.parking.rows
            + (0 if engine.context.idle else engine.context.running.rows)
        )
        if count:
            left = counted(count, "message is", "messages are")
            log.warning(
                "drain.left",
                f"{left} left: {why}; it was not acknowledged, so it will be sent again",
                count=count,
            )
        moved = bool(engine.limits.server_reference)
        reason = reasons.USE_ANOTHER_SERVER if moved else reasons.SERVER_SHUTTING_DOWN
        for connection in list(engine.connections):
            engine.context.refuse(connection, reason, "draining", "the gateway is stopping")
        engine.flush()
