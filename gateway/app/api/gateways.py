"""The gateways that share the queue manager's state queues, as this one knows them."""

from __future__ import annotations

import time

from gateway.broker.engine import Engine
from gateway.broker.gateways.census import as_answer
from gateway.net.calls import VIEWER, Call, Endpoint, endpoint


def gateway_endpoints(engine: Engine) -> list[Endpoint]:
    """The endpoints of this module."""

    def listing(call: Call) -> tuple[int, object]:
        """GET /gateways."""
        del call
        census = engine.census
        return 200, {"items": [as_answer(one, census.lease_seconds) for one in census.gateways(time.time())]}

    return [endpoint("GET", "/gateways", VIEWER, listing)]
