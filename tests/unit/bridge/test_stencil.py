"""Stencils: which rules have one, and that filled ones are what the recipes make (every byte: property tests)."""

from __future__ import annotations

import json

import pytest

from gateway.bridge import assembly, descriptor, inbound
from gateway.bridge.origin import Origin
from gateway.bridge.stencil import stencil_of
from gateway.errors import Refused
from gateway.routing.table import Context, compile_mappings
from gateway.rules.parse import parse_mappings

ORIGIN = Origin("sensor <7>", "", "p/lima/7", 1)


def match(**more):
    rule = {"name": "r", "topic": "p/{site}/{line}", "queue": "Q", **more}
    table = compile_mappings(parse_mappings([("m.yaml", json.dumps({"to_mq": [rule]}))]), "GATE1")
    return table.match(ORIGIN.topic, Context())[0]


CUT = {
    "nothing": {"headers": []},
    "folders": {"headers": ["mcd", "mqps", "mqtt"]},
    "text, typed and mixed properties": {
        "properties": {"site": "{site}", "line": "{line:int}", "both": "{site}-{line}", "fixed": "x", "user": "{user}"}
    },
    "queue from a level": {"queue": "T.{site}"},
    "user from a level": {"descriptor": {"user": "{site}&co of some length"}},
}


@pytest.mark.parametrize("more", CUT.values(), ids=CUT)
@pytest.mark.parametrize("username", ["", "a'b"])
@pytest.mark.parametrize("retain", [False, True])
def test_a_filled_stencil_is_what_the_recipe_makes(more, username, retain):
    found, origin = match(**more), ORIGIN._replace(username=username, retain=retain)
    scope = inbound._static_scope(found, origin, {})
    stencil = stencil_of(found, origin)
    assert stencil is not None
    assert stencil.fill(found, origin, scope) == assembly.recipe(found, origin, {}, scope).make(scope)


@pytest.mark.parametrize("more", CUT.values(), ids=CUT)
@pytest.mark.parametrize("username", ["", "a'b"])
@pytest.mark.parametrize("headers", [[], ["mcd"], ["mqtt"], ["mqps"], ["mcd", "mqps", "mqtt"]], ids="+".join)
def test_the_frame_of_a_stencil_is_the_one_that_its_rule_has(more, username, headers):
    more = more if headers else {**more, "properties": {}}
    found, origin = match(**{**more, "headers": headers}), ORIGIN._replace(username=username, retain=True)
    scope = inbound._static_scope(found, origin, {})
    stencil = stencil_of(found, origin)
    assert stencil is not None
    described = descriptor.build(found.rule, origin.qos, {}, scope, None)
    assert stencil.frame(origin, scope) == assembly.frame_of(found, origin, {}, described, "")


@pytest.mark.parametrize(
    "more",
    [
        {"group_by": "{client}"},
        {"descriptor": {"correlation": "{site}"}},
        {"descriptor": {"application_data": "{client}"}},
        {"queue": "T.{json.q}"},
        {"properties": {"at": "{received_at}"}},
    ],
)
def test_a_rule_that_computes_has_none(more):
    assert stencil_of(match(**more), ORIGIN) is None


def test_a_name_that_mq_does_not_take_is_refused():
    found, origin = match(queue="T.{site}"), ORIGIN._replace(topic="p/a b/7")
    found = found._replace(captured={"site": "a b", "line": "7"})
    stencil = stencil_of(found, origin)
    assert stencil is not None
    with pytest.raises(Refused):
        stencil.fill(found, origin, inbound._static_scope(found, origin, {}))
