"""Explanations: which rule, why not the others, what would be put; and the tests beside the rules."""

from __future__ import annotations

import json

import pytest

from gateway.bridge.explain import explain
from gateway.bridge.inbound import Origin
from gateway.bridge.rehearsal import run_tests
from gateway.routing.table import compile_mappings
from gateway.rules.parse import load_mappings, parse_mappings

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
    assert why["big"] == (False, "the topic matches, but the payload is not what the rule asks for")
    assert why["used"] == (True, "the topic matches")
    assert why["late"] == (False, "`used` comes first and does not say `continue`")
    assert why["short"] == (False, "the topic has 3 levels, the pattern 1")
    assert why["other"] == (False, "level 3 is `t`, not `humidity`")
    assert explained("$SYS/x").considered[-1].why == "a wildcard in front does not match topics beginning with `$`"


def test_what_would_be_put_is_shown_in_words():
    [put] = explained().puts
    assert (put.rule, put.queue, put.persistent) == ("used", "C.LIMA", False)
    assert put.properties["mqps.Top"] == "plant/lima/t"
    assert put.descriptor["Format"] == "MQHRF2"
    json.dumps(explained().as_dict())


def test_refusals_and_publications_without_a_rule_are_explained():
    [put] = explained("plant/a.b/t").puts
    assert (put.refused_as, put.then) == ("name_not_valid", "dead_letter")
    assert explained("other").unmatched == "not put: no rule matches, counted"
    assert explained("other", rules="unmatched: dead_letter\n").unmatched == "dead-lettered: no rule matches"


def test_only_the_nearest_of_many_other_rules_are_explained():
    rules = "to_mq:\n" + "".join(f"  - {{name: r{n}, topic: a/{n}, queue: Q}}\n" for n in range(500))
    found = explained("a/77/x", rules=rules).considered
    assert len(found) == 20
    assert found[0].rule == "r77"


TESTED = """
to_mq:
  - {name: in, topic: 'p/{site}', queue: 'T.{site}', properties: {site: '{site}', n: '{json.n:int}'}}
  - {name: mq, topic: mq, mq_topic: a/b}
to_mqtt:
  - {name: out, queue: C, topic: 'p/{usr.site}'}
  - {name: direct, transmission_queue: X}
tests:
"""


def failures(*tests):
    return run_tests(parse_mappings([("m.yaml", TESTED + "".join(f"  - {test}\n" for test in tests))]))


@pytest.mark.parametrize(
    "test",
    [
        (
            "{publish: {topic: p/lima, qos: 1, payload: {n: 7}}, expect: [{rule: in, queue: T.LIMA, "
            "persistence: persistent, properties: {site: lima, n: 7, mqps.Top: p/lima}, priority: 0, format: ''}]}"
        ),
        "{publish: {topic: none}}",
        "{publish: {topic: mq}, expect: [{mq_topic: a/b}]}",
        "{publish: {topic: p/a.b, payload: '{}'}, expect: [{refused: name_not_valid}]}",
        "{publish: {topic: p/a, payload_hex: '7b226e223a2278227d'}, expect: [{refused: value_not_valid}]}",
        (
            "{publish: {topic: p/a, payload: '{}', user_properties: [[x, '1'], [x, '2']]}, "
            "expect: [{properties: {x: '1', x_xR2_: '2'}}]}"
        ),
        (
            "{put: {queue: C, properties: {site: lima}, body: hi, persistence: not_persistent}, "
            "expect: [{topic: p/lima, qos: 0, payload: hi, retain: false, user_properties: {site: lima}}]}"
        ),
        "{put: {queue: C, body: hi}, expect: [{refused: value_missing}]}",
        "{put: {queue: X, remote_queue: a/b, remote_queue_manager: dev, body: x}, expect: [{topic: a/b, client: dev}]}",
        "{put: {queue: OTHER}}",
    ],
)
def test_tests_that_hold(test):
    assert failures(test) == []


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("{name: t, publish: {topic: none}, expect: [{queue: Q}]}", "expected 1 messages, got 0: nothing"),
        ("{publish: {topic: mq}}", "expected 0 messages, got 1: topic://a/b by `mq`"),
        ("{publish: {topic: mq}, expect: [{queue: Q}]}", "`queue` is '', not 'Q'"),
        ("{publish: {topic: mq}, expect: [{refused: schema}]}", "refused as nothing (), not schema"),
        ("{publish: {topic: mq}, expect: [{properties: {a: 1}}]}", "property `a` is None, not 1"),
        ("{publish: {topic: 'a/#'}}", "no valid topic"),
        ("{publish: {topic: mq}, expect: [{topic: a}]}", "describes puts"),
        ("{put: {queue: C, properties: {site: x}}, expect: [{queue: Q}]}", "describes publications"),
        ("{put: {queue: C, properties: {site: x}}, expect: [{topic: y}]}", "`topic` is 'p/x', not 'y'"),
        ("{put: {queue: C, properties: {site: x}}, expect: [{user_properties: {a: b}}]}", "is None, not 'b'"),
        ("{put: {queue: C, properties: {site: a/b}}, expect: [{topic: y}]}", "refused as topic_not_valid"),
    ],
)
def test_tests_that_fail_say_what_differs_and_where(test, words):
    [finding] = failures(test)
    assert words in finding.what
    assert (finding.file, finding.line, finding.column) == ("m.yaml", 9, 5)


def test_the_shipped_default_mapping_passes_its_tests():
    assert run_tests(load_mappings(["mappings/default.yaml"])) == []
