"""Cutting a parked unit of work where a queue has no room for all of it. Pure.

It is cut between whole publications: all destinations of one are committed together. As a queue had them in one unit of
work, so it has them in both parts, one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from gateway.bridge.segments import is_further
from gateway.broker.batch import Batch

if TYPE_CHECKING:
    from gateway.broker.batch import Destination, Row

    Name = int | Row
    """Of a publication: it has several rows, or is this one with the segments that follow."""
    Columns = dict[Destination, dict[Name, int]]
    """The publications at each destination, in order, each with the number of its rows there."""


def cut(batch: Batch, destination: Destination) -> Batch | None:
    """Move what follows the first half of a destination's publications into another batch. If it has one alone, others
    fill its queue: what was before it is left, or else nothing but this one. None: there is no other publication."""
    columns = _columns(batch)
    here = columns[destination]
    order = _in_order(here, columns.values())
    places = [place for place, name in enumerate(order) if name in here]
    going = set(order[places[len(places) // 2] or 1 :])
    return _moved(batch, columns, going) if going else None


def _columns(batch: Batch) -> Columns:
    columns: Columns = {}
    linked = {row: id(link) for link in batch.links.all() for row in link.rows}
    for destination in batch.destinations.values():
        column = columns[destination] = {}
        begin = destination, 0
        for number, head in enumerate(destination.puts.heads):
            row = destination, number
            name: Name = linked.get(row, row)
            if name is row and destination.segmented and is_further(head):
                name = begin
            elif name is row:
                begin = row
            column[name] = column.get(name, 0) + 1
    return columns


def _in_order(first: Iterable[Name], columns: Collection[Iterable[Name]]) -> Sequence[Name]:
    """All publications, in the order of each column. Dead letters of several queues may contradict what other queues
    have; then it is that of one column."""
    order = list(first)
    if all(list(column) == order for column in columns):
        return order
    sorter: TopologicalSorter[Name] = TopologicalSorter()
    for column in columns:
        for name in column:
            sorter.add(name)
        for before, name in pairwise(column):
            sorter.add(name, before)
    try:
        return list(sorter.static_order())
    except CycleError:
        return list(dict.fromkeys(chain(order, *columns)))


def _moved(batch: Batch, columns: Columns, going: set[Name]) -> Batch:
    """Who has published which row is noted of those at QoS 1 and 2 with several destinations alone."""
    rest, links = Batch(), [link for link in batch.links.all() if id(link) in going]
    unnoted = {one for link in links if link.connection is None for one, _ in link.rows}
    single: dict[Destination, set[int]] = {}
    for destination, column in columns.items():
        whole = [(name[1], count) for name, count in column.items() if name in going and not isinstance(name, int)]
        if whole:
            single[destination] = {row for begin, count in whole for row in range(begin, begin + count)}
    batch.move_to(rest, (), links, single)
    for destination in unnoted | single.keys():
        rest.destinations[destination.address].contribute_like(destination)
    batch.end_moves()
    return rest
