"""Which rules name a queue, as the list of queues shows them, and by which a dead letter came."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.app.api.rules import CurrentRules, RulesOfQueues
from gateway.routing.table import Route, compile_mappings
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


TABLE = compile_mappings(parse_mappings([("m.yaml", MAPPING)]))


def test_by_name_and_by_template_in_the_order_of_the_rules() -> None:
    rules = RulesOfQueues(TABLE).naming
    assert rules("PLANT.LIMA") == ["by template", "outright", "back"]
    assert rules("PLANT.CUSCO") == ["by template"]
    assert rules("PLANT") == ["another"]
    assert rules("PLANT.") == []


def test_a_dead_letter_came_by_who_takes_from_its_destination_else_by_its_topic_else_by_its_queue() -> None:
    rule = RulesOfQueues(TABLE).of_dead_letter
    assert rule("PLANT.LIMA", "b/1") == "back"
    assert rule("PLANT", "c/1") == "another"
    assert rule("PLANT", "a/lima") == "by template", "the queue that it names now is another"
    assert rule("PLANT", None) == rule("PLANT", "x") == "another"
    assert rule("", "d/1") == "a topic of MQ"
    assert rule("", None) is None
    assert rule("NONE", "x") is None


class Walked(list[Route]):
    """Counts who goes through all of them."""

    times = 0

    def __iter__(self) -> Iterator[Route]:
        self.times += 1
        return super().__iter__()


def test_the_rules_are_gone_through_once_for_all_dead_letters_until_they_are_others() -> None:
    table = compile_mappings(parse_mappings([("m.yaml", MAPPING)]))
    routes = table.routes = Walked(table.routes)
    rules = CurrentRules(lambda: table)
    for number in range(100):
        rules().of_dead_letter("PLANT", f"c/{number}")
        rules().naming(f"PLANT.{number}")
    assert routes.times == 1
    table = compile_mappings(parse_mappings([("m.yaml", MAPPING.replace("another", "one more"))]))
    assert rules().of_dead_letter("PLANT", None) == "one more"
