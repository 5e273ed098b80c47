"""The tests next to the rules: those that pass, those that fail, and those of the shipped mappings."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.bridge.rehearsal import run_tests
from gateway.rules.parse import load_mappings, parse_mappings

SHIPPED = sorted(map(str, Path("mappings").glob("*.yaml")))

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
        ("{name: t, publish: {topic: none}, expect: [{queue: Q}]}", "expected 1 message, got 0: nothing"),
        ("{publish: {topic: mq}}", "expected 0 messages, got 1: topic://a/b by `mq`"),
        ("{publish: {topic: mq}, expect: [{queue: Q}]}", "`queue` is '', not 'Q'"),
        ("{publish: {topic: mq}, expect: [{refused: schema}]}", "refused as nothing (), not schema"),
        ("{publish: {topic: mq}, expect: [{properties: {a: 1}}]}", "property `a` is None, not 1"),
        ("{publish: {topic: 'a/#'}}", "its topic is not valid"),
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


@pytest.mark.parametrize("path", SHIPPED)
def test_the_shipped_mappings_pass_their_tests(path):
    mappings = load_mappings([path])
    assert run_tests(mappings) == []
    assert mappings.warnings == ()
    used = {expected.rule for placed in mappings.tests for expected in placed.test.expect if hasattr(expected, "rule")}
    assert len(mappings.tests) >= 2, used
