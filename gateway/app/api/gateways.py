"""The gateways that share the queue manager's state queues, as this one knows them; and rebalancing their
connections."""

from __future__ import annotations

import time
from typing import Any

from gateway.broker.engine import Engine
from gateway.broker.gateways.census import Gateway
from gateway.broker.gateways.rebalance import MOST_RATE, Plan, plan_for
from gateway.net.calls import OPERATOR, VIEWER, Call, Endpoint, Problem, endpoint

DEFAULT_RATE = 10


def gateway_endpoints(engine: Engine) -> list[Endpoint]:
    """Returns the endpoints of this module."""
    views = GatewayViews(engine)
    return [
        endpoint("GET", "/gateways", VIEWER, views.listing),
        endpoint("POST", "/gateways/rebalance", OPERATOR, views.rebalance),
        endpoint("DELETE", "/gateways/rebalance", OPERATOR, views.stop),
    ]


class GatewayViews:
    """Gateways as the API shows them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /gateways."""
        del call
        census = self._engine.census
        return 200, {"items": [as_answer(one, census.lease_seconds) for one in census.gateways(time.time())]}

    def rebalance(self, call: Call) -> tuple[int, object]:
        """POST /gateways/rebalance."""
        rate, dry_run = call.body.get("rate", DEFAULT_RATE), call.body.get("dry_run", False)
        rate = int(rate) if isinstance(rate, float) and rate.is_integer() else rate  # an integer in JSON Schema
        if isinstance(rate, bool) or not isinstance(rate, int) or not 1 <= rate <= MOST_RATE:
            raise Problem(400, "Bad request", f"rate must be a whole number of connections a second, 1 to {MOST_RATE}")
        if not isinstance(dry_run, bool):
            raise Problem(400, "Bad request", "dry_run must be true or false")
        plan = plan_for(self._engine.census.gateways(time.time()))
        if plan.unheard:
            some = ", ".join(plan.unheard)
            raise Problem(409, "Conflict", f"not heard of yet, or gone: {some}; try again in some seconds")
        ownership = self._engine.ownership
        if ownership is not None and not dry_run:
            ownership.rebalance.ask(plan, rate)
            self._engine.flush()
        return 200 if dry_run else 202, self._answer(plan, rate)

    def _answer(self, plan: Plan, rate: int) -> dict[str, Any]:
        ownership = self._engine.ownership
        movable = 0 if ownership is None else ownership.rebalance.movable()
        most = max((share.hands_back for share in plan.shares), default=0)
        return {
            "keep": plan.keep,
            "rate": rate,
            "seconds": round(most / rate, 1),
            "items": [
                {
                    "name": share.gateway.name or share.gateway.instance,
                    "instance": share.gateway.instance,
                    "own": share.gateway.own,
                    "connections": share.connections,
                    "movable": movable if share.gateway.own else None,
                    "hands_back": share.hands_back,
                }
                for share in plan.shares
            ],
        }

    def stop(self, call: Call) -> tuple[int, object]:
        """DELETE /gateways/rebalance."""
        del call
        ownership = self._engine.ownership
        if ownership is not None:
            ownership.rebalance.ask_to_stop()
            self._engine.flush()
        return 204, None


def as_answer(one: Gateway, lease_seconds: float) -> dict[str, Any]:
    """Returns a gateway as the API shows it."""
    return {
        "name": one.name or one.instance,
        "instance": one.instance,
        "own": one.own,
        "version": one.version,
        "started": one.started or None,
        "heard": one.heard,
        "connections": one.figures.get("clients/connected"),
        "sessions": one.figures.get("clients/total"),
        "subscriptions": one.figures.get("subscriptions/count"),
        "received": one.figures.get("publish/messages/received"),
        "sent": one.figures.get("publish/messages/sent"),
        "received_rate": one.rates.get("publish/messages/received"),
        "sent_rate": one.rates.get("publish/messages/sent"),
        "lease_seconds": lease_seconds or None,
        "lease_age": one.lease,
        "page": one.page or None,
    }
