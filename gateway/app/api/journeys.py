"""Where a message went: from the packet identifier that a device gave it to its MsgId, and back."""

from __future__ import annotations

import time

from gateway.app.api.pages_of_messages import Work
from gateway.app.api.queues import answered, problem_of
from gateway.app.api.rules import CurrentRules
from gateway.app.api.trace import Tracer
from gateway.app.parts import Parts
from gateway.bridge.message import read_message
from gateway.errors import MQError, Refused
from gateway.mq import mqmd
from gateway.net.calls import VIEWER, Call, Endpoint, Later, endpoint
from gateway.ports.inspection import Inspects, Seen
from gateway.ports.state_queues import DEFAULT, PREFIX

MOST = 100
_STATE = (PREFIX, "SYSTEM.")


def journey_endpoints(parts: Parts, tracer: Tracer, rules: CurrentRules) -> list[Endpoint]:
    """Returns the endpoints of this module."""

    def journey(call: Call) -> tuple[int, object]:
        client, msg_id = call.query.get("client_id", ""), call.query.get("msg_id", "")
        packet_id = call.number("packet_id", 0, 65535)
        found = tracer.journeys(client, packet_id, msg_id)
        if not found and msg_id and parts.inspection is not None:
            return _asked(parts, parts.inspection, rules, msg_id)
        if not msg_id:
            found += in_doubt(parts, client, packet_id)
        return 200, {"items": found[:MOST]}

    return [endpoint("GET", "/journey", VIEWER, journey)]


def _asked(parts: Parts, inspection: Inspects, rules: CurrentRules, msg_id: str) -> tuple[int, object]:
    """Search the queues: between serving devices, or in IBM MQ's own thread."""
    inquiries, work = parts.inquiries, _on_queues(parts, inspection, rules, msg_id)
    if inquiries is None:
        return answered(work, parts.engine.context.slices.run, f"journey of {msg_id}")
    return 200, Later(lambda told: inquiries.ask(lambda: answered(work, None, ""), told))


def _on_queues(parts: Parts, inspection: Inspects, rules: CurrentRules, msg_id: str) -> Work:
    """Find messages with this identifier that are still on a queue; their headers say where they came from."""
    wanted, items = bytes.fromhex(msg_id), list[dict[str, object]]()
    try:
        for row in inspection.queues():
            yield
            if row.depth and (not row.name.startswith(_STATE) or row.name in {DEFAULT, _dead_letters(parts)}):
                while not inspection.prepare_find(row.name):
                    yield
                items += [_journey(rules, row.name, seen) for seen in inspection.find(row.name, msg_id=wanted)]
    except MQError as error:
        raise problem_of(error) from error
    return 200, {"items": items[:MOST]}


def _dead_letters(parts: Parts) -> str:
    return parts.engine.context.dead_letter_queue


def _journey(rules: CurrentRules, queue: str, seen: Seen) -> dict[str, object]:
    client = topic = ""
    packet_id = qos = 0
    try:
        message = read_message(seen.md, seen.data)
        client, topic = (str(message.property(*name) or "") for name in (("mqtt", "clientId"), ("mqps", "Top")))
        packet_id, qos = (int(message.property("mqtt", name) or 0) for name in ("msgId", "qos"))
    except Refused:
        pass  # a program put it, not a device
    return {
        "time": seen.put_time, "client_id": client, "packet_id": packet_id, "topic": topic, "qos": qos,
        "rule": rules().of_dead_letter(queue, topic or None), "queue": queue,
        "msg_id": seen.md[mqmd.MSG_ID].hex().upper(), "state": "acknowledged" if qos else "committed", "reason": 0,
    }  # fmt: skip


def in_doubt(parts: Parts, client: str, packet_id: int) -> list[dict[str, object]]:
    """Returns the QoS 2 publications of one client that wait for their release."""
    session = parts.engine.sessions.get(client) if client else None
    if session is None:
        return []
    return [
        {"time": time.time(), "client_id": client, "packet_id": number, "topic": "", "qos": 2, "rule": None,
         "queue": None, "msg_id": None, "state": "staged", "reason": 0}
        for number in session.inbound
        if not packet_id or number == packet_id
    ]  # fmt: skip
