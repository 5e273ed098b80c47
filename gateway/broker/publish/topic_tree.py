"""Retained messages as an operator looks at them: the levels below a topic, or all topics that contain a text. Done in
steps, as there may be a million. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

from gateway.broker.publish.retained import Retained
from gateway.session.publication import Publication

NAMES_IN_A_STEP = 1000


class Branch(NamedTuple):
    """One level of a topic."""

    name: str
    topic: str
    below: int
    """How many levels are directly below it."""
    retained: Publication | None


def branches(
    retained: Retained, under: str | None, after: str | None, limit: int, found: list[Branch]
) -> Iterator[None]:
    """Find the levels below a topic (None: the first levels), by name: `limit` of them, and one more if there is
    one."""
    node = retained.node(under)
    if node is None:
        return
    names: list[str] = []
    some: list[str] = []
    for at, name in enumerate(list(node.below)):
        if after is None or name > after:
            some.append(name)
        if at % NAMES_IN_A_STEP == NAMES_IN_A_STEP - 1:
            names, some = heapq.nsmallest(limit + 1, names + some), []
            yield
    for name in heapq.nsmallest(limit + 1, names + some):
        child = node.below.get(name)
        if child is not None:
            topic = name if under is None else f"{under}/{name}"
            found.append(Branch(name, topic, len(child.below), child.publication))


def with_text(retained: Retained, text: str, limit: int, found: list[Publication]) -> Iterator[None]:
    """Find retained messages whose topic contains this text, whatever its case: `limit` of them, and one more if there
    is one."""
    wanted = text.lower()
    for at, publication in enumerate(retained):
        if wanted in publication.topic.decode().lower():
            found.append(publication)
            if len(found) > limit:
                return
        if at % NAMES_IN_A_STEP == NAMES_IN_A_STEP - 1:
            yield
