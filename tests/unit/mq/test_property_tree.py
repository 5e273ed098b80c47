"""gateway.mq.property_tree: the index gives the same answers as a look at every child."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.mq.headers.rfh2_folder import Element, render
from gateway.mq.properties import folder_texts, new, with_properties
from gateway.mq.property_tree import PropertyTree

NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def elements(draw: st.DrawFn, depth: int = 2) -> Element:
    children = draw(st.lists(elements(depth - 1), max_size=4)) if depth else []
    return Element(draw(NAMES), {}, "" if children else draw(st.sampled_from(["1", "2"])), children)


def put_slowly(root: Element, groups: list[str], value: Element) -> None:
    node = root
    for group in groups:
        for child in node.children:
            if child.name == group:
                if not child.children:
                    raise MQError(0, "a property")
                break
        else:
            child = Element(group)
            node.children.append(child)
        node = child
    for place, child in enumerate(node.children):
        if child.name == value.name and not child.children:
            node.children[place] = value
            return
    node.children.append(value)


def copy(one: Element) -> Element:
    return Element(one.name, dict(one.attributes), one.text, [copy(child) for child in one.children])


@given(
    st.lists(elements(), max_size=5),
    st.lists(st.tuples(st.lists(NAMES, max_size=2), NAMES, st.sampled_from(["x", "y"])), max_size=12),
)
def test_it_gives_what_a_search_would(children: list[Element], puts: list[tuple[list[str], str, str]]) -> None:
    slow = Element("usr", {}, "", [copy(child) for child in children])
    quick = Element("usr", {}, "", [copy(child) for child in children])
    tree = PropertyTree({"usr": quick})
    for groups, name, text in puts:
        outcomes = []
        for put in (
            lambda value, groups=groups: put_slowly(slow, groups, value),
            lambda value, groups=groups: tree.put("usr", {}, groups, value),
        ):
            try:
                put(Element(name, {}, text))
                outcomes.append(True)
            except MQError:
                outcomes.append(False)
        assert outcomes[0] == outcomes[1]
        assert render(slow) == render(quick)


def lines_executed(call: Callable[[], object]) -> int:
    """Returns how many lines of Python a call executes, which does not depend on other load on the machine."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def in_folders(many: int) -> object:
    return folder_texts([new(f"name{number}", number) for number in range(many)])


def in_groups(many: int) -> object:
    return folder_texts([new(f"mine.group{number}.name", number) for number in range(many)])


def in_a_message(many: int) -> object:
    message = with_properties(mqmd.DEFAULT, b"body", [new(f"old{number}", number) for number in range(many)])
    return with_properties(*message, [new(f"new{number}", number) for number in range(many)])


@pytest.mark.parametrize("put", [in_folders, in_groups, in_a_message])
def test_four_times_as_many_properties_take_four_times_as_long(put: Callable[[int], object]) -> None:
    assert lines_executed(lambda: put(400)) < 6 * lines_executed(lambda: put(100))
