"""User properties through MQ and back; message bytes through both directions of the bridge."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.bridge import outbound
from gateway.bridge.inbound import Origin, plan
from gateway.bridge.mqtt5 import RESERVED, USER_PROPERTY, escape_name, from_properties, to_properties, unescape_name
from gateway.bridge.payload import Body
from gateway.errors import Refused
from gateway.mq import mqmd, property_names
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mqtt import properties as prop
from gateway.mqtt.topics import name_error
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
NASTY = st.sampled_from(
    ["", "JMSType", "and", "NULL", "a", "a.b", "a:b", "_x", "_x_", "__x_2", "_x41_", "_x0041_", "a_xR2_", "_xR2_",
     "x_2", "1", "1a", "_", " ", "x y", "é", "like", "Root", "𝒳"]
)  # fmt: skip
NAMES = st.one_of(NASTY, TEXT, st.lists(NASTY, max_size=3).map("".join))
PAIRS = st.lists(st.tuples(NAMES, st.one_of(TEXT, NASTY)), max_size=8)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
MAPPINGS = parse_mappings(
    [("m", "to_mq: [{name: a, topic: '#', queue: Q}]\nto_mqtt: [{name: b, queue: Q, topic: 'x/{mqps.Top}'}]\n")]
)
TABLE = compile_mappings(MAPPINGS)


@given(NAMES)
@example("x" * 5000)
def test_any_name_becomes_one_that_mq_takes_and_comes_back(name):
    escaped = escape_name(name)
    assert NAME.match(escaped)
    assert escaped.upper() not in RESERVED
    assert not escaped.upper().startswith("JMS")
    assert unescape_name(escaped) == name
    if len(escaped) <= property_names.MAX_NAME_LENGTH:
        property_names.check(escaped)


@given(NAMES, NAMES)
def test_different_names_stay_different(one, other):
    assert (escape_name(one) == escape_name(other)) == (one == other)


@given(PAIRS, st.sets(st.sampled_from(["a", "site"])), st.randoms())
@example([("a", "1"), ("b", "2"), ("a", ""), ("a_xR2_", "3"), ("", ""), ("", "x")], set(), Random(1))
def test_user_properties_come_back_with_names_repeats_and_order(pairs, taken, random):
    properties, order = to_properties(pairs, taken)
    names = [name for name, _ in properties]
    assert len(set(names)) == len(names)
    assert not set(names) & taken
    assert from_properties(properties, order) == pairs
    if order:
        random.shuffle(properties)
        assert from_properties(properties, order) == pairs


TOPICS = st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20).filter(
    lambda topic: not topic.startswith("$") and name_error(topic) is None
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


HOSTILE = parse_mappings(
    [
        (
            "m",
            """
to_mq:
  - name: a
    topic: 'a/{x}/{y*}'
    queue: 'T.{json.q}'
    queue_manager: 'QM{json.m}'
    properties: {x: '{x}', n: '{json.n}', i: '{json.n:int}', f: '{json.n:float}', b: '{json.n:bool}', u: '{property.n}'}
    descriptor: {user: '{json.n}', application_data: '{json.n}', correlation: '{json.n}'}
    group_by: '{json.n}'
    continue: true
  - {name: b, topic: 'a/#', mq_topic: 'm/{json.n}', properties: {n: '{json.n}'}, when: {json: {q: x}}}
to_mqtt:
  - {name: c, queue: C, topic: '{json.n:asis}/{usr.n}', client: '{json.q}', user_properties: all}
""",
        )
    ]
)
HOSTILE_TABLE = compile_mappings(HOSTILE)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["\ud800", "\0", "x"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)
DOCUMENTS = st.one_of(
    st.binary(max_size=20),
    st.fixed_dictionaries({"n": VALUES, "q": VALUES, "m": VALUES}).map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [b'{"n":' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"n":1e999,"q":"x","m":"M"}', b'{"q":"x","m":"1","n":NaN}']
    ),
)


@given(st.text(max_size=10), DOCUMENTS, PAIRS)
def test_whatever_a_device_sends_is_put_or_refused(level, payload, pairs):
    topic = f"a/{level}".replace("\0", "")
    made = plan(HOSTILE_TABLE, Origin("c", "", topic, 1), {USER_PROPERTY: pairs})
    for prepared in made.settle(Body(payload)):
        with suppress(Refused):
            built = prepared.build(1, Body(payload), 1e9)
            assert len(built.head) > 364
            assert built.body.endswith(payload)
            assert built.queue.startswith(("T.", "topic://m/"))
            outbound.publication(MAPPINGS.to_mqtt[0], built.head[:364], built.head[364:] + built.body)


@given(DOCUMENTS, st.text(max_size=10))
def test_whatever_lies_on_a_queue_is_published_or_refused(body, value):
    data = rfh2.build([folder("usr", [("n", value)])]) + body
    with suppress(Refused):
        found = outbound.publication(HOSTILE.to_mqtt[0], mqmd.build(format="MQHRF2", coded_char_set_id=1208), data)
        assert found.topic.encode()
        assert prop.encode(found.properties) is not None


VARIED = compile_mappings(
    parse_mappings(
        [
            ("m", "to_mq: [{name: a, topic: a, queue: Q, properties: {x: '{topic}'}, descriptor: {expiry: 1h}}]\n"),
            ("n", "to_mq: [{name: b, topic: b, queue: Q, properties: {at: '{received_at}', v: '{json.v}'}}]\n"),
            (
                "o",
                "to_mq: [{name: c, topic: c, queue: Q, headers: [], properties: {}, when: {payload: {at_least: 2}}}]\n",
            ),
            ("p", "to_mq: [{name: d, topic: d, queue: Q, properties: {p: '{property.a}'}}]\n"),
            (
                "q",
                "to_mq: [{name: e, topic: e, queue: Q, when: {properties: {a: '*'}}}, {name: f, topic: e, queue: R}]\n",
            ),
        ]
    )
)


@given(st.sampled_from("abcde"), PAIRS, st.one_of(st.none(), st.integers(0, 10**6)), st.booleans())
def test_what_forms_make_of_properties_is_what_their_own_plan_makes(topic, pairs, expiry, typed):
    origin, others = Origin("c", "u", topic, 1), {0x03: "text/plain"} if typed else {}
    properties = others | ({USER_PROPERTY: pairs} if pairs else {}) | ({} if expiry is None else {0x02: expiry})
    base, wanted, body = plan(VARIED, origin, others), plan(VARIED, origin, properties), Body(b'{"v":1}')
    assert bool(base.forms) == (topic != "e")  # user properties decide which rule it is
    assert len(base.forms) in {0, len(wanted.prepared)}
    users = [(name.encode(), value.encode()) for name, value in pairs]
    for mine, theirs in zip(base.prepared if base.forms else [], wanted.prepared, strict=base.forms != ()):
        built = mine.build_with(5, body, 1e9, users, expiry)
        assert built is None or built == theirs.build(5, body, 1e9)
