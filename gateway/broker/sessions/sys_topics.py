"""`$SYS/#`: the broker's state as messages, under the names other brokers use. Pure; nothing of it is stored.

Every value is text and stays as a retained message in memory; subscribers get one again only when it has changed.
"""

from __future__ import annotations

from gateway.broker.context import Context
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.publish.retained import Retained
from gateway.broker.publish.route import Receiver, Route
from gateway.broker.publish.router import Router
from gateway.broker.sessions.endings import Endings
from gateway.session.publication import Publication
from gateway.version import VERSION

PREFIX = "$SYS/broker/"
INTERVAL = 10.0
"""Seconds between two looks at the counters."""
WINDOWS = {"1min": 60.0, "5min": 300.0, "15min": 900.0}


class SysTopics:
    """Publishes what has changed since the last time."""

    def __init__(self, context: Context, router: Router, retained: Retained, fan_out: FanOut, endings: Endings) -> None:
        self.context = context
        self.router = router
        self.retained = retained
        self.fan_out = fan_out
        self.endings = endings
        self.about = f"mqgate version {VERSION}"
        self._started = 0.0
        self._due = 0.0
        self._shown: dict[str, str] = {}
        self._before: dict[str, int] = {}
        self._loads: dict[str, float] = {}
        self._most_clients = 0

    def tick(self, now: float) -> None:
        """Called once a second."""
        self._started = self._started or now
        if now < self._due:
            return
        self._due = now + INTERVAL
        values = self.values(now)
        values.update(self.loads(self.totals()))
        for name, value in values.items():
            if self._shown.get(name) != value:
                self._shown[name] = value
                self.publish(PREFIX + name, value)

    def totals(self) -> dict[str, int]:
        """Everything that only grows."""
        counters = self.context.counters
        received = sum(counters.packets_in)
        sent = sum(counters.packets_out)
        return {
            "messages/received": received,
            "messages/sent": sent,
            "publish/messages/received": counters.packets_in[3],
            "publish/messages/sent": counters.packets_out[3],
            "publish/messages/dropped": sum(counters.messages_dropped.values()),
            "bytes/received": counters.bytes_in,
            "bytes/sent": counters.bytes_out,
            "connections": sum(counters.mqtt_connects.values()),
        }

    def values(self, now: float) -> dict[str, str]:
        """What is true at this moment."""
        context = self.context
        online = sum(1 for session in context.sessions if session.connection is not None)
        self._most_clients = max(self._most_clients, online)
        values: dict[str, object] = {
            "version": self.about,
            "uptime": f"{int(now - self._started)} seconds",
            "clients/connected": online,
            "clients/active": online,
            "clients/disconnected": len(context.sessions) - online,
            "clients/inactive": len(context.sessions) - online,
            "clients/total": len(context.sessions),
            "clients/maximum": self._most_clients,
            "clients/expired": self.endings.expired_clients,
            "subscriptions/count": len(self.router.subscriptions),
            "retained messages/count": self.retained.count - len(self._shown),
            "messages/stored": sum(session.stored for session in context.sessions),
            "messages/inflight": sum(len(session.outflow.inflight) for session in context.sessions),
        }
        totals = self.totals()
        del totals["connections"]
        return {name: str(value) for name, value in {**values, **totals}.items()}

    def loads(self, totals: dict[str, int]) -> dict[str, str]:
        """Rates a minute, as moving averages over 1, 5 and 15 minutes."""
        loads: dict[str, str] = {}
        for name, total in totals.items():
            rate = (total - self._before.get(name, 0)) * 60.0 / INTERVAL
            for window, seconds in WINDOWS.items():
                key = f"load/{name}/{window}"
                before = self._loads.get(key, 0.0)
                average = self._loads[key] = before + (rate - before) * INTERVAL / seconds
                loads[key] = f"{average:.2f}"
        self._before = totals
        return loads

    def publish(self, topic: str, value: str) -> None:
        """To those who are subscribed now, and kept for those who will be."""
        publication = Publication(topic.encode(), value.encode(), 0, retain=True)
        self.retained.restore(publication)
        matched = self.router.subscriptions.match(topic)
        if matched.direct:
            route = Route(topic, publication.topic, 1)
            route.receivers = tuple(
                Receiver(session, interest.qos, interest.retain_as_published, interest.identifiers)
                for session, interest in matched.direct.items()
                if self.router.may_receive(session, topic)
            )
            self.fan_out.deliver(route, publication)
