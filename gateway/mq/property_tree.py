"""Folders into which properties are put one by one, each in constant time: a message may have thousands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.errors import MQError
from gateway.mq.constants import MQRC_PROPERTY_TYPE_ERROR
from gateway.mq.headers.rfh2_folder import Element


class _Children:
    """The children of one element by name, the first of each name."""

    __slots__ = ("first", "node", "values")

    def __init__(self, node: Element) -> None:
        self.node = node
        self.first: dict[str, Element] = {}
        self.values: dict[str, int] = {}
        """The places of those that are not groups."""
        for place, child in enumerate(node.children):
            self.first.setdefault(child.name, child)
            if not child.children:
                self.values.setdefault(child.name, place)

    def add(self, child: Element) -> None:
        """Add a child at the end."""
        self.node.children.append(child)
        self.first.setdefault(child.name, child)

    def put(self, value: Element) -> None:
        """Put a value, in the place of one of the same name."""
        place = self.values.setdefault(value.name, len(self.node.children))
        if place == len(self.node.children):
            self.add(value)
            return
        if self.first[value.name] is self.node.children[place]:
            self.first[value.name] = value
        self.node.children[place] = value


class PropertyTree:
    """Folders by name, and an index of each element into which something was put."""

    def __init__(self, roots: dict[str, Element]) -> None:
        self.roots = roots
        self._children: dict[int, _Children] = {}
        """By the identity of the element, which the tree keeps alive."""

    def put(self, folder: str, attributes: Mapping[str, str], groups: Sequence[str], value: Element) -> None:
        """Put a value into a folder, below these groups. `attributes` are those of the folder if it is new."""
        node = self.roots.setdefault(folder, Element(folder, dict(attributes)))
        for group in groups:
            node = self._group(node, group, value.name)
        self._of(node).put(value)

    def _of(self, node: Element) -> _Children:
        children = self._children.get(id(node))
        if children is None:
            children = self._children[id(node)] = _Children(node)
        return children

    def _group(self, node: Element, name: str, value: str) -> Element:
        children = self._of(node)
        group = children.first.get(name)
        if group is None:
            group = Element(name)
            children.add(group)
        elif not group.children:
            raise MQError(MQRC_PROPERTY_TYPE_ERROR, f"property {value!r}: {name!r} is a property, not a group")
        return group
