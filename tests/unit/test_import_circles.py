"""No circle of imports has more than eight modules, imports for types counted."""

from __future__ import annotations

from import_circles import circles, graph

MOST = 8


def test_no_circle_of_imports_is_large() -> None:
    assert [" ".join(circle) for circle in circles(graph()) if len(circle) > MOST] == []


def test_a_circle_is_found_wherever_it_begins() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"]]
