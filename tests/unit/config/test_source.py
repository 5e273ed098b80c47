"""YAML with marks: types of the core schema, duplicates, tags, alias bombs, and the places of values."""

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


def bomb(levels: int, merged: bool) -> str:
    lines = ["a0: &a0 {k: 1}" if merged else "a0: &a0 [x, x]"]
    for level in range(1, levels):
        ten = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{ten}], k{level}: 1}}" if merged else f"[{ten}]"))
    return "\n".join(lines)


def test_aliases_of_aliases_end_where_their_values_are_too_many():
    document = read_yaml("f.yaml", bomb(9, merged=False))
    assert document.value is None
    assert str(document.findings[0]).startswith("f.yaml:2:5: YAML cannot be read here: aliases repeat more than 100000")


def test_merges_of_merges_do_not_grow():
    document = read_yaml("f.yaml", bomb(9, merged=True))
    assert not document.findings
    assert document.value["a8"] == {"k": 1} | {f"k{level}": 1 for level in range(1, 9)}
    many = "a: &a {" + ", ".join(f"k{one}: 1" for one in range(2000)) + "}\nb: {<<: [" + "*a, " * 2000 + "]}\n"
    assert "aliases repeat" in str(read_yaml("f.yaml", many).findings[0])


@pytest.mark.parametrize("text", ["a: &a {<<: *a, b: 1}\n", "a: &a\n  b: &b {<<: *a}\n  <<: *b\n", "a: {<<: 1}\n"])
def test_what_cannot_be_merged_is_said(text):
    assert read_yaml("f", text).findings


def test_of_several_tables_that_are_merged_the_first_counts():
    document = read_yaml("f", "a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc: {<<: [*a, *b], y: 3}\n")
    assert document.value["c"] == {"x": 1, "z": 2, "y": 3}


def test_a_long_chain_of_merges_ends_no_process():
    chain = "".join(f"a{number}: &a{number} {{<<: *a{number - 1}}}\n" for number in range(1, 3000))
    assert "merged too deep" in str(read_yaml("f", f"a0: &a0 {{x: 1}}\n{chain}<<: *a2999\n").findings[0])


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 50_000, "? " * 50_000])
def test_what_is_nested_without_end_ends_no_process(text):
    assert "nested" in str(read_yaml("f", text).findings[0])


def test_a_number_without_end_is_said():
    assert str(read_yaml("f", "a: " + "9" * 10_000).findings[0]).startswith("f:1:4: the number is too long")


def test_a_tab_is_called_a_tab():
    (finding,) = read_yaml("f.yaml", "a:\n\tb: 1\n").findings
    assert "a tab where YAML has spaces" in str(finding)
