"""`$SYS/#`: the broker's state as messages, under the names that other brokers use. Pure; none of it is stored.

Every value is text and stays in memory as a retained message; subscribers get one again only when it has changed. Where
several gateways share the state queues, `gateway/name` says which one this is, and the figures are the sums of all.
"""

from __future__ import annotations

from collections.abc import Iterator

from gateway.broker.context import Context
from gateway.broker.deliver.fan_out import FanOut
from gateway.broker.deliver.wide import Wide
from gateway.broker.gateways.census import INTERVAL, Census
from gateway.broker.publish.retained import Retained
from gateway.broker.publish.route import Receiver, Route
from gateway.broker.publish.router import Router
from gateway.broker.sessions.endings import Endings
from gateway.broker.sessions.session_counts import SessionCounts
from gateway.session.publication import Publication
from gateway.version import VERSION

PREFIX = "$SYS/broker/"
WINDOWS = {"1min": 60.0, "5min": 300.0, "15min": 900.0}


class SysTopics:
    """Publishes what has changed since the last time."""

    def __init__(
        self, context: Context, router: Router, retained: Retained, fan_out: FanOut, wide: Wide, endings: Endings,
        census: Census,
    ) -> None:  # fmt: skip
        self.context = context
        self.census = census
        self.session_counts = SessionCounts(context)
        self.router = router
        self.retained = retained
        self.fan_out = fan_out
        self.wide = wide
        self.endings = endings
        self.about = f"mqgate version {VERSION}"
        self._started: float | None = None
        self._shown: dict[str, str] = {}
        self._before: dict[str, int] = {}
        self._loads: dict[str, float] = {}
        self._most_clients = 0

    def tick(self, now: float, seconds: float) -> Iterator[None]:
        """Called once a second; publishes one topic at each step, as many may have subscribed to it. `seconds`: the
        time of a clock that never jumps."""
        begun = self._started is not None
        self._started = seconds if self._started is None else self._started
        if self.census.is_due(seconds):
            for _ in self.session_counts.steps():
                if begun:  # the first time all is there before anybody can subscribe
                    yield
        if not self.census.report(now, seconds, self.figures):
            return
        figures = {name: own + self.census.others(name, seconds) for name, own in self.figures().items()}
        values = self.values(seconds - self._started, figures)
        values.update(self.loads({name: figures[name] for name in self.totals()}))
        for name, value in values.items():
            if self._shown.get(name) != value:
                if self.wide.is_full:
                    return  # what has changed is said the next time
                self._shown[name] = value
                self.publish(PREFIX + name, value)
                yield

    def totals(self) -> dict[str, int]:
        """The figures that only grow."""
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

    def figures(self) -> dict[str, int]:
        """The figures of this gateway."""
        sessions, online = self.session_counts.sessions, self.session_counts.connected
        self._most_clients = max(self._most_clients, online)
        return {
            "clients/connected": online,
            "clients/disconnected": sessions - online,
            "clients/total": sessions,
            "clients/maximum": self._most_clients,
            "clients/expired": self.endings.expired_clients,
            "subscriptions/count": len(self.router.subscriptions),
            "messages/stored": self.context.stored.messages,
            "messages/inflight": self.session_counts.out,
            **self.totals(),
        }

    @property
    def own(self) -> int:
        """How many retained messages these topics are."""
        return len(self._shown)

    def is_own(self, topic: str) -> bool:
        """Whether a topic is one of them."""
        return topic.startswith(PREFIX)

    def values(self, uptime: float, figures: dict[str, int]) -> dict[str, str]:
        """What is true at this moment, over all gateways."""
        values: dict[str, object] = {
            "version": self.about,
            "uptime": f"{int(uptime)} seconds",
            "gateway/name": self.census.name,
            "gateways/count": self.census.count(),
            "clients/active": figures["clients/connected"],
            "clients/inactive": figures["clients/disconnected"],
            "retained messages/count": self.retained.count - self.own,
            **figures,
        }
        del values["connections"]
        return {name: str(value) for name, value in values.items()}

    def loads(self, totals: dict[str, int]) -> dict[str, str]:
        """Rates per minute, as moving averages over 1, 5 and 15 minutes."""
        loads: dict[str, str] = {}
        for name, total in totals.items():
            rate = max(0, total - self._before.get(name, 0)) * 60.0 / INTERVAL  # less when a gateway has gone
            for window, seconds in WINDOWS.items():
                key = f"load/{name}/{window}"
                before = self._loads.get(key, 0.0)
                average = self._loads[key] = before + (rate - before) * INTERVAL / seconds
                loads[key] = f"{average:.2f}"
        self._before = totals
        return loads

    def publish(self, topic: str, value: str) -> None:
        """Publish a value to those who are subscribed now, and keep it for those who will be."""
        publication = Publication(topic.encode(), value.encode(), 0, retain=True)
        self.retained.restore(publication)
        if self.router.is_wide(topic):
            self.wide.begin(None, Route(topic, publication.topic, 1), publication)
            return
        matched = self.router.subscriptions.match(topic)
        if matched.direct:
            route = Route(topic, publication.topic, 1)
            route.receivers = tuple(
                Receiver(session, interest.qos, interest.retain_as_published, interest.identifiers)
                for session, interest in matched.direct.items()
                if self.router.may_receive(session, topic)
            )
            self.fan_out.deliver(route, publication)
