"""Which rules name a queue, as the list of queues shows them."""

from __future__ import annotations

from gateway.app.api.rules import rules_by_queue
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

MAPPING = """
version: 1
to_mq:
  - {name: by template, topic: "a/{site}", queue: "PLANT.{site:upper}"}
  - {name: outright, topic: "b/+", queue: PLANT.LIMA}
  - {name: another, topic: "c/+", queue: PLANT}
  - {name: a topic of MQ, topic: "d/+", mq_topic: d}
to_mqtt:
  - {name: back, queue: PLANT.LIMA, topic: e}
"""


def test_by_name_and_by_template_in_the_order_of_the_rules() -> None:
    rules = rules_by_queue(compile_mappings(parse_mappings([("m.yaml", MAPPING)])))
    assert rules("PLANT.LIMA") == ["by template", "outright", "back"]
    assert rules("PLANT.CUSCO") == ["by template"]
    assert rules("PLANT") == ["another"]
    assert rules("PLANT.") == []
