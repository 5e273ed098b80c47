"""How often `--once` tries: three failures in a row end it; what passes by itself is waited for, and not for ever."""

from __future__ import annotations

import pytest

from gateway.pipeline.jobs.tries import HOPELESS, PASSING, PROGRESS_FOR, TRIES, Tries

BUSY = RuntimeError("Query ended: Python worker failed to connect back. SQLSTATE: XXKST")
OTHER = RuntimeError("a file is not there")


def test_failures_in_a_row() -> None:
    tries = Tries()
    assert [tries.over(OTHER, at, at + 1) for at in range(TRIES)] == [False] * (TRIES - 1) + [True]


def test_a_query_that_has_run_begins_the_count_anew() -> None:
    tries = Tries()
    assert not any(tries.over(OTHER, at, at + PROGRESS_FOR + 1) for at in range(0, 1000, 100))


@pytest.mark.parametrize("name", HOPELESS)
def test_what_does_not_get_better_is_tried_once(name: str) -> None:
    error = RuntimeError(f"PythonException: gateway.pipeline.errors.{name}: the token")
    assert Tries().over(error, 0, 1)


def test_a_job_that_gives_up_after_some_failures_does_not_before() -> None:
    """A token is changed, a certificate renewed: it has to be there on both sides."""
    refused = RuntimeError("PythonException: gateway.pipeline.errors.GatewayRefuses: the token")
    tries = Tries(4, waits=True)
    assert [tries.over(refused, at, at + 1) for at in range(4)] == [False] * 3 + [True]


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_waited_for(name: str) -> None:
    tries, error, patience = Tries(), RuntimeError(f"so it ended: {name}, says Java"), PASSING[name]
    assert not any(tries.over(error, at, at + 10) for at in range(0, int(patience), 10))
    assert tries.over(error, patience + 1, patience + 11)


def test_errors_that_take_turns_are_one_wait() -> None:
    """`--once` on a busy machine, beside another driver, never ended."""
    held = RuntimeError("gateway.pipeline.errors.LeaseHeld: read by one:1")
    turns = [(held, BUSY)[at // 10 % 2] for at in range(0, 400, 10)]
    tries = Tries()
    over = [tries.over(error, at * 10, at * 10 + 9) for at, error in enumerate(turns)]
    assert over.index(True) * 10 in range(int(min(PASSING.values())), int(max(PASSING.values())) + 20)


def test_what_passes_does_not_count_among_the_others() -> None:
    tries = Tries()
    assert [tries.over(BUSY, at, at + 10) for at in range(0, 60, 10)] == [False] * 6
    assert not tries.over(OTHER, 60, 61)
    assert not tries.over(BUSY, 400, 410), "a wait that is new"
    assert not tries.over(OTHER, 411, 412)
    assert tries.over(OTHER, 413, 414)
