"""gateway.app.files.reader: what takes long is done elsewhere, in order, and told to whoever has asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue

from gateway.app.files.reader import Reader


def test_it_is_answered_in_order_by_another_thread_and_told_in_this_one() -> None:
    calls, told = Queue[Callable[[], None]](), list[object]()
    reader = Reader(calls.put)
    go_on = threading.Event()
    error = ValueError("wrong")

    def fails() -> None:
        raise error

    def slow() -> int:
        go_on.wait(60)
        return threading.get_ident()

    for question in (slow, fails, lambda: 3):
        reader.ask(question, told.append)
    assert calls.empty()
    go_on.set()
    for _ in range(3):
        assert len(told) < 3
        calls.get(timeout=60)()
    assert told[0] != threading.get_ident()
    assert told[1:] == [error, 3]
    reader.close()


def test_nobody_is_told_anything_when_it_is_closed() -> None:
    calls, told = Queue[Callable[[], None]](), list[object]()
    reader = Reader(calls.put)
    reader.ask(lambda: 1, told.append)
    call = calls.get(timeout=60)
    reader.close()
    call()
    assert told == []
