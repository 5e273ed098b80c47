"""Calls from other threads reach the reactor's, in order, each once."""

from __future__ import annotations

import os
import select
import threading

from twisted.python import log

from gateway.net.scheduler import Waker


def test_calls_of_many_threads_each_once_and_in_order() -> None:
    waker, got = Waker(), []
    poll = select.epoll()
    poll.register(waker.fd, select.EPOLLIN)

    def feed(thread: int) -> None:
        for number in range(500):
            waker.call(lambda number=number: got.append((thread, number)))

    threads = [threading.Thread(target=feed, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    while len(got) < 2000:
        assert poll.poll(30), "nothing is lost between a look and the next call"
        waker.accept()
    for thread in threads:
        thread.join()
    assert [each for each in got if each[0] == 1] == [(1, number) for number in range(500)]
    assert not poll.poll(0)
    os.close(waker.fd)


def test_one_that_calls_again_lets_others_in_between() -> None:
    waker, got = Waker(), []

    def again() -> None:
        got.append(1)
        waker.call(again)

    waker.call(again)
    waker.accept()
    assert got == [1]
    waker.accept()
    assert got == [1, 1]
    os.close(waker.fd)


def test_one_that_fails_is_logged_and_the_others_go_on() -> None:
    waker, got, said = Waker(), [], []
    log.addObserver(said.append)
    waker.call(lambda: 1 / 0)
    waker.call(lambda: got.append(1))
    waker.accept()
    log.removeObserver(said.append)
    assert got == [1]
    assert [event for event in said if event.get("isError")]
    os.close(waker.fd)
