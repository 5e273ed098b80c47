"""Rules whose queues refuse, and what became of the messages: shared by the tests of parking and of dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from broker_harness import Harness

MAPPING = """
version: 1
to_mq:
  - {name: both, topic: "both/#", queue: FIRST.Q, continue: true,
     on_failure: {retry: {times: 2, from: 1s, to: 4s}, then: THEN}}
  - {name: both again, topic: "both/#", queue: SECOND.Q}
  - {name: alarm, topic: "mixed", queue: FIRST.Q, when: {json: {alarm: true}}, continue: true,
     on_failure: {retry: {times: 2, from: 1s, to: 4s}, then: THEN}}
  - {name: all, topic: "mixed", queue: SECOND.Q}
  - {name: first, topic: "first", queue: FIRST.Q, on_failure: {retry: {times: 2, from: 1s, to: 4s}, then: THEN}}
  - {name: second, topic: "second", queue: SECOND.Q, on_failure: {retry: {times: 2, from: 1s, to: 4s}, then: THEN}}
"""
FULL = 2053
PUT_INHIBITED = 2051
PUBACK, PUBREC, PUBREL, PUBCOMP = 4, 5, 6, 7


def giving_up(rules: Iterable[dict[str, Any]]) -> Harness:
    """Rules that dead-letter at once what Q does not take; puts to it are inhibited."""
    at_once = {"on_failure": {"retry": {"times": 0}, "then": "dead_letter"}}
    made = Harness(json.dumps({"to_mq": [{**rule, **at_once} for rule in rules]}))
    made.queues.refusing["Q"] = PUT_INHIBITED
    return made


def bodies(bench: Harness, queue: str) -> list[bytes]:
    """Payloads in the queue's order."""
    found = []
    for _, stored in bench.queues.load(queue):
        data = stored.data
        if data[:4] == b"DLH ":
            data = data[172:]
        found.append(data[int.from_bytes(data[8:12], "little") :])
    return found


def balance(bench: Harness) -> None:
    """Received = put + dead-lettered + dropped + held, for every rule."""
    counters, held = bench.engine.counters, bench.engine.parking.held()
    rules = {route.rule.name for route in bench.engine.router.table.routes}
    for rule in rules:
        received = sum(n for (one, _), n in counters.mqtt_publish_received.items() if one == rule)
        put = sum(n for (_, one), n in counters.mq_put_messages.items() if one == rule)
        dead = sum(n for (one, _), n in counters.dlq_messages.items() if one == rule)
        dropped = sum(n for (one, _), n in counters.messages_dropped.items() if one == rule)
        assert received == put + dead + dropped + held[rule], (rule, received, put, dead, dropped, held[rule])
