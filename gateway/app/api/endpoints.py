"""Everything that the administration API offers, from all groups of endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.app.api.audit import audit_endpoints
from gateway.app.api.clients import client_endpoints
from gateway.app.api.dead_letters import dead_letter_endpoints
from gateway.app.api.gateways import gateway_endpoints
from gateway.app.api.journeys import journey_endpoints
from gateway.app.api.mapping import Reload, mapping_endpoints
from gateway.app.api.people import people_endpoints
from gateway.app.api.queues import queue_endpoints
from gateway.app.api.retained import retained_endpoints
from gateway.app.api.rules import CurrentRules, count_replayed, rule_endpoints
from gateway.app.api.set_aside import Replays, has_session, is_retained
from gateway.app.api.state import state_endpoints
from gateway.app.api.trace import Tracer, trace_endpoints
from gateway.app.api.users import user_endpoints
from gateway.app.parts import Parts
from gateway.app.reports.problems import why_refused
from gateway.net.calls import Endpoint
from gateway.ports.state_queues import RETAINED, SESSIONS


def endpoints(parts: Parts, tracer: Tracer, reload: Reload, drain: Callable[[], None]) -> list[Endpoint]:
    """Returns everything below /api/v1, as described by openapi.json."""
    in_slices = parts.engine.context.slices.run if parts.inquiries is None else None
    rules = CurrentRules(lambda: parts.table)
    of_queues = [
        *audit_endpoints(parts.inspection),
        *queue_endpoints(
            parts.inspection,
            lambda: rules().naming,
            parts.history.queue_rates if parts.inquiries is None else lambda _queue: None,
            in_slices,
        ),
        *dead_letter_endpoints(
            parts.inspection,
            lambda: parts.engine.context.dead_letter_queue,
            lambda destination, topic: rules().of_dead_letter(destination, topic),
            lambda rule, ok: _count(parts, rule, ok=ok),
            Replays(
                lambda queue, key, data: _refusal(parts, queue, key, data),
                lambda key, record: _publish(parts, key, record),
            ),
            in_slices,
            lambda: parts.table,
        ),
    ]
    return [
        *state_endpoints(parts, reload, drain),
        *rule_endpoints(parts),
        *people_endpoints(parts.people, secure=parts.settings.admin.tls is not None),
        *gateway_endpoints(parts.engine),
        *mapping_endpoints(parts, reload),
        *client_endpoints(parts.engine, lambda queue: why_refused(parts, queue), parts.clients.history),
        *(of_queues if parts.inquiries is None else map(parts.inquiries.apart, of_queues)),
        *user_endpoints(parts.users),
        *retained_endpoints(parts.engine),
        *trace_endpoints(tracer),
        *journey_endpoints(parts, tracer, rules),
    ]


def _count(parts: Parts, rule: str | None, *, ok: bool) -> None:
    """Count a replayed dead letter, perhaps in another thread than that of the counters."""
    if parts.inquiries is None:
        count_replayed(parts.counters, rule, ok=ok)
    else:
        parts.scheduler.soon(lambda: count_replayed(parts.counters, rule, ok=ok))


def _refusal(parts: Parts, queue: str, key: bytes, data: bytes) -> str:
    """Returns why a state record that was set aside must not be put back; empty if it may."""
    if parts.buffer is not None:
        return "the gateway's state lies in its buffer: put it on a queue with `to`"
    if queue == SESSIONS and has_session(parts.engine.sessions, key, data):
        return "its client has a session again: purge this one, or the client first (`mqgate client purge`)"
    if queue == RETAINED and is_retained(parts.engine.retained, key, data):
        return "its topic has a newer retained message"
    return ""


def _publish(parts: Parts, key: bytes, record: dict[str, Any]) -> None:
    """Publish what was set aside, in the reactor's thread, from its record on the queue of wills."""

    def publish() -> None:
        parts.engine.context.now = parts.scheduler.now()
        parts.engine.wills.republish(key, record)
        parts.engine.flush()

    parts.engine.context.scheduler.soon(publish)
