"""Threads for calls that wait for others: they are few, are used again, and do not delay the end of a process."""

from __future__ import annotations

import subprocess
import sys
import threading
from queue import SimpleQueue

from gateway.access.waiting_threads import WaitingThreads

ENDS = """
import threading
from gateway.access.checks import Check, Checks
class Now:
    def soon(self, call): call()
begun = threading.Event()
checks = Checks(Now())
checks.submit(Check("a", lambda: True, lambda: begun.set() or threading.Event().wait(), print))
begun.wait()
checks.close()
"""


def test_a_check_that_never_returns_does_not_keep_the_process() -> None:
    assert subprocess.run([sys.executable, "-c", ENDS], timeout=60, check=False).returncode == 0


def test_a_thread_that_is_idle_is_used_again() -> None:
    threads, seen = WaitingThreads(5, "t"), SimpleQueue[str]()
    for _ in range(10):
        threads.submit(lambda: seen.put(threading.current_thread().name))
        seen.get(timeout=60)
        assert threads._idle.acquire(timeout=60)  # it says so after the call
        threads._idle.release()
    assert threads._started == 1
    threads.close()


def test_no_more_run_at_a_time_than_there_may_be() -> None:
    threads, gate, running = WaitingThreads(3, "t"), threading.Event(), SimpleQueue[str]()

    def call() -> None:
        running.put(threading.current_thread().name)
        gate.wait(60)

    for _ in range(7):
        threads.submit(call)
    first = {running.get(timeout=60) for _ in range(3)}
    assert len(first) == 3
    assert running.empty()
    gate.set()
    assert {running.get(timeout=60) for _ in range(4)} <= first
    threads.close()


def test_what_has_not_begun_when_they_end_is_not_called() -> None:
    threads, gate, begun = WaitingThreads(1, "last"), threading.Event(), threading.Event()
    later: list[int] = []

    def call() -> None:
        begun.set()
        gate.wait(60)

    threads.submit(call)
    threads.submit(lambda: later.append(1))
    begun.wait(60)
    threads.close()
    gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("last-"):
            thread.join(60)
    assert later == []
