"""gateway.app.api.clients: a list of as many sessions as there may be keeps nobody waiting."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from broker_harness import Harness

from gateway.app.api.clients import ClientViews
from gateway.broker.slices import SLICE_SECONDS
from gateway.net.calls import Call, Later
from gateway.observe.client_history import ClientHistory
from gateway.session.session import Session

COUNT = 1000


@pytest.fixture
def bench() -> Harness:
    found = Harness()
    for number in range(COUNT):
        found.engine.sessions.add(Session(f"s{number * 7 % COUNT:03}", 5))
    return found


def listed(bench: Harness, planned: list[Any], **query: str) -> tuple[dict[str, Any], int]:
    """The answer, and in how many turns it was made."""
    views = ClientViews(bench.engine, lambda _queue: "", ClientHistory())
    status, later = views.listing(Call({}, query, {}, "viewer"))
    assert (status, type(later)) == (200, Later)
    answers: list[Any] = []
    assert isinstance(later, Later)
    later.begin(answers.append)
    turns = 1
    while planned:
        assert not answers
        planned.pop(0)()
        turns += 1
    ((_, body),) = answers
    return body, turns


def test_a_list_is_made_in_slices_page_by_page(bench: Harness) -> None:
    planned: list[Any] = []
    looks = itertools.count()
    bench.clock.monotonic = lambda: bench.clock.time + next(looks) * SLICE_SECONDS / 4  # type: ignore[method-assign]
    bench.clock.later = lambda _seconds, call: planned.append(call)  # type: ignore[method-assign, assignment, return-value]
    names: list[str] = []
    following: str | None = ""
    while following is not None:
        body, turns = listed(bench, planned, limit="300", after=following)
        assert turns > COUNT // 10 // 8
        assert body["total"] == COUNT
        names += [row["client_id"] for row in body["items"]]
        following = body["next"]
    assert names == [f"s{number:03}" for number in range(COUNT)]


@pytest.mark.parametrize(
    ("query", "total", "first"),
    [({"search": "S99"}, 10, ["s990", "s991"]), ({"state": "connected"}, 0, []), ({"user": "ana"}, 0, [])],
)
def test_what_is_searched_is_counted(bench: Harness, query: dict[str, str], total: int, first: list[str]) -> None:
    body, _ = listed(bench, [], **query)
    assert body["total"] == total
    assert [row["client_id"] for row in body["items"]][:2] == first
    assert body["next"] is None


def test_who_sends_more_than_his_rates_allow_is_held_back() -> None:
    bench = Harness()
    fast, slow = bench.device(5, "fast").connect(), bench.device(5, "slow").connect()
    slow.connection.link.rests = 1
    for state, names in (("held_back", ["slow"]), ("connected", ["fast", "slow"])):
        body, _ = listed(bench, [], state=state)
        assert [(row["client_id"], row["paused"]) for row in body["items"]] == [(one, one == "slow") for one in names]
    slow.connection.link.rests = 0
    assert not listed(bench, [], state="held_back")[0]["items"]
    assert fast.connection is not slow.connection
