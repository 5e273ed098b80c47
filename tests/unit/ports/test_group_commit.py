"""gateway.ports.group_commit: for whom the open batch waits after a slow commit, and for how long."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.ports.group_commit import LONGEST_SECONDS, MOST_PASSED, SHARE, GroupCommit

CLIENTS = ["a", "b", "c", "d"]


def _came(group: GroupCommit[str], *clients: str) -> None:
    group.missing.difference_update(clients)


def test_those_who_were_answered_are_waited_for_a_share_of_the_commit() -> None:
    group = GroupCommit[str]()
    group.committed(0.004, CLIENTS, 10.0)
    assert group.missing == set(CLIENTS)
    assert group.until == pytest.approx(10.0 + 0.004 * SHARE)
    _came(group, "a", "c", "of another commit")
    assert group.missing == {"b", "d"}
    _came(group, "b", "d")
    assert not group.missing


def test_nobody_waits_longer_than_the_longest_however_long_the_commit_took() -> None:
    group = GroupCommit[str]()
    group.committed(3.0, CLIENTS, 10.0)
    assert group.until == pytest.approx(10.0 + LONGEST_SECONDS)


def _waits(group: GroupCommit[str], commits: int, *come: str) -> list[int]:
    """The numbers of the commits after which somebody is waited for, if these clients send again in time."""
    waited = []
    for number in range(commits):
        group.committed(0.004, CLIENTS, 0.0)
        if group.missing:
            waited.append(number)
            _came(group, *come)
            assert group.over(0.0)
    return waited


def test_where_fewer_than_half_come_in_time_fewer_and_fewer_commits_are_waited_after() -> None:
    group = GroupCommit[str]()
    assert _waits(group, 32, "a") == [0, 2, 5, 10, 19]
    _waits(group, 1000, "a")
    waited = _waits(group, 4 * (MOST_PASSED + 1), "a")
    assert len(waited) == 4
    assert {later - earlier for earlier, later in pairwise(waited)} == {MOST_PASSED + 1}


def test_where_half_come_every_commit_is_waited_after_again() -> None:
    group = GroupCommit[str]()
    _waits(group, 32, "a")
    first = _waits(group, 40, "a", "b")[0]
    assert _waits(group, 10, "a", "b") == list(range(10)), first


def test_there_is_more_time_while_as_large_a_share_comes() -> None:
    group = GroupCommit[str](0.5, again=True)
    group.committed(0.002, CLIENTS, 10.0)
    assert group.until == pytest.approx(10.001)
    _came(group, "a", "b")
    assert not group.over(10.0015)
    assert (group.until, group.missing) == (pytest.approx(10.0025), {"c", "d"})
    _came(group, "c")
    assert group.over(10.003)
    assert not group.missing
    group.committed(0.002, CLIENTS, 11.0)
    assert group.missing == set(CLIENTS), "three of four came"


def test_a_wait_that_nobody_ended_counts_when_the_next_commit_returns() -> None:
    group = GroupCommit[str]()
    group.committed(0.004, CLIENTS, 0.0)  # and nothing was in the open batch
    group.committed(0.004, CLIENTS, 1.0)
    assert not group.missing
    group.committed(0.004, CLIENTS, 2.0)
    assert group.missing


def test_a_commit_that_answers_nobody_is_not_waited_after() -> None:
    group = GroupCommit[str]()
    group.committed(0.004, [], 0.0)
    assert not group.missing
    group.committed(0.004, CLIENTS, 0.0)
    assert group.missing
