"""The administration API: one module for each group of endpoints, all of them plain functions of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.app.api.clients import client_endpoints
from gateway.app.api.dead_letters import dead_letter_endpoints
from gateway.app.api.journeys import journey_endpoints
from gateway.app.api.queues import queue_endpoints
from gateway.app.api.rules import count_replayed, rule_endpoints, rule_of, rules_by_queue
from gateway.app.api.state import state_endpoints
from gateway.app.api.trace import Tracer, trace_endpoints
from gateway.net.api import Endpoint

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway

__all__ = ["Tracer", "endpoints"]


def endpoints(gateway: Gateway) -> list[Endpoint]:
    """Everything below /api/v1, as openapi.json describes it."""
    of_queues = [
        *queue_endpoints(gateway.inspection, lambda: rules_by_queue(gateway)),
        *dead_letter_endpoints(
            gateway.inspection,
            lambda: gateway.engine.dead_letter_queue,
            lambda destination, topic: rule_of(gateway, destination, topic),
            lambda rule, ok: _count(gateway, rule, ok=ok),
        ),
    ]
    return [
        *state_endpoints(gateway),
        *rule_endpoints(gateway),
        *client_endpoints(gateway),
        *(of_queues if gateway.inquiries is None else map(gateway.inquiries.apart, of_queues)),
        *trace_endpoints(gateway),
        *journey_endpoints(gateway),
    ]


def _count(gateway: Gateway, rule: str | None, *, ok: bool) -> None:
    """Replayed, perhaps in another thread than that of the counters."""
    if gateway.inquiries is None:
        count_replayed(gateway, rule, ok=ok)
    else:
        gateway.scheduler.soon(lambda: count_replayed(gateway, rule, ok=ok))
