"""Questions to a queue manager that may be silent: who asks is answered, and told what could still come of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from gateway.app.queue_managers import inquiries as module
from gateway.app.queue_managers.inquiries import MOST, Inquiries
from gateway.net.calls import Problem
from gateway.queue_manager.thread_scheduler import ThreadScheduler

Question = Callable[[], tuple[int, object]]


class Desk:
    """Asks from the scheduler's thread, as the reactor does."""

    def __init__(self, scheduler: ThreadScheduler, patience: float) -> None:
        self.closed = threading.Event()
        self.scheduler = scheduler
        self.inquiries = Inquiries(scheduler, patience, self.closed.set)
        self.begun = threading.Event()
        self.going = threading.Event()

    def ask(self, question: Question, *, changes: bool = False) -> Future[Any]:
        answer: Future[Any] = Future()
        self.scheduler.soon(lambda: self.inquiries.ask(question, answer.set_result, changes=changes))
        return answer

    def hang(self) -> tuple[int, object]:
        self.begun.set()
        assert self.going.wait(60)
        return 200, "late"


@pytest.fixture
def scheduler() -> Iterator[ThreadScheduler]:
    with ThreadScheduler() as made:
        yield made


@pytest.fixture
def desk(scheduler: ThreadScheduler) -> Iterator[Desk]:
    made = Desk(scheduler, 1.0)
    yield made
    made.going.set()
    made.inquiries.close()


def told(answer: Future[Any]) -> Problem:
    found = answer.result(30)
    assert isinstance(found, Problem)
    return found


def test_answers_come_in_order_and_what_fails_is_told(scheduler: ThreadScheduler) -> None:
    desk = Desk(scheduler, 60)

    def fails() -> tuple[int, object]:
        raise LookupError("no such queue")

    answers = [desk.ask(lambda number=number: (200, number)) for number in range(3)]  # type: ignore[misc]
    failed = desk.ask(fails)
    assert [answer.result(30) for answer in answers] == [(200, number) for number in range(3)]
    assert isinstance(failed.result(30), LookupError)
    desk.inquiries.close()


def test_silence_is_told_and_what_was_not_begun_never_happens(desk: Desk) -> None:
    done: list[str] = []
    hanging = desk.ask(desk.hang, changes=True)
    assert desk.begun.wait(30)
    behind = desk.ask(lambda: (200, done.append("behind")))
    first = told(hanging)
    assert (first.status, "may still be done" in str(first)) == (504, True)
    second = told(behind)
    assert (second.status, "nothing was asked of it" in str(second)) == (503, True)
    at_once = told(desk.ask(lambda: (200, done.append("at once"))))
    assert "has not answered for" in str(at_once)
    desk.going.set()
    until = time.monotonic() + 30
    while desk.inquiries.silent() and time.monotonic() < until:
        time.sleep(0.01)
    assert desk.ask(lambda: (200, "again")).result(30) == (200, "again")
    assert done == []


def test_a_slow_queue_manager_that_answers_is_waited_for(desk: Desk) -> None:
    impatient = threading.Event()

    def slow() -> tuple[int, object]:
        until = time.monotonic() + 60
        while not impatient.wait(0.02) and time.monotonic() < until:
            desk.inquiries.heard()
        return 200, "all of it"

    answer = desk.ask(slow)
    assert told(desk.ask(lambda: (200, "behind"))).body["title"] == "Busy"
    impatient.set()
    assert answer.result(30) == (200, "all of it")


def test_too_many_are_turned_away(scheduler: ThreadScheduler) -> None:
    desk = Desk(scheduler, 60)
    desk.ask(desk.hang)
    assert desk.begun.wait(30)
    waiting = [desk.ask(lambda: (200, None)) for _ in range(MOST)]
    assert told(desk.ask(lambda: (200, None))).status == 503
    desk.going.set()
    assert [answer.result(30) for answer in waiting] == [(200, None)] * MOST
    desk.inquiries.close()
    assert desk.closed.wait(30)


def test_the_end_leaves_a_call_that_hangs(scheduler: ThreadScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.05)
    desk = Desk(scheduler, 60)
    hanging = desk.ask(desk.hang)
    assert desk.begun.wait(30)
    ended: Future[None] = Future()
    scheduler.soon(lambda: ended.set_result(desk.inquiries.close()))
    assert told(hanging).body["title"] == "Stopping"
    assert ended.result(30) is None
    assert desk.inquiries.thread.is_alive()
    desk.going.set()
    assert desk.closed.wait(30)
