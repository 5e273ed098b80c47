"""gateway.rules.pattern_weight: what a pattern may cost is known before any message."""

from __future__ import annotations

import json

import pytest

from gateway.config.units import Wrong
from gateway.rules.pattern_weight import BUDGET, FREE, MOST, bounded, weight
from gateway.rules.payload_schema import compile_schema


@pytest.mark.parametrize(
    ("pattern", "places"),
    [
        ("(a{1,500}){1,100}b", 50_001), ("(a{500}){1,}b", 501), ("((ab){2}c){3}", 15), ("[a-z]{1,500}b", 501),
        (r"(\p{L}{1,10}\.){2,3}x", 34), (r"^(\d{1,3}\.){3}\d{1,3}$", 15), (r"[\]a[b]]{7}\{8}", 10),
        ("^.{1,5000}$", 0), ("^[A-Z]{2}[0-9]+$", 0), ("(a{1,500})*b", 501), ("^(a{1,500})*b", 501), ("^(a{9}|b)$", 10),
        ("a{99999999999999999999}", 999_999_999), ("[", 1), ("a)", 2), ("", 0),
    ],
)  # fmt: skip
def test_counted_repetitions_are_written_out(pattern: str, places: int) -> None:
    assert weight(pattern) == places


def test_a_pattern_that_would_take_minutes_is_refused_with_the_rules() -> None:
    for schema in ({"pattern": "(a{1,500}){1,100}b"}, {"patternProperties": {"(a{1,50}){1,20}b": {}}}):
        with pytest.raises(Wrong, match="nests"):
            compile_schema(json.dumps({"properties": {"a": schema}}))


def test_a_costly_pattern_is_not_tried_on_a_long_string() -> None:
    differs = compile_schema(
        json.dumps({"pattern": "(a{1,50}){1,20}b", "minLength": 2, "allOf": [{"maxLength": 99_999}]})
    )
    assert differs("aab", True) == ""
    assert differs("b", True)
    assert differs("aaa", True)
    assert "longer" in differs("a" * 20_000 + "b", True)
    assert differs(7, True) == ""


def test_other_schemas_stay_as_they_are() -> None:
    for schema in (
        True, {"pattern": "^[a-z]{1,4096}$"}, {"properties": {"pattern": {"type": "string"}}},
        {"enum": [{"pattern": "(a{1,500}){1,100}b"}], "const": {"pattern": "(a{1,500}){1,100}"}}, {"pattern": 7},
    ):  # fmt: skip
        assert bounded(schema) == schema
    assert FREE < MOST < BUDGET
