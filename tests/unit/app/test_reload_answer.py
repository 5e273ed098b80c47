"""What a reload has changed is found a rule at each step."""

from __future__ import annotations

from gateway.app.api.state import _changed
from gateway.routing.table import Table, compile_mappings
from gateway.rules.parse import parse_mappings


def table(*topics: str) -> Table:
    rules = "".join(f"  - {{name: rule {number}, topic: {topic}, queue: Q}}\n" for number, topic in enumerate(topics))
    return compile_mappings(parse_mappings([("map.yaml", f"version: 1\nto_mq:\n{rules}")]))


def test_rules_that_are_others_new_or_gone_are_named_and_each_is_a_step() -> None:
    found: list[str] = []
    steps = _changed(table("a/b", "c/d", "e/f"), table("a/b", "x/y"), found)
    assert len(list(steps)) == 1 + 3
    assert found == ["rule 1", "rule 2"]
    found.clear()
    many = [f"site{number}/x" for number in range(500)]
    assert len(list(_changed(table(*many), table(*many, "last/x"), found))) == 1 + 501
    assert found == ["rule 500"]
