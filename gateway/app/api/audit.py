"""The audit trail: the records on MQGATE.AUDIT, oldest first."""

from __future__ import annotations

import json
from typing import Any

from gateway.app.api.queues import QueueViews
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.net.calls import Call, Endpoint, endpoint
from gateway.ports.inspection import Inspects, Seen, is_last
from gateway.ports.people import ADMINISTRATOR
from gateway.ports.state_queues import AUDIT


def audit_endpoints(inspection: Inspects | None) -> list[Endpoint]:
    """Returns the endpoints of this module."""
    views = QueueViews(inspection)

    def trail(call: Call) -> tuple[int, object]:
        """GET /audit."""
        limit, after = call.number("limit", 500, 500), call.query.get("after")
        try:
            page = views.inspection.browse(AUDIT, limit, views.token(after) if after else None)
        except MQError as error:
            if error.reason != mq.MQRC_UNKNOWN_OBJECT_NAME:
                raise
            page = []  # nothing has been put there yet
        following = None if is_last(page, limit) else str(page[-1].token)
        return 200, {"items": [one for seen in page if (one := _record(seen)) is not None], "next": following}

    return [endpoint("GET", "/audit", ADMINISTRATOR, trail)]


def _record(seen: Seen) -> dict[str, Any] | None:
    """Returns what a message says; None if it is not a record of ours."""
    try:
        found = json.loads(seen.data)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(found, dict) and {"time", "user", "action", "status", "on", "arguments"} <= found.keys()
    return {**found, "token": str(seen.token)} if whole else None
