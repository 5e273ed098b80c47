"""Explanations: which rule, why not the others, what would be put."""

from __future__ import annotations

import json

import pytest

from gateway.bridge.explain import explain
from gateway.bridge.inbound import Origin
from gateway.config.security import AclEntry
from gateway.routing.acl import Subject, compile_acl
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

RULES = """
to_mq:
  - {name: qos, topic: plant/+/t, queue: A, when: {qos: [1, 2]}}
  - {name: big, topic: plant/+/t, queue: B, when: {payload: {at_least: 10}}}
  - {name: used, topic: 'plant/{site}/t', queue: 'C.{site}'}
  - {name: late, topic: 'plant/#', queue: D}
  - {name: short, topic: plant, queue: E, when: {qos: 1}}
  - {name: other, topic: plant/lima/humidity, queue: F}
  - {name: all, topic: '#', queue: G, when: {client: x}}
"""


def explained(topic="plant/lima/t", qos=0, payload=b"", rules=RULES, client="c"):
    table = compile_mappings(parse_mappings([("m.yaml", rules)]))
    return explain(table, Origin(client, "", topic, qos), {}, payload)


def test_every_rule_gets_its_reason():
    why = {one.rule: (one.applies, one.why) for one in explained().considered}
    assert why["qos"] == (False, "the topic matches, but not: qos is 1 or 2")
    assert why["big"] == (False, "the topic matches, but the payload is not what the rule requires")
    assert why["used"] == (True, "the topic matches")
    assert why["late"] == (False, "`used` comes first and does not say `continue`")
    assert why["short"] == (False, "the topic has 3 levels, the pattern 1")
    assert why["other"] == (False, "level 3 is `t`, not `humidity`")
    assert explained("$SYS/x").considered[-1].why == "a wildcard in front does not match topics beginning with `$`"


@pytest.mark.parametrize("topic", ["$SYS/x", "$share/g/x"])
def test_where_nobody_may_publish_nothing_is_put(topic: str) -> None:
    found = explained(topic, rules="unmatched: dead_letter\nto_mq: [{name: a, topic: a, queue: A}]\n")
    assert (found.puts, found.unmatched) == ([], "refused: nobody may publish below `$SYS/` and `$share/`")


def test_what_would_be_put_is_shown_in_words():
    [put] = explained().puts
    assert (put.rule, put.queue, put.persistent) == ("used", "C.LIMA", False)
    assert put.properties["mqps.Top"] == "plant/lima/t"
    assert put.descriptor["Format"] == "MQHRF2"
    json.dumps(explained().as_dict())


@pytest.mark.parametrize(
    ("text", "qos", "within", "why"),
    [
        ("", 0, False, "QoS 0 that is not persistent is put by itself"),
        ("", 1, True, "QoS 1 and 2 are acknowledged after the commit"),
        ("", 2, True, "QoS 1 and 2 are acknowledged after the commit"),
        ("syncpoint: always", 0, True, "the rule says `syncpoint: always`"),
        ("descriptor: {persistence: persistent}", 0, True, "it is persistent"),
        ("descriptor: {persistence: not_persistent}", 1, True, "QoS 1 and 2 are acknowledged after the commit"),
        ("too_long: segment", 0, True, "the segments of a message are one unit of work"),
        ("continue: true", 0, True, "several destinations are one unit of work"),
    ],
)
def test_whether_it_is_put_under_syncpoint(text, qos, within, why):
    rules = f"to_mq:\n  - {{name: a, topic: t, queue: A, {text}}}\n  - {{name: b, topic: t, queue: B}}\n"
    put = explained("t", qos, rules=rules).puts[0]
    assert (put.syncpoint, put.syncpoint_why) == (within, why)
    assert put.persistent is ((qos > 0 and "not_persistent" not in text) or "persistence: persistent" in text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "dead-lettered (2030)"),
        ("too_long: segment", "cut into segments"),
        ("too_long: reject", "refused before it is put (MQTT 5: reason code 0x97)"),
        ("on_failure: {then: drop}", "dropped and counted"),
        ("on_failure: {then: hold}", "held and not acknowledged"),
        ("on_failure: {then: disconnect}", "refused, and the device loses its connection"),
    ],
)
def test_what_becomes_of_it_when_it_is_too_long(text, words):
    [put] = explained("t", 1, b"x" * 100, rules=f"to_mq: [{{name: a, topic: t, queue: A, headers: [], {text}}}]\n").puts
    assert (put.too_long, put.data_bytes, put.body_bytes) == (words, 100, 100)


def test_refusals_and_publications_without_a_rule_are_explained():
    [put] = explained("plant/a.b/t").puts
    assert (put.refused_as, put.then) == ("name_not_valid", "dead_letter")
    assert explained("other").unmatched == "not put: no rule matches, counted"
    assert explained("other", rules="unmatched: dead_letter\n").unmatched == "dead-lettered: no rule matches"


@pytest.mark.parametrize(("asked", "then"), [("hold", "dead_letter"), ("disconnect", "dead_letter"), ("drop", "drop")])
def test_a_rule_that_cannot_be_followed_says_what_comes_of_the_message(asked, then):
    rules = f"to_mq: [{{name: a, topic: 't/{{s}}', queue: 'A.{{s}}', on_failure: {{then: {asked}}}}}]\n"
    [put] = explained("t/a.b", rules=rules).puts
    assert put.then == then


def test_only_the_nearest_of_many_other_rules_are_explained():
    rules = "to_mq:\n" + "".join(f"  - {{name: r{n}, topic: a/{n}, queue: Q}}\n" for n in range(500))
    found = explained("a/77/x", rules=rules).considered
    assert [one.rule for one in found] == ["r77", *(f"r{n}" for n in range(19))]


def test_the_access_list_is_asked_first():
    table = compile_mappings(parse_mappings([("m.yaml", RULES)]))
    acl = compile_acl([AclEntry(user="alice", publish=["plant/#"])])
    alice = explain(table, Origin("c", "alice", "plant/lima/t", 0), rights=acl.of(Subject("c", "alice")))
    assert alice.puts
    assert alice.access == "entry 1 allows publish on plant/#"
    bob = explain(table, Origin("c", "bob", "plant/lima/t", 0), rights=acl.of(Subject("c", "bob")))
    assert bob.puts == []
    assert bob.unmatched == "not put: publishing is not allowed"
    assert "no entry" in bob.access
