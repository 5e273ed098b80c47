"""The administration API: one module for each group of endpoints, all of them plain functions of a call."""

from __future__ import annotations

from collections.abc import Callable

from gateway.app.api.clients import client_endpoints
from gateway.app.api.dead_letters import dead_letter_endpoints
from gateway.app.api.journeys import journey_endpoints
from gateway.app.api.queues import queue_endpoints
from gateway.app.api.rules import count_replayed, rule_endpoints, rule_of, rules_by_queue
from gateway.app.api.state import state_endpoints
from gateway.app.api.trace import Tracer, trace_endpoints
from gateway.app.parts import Parts
from gateway.net.api import Endpoint

__all__ = ["Tracer", "endpoints"]


def endpoints(parts: Parts, tracer: Tracer, reload: Callable[[], None], drain: Callable[[], None]) -> list[Endpoint]:
    """Everything below /api/v1, as openapi.json describes it."""
    of_queues = [
        *queue_endpoints(parts.inspection, lambda: rules_by_queue(parts.table)),
        *dead_letter_endpoints(
            parts.inspection,
            lambda: parts.engine.context.dead_letter_queue,
            lambda destination, topic: rule_of(parts.table, destination, topic),
            lambda rule, ok: _count(parts, rule, ok=ok),
        ),
    ]
    return [
        *state_endpoints(parts, reload, drain),
        *rule_endpoints(parts),
        *client_endpoints(parts.engine),
        *(of_queues if parts.inquiries is None else map(parts.inquiries.apart, of_queues)),
        *trace_endpoints(tracer),
        *journey_endpoints(parts, tracer),
    ]


def _count(parts: Parts, rule: str | None, *, ok: bool) -> None:
    """A replayed dead letter, perhaps in another thread than that of the counters."""
    if parts.inquiries is None:
        count_replayed(parts.counters, rule, ok=ok)
    else:
        parts.scheduler.soon(lambda: count_replayed(parts.counters, rule, ok=ok))
