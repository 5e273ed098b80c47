"""Lines go to a pipe, a file or a terminal without waiting for their reader."""

from __future__ import annotations

import fcntl
import logging
import os
import resource
import subprocess
import sys
import tty
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from gateway.observe import logs
from gateway.observe.log_output import ATOMIC, MOST_WAITING, LogOutput
from gateway.ports.counters import Counters

LINE = "x" * 1000 + "\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, IO[str]]]:
    """A pipe of the smallest size. Both its ends block, like those that a gateway is given."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, ATOMIC)
    with os.fdopen(write, "w") as stream:
        yield read, stream
        os.close(read)


def everything(read: int, output: LogOutput) -> str:
    """Returns what a reader gets that keeps reading until nothing waits any more."""
    found = b""
    while not output.go_on():
        found += os.read(read, 1 << 16)
    os.set_blocking(read, False)
    return (found + os.read(read, 1 << 16)).decode()


def test_lines_wait_for_a_reader_that_stands_still(pipe: tuple[int, IO[str]]) -> None:
    read, stream = pipe
    now = 5.0
    output = LogOutput(stream, lambda: now)
    assert all(output.write(LINE) for _ in range(100))
    now = 8.0
    assert output.unread == 3.0
    assert everything(read, output) == LINE * 100
    assert not output.unread


def test_lines_of_two_processes_do_not_mix(pipe: tuple[int, IO[str]]) -> None:
    read, stream = pipe
    one, other = LogOutput(stream), LogOutput(stream)
    for _ in range(50):
        one.write("1" * 1500 + "\n")
        other.write("2" * 700 + "\n")
    found, waiting = os.read(read, 1 << 16), [one, other]
    while waiting:
        waiting = [output for output in reversed(waiting) if not output.go_on()]
        found += os.read(read, 1 << 16)
    assert sorted(found.decode().split()) == ["1" * 1500] * 50 + ["2" * 700] * 50


def test_a_reader_that_reads_slowly_is_not_waited_for_long(pipe: tuple[int, IO[str]]) -> None:
    """Each piece is read within the moment allowed for it, but there are hundreds of pieces."""
    read, stream = pipe
    now = 0.0

    def later() -> float:
        nonlocal now
        now += 0.02
        return now

    output = LogOutput(stream, later)
    while len(output._waiting) < 100_000:
        output.write(LINE)
    fcntl.fcntl(stream, fcntl.F_SETPIPE_SZ, 1 << 20)
    left = len(output._waiting)
    assert not output.go_on()
    assert left - 4 * ATOMIC < len(output._waiting) < left
    os.read(read, 1 << 20)


def test_no_more_wait_than_there_is_room_for(pipe: tuple[int, IO[str]]) -> None:
    read, stream = pipe
    output = LogOutput(stream)
    written = [output.write(LINE) for _ in range(2000)]
    assert written.index(False) * len(LINE) > MOST_WAITING - len(LINE)
    assert output.lost == written.count(False)
    assert everything(read, output) == LINE * written.count(True)


def test_a_line_longer_than_a_pipe_comes_whole(pipe: tuple[int, IO[str]]) -> None:
    read, stream = pipe
    output = LogOutput(stream)
    long = "traceback " * 5000 + "\n"
    assert output.write(long)
    assert everything(read, output) == long


def test_a_terminal_that_stands_still_holds_up_nobody() -> None:
    """A terminal with room for one byte must not be waited for until it has room for a line."""
    reader, terminal = os.openpty()
    tty.setraw(terminal)
    with os.fdopen(terminal, "w") as stream:
        output = LogOutput(stream)
        assert all(output.write(LINE) for _ in range(100))
        assert output.unread
        assert os.get_blocking(terminal), "those who share it go on as before"
        found = b""
        while len(found) < 100 * len(LINE):
            found += os.read(reader, 1 << 16)
            output.go_on()
        assert found.decode() == LINE * 100
    os.close(reader)


def test_a_process_that_ends_at_once_says_why_to_a_reader_that_is_behind() -> None:
    program = (
        "from gateway.app.reports import log_lines; from gateway.observe import logs; "
        "logs.configure(); log_lines.log.info('a', 'x' * 100_000); log_lines.fatal(ValueError('why'))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert b"ValueError: why" in process.stderr.read()
    assert process.wait(60) == 70


def test_a_pipe_that_nobody_will_read_any_more_costs_the_lines() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        output = LogOutput(stream)
        assert not output.write(LINE)
        assert not output.unread
    assert output.lost == 1


def test_what_was_lost_is_said_when_the_disk_takes_lines_again(tmp_path: Path) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    counters = Counters()
    try:
        with (tmp_path / "log").open("w") as stream:
            logs.configure("json", "info", counters, stream)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
            for number in range(3):
                logs.get("gateway").info("a", f"line {number}")
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            logs.get("gateway").info("b", "again")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(capture=False)
    first, second = (tmp_path / "log").read_text().splitlines()
    assert "3 lines were not written" in first
    assert "again" in second
    assert counters.log_suppressed["info"] == 3
