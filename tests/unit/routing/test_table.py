"""Rules by topic: order, conditions, `continue`, captured levels, payload conditions, and size that does not matter."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.routing.table import Context, compile_mappings
from gateway.rules.parse import parse_mappings


def table(*rules):
    text = "version: 1\nto_mq:\n" + "".join(f"  - {{name: r{n}, queue: Q, {rule}}}\n" for n, rule in enumerate(rules))
    return compile_mappings(parse_mappings([("m.yaml", text)]))


def names(table_, topic, **context):
    return [match.rule.name for match in table_.match(topic, Context(**context))]


def test_the_first_rule_of_the_file_wins_not_the_most_specific():
    both = table("topic: 'a/#'", "topic: a/b")
    assert names(both, "a/b") == ["r0"]
    assert names(table("topic: a/b", "topic: 'a/#'"), "a/b") == ["r0"]
    assert names(table("topic: a/b", "topic: 'a/#'"), "a/c") == ["r1"]


def test_continue_lets_later_rules_apply_too():
    three = table("topic: 'a/#', continue: true", "topic: a/+, continue: true", "topic: a/b", "topic: '#'")
    assert names(three, "a/b") == ["r0", "r1", "r2"]
    assert names(three, "a/c") == ["r0", "r1", "r3"]


def test_named_levels_are_captured():
    [match] = table("topic: 'plant/{site}/+/{rest*}'").match("plant/lima/x/a/b", Context())
    assert match.captured == {"site": "lima", "rest": "a/b"}
    [match] = table("topic: 'plant/{rest*}'").match("plant", Context())
    assert match.captured == {"rest": ""}


def test_wildcards_in_front_do_not_match_system_topics():
    everything = table("topic: '#'", "topic: +/x", "topic: '{a}/{b}'")
    assert names(everything, "$SYS/x") == []
    assert names(table("topic: '$aws/#'"), "$aws/x") == ["r0"]


@pytest.mark.parametrize(
    ("when", "yes", "no"),
    [
        ("qos: [1, 2]", {"qos": 1}, {"qos": 0}),
        ("qos: 2", {"qos": 2}, {"qos": 1}),
        ("client: 'sensor-*'", {"client_id": "sensor-1"}, {"client_id": "actor-1"}),
        ("client: [a, b]", {"client_id": "b"}, {"client_id": "c"}),
        ("user: alice", {"username": "alice"}, {"username": ""}),
        ("user: ''", {"username": ""}, {"username": "alice"}),
        ("user: '*'", {"username": "alice"}, {"username": ""}),
        ("user: ['', 'a*']", {"username": ""}, {"username": "bob"}),
        ("retained: true", {"retain": True}, {"retain": False}),
        ("listener: tls", {"listener": "tls"}, {"listener": "plain"}),
        ("properties: {kind: 'a*'}", {"user_properties": (("kind", "ab"),)}, {"user_properties": (("kind", "b"),)}),
    ],
)
def test_conditions(when, yes, no):
    one = table(f"topic: a, when: {{{when}}}", "topic: a")
    assert names(one, "a", **yes) == ["r0"]
    assert names(one, "a", **no) == ["r1"]


def test_rules_that_look_at_the_payload_are_candidates_until_it_is_known():
    three = table(
        "topic: a, when: {json: {kind: x}}", "topic: a, when: {payload: {at_least: 1KiB}}", "topic: a", "topic: a"
    )
    matches = three.match("a", Context())
    assert [(match.rule.name, match.pending) for match in matches] == [("r0", True), ("r1", True), ("r2", False)]


def test_ten_thousand_rules_leave_as_few_candidates_as_ten():
    many = table(*(f"topic: 'plant/{{site}}/line{n}/+'" for n in range(2000)))
    assert names(many, "plant/lima/line1234/t") == ["r1234"]
    assert len(many.candidates("plant/lima/line7/t")) == 1


def test_candidates_are_in_the_order_of_the_files():
    found = table("topic: '#'", "topic: a/#", "topic: +/b", "topic: a/b", "topic: a/b").candidates("a/b")
    assert all(one.rule.position < other.rule.position for one, other in pairwise(found))
    assert len(found) == 5


def test_the_queues_that_rules_name_outright_are_known_from_reading_them():
    text = """
version: 1
to_mq:
  - {name: a, topic: a, queue: B}
  - {name: b, topic: b, queue: B}
  - {name: c, topic: "c/{site}", queue: "C.{site:upper}"}
  - {name: d, topic: d, mq_topic: d}
to_mqtt:
  - {name: e, queue: A, topic: e}
  - {name: f, queue: F, topic: f, queue_manager: OTHER}
"""
    assert compile_mappings(parse_mappings([("m.yaml", text)])).queues == {"A", "B"}
