"""A trie over the levels of MQTT topic filters: the matches of a topic are found without looking at other filters.

Each filter has one value, so that adding and removing cost one walk down its levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb, inf
from typing import Generic, TypeVar

V = TypeVar("V")


class Node(Generic[V]):
    """One level: literal children, `+`, the value of the filter that ends here, and that of `#` below."""

    __slots__ = ("any", "children", "here", "rest")

    def __init__(self) -> None:
        self.children: dict[str, Node[V]] = {}
        self.any: Node[V] | None = None
        self.here: V | None = None
        self.rest: V | None = None

    @property
    def empty(self) -> bool:
        return not self.children and self.any is None and self.here is None and self.rest is None


def has_few_places(levels: Sequence[str], most: int) -> bool:
    """Whether at most `most` nodes have to be visited for a topic, however many filters there are that have the topic's
    own levels and `+` in any order, and no more of `+`, or no more other levels, than this one."""
    alike = min(levels.count("+"), len(levels) - levels.count("+"))
    if 1 << min(len(levels), 64) <= most:
        return True
    places = 0
    for many in range(alike + 1):
        places += comb(len(levels) + 1, many + 1)
        if places > most:
            return False
    return True


class FilterTrie(Generic[V]):
    """A map from filters to values."""

    __slots__ = ("root",)

    def __init__(self) -> None:
        self.root: Node[V] = Node()

    def get(self, levels: Sequence[str]) -> V | None:
        """The value of exactly this filter."""
        node = self.root
        rest = bool(levels) and levels[-1] == "#"
        for level in levels[:-1] if rest else levels:
            below = node.any if level == "+" else node.children.get(level)
            if below is None:
                return None
            node = below
        return node.rest if rest else node.here

    def put(self, levels: Sequence[str], value: V) -> None:
        """Set the value of this filter."""
        node = self.root
        for index, level in enumerate(levels):
            if level == "#" and index == len(levels) - 1:
                node.rest = value
                return
            node = self._step(node, level)
        node.here = value

    @staticmethod
    def _step(node: Node[V], level: str) -> Node[V]:
        if level == "+":
            if node.any is None:
                node.any = Node()
            return node.any
        child = node.children.get(level)
        if child is None:
            child = node.children[level] = Node()
        return child

    def pop(self, levels: Sequence[str]) -> V | None:
        """Remove and return the value of this filter, and remove the branches that are then empty."""
        path: list[tuple[Node[V], str]] = []
        node = self.root
        rest = bool(levels) and levels[-1] == "#"
        for level in levels[:-1] if rest else levels:
            path.append((node, level))
            below = node.any if level == "+" else node.children.get(level)
            if below is None:
                return None
            node = below
        if rest:
            value, node.rest = node.rest, None
        else:
            value, node.here = node.here, None
        self._prune(path, node)
        return value

    @staticmethod
    def _prune(path: list[tuple[Node[V], str]], node: Node[V]) -> None:
        for parent, level in reversed(path):
            if not node.empty:
                return
            if level == "+":
                parent.any = None
            else:
                del parent.children[level]
            node = parent

    def match(self, topic: str) -> list[V]:
        """The values of all filters that match `topic`. `#` and `+` at the beginning do not match `$...`
        [MQTT-4.7.2-1]. Levels are compared as they are [MQTT-4.7.3-4], and a match has no other effect
        [MQTT-3.3.2-3]."""
        found = self.match_among(topic, inf)
        return [] if found is None else found

    def match_among(self, topic: str, most: float) -> list[V] | None:
        """The same; None if more than `most` nodes would have to be visited, as when many filters begin with the same
        levels and `+` in place of some."""
        levels = topic.split("/")
        found: list[V] = []
        seen = 0
        nodes = [self.root]
        if topic[:1] == "$":
            child = self.root.children.get(levels[0])
            nodes = [] if child is None else [child]
            del levels[0]
        for level in levels:
            below: list[Node[V]] = []
            for node in nodes:
                if node.rest is not None:
                    found.append(node.rest)
                child = node.children.get(level)
                if child is not None:
                    below.append(child)
                if node.any is not None:
                    below.append(node.any)
            nodes = below
            if not nodes:
                return found
            seen += len(nodes)
            if seen > most:
                return None
        for node in nodes:
            if node.here is not None:
                found.append(node.here)
            if node.rest is not None:  # `a/#` matches `a` too [MQTT3-4.7.1-2] [MQTT5-4.7.1-1]
                found.append(node.rest)
        return found

    def walk(self, topic: str) -> Iterator[V | None]:
        """Yield what `match` finds, in another order and one node at a time, with None where there is nothing; filters
        may be added and removed meanwhile."""
        levels = topic.split("/")
        stack = [(self.root, 0)]
        if topic[:1] == "$":
            child = self.root.children.get(levels[0])
            stack = [] if child is None else [(child, 1)]
        while stack:
            node, depth = stack.pop()
            if node.rest is not None:
                yield node.rest
            if depth == len(levels):
                yield node.here
                continue
            child = node.children.get(levels[depth])
            if child is not None:
                stack.append((child, depth + 1))
            if node.any is not None:
                stack.append((node.any, depth + 1))
            yield None

    def items(self) -> Iterator[tuple[tuple[str, ...], V]]:
        """Every filter with its value."""
        stack: list[tuple[tuple[str, ...], Node[V]]] = [((), self.root)]
        while stack:
            levels, node = stack.pop()
            if node.here is not None:
                yield levels, node.here
            if node.rest is not None:
                yield (*levels, "#"), node.rest
            stack += [((*levels, name), child) for name, child in node.children.items()]
            if node.any is not None:
                stack.append(((*levels, "+"), node.any))
