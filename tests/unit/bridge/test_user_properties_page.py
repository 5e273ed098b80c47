"""The page about user properties shows what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.bridge.mqtt5 import escape_name, from_properties, to_properties, unescape_name

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "mq-properties.md"


def examples() -> list[tuple[list[str], list[str], str]]:
    """User property names, names in `usr`, the list of names."""
    table = PAGE.read_text(encoding="utf-8").split("| user properties |")[1]
    rows = [[re.findall(r"`([^`]*)`", cell) for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    return [(users, names, "".join(order)) for users, names, order in (row for row in rows if len(row) == 3)]


def test_the_page_has_examples() -> None:
    assert len(examples()) == 9


@pytest.mark.parametrize(("users", "names", "order"), examples())
def test_an_example_of_the_page(users: list[str], names: list[str], order: str) -> None:
    pairs = [(name, str(number)) for number, name in enumerate(users)]
    properties, listed = to_properties(pairs)
    assert [name for name, _ in properties] == names
    assert listed == order
    assert from_properties(properties, listed) == pairs


def test_what_the_page_says_about_names_without_an_example() -> None:
    assert escape_name("") == "_x_"
    assert unescape_name("_x_") == ""
    assert to_properties([("site", "x")], taken=["site"]) == ([("site_xR2_", "x")], "site_xR2_")
    assert to_properties([("n" * 4096, "x"), ("a", "y")]) == ([("a", "y")], "")
