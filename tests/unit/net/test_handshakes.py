"""TLS handshakes on threads: all are done, the reactor's thread is told of each, and those half-way in come first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from schedulers import ManualScheduler

from gateway.net import handshakes
from gateway.net.handshakes import MOST_AT_ONCE, MOST_WAITING, Handshakes
from gateway.net.tls_session import BROKEN_OFF


class Work:
    """Takes the place of OpenSSL: notes which threads came with what, and can be kept waiting."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []
        self.threads: set[int] = set()
        self.go = threading.Event()
        self.go.set()
        self.fail = False

    def __call__(self, steps: list[tuple[Any, bytes]]) -> list[Any]:
        self.calls.append([session for session, _ in steps])
        self.threads.add(threading.get_ident())
        self.go.wait(20)
        if self.fail:
            raise MemoryError
        return [(True, data, b"", None) for _, data in steps]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setattr(handshakes, "handshakes", made)
    return made


@pytest.fixture
def pool_of(work: Work) -> Iterator[Callable[..., Handshakes]]:
    """Makes pools that end with the test."""
    made: list[Handshakes] = []

    def make(scheduler: ManualScheduler, threads: int) -> Handshakes:
        made.append(Handshakes(scheduler.soon, threads=threads))
        return made[-1]

    yield make
    work.go.set()
    for pool in made:
        pool.close()
    for thread in workers():
        thread.join(20)


def workers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("handshakes-")]


def session(name: object) -> Any:
    return name


def told(scheduler: ManualScheduler, answers: list[Any], count: int) -> list[Any]:
    """Wait until there are this many answers, and return them."""
    with scheduler._called:
        while len(answers) < count:
            assert scheduler._called.wait_for(lambda: scheduler._soon, 20)
            scheduler.run()
    return answers


def test_every_step_is_done_by_a_thread_and_told_in_the_reactors(
    work: Work, pool_of: Callable[..., Handshakes]
) -> None:
    scheduler, answers = ManualScheduler(), []
    pool = pool_of(scheduler, 2)
    for number in range(200):

        def done(step: Any, number: int = number) -> None:
            answers.append((number, step, threading.get_ident()))

        pool.add(session(number), b"%d" % number, done, begun=bool(number % 2))
    told(scheduler, answers, 200)
    assert sorted(number for number, _, _ in answers) == list(range(200))
    assert all(step == (True, b"%d" % number, b"", None) for number, step, _ in answers)
    assert {thread for _, _, thread in answers} == {threading.get_ident()}
    assert threading.get_ident() not in work.threads
    assert len(work.threads) <= 2


def test_what_has_begun_comes_first_and_little_at_once(work: Work, pool_of: Callable[..., Handshakes]) -> None:
    scheduler, answers = ManualScheduler(), []
    pool = pool_of(scheduler, 1)
    work.go.clear()
    pool.add(session("busy"), b"", answers.append, begun=False)
    while not work.calls:
        pass
    for number in range(40):
        pool.add(session(("new", number)), b"", answers.append, begun=False)
        pool.add(session(("begun", number)), b"", answers.append, begun=True)
    assert pool.waiting == 80
    work.go.set()
    told(scheduler, answers, 81)
    assert [kind for call in work.calls[1:] for kind, _ in call] == ["begun"] * 40 + ["new"] * 40
    assert max(map(len, work.calls)) <= MOST_AT_ONCE
    assert pool.waiting == 0


def test_it_is_busy_while_too_many_wait(work: Work, pool_of: Callable[..., Handshakes]) -> None:
    scheduler, answers = ManualScheduler(), []
    pool = pool_of(scheduler, 1)
    work.go.clear()
    pool.add(session(0), b"", answers.append, begun=False)
    while not work.calls:
        pass
    for _ in range(MOST_WAITING):
        pool.add(session(1), b"", answers.append, begun=False)
    assert not pool.busy()
    pool.add(session(1), b"", answers.append, begun=False)
    assert pool.busy()
    work.go.set()
    told(scheduler, answers, MOST_WAITING + 2)
    assert not pool.busy()


def test_a_defect_ends_those_connections_and_the_thread_goes_on(work: Work, pool_of: Callable[..., Handshakes]) -> None:
    scheduler, answers = ManualScheduler(), []
    pool = pool_of(scheduler, 1)
    work.fail = True
    pool.add(session(1), b"x", answers.append, begun=False)
    assert told(scheduler, answers, 1) == [(False, b"", b"", BROKEN_OFF)]
    work.fail = False
    pool.add(session(2), b"x", answers.append, begun=False)
    assert told(scheduler, answers, 2)[1][0]


def test_threads_are_started_when_there_is_work_and_end(work: Work, pool_of: Callable[..., Handshakes]) -> None:
    scheduler, answers = ManualScheduler(), []
    pool = pool_of(scheduler, 3)
    assert not workers()
    for number in range(1, 6):
        pool.add(session(number), b"", answers.append, begun=False)
        told(scheduler, answers, number)
    running = workers()
    assert 1 <= len(running) <= 2, "one that idles is enough for one after the other"
    pool.close()
    for one in running:
        one.join(20)
        assert not one.is_alive()
