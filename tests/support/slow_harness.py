"""A broker that takes long for everything, and does later what the test says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from broker_harness import Harness


class Slow(Harness):
    """Every look at the clock takes a while; what is planned for later waits until the test says so."""

    def start(self) -> None:
        looks = itertools.count()
        self.turns, self.planned = 0, list[Any]()
        self.clock.monotonic = lambda: next(looks) * 0.0005  # type: ignore[method-assign]
        self.clock.later = lambda _seconds, call: self.planned.append(call)  # type: ignore[method-assign, assignment, return-value]
        super().start()

    def break_copies(self, monkeypatch: pytest.MonkeyPatch, payload: bytes, client_id: str) -> None:
        """A defect is met by each copy of this payload for this client, by itself or with others."""
        fan_out = self.engine.fan_out
        copy, copy_run = fan_out.copy, fan_out.copy_run

        def break_at(receiver: Any, payloads: list[bytes]) -> None:
            if payload in payloads and receiver.session.client_id == client_id:
                raise ZeroDivisionError

        def copied(receiver: Any, publication: Any, *rest: Any) -> bool:
            break_at(receiver, [publication.payload])
            return copy(receiver, publication, *rest)

        def run_copied(receiver: Any, run: Any, *rest: Any) -> bool:
            break_at(receiver, run.payloads)
            return copy_run(receiver, run, *rest)

        monkeypatch.setattr(fan_out, "copy", copied)
        monkeypatch.setattr(fan_out, "copy_run", run_copied)

    def later(self) -> bool:
        self.turns += 1
        assert self.turns < 2000, "it never ends"
        planned, self.planned = self.planned, []
        for call in planned:
            call()
        return bool(planned)
