"""Selectors: the subset of SQL92 conditions."""

from __future__ import annotations

from contextlib import suppress

import pytest
from embedded_rig import md
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MQError
from gateway.mq import properties
from gateway.queue_manager.objects.selectors import compile_selector

MD, DATA = properties.with_properties(
    md(priority=5, format=b"MQSTR"),
    b"data",
    [
        properties.Property("site", "lima"),
        properties.Property("line", 7, "i4"),
        properties.Property("load", 0.5, "r8"),
        properties.Property("hot", value=True, dt="boolean"),
    ],
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("site = 'lima'", True),
        ("site <> 'lima'", False),
        ("usr.site = 'lima'", True),
        ("line > 6 AND line < 8", True),
        ("line + 1 = 8 AND line * 2 = 14 AND -line = -7", True),
        ("line / 2 = 3.5", True),
        ("load >= 0.5", True),
        ("hot", True),
        ("NOT hot", False),
        ("hot = TRUE", True),
        ("missing = 1", False),
        ("NOT missing = 1", False),
        ("missing IS NULL", True),
        ("site IS NOT NULL", True),
        ("site IN ('quito', 'lima')", True),
        ("site NOT IN ('quito')", True),
        ("line BETWEEN 1 AND 7", True),
        ("line NOT BETWEEN 1 AND 7", False),
        ("site LIKE 'l_m%'", True),
        ("site LIKE 'l!_m%' ESCAPE '!'", False),
        ("site NOT LIKE 'x%'", True),
        ("site = 'quito' OR line = 7", True),
        ("missing = 1 OR line = 7", True),
        ("missing = 1 AND line = 7", False),
        ("(site = 'quito' OR line = 7) AND hot", True),
        ("Root.MQMD.Priority = 5", True),
        ("JMSPriority > 4", True),
        ("site > 'a'", False),
        ("line = '7'", False),
        ("line / 0 = 1", False),
        ("site = 'it''s'", False),
        ("\"site\" = 'lima'", True),
    ],
)
def test_conditions(text, expected):
    assert compile_selector(text).accepts(MD, DATA) is expected


@pytest.mark.parametrize(
    "text", ["", "site =", "site = = 1", "site LIKE 5", "(site = 1", "site NOT 5", "a IN ()", "'x", "a @ b"]
)
def test_what_is_no_condition(text):
    with pytest.raises(MQError) as caught:
        compile_selector(text)
    assert caught.value.reason == 2459


def test_depth_is_bounded():
    with pytest.raises(MQError):
        compile_selector("(" * 100 + "hot" + ")" * 100)


@given(st.text(alphabet="ab'=<>()+-*/ ANDORNTIKE_%.1", max_size=60))
def test_any_text_is_a_selector_or_refused(text):
    with suppress(MQError):
        assert compile_selector(text).accepts(MD, DATA) in {True, False}
