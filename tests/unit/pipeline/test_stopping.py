"""gateway.pipeline.jobs.spark.stopping: signals, and a query that is stopped behind its batch."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

from gateway.pipeline.jobs.spark.stopping import Stop

PROGRAM = """
import signal, sys
from gateway.pipeline.jobs.spark.stopping import Stop
stop = Stop()
signal.signal(signal.SIGINT, signal.SIG_IGN if "ignored" in sys.argv else signal.default_int_handler)
stop.install()
signal.signal(signal.SIGINT, signal.default_int_handler)  # as a session does
stop.install()
print("ready, ignored" if signal.getsignal(signal.SIGINT) == signal.SIG_IGN else "ready", flush=True)
stop.wait(60)
print("asked" if stop.is_asked() else "not asked", flush=True)
stop.wait = None
if "restore" in sys.argv:
    stop.restore()
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("as before", flush=True)
else:
    signal.raise_signal(signal.SIGTERM)
    print("not reached", flush=True)
"""


class StreamingQuery:
    """Spark's, as far as it is seen: in the middle of a batch until `finish`."""

    def __init__(self) -> None:
        self.ended, self.batch = threading.Event(), True
        self.stopped_in_batch: bool | None = None

    @property
    def isActive(self) -> bool:
        return not self.ended.is_set()

    @property
    def status(self) -> dict[str, Any]:
        before, self.batch = self.batch, False  # it is finished while somebody looks
        return {"isTriggerActive": before}

    def stop(self) -> None:
        self.stopped_in_batch = self.batch
        self.ended.set()


def test_a_query_is_stopped_when_its_batch_is_over() -> None:
    stop, query = Stop(), StreamingQuery()
    with stop.ends(query):
        assert not query.ended.is_set()
        stop.ask()
        assert query.ended.wait(30)
    assert query.stopped_in_batch is False


def test_a_query_that_ends_by_itself_is_left_alone() -> None:
    stop, query = Stop(), StreamingQuery()
    with stop.ends(query):
        pass
    assert query.stopped_in_batch is None
    assert not stop.is_asked()


@pytest.mark.parametrize("number", [2, 15])
def test_a_signal_asks_once_and_ends_the_process_the_second_time(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.read() == "asked\n"
    assert process.returncode == -15


def test_a_signal_that_was_ignored_still_is() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, "ignored"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready, ignored\n"
        process.send_signal(15)
        assert process.stdout.read() == "asked\n"
    assert process.returncode == -15


def test_signals_are_given_back() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, "restore"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(2)
        assert process.stdout.read() == "asked\nas before\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("root", "Exception while sending command."),
        ("py4j.clientserver", "There was an exception while executing the Python Proxy on the Python Side."),
    ],
)
def test_what_a_jvm_does_not_answer_is_told_until_the_end_was_asked_for(
    caplog: pytest.LogCaptureFixture, name: str, told: str
) -> None:
    stop = Stop()
    root = logging.getLogger(name)
    with stop.unheard(quiet=False):
        root.error(told)
        stop.ask()
        root.error(told)
        root.error("something else")
    root.error(told)
    with stop.unheard(quiet=True):
        root.error(told)
    assert [record.message for record in caplog.records] == [told, "something else", told]


def test_a_quiet_job_tells_its_error_without_what_py4j_logs_of_it(caplog: pytest.LogCaptureFixture) -> None:
    with Stop().unheard(quiet=True):
        logging.getLogger().error("Exception while sending command.")
    assert not caplog.records


class EndedQuery(StreamingQuery):
    """One whose JVM was ended at the same moment."""

    def stop(self) -> None:
        self.ended.set()
        raise ConnectionResetError("no JVM answers")


def test_a_query_whose_jvm_has_ended_costs_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    stop, query = Stop(), EndedQuery()
    with stop.ends(query):
        stop.ask()
        assert query.ended.wait(30)
    assert capfd.readouterr().err == ""
