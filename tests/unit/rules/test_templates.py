"""Templates, and the names that can be made from them."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.units import Wrong
from gateway.errors import Refused
from gateway.rules.feedback import Feedback
from gateway.rules.templates import (
    Slot,
    parse_pattern,
    parse_template,
    render,
    render_queue,
    render_value,
    to_type,
)


def scope(**values):
    return lambda slot: values.get(slot.name or slot.kind)


def test_parts_of_a_template():
    template = parse_template("a{{{x:int}}}-{property.y.z:upper}", ["x"])
    assert template.parts == ("a{", Slot("level", "x", "int"), "}-", Slot("property", "y.z", case="upper"))
    assert parse_template("plain").constant == "plain"
    assert parse_template("{{}}").constant == "{}"
    assert parse_template("{received_at}").per_message
    assert parse_template("{rest*}", ["rest*"]).parts == parse_template("{rest}", ["rest*"]).parts


@pytest.mark.parametrize(
    "text", ["{", "}", "{x", "x}", "{}", "{ }", "{unknown}", "{x:foo}", "{nothing.y}", "{property.}"]
)
def test_what_is_no_template_is_refused(text):
    with pytest.raises(Wrong):
        parse_template(text, ["x"])


def test_rendering():
    template = parse_template("{x}/{client:upper}/{user:safe}", ["x"])
    assert render(template, scope(x="a", client="dev", user="a b.c")) == "a/DEV/a_b_c"
    with pytest.raises(Refused) as caught:
        render(template, scope(x="a"))
    assert caught.value.feedback == Feedback.VALUE_MISSING


def test_one_placeholder_alone_keeps_its_type_and_may_be_absent():
    assert render_value(parse_template("{x:int}", ["x"]), scope(x="7")) == 7
    assert render_value(parse_template("{json.a}"), lambda slot: 1.5) == 1.5
    assert render_value(parse_template("{property.a}"), lambda slot: None) is None
    assert render_value(parse_template("n{x}", ["x"]), scope(x="7")) == "n7"
    assert render_value(parse_template("{x:upper}", ["x"]), scope(x="a")) == "A"


@pytest.mark.parametrize(
    ("value", "type_name", "result"),
    [
        ("7", "int", 7), ("-7", "int", -7), (7.0, "int", 7), ("1e3", "float", 1000.0), (5, "float", 5.0),
        ("on", "bool", True), (False, "bool", False), ("TRUE", "bool", True), (5, "string", "5"),
        ("é", "bytes", b"\xc3\xa9"), (True, "string", "true"),
    ],
)  # fmt: skip
def test_conversions(value, type_name, result):
    assert to_type(value, type_name, "x") == result


@pytest.mark.parametrize(
    ("value", "type_name"),
    [("x", "int"), ("", "int"), ("1.5", "int"), ("٣", "int"), ("9" * 30, "int"), (2**70, "int"), ("1_0", "int"),
     (" 1", "int"), ("nan", "float"), ("inf", "float"), ("", "float"), ("1.2.3", "float"), ("maybe", "bool"),
     (float("inf"), "int"), (1.5, "int")],
)  # fmt: skip
def test_values_of_another_type_are_refused(value, type_name):
    with pytest.raises(Refused) as caught:
        to_type(value, type_name, "x")
    assert caught.value.feedback == Feedback.VALUE_NOT_VALID


LEVELS = st.one_of(
    st.text(max_size=20), st.sampled_from(["SYSTEM", "MQGATE", "AMQ", "..", "%", "A.B", "lima", "a/b", "*"])
)
TEMPLATES = st.sampled_from(
    ["T.{x}", "T{x}", "{x}.T", "T.{x}.{y}", "{x}.{y}", "T.{x:asis}", "T.{x:safe}", "T.{r}", "S{x}.Q"]
)
ALLOWED = ["T.*", "T?*", "S*"]


@given(TEMPLATES, LEVELS, LEVELS, st.lists(LEVELS, max_size=3))
def test_no_level_can_name_a_queue_that_was_not_meant(text, x, y, rest):
    template = parse_template(text, ["x", "y", "r*"])
    values = scope(x=x, y=y, r="/".join(rest))
    try:
        name = render_queue(template, values, ALLOWED)
    except Refused as refused:
        assert refused.feedback in (Feedback.NAME_NOT_VALID, Feedback.VALUE_MISSING)  # noqa: PT017
        return
    assert re.fullmatch(r"[A-Za-z0-9./_%]{1,48}", name)
    assert not name.upper().startswith(("SYSTEM.", "MQGATE.", "AMQ."))
    assert any(fnmatch.fnmatchcase(name, pattern) for pattern in ALLOWED)
    if "{r}" not in text:
        assert name.count(".") == text.count(".")
        assert "/" not in name


@given(st.lists(st.sampled_from(["a", "+", "{x}", "{y}", "{z*}", "#", ""]), min_size=1, max_size=5))
def test_patterns_are_filters_with_names(parts):
    try:
        levels, names = parse_pattern("/".join(parts))
    except Wrong:
        return
    assert len(levels) == len(parts)
    for index, name in names:
        assert parts[index] == f"{{{name}}}"
        assert levels[index] == ("#" if name.endswith("*") else "+")
    assert "#" not in levels[:-1]
