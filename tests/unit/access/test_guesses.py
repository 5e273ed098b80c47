"""Wrong passwords are counted by user and address, and forgotten evenly."""

from __future__ import annotations

from gateway.access import guesses
from gateway.access.guesses import OF_PROVEN, Guesses


def used(one: Guesses, address: str, user: str, now: float = 0.0) -> int:
    """How many wrong passwords are checked before one has to wait."""
    count = 0
    while not one.wait(address, user, now) and count < 10_000:
        one.wrong(address, user, now)
        count += 1
    return count


def test_a_number_is_used_up_and_comes_back_evenly() -> None:
    one = Guesses(10, 0, 100.0)
    assert used(one, "a", "alice") == 10
    assert one.wait("a", "alice", 0.0) == 10.0
    assert used(one, "a", "alice", 10.0) == 1
    assert used(one, "a", "alice", 1000.0) == 10


def test_it_is_told_once_whose_number_is_used_up() -> None:
    one = Guesses(2, 3, 100.0)
    assert one.wrong("a", "alice", 0.0) == []
    assert one.wrong("a", "alice", 0.0) == ["user alice"]
    assert one.wrong("a", "bob", 0.0) == ["address a"]
    assert one.wrong("a", "bob", 0.0) == ["user bob"]
    one.right("a", "carol")
    one.wrong("a", "carol", 0.0)
    assert one.wrong("a", "carol", 0.0) == ["user carol at a"]


def test_users_that_have_proved_themselves_have_numbers_of_their_own() -> None:
    one = Guesses(10, 20, 100.0)
    users = [f"u{number}" for number in range(100)]
    for user in users:
        one.right("nat", user)
    strangers = sum(used(one, "nat", f"stranger-{number}") for number in range(100))
    assert strangers == 20
    assert sum(used(one, "nat", user) for user in users) == 20 * OF_PROVEN
    assert one.wait("other", "u50", 0.0) == 0.0


def test_memory_is_bounded_and_the_oldest_is_forgotten(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(guesses, "MAX_COUNTS", 10)
    monkeypatch.setattr(guesses, "MAX_PROVEN", 10)
    one = Guesses(5, 0, 100.0)
    for number in range(100):
        one.wrong(f"{number}", f"u{number}", 0.0)
        one.right("a", f"u{number}")
    assert len(one._counts) == len(one._proven) == 10


def test_long_names_take_no_more_memory_than_short_ones_and_stay_different() -> None:
    one = Guesses(5, 0, 100.0)
    assert used(one, "a", "x" * 65_535) == 5
    assert used(one, "a", "x" * 65_534 + "y") == 5
    one.right("a", "x" * 65_535)
    assert used(one, "a", "x" * 65_535) == 5
    assert max(len(part) for key in [*one._counts, *one._proven] for part in key) < 200


def test_no_bound_is_none() -> None:
    one = Guesses(0, 0, 100.0)
    assert used(one, "a", "alice") == 10_000
