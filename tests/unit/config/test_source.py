"""YAML with marks: types of the core schema, duplicates, tags, alias bombs, and where things stand."""

from __future__ import annotations

import pytest

from gateway.config import source
from gateway.config.source import read_scalar, read_yaml


def test_values_keep_what_looks_like_a_version_or_a_time_as_text():
    document = read_yaml("f", "a: on\nb: 12:30:00\nc: 007\nd: 2026-01-01\ne: 0x10\nf: 1.5\ng: ~\nh: true\ni:\n")
    assert document.value == {
        "a": "on", "b": "12:30:00", "c": "007", "d": "2026-01-01", "e": 16, "f": 1.5, "g": None, "h": True, "i": None,
    }  # fmt: skip


def test_marks_are_one_based_and_fall_back_to_the_nearest_parent():
    document = read_yaml("f", "a:\n  - {b: 1,\n     c: 2}\n")
    assert document.values[("a", 0, "c")] == (3, 9)
    assert document.keys[("a", 0, "c")] == (3, 6)
    finding = document.finding(("a", 0, "missing"), "what", "fix")
    assert str(finding) == "f:2:5: what: fix"


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", (3, 1), "given twice"),
        ("a: !!python/object:os.system {}\n", (1, 4), "not allowed"),
        ("a: !secret x\n", (1, 4), "not allowed"),
        ("topic: {client}/x\n", (1, 16), "cannot be read"),
        ("a: {{x}: 1}\n", (1, 5), "plain text"),
        ("a: [1\n", (2, 1), "cannot be read"),
        ("a: 1\n---\nb: 2\n", (2, 1), "cannot be read"),
        ("a: \x01\n", (1, 1), "cannot be read"),
    ],
)
def test_what_is_wrong_is_found_where_it_stands(text, where, words):
    document = read_yaml("f", text)
    assert document.value is None
    assert words in document.findings[0].what + document.findings[0].fix
    assert (document.findings[0].line, document.findings[0].column) == where


def test_merge_keys_are_merged_and_written_keys_win():
    document = read_yaml("f", "base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\n")
    assert document.value["mine"] == {"x": 1, "y": 3}


def test_an_alias_bomb_costs_bounded_work(monkeypatch):
    monkeypatch.setattr(source, "MAX_NODES", 10_000)
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    document = read_yaml("f", "\n".join(lines))
    assert document.value is None
    assert "too many values" in document.findings[0].what


def test_a_value_that_contains_itself_is_refused():
    document = read_yaml("f", "a: &a [*a]\n")
    assert document.value is None
    assert document.findings


def test_scalars_from_elsewhere_are_yaml_or_else_text():
    assert read_scalar("5") == 5
    assert read_scalar("[a, b]") == ["a", "b"]
    assert read_scalar("{broken") == "{broken"
