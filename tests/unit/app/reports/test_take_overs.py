"""gateway.app.reports.take_overs: how often the connections of a client have ended each other of late."""

from __future__ import annotations

from gateway.app.reports.take_overs import LINES, MOST_CLIENTS, SECONDS, TakeOvers


def test_they_are_counted_by_client_and_anew_after_some_time() -> None:
    made = TakeOvers()
    assert [made.count("d", number / 10) for number in range(LINES + 1)] == list(range(1, LINES + 2))
    assert made.are_many("d", SECONDS - 0.1)
    assert not made.are_many("d", SECONDS)
    assert not made.are_many("another", 1.0)
    assert made.count("another", 1.0) == 1
    assert made.count("d", SECONDS) == 1


def test_those_of_many_clients_take_a_bounded_amount_and_the_ones_that_go_on_are_kept() -> None:
    made = TakeOvers()
    for number in range(3 * MOST_CLIENTS):
        made.count(f"d{number}", 0.0)
        made.count("contended", 0.0)
    assert made.count("d0", 0.0) == 1
    assert made.are_many("contended", 0.0)
