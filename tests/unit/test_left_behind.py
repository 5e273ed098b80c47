"""What tests leave behind in their process is found, and what ends by itself is not."""

from __future__ import annotations

import gc
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from left_behind import LeftBehind
from waiting import until


def test_a_thread_and_a_program_are_found_and_who_began_them() -> None:
    behind, open_ = LeftBehind(), threading.Event()
    thread = threading.Thread(target=open_.wait, name="waits", daemon=True)
    thread.start()
    behind.after("test_one")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as program:
        behind.after("test_two")
        until(lambda: len(behind.found(0.0)) == 2)  # its name is there a moment after it has begun
        assert sorted(behind.found(0.0)) == [
            f"process {program.pid}: cat , since test_two", "thread waits in Event.wait, since test_one",
        ]  # fmt: skip
    open_.set()
    assert behind.found() == []


def test_what_ends_by_itself_is_waited_for() -> None:
    behind = LeftBehind()
    subprocess.Popen(["sleep", "0.2"])  # nobody asks how it ended
    assert ThreadPoolExecutor(1).submit(threading.get_ident).result()
    behind.after("test")
    assert behind.found() == []


def test_a_process_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    behind, before, usual = LeftBehind(), os.getpriority(os.PRIO_PROCESS, 0), gc.get_threshold()
    monkeypatch.setattr(os, "getpriority", lambda *_: before + 10)
    gc.disable()
    found = behind.found()
    gc.enable()
    assert found == [
        f"nice value: {before + 10}, was {before}",
        f"collector of cycles: {(False, usual)}, was {(True, usual)}",
    ]


def test_what_went_on_before_is_not_of_these() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as program:
        behind = LeftBehind()
        behind.after("test")
        assert behind.found(0.0) == []
        program.terminate()
