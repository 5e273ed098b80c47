"""The scheduler without a reactor: calls in order, cancelled ones never, its thread woken only when it has to be."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gateway.queue_manager.thread_scheduler import ThreadScheduler

PATIENCE = 60.0
"""Seconds for what happens at once on a machine that has nothing else to do."""
FAR = 3600.0


@pytest.fixture
def scheduler() -> Iterator[ThreadScheduler]:
    with ThreadScheduler() as made:
        yield made


def ran(scheduler: ThreadScheduler) -> None:
    """Everything that was due has run."""
    done = threading.Event()
    scheduler.soon(done.set)
    assert done.wait(PATIENCE)


def test_calls_run_in_order(scheduler: ThreadScheduler) -> None:
    seen: list[int] = []
    held = threading.Event()
    scheduler.soon(lambda: held.wait(PATIENCE) and None)
    for number in range(5):
        scheduler.soon(lambda number=number: seen.append(number))  # type: ignore[misc]
    held.set()
    ran(scheduler)
    assert seen == [0, 1, 2, 3, 4]


def test_what_is_due_first_runs_first_however_late_it_was_asked_for(scheduler: ThreadScheduler) -> None:
    done = threading.Event()
    scheduler.later(FAR, lambda: None)
    ran(scheduler)  # the thread waits for the first one now, or is about to
    scheduler.later(0.01, done.set)
    assert done.wait(PATIENCE)


def test_what_is_cancelled_does_not_run(scheduler: ThreadScheduler) -> None:
    seen: list[str] = []
    held = threading.Event()
    scheduler.soon(lambda: held.wait(PATIENCE) and None)
    cancel = scheduler.later(0, lambda: seen.append("cancelled"))
    kept = scheduler.later(0, lambda: seen.append("kept"))
    cancel()
    held.set()
    ran(scheduler)
    kept()  # it has run: nothing
    cancel()
    assert seen == ["kept"]


def test_waits_that_end_early_wake_nobody(scheduler: ThreadScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each MQGET with a WaitInterval is one: begun, and cancelled when its message comes."""
    woken: list[int] = []
    scheduler.later(FAR, lambda: None)
    ran(scheduler)
    monkeypatch.setattr(scheduler._changed, "notify", lambda: woken.append(1))
    waits = [scheduler.later(2 * FAR, lambda: None) for _ in range(1000)]
    for cancel in waits:
        cancel()
    assert not woken
    assert len(scheduler._entries) < 200
    monkeypatch.undo()
    ran(scheduler)


def test_what_it_keeps_of_cancelled_calls_goes(scheduler: ThreadScheduler) -> None:
    for _ in range(10_000):
        scheduler.later(FAR, lambda: None)()
    assert len(scheduler._entries) < 200
