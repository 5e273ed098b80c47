"""Which rows belong together is found by destination and by connection, whatever becomes of the rows."""

from __future__ import annotations

from typing import Any, cast

from gateway.broker.batch import Destination, Row
from gateway.broker.links import LinkedRows, Links
from gateway.ports.batch import Address
from gateway.ports.failure_policy import Policy


def _destinations(*names: str) -> list[Destination]:
    return [Destination(Address(name), cast("Policy", None)) for name in names]


def _rows(links: list[LinkedRows]) -> list[list[tuple[str, int]]]:
    return [[(one.address.queue, number) for one, number in link.rows] for link in links]


def test_runs_become_publications_and_are_found_by_destination_and_connection() -> None:
    one, two, common = _destinations("ONE", "TWO", "COMMON")
    links, anna, ben = Links(), cast("Any", object()), cast("Any", object())
    links.runs.append(((one, common), (0, 0), 2, anna))
    links.runs.append(((two, common), (0, 2), 1, ben))
    assert _rows(links.at([one])) == [[("ONE", 0), ("COMMON", 0)], [("ONE", 1), ("COMMON", 1)]]
    assert _rows(links.at([two, common])) == [
        [("TWO", 0), ("COMMON", 2)], [("ONE", 0), ("COMMON", 0)], [("ONE", 1), ("COMMON", 1)],
    ]  # fmt: skip
    links.all().append(LinkedRows([(two, 1)], anna))  # noted later
    assert _rows(list(links.of(anna, two))) == [[("TWO", 1)]]
    assert _rows(list(links.of(ben, common))) == [[("TWO", 0), ("COMMON", 2)]]
    del links.all()[3:]  # and taken back
    assert not list(links.of(anna, two))


def test_rows_that_go_elsewhere_are_found_there() -> None:
    one, common, dead = _destinations("ONE", "COMMON", "DEAD")
    links = Links()
    links.runs.append(((one, common), (0, 0), 3, None))
    assert len(links.at([one])) == 3
    elsewhere: dict[int, Row] = {1: (dead, 7)}
    links.renumber(one, [0, 0, 0, 2], elsewhere)  # the first has gone, the last is two rows now
    assert _rows(links.at([one])) == [[("ONE", 0), ("ONE", 1), ("COMMON", 2)]]
    assert _rows(links.at([dead])) == [[("DEAD", 7), ("COMMON", 1)]]
    links.renumber(common, [0, 0, 1, 2], {})
    links.forget_empty()
    assert _rows(links.all()) == [[("DEAD", 7), ("COMMON", 0)], [("ONE", 0), ("ONE", 1), ("COMMON", 1)]]
    assert not links.at([common])[0].reaches([one])
