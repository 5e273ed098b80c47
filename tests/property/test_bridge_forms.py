"""Forms against recipes: what a form makes of a publication is, byte for byte, what the recipe makes of it."""

from __future__ import annotations

import json

from bridge_rules import DOCUMENTS, ORIGINS, RULES, WORDS
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge import assembly, inbound
from gateway.bridge.form import carry, form_of
from gateway.bridge.mqtt5 import MESSAGE_EXPIRY, USER_PROPERTY, from_properties, to_properties
from gateway.bridge.origin import Origin
from gateway.bridge.payload import Body
from gateway.errors import Refused
from gateway.mq.headers.rfh2_folder import element, parse_folder
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

CELLS = [
    "{received_at}", "{packet_id}", "{json.n}", "{json.s}", "{json.n:int}", "{json.n:float}", "{json.n:string}",
    "{json.s:upper}", "{json.gone}", "{json.d}", "{json.d.a}", "{property.a}", "{property.k:int}", "{property.é x}",
    "{property.a:upper}", "at {received_at}!", "{json.s}&{x}", "{property.a}/{packet_id}", "{json.n}{json.n}", "{x}",
    "<{client:safe}>", "fixed", "{received_at:lower}", "{packet_id:string}", "{listener}",
]  # fmt: skip
TYPED = st.builds(
    lambda value, kind: {"value": value, "type": kind},
    st.sampled_from(CELLS), st.sampled_from(["string", "int", "float", "bool", "bytes"]),
)  # fmt: skip
PARTS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "site", "d9"]), st.one_of(st.sampled_from(CELLS), TYPED), max_size=4
)
NAMES = st.one_of(st.sampled_from(["a", "k", "é x", "site", "JMSX", "null", "_x41_", "", "9", "a_xR2_"]), WORDS)
USERS = st.lists(st.tuples(NAMES, st.one_of(WORDS, st.sampled_from(["1", "-7", "<&'\">", "yes"]))), max_size=5)
FIELDS = st.builds(
    lambda document, more: {**document, **more},
    DOCUMENTS,
    st.fixed_dictionaries(
        {"d": st.one_of(st.none(), st.just({"a": 1}), st.lists(st.booleans(), max_size=2), st.integers())}
    ),
)
OTHERS = st.fixed_dictionaries({0x01: st.integers(0, 1), 0x03: WORDS, 0x08: WORDS, 0x09: st.binary(max_size=30)})
HEADERS = st.lists(st.sampled_from(["mcd", "mqps", "mqtt"]), unique=True)
NOW = st.floats(0, 4e9).map(lambda now: round(now, 3))


def prepared_for(rule, origin, properties):
    rule = {**rule, "allowed_queues": ["*"]} if rule["queue"].startswith("{") else rule
    table = compile_mappings(parse_mappings([("m.yaml", json.dumps({"to_mq": [rule]}))]), "GATE")
    return inbound.plan(table, origin, properties).prepared[0]


def by_recipe(prepared, properties, payload, packet_id, now):
    """The message or what it is refused with, through the recipe alone."""
    scope = inbound._static_scope(prepared.match, prepared.origin, properties)
    try:
        recipe = assembly.recipe(prepared.match, prepared.origin, properties, scope)
        return recipe.make(inbound._per_message(scope, Body(payload), packet_id, now))
    except Refused as refused:
        return refused.feedback


def by_form(form, users, payload, packet_id, now, expiry):
    at = inbound.timestamp(now).encode()
    pairs = [(name.encode(), value.encode()) for name, value in users]
    try:
        head = form.make(at, pairs, Body(payload), packet_id, expiry)
    except Refused as refused:
        return refused.feedback
    return head and (form.destination, form.priority, form.persistent, head, form.tails)


@given(
    RULES, PARTS, HEADERS, ORIGINS, st.one_of(st.just({}), OTHERS), USERS, st.none() | st.integers(0, 2**32 - 1),
    FIELDS, st.integers(0, 65535), NOW,
)  # fmt: skip
def test_a_form_makes_what_the_recipe_makes(
    rule, parts, headers, origin, others, users, expiry, document, packet_id, now
):
    rule = {**rule, "properties": {**rule.get("properties", {}), **parts}}
    rule = {**rule, "headers": headers if headers or not rule["properties"] else ["mcd"]}
    prepared = prepared_for(rule, origin, others)
    form = prepared.form
    if form is None:
        return
    properties = others | ({USER_PROPERTY: users} if users else {})
    properties |= {} if expiry is None else {MESSAGE_EXPIRY: expiry}
    payload = json.dumps(document).encode()
    expected = by_recipe(prepared, properties, payload, packet_id, now)
    made = by_form(form, users, payload, packet_id, now, expiry)
    if made is None:
        assert to_properties(users, list(rule["properties"]))[1]
        pairs = [(name.encode(), value.encode()) for name, value in users]
        made = by_form(form_of(prepared, pairs), users, payload, packet_id, now, expiry)
    assert made == expected
    if not users and expiry is None and isinstance(made, tuple):
        assert form.head in {None, made[3]}
        if form.around_time is not None:
            assert made[3] == inbound.timestamp(now).encode().join(form.around_time)


def test_a_rule_whose_destination_or_descriptor_varies_has_none():
    origin = Origin("c", "", "p/x/y", 1)
    for more in (
        {"queue": "T.{json.q}"}, {"queue": "T.{property.q}"}, {"descriptor": {"correlation": "{property.c}"}},
        {"descriptor": {"user": "{json.u}"}}, {"group_by": "{packet_id}"},
    ):  # fmt: skip
        assert prepared_for({"name": "r", "topic": "p/{x}/{y*}", "queue": "Q"} | more, origin, {}).form is None, more
    assert prepared_for({"name": "r", "topic": "p/{x}/{y*}", "queue": "Q"}, origin, {USER_PROPERTY: []}).form is None


@given(USERS, st.sets(st.sampled_from(["a", "site"])))
def test_carried_user_properties_are_elements_of_their_own(users, taken):
    carried, order = to_properties(users, sorted(taken))
    made = carry([(name.encode(), value.encode()) for name, value in users], frozenset(name.encode() for name in taken))
    assert (made is None) == bool(order)
    if made is not None:
        assert made.decode() == "".join(element(name, value) for name, value in carried)
        folder = parse_folder(f"<usr>{made.decode()}</usr>")
        assert from_properties([(one.name, one.value) for one in folder.children]) == users
