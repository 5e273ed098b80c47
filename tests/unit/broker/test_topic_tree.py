"""Retained messages looked at level by level, and searched."""

from __future__ import annotations

from typing import Any

from broker_harness import Harness

from gateway.broker.publish.topic_tree import Branch, branches, with_text
from gateway.session.publication import Publication


def retained(*topics: str) -> Any:
    found = Harness().engine.retained
    for topic in topics:
        found.restore(Publication(topic.encode(), b"x", 0, retain=True))
    return found


def level(tree: Any, under: str | None, after: str | None = None, limit: int = 9) -> list[Branch]:
    found: list[Branch] = []
    for _ in branches(tree, under, after, limit, found):
        pass
    return found


def test_a_level_has_what_is_directly_below_and_an_empty_one_is_one() -> None:
    tree = retained("plant/lima", "plant/lima/line/7", "plant/oslo/x", "/plant", "zoo")
    assert [(one.name, one.below) for one in level(tree, None)] == [("", 1), ("plant", 2), ("zoo", 0)]
    lima, oslo = level(tree, "plant")
    assert (lima.topic, lima.below, lima.retained is None) == ("plant/lima", 1, False)
    assert (oslo.topic, oslo.below, oslo.retained) == ("plant/oslo", 1, None)
    assert [one.topic for one in level(tree, "")] == ["/plant"]
    assert level(tree, "nowhere") == []


def test_a_level_of_many_is_read_in_pages_and_in_steps() -> None:
    tree = retained(*(f"{number:05}" for number in range(5000)))
    found: list[Branch] = []
    assert sum(1 for _ in branches(tree, None, "00499", 3, found)) == 5
    assert [one.name for one in found] == ["00500", "00501", "00502", "00503"]


def test_a_search_ends_with_one_more_than_is_wanted() -> None:
    tree = retained(*(f"plant/Line {number}" for number in range(50)), "other")
    found: list[Publication] = []
    assert not list(with_text(tree, "LINE", 3, found))
    assert len(found) == 4
