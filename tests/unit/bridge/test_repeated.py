"""What is kept of messages with JSON bodies, by the fields that templates name. Everything else is in the property
tests."""

from __future__ import annotations

import pytest

from gateway.bridge.outbound import publication
from gateway.bridge.repeated import Repeated
from gateway.mq import mqmd
from gateway.rules.parse import parse_mappings

MD = mqmd.build(format="MQSTR", persistence=1)
JSON = 'topic: "a/{json.id}", client: "{json.c}"'


def kept(rule, data):
    rules = parse_mappings([("m", f"to_mqtt: [{{name: r, queue: Q, {rule}}}]\n")]).to_mqtt
    known = Repeated()
    known.keep(rules, MD, data, publication(rules[0], MD, data))
    return rules, known


def test_messages_with_equal_fields_are_alike():
    rules, known = kept(JSON, b'{"id": 1, "c": "x", "n": 1}')
    found = known.find(rules, MD, b'{"n": 2, "c": "x", "id": 1}')
    assert found is not None
    assert (found.topic, found.made.client) == (b"a/1", "x")


@pytest.mark.parametrize("body", [b'{"id": 2, "c": "x"}', b'{"id": 1}', b'{"id": "1", "c": "x"}', b"", b"1", b"\xff"])
def test_others_are_not(body):
    rules, known = kept(JSON, b'{"id": 1, "c": "x"}')
    assert known.find(rules, MD, body) is None


def test_what_is_said_of_all_messages_that_begin_alike_asks_no_body():
    """A putter may have cut the message after what is a complete document by itself."""
    body = b'{"id": 1, "c": "x"}'
    rules, known = kept(JSON, body)
    assert known.find_shared(rules, MD, body) is None
    rules, known = kept('topic: "a/b"', body)
    assert known.find_shared(rules, MD, body) is not None


def test_fields_in_another_character_set_are_not_kept():
    """Two bodies whose bytes read the same as UTF-8, but not in their character set."""
    md = mqmd.build(format="MQSTR", persistence=1, coded_char_set_id=819)
    bodies = ['{"id": "ä"}'.encode(), b'{"id": "\\u00e4"}']
    rules = parse_mappings([("m", "to_mqtt: [{name: r, queue: Q, topic: 'a/{json.id}'}]\n")]).to_mqtt
    known, made = Repeated(), [publication(rules[0], md, body) for body in bodies]
    assert [one.topic for one in made] == ["a/Ã¤", "a/ä"]
    known.keep(rules, md, bodies[0], made[0])
    assert known.find(rules, md, bodies[1]) is None


def test_long_fields_are_not_kept():
    data = b'{"id": "%b", "c": "x"}' % (b"y" * 300)
    rules, known = kept(JSON, data)
    assert known.find(rules, MD, data) is None
