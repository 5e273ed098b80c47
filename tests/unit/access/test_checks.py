"""Slow checks: two at a time, address by address, and only those that are still wanted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from schedulers import ManualScheduler

from gateway.access import checks
from gateway.access.checks import Check, Checks


class Bench:
    """Checks whose threads do what the test says, when it says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running: list[Callable[[], None]] = []
        monkeypatch.setattr(checks, "WaitingThreads", lambda *_: self)
        self.clock = ManualScheduler()
        self.checks = Checks(self.clock)
        self.done: list[str] = []

    def submit(self, call: Callable[[], None]) -> None:
        self.running.append(call)

    def ask(self, name: str, address: str = "a", wanted: bool = True, user: str = "") -> bool:
        def fail_or_accept() -> str:
            if name == "fails":
                raise OSError
            return name

        def computed(user: str | None) -> None:
            self.done.append(user or "nobody")

        def given_up() -> None:
            self.done.append(f"{name} is given up")

        return self.checks.submit(Check(address, lambda: wanted, fail_or_accept, computed, user, given_up))

    def finish(self) -> None:
        """Finish all of them, one after the other."""
        while self.running:
            self.running.pop(0)()
            self.clock.run()


def test_two_run_and_addresses_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    for number in range(5):
        bench.ask(f"flood-{number}", "flood")
    bench.ask("other", "other")
    assert len(bench.running) == 2
    bench.finish()
    assert bench.done == ["flood-0", "flood-1", "flood-2", "other", "flood-3", "flood-4"]


def test_what_is_not_wanted_any_more_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    for number in range(4):
        bench.ask(f"{number}", wanted=number != 2)
    bench.finish()
    assert bench.done == ["0", "1", "3"]


def test_what_fails_has_accepted_nobody_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.ask("fails")
    bench.ask("next")
    bench.ask("last")
    bench.finish()
    assert bench.done == ["nobody", "next", "last"]


def test_those_that_wait_are_bounded_by_address_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    most = checks.MAX_WAITING_OF_ADDRESS
    assert sum(bench.ask("x", "flood") for _ in range(most + 50)) == most + checks.THREADS
    assert bench.ask("y", "other")
    begun = sum(bench.ask("z", f"{number}") for number in range(checks.MAX_WAITING))
    assert begun == checks.MAX_WAITING - most - 1
    bench.finish()
    assert bench.ask("again", "flood")


def test_who_guesses_at_a_user_keeps_out_no_other_from_the_same_address(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    monkeypatch.setattr(checks, "MAX_WAITING_OF_ADDRESS", 4)
    for number in range(6):
        assert bench.ask(f"guess-{number}", user="alice")
    assert not bench.ask("guess-6", user="alice")
    assert bench.ask("bob", user="bob")
    assert bench.ask("carol", user="carol")
    assert bench.done == ["guess-5 is given up", "guess-4 is given up"]
    assert not bench.ask("bob again", user="bob"), "he has as many as alice then"
    bench.finish()
    assert bench.done[2:] == ["guess-0", "guess-1", "guess-2", "guess-3", "bob", "carol"]
