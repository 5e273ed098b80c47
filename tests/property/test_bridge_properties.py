"""User properties through MQ and back; message bytes through both directions of the bridge."""

from __future__ import annotations

import re
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge import outbound
from gateway.bridge.inbound import Origin, plan
from gateway.bridge.mqtt5 import RESERVED, USER_PROPERTY, escape_name, from_properties, to_properties, unescape_name
from gateway.errors import Refused
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NASTY = st.sampled_from(
    ["", "JMSType", "and", "NULL", "a", "a.b", "a:b", "_x_", "_x41_", "a_xR2_", "_xR2_", "1", "x y", "é"]
)
PAIRS = st.lists(st.tuples(st.one_of(NASTY, TEXT), TEXT), max_size=8)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
MAPPINGS = parse_mappings(
    [("m", "to_mq: [{name: a, topic: '#', queue: Q}]\nto_mqtt: [{name: b, queue: Q, topic: 'x/{mqps.Top}'}]\n")]
)
TABLE = compile_mappings(MAPPINGS)


@given(st.one_of(NASTY, TEXT))
def test_any_name_becomes_one_that_mq_takes_and_comes_back(name):
    escaped = escape_name(name)
    assert NAME.match(escaped)
    assert escaped.upper() not in RESERVED
    assert not escaped.upper().startswith("JMS")
    assert unescape_name(escaped) == name


@given(PAIRS, st.sets(st.sampled_from(["a", "site"])))
def test_user_properties_come_back_with_names_repeats_and_order(pairs, taken):
    properties, order = to_properties(pairs, taken)
    names = [name for name, _ in properties]
    assert len(set(names)) == len(names)
    assert not set(names) & taken
    assert from_properties(properties, order) == pairs
    if order:
        assert from_properties(sorted(properties), order) == pairs


TOPICS = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20).filter(
    lambda topic: not topic.startswith("$")
)


@given(
    TOPICS, st.binary(max_size=50), st.integers(0, 2), st.booleans(), PAIRS, st.text(max_size=10), st.integers(0, 65535)
)
def test_a_publication_comes_back_from_the_queue_as_it_was(topic, payload, qos, retain, pairs, client, packet_id):
    properties = {USER_PROPERTY: pairs} if pairs else {}
    client = client.replace("\0", "")
    [prepared] = plan(TABLE, Origin(client, "", topic, qos, retain), properties).prepared
    assert prepared.simple
    head, body = prepared.head, prepared.tails[packet_id] + payload
    back = outbound.publication(MAPPINGS.to_mqtt[0], head[:364], head[364:] + body)
    assert (back.topic, back.payload, back.qos, back.retain) == (f"x/{topic}", payload, qos, retain)
    assert back.properties.get(USER_PROPERTY, []) == pairs


@given(st.binary(max_size=200), st.binary(max_size=364))
def test_bytes_that_are_no_message_are_refused_and_nothing_else(data, scribble):
    [prepared] = plan(TABLE, Origin("c", "", "a", 1), {}).prepared
    md = prepared.head[:364]
    md = md[:16] + (scribble + md[16 + len(scribble) :])[:348]
    for descriptor in (prepared.head[:364], md):
        with suppress(Refused):
            outbound.publication(MAPPINGS.to_mqtt[0], descriptor, data)
