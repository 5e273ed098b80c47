"""Whether a publication is taken, and what its publisher hears when somebody who wants it has no room for it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.broker import accounting
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import V5, Properties
from gateway.ports.counters import DropReason
from gateway.session.connection import Connection
from gateway.session.publication import Publication

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.publish.route import Receiver, Route, Shared

_TEXT_ROOM = 256
"""Clients that take no longer packets are told by the code alone [MQTT-3.4.2-2] [MQTT-3.5.2-2] [MQTT-3.7.2-2]."""


class Refusal(NamedTuple):
    """Why a publication is not taken."""

    reason: int
    counted: DropReason
    text: str = ""
    withheld: bool = False
    """Clients that know no reason codes get no acknowledgement for it: they send it again when they come back."""


class Acceptance:
    """What is asked of every publication that is not on the fast path."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def refusal(
        self, connection: Connection, route: Route, publication: Publication, properties: Properties
    ) -> Refusal | None:
        """Why it is not taken, and counted as such; None: it is."""
        found = (
            _of_route(route)
            or _of_payload(connection, publication.payload, properties)
            or self._of_queue(route, publication.payload)
            or self._of_sessions(route, publication)
        )
        if found is not None:
            accounting.refused(self.engine.counters, route.rule, publication.qos, found.counted)
        return found

    def _of_queue(self, route: Route, payload: bytes) -> Refusal | None:
        """A rule with `too_long: reject` whose queue would not take it."""
        longest = self.engine.router.too_long(route, payload)
        if longest < 0:
            return None
        return Refusal(reasons.QUOTA_EXCEEDED, "too_large" if len(payload) > longest else "oversized_header")

    # -- sessions without room --

    def _of_sessions(self, route: Route, publication: Publication) -> Refusal | None:
        """A session that is full has it refused for everybody, where its listener says so (`when_full: refuse`). Else
        it goes without; but when nobody else wants it either, that is the answer."""
        if not publication.qos or not (route.receivers or route.shared):
            return None
        if self.engine.limits.any_refuses and self._somebody_refuses(route, publication):
            return Refusal(reasons.QUOTA_EXCEEDED, "session_full", "a subscriber's queue is full", withheld=True)
        plan, dead_letters = route.plan, self.engine.dead_letter_queue
        if publication.retain or (plan is not None and (plan.prepared or (plan.dead_letter and dead_letters))):
            return None
        if all(self.full(one, publication) for one in route.receivers) and all(
            self._group_is_full(group, publication) for group in route.shared
        ):
            return Refusal(reasons.QUOTA_EXCEEDED, "session_full", "the queues of all subscribers are full")
        return None

    def _somebody_refuses(self, route: Route, publication: Publication) -> bool:
        alone = any(self._refuses(one) and self.full(one, publication) for one in route.receivers)
        return alone or any(
            any(map(self._refuses, group.members)) and self._group_is_full(group, publication) for group in route.shared
        )

    def _refuses(self, receiver: Receiver) -> bool:
        return self.engine.limits.at(receiver.session.listener).refuse_when_full

    def _group_is_full(self, group: Shared, publication: Publication) -> bool:
        """Whether no member of a shared subscription has room."""
        return bool(group.members) and all(self.full(one, publication) for one in group.members)

    def full(self, receiver: Receiver, publication: Publication) -> bool:
        """Whether a session has no room for a copy."""
        session = receiver.session
        if not min(publication.qos, receiver.qos):
            return False  # QoS 0 is never stored
        limits = self.engine.limits.at(session.listener)
        waiting = self.engine.delivery.waiting
        if session.durable:
            full = waiting.full(limits, session, len(publication.payload))
        else:
            full = len(session.outflow.pending) >= limits.max_queued
        if full:
            waiting.no_room(session)
        return full

    # -- the words --

    @staticmethod
    def words(connection: Connection, text: str) -> Properties:
        """The text as Reason String, for those who want to hear it [MQTT-3.1.2-29]."""
        wanted = text and connection.version == V5 and connection.problem_information
        return {prop.REASON_STRING: text} if wanted and connection.session.outflow.max_packet >= _TEXT_ROOM else {}


def missed_by(count: int) -> str:
    """What is said of a publication that was taken and did not reach all."""
    if not count:
        return ""
    return f"{count} of its subscribers did not get it: {'its queue is' if count == 1 else 'their queues are'} full"


def _of_route(route: Route) -> Refusal | None:
    return Refusal(route.error, "denied") if route.error else None


def _of_payload(connection: Connection, payload: bytes, properties: Properties) -> Refusal | None:
    longest = connection.limits.max_payload
    if longest and len(payload) > longest:
        return Refusal(reasons.PACKET_TOO_LARGE, "too_large")
    if properties.get(prop.PAYLOAD_FORMAT_INDICATOR) == 1:
        try:
            payload.decode()
        except UnicodeDecodeError:
            return Refusal(reasons.PAYLOAD_FORMAT_INVALID, "other")
    return None
