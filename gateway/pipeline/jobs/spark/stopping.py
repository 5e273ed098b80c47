"""Ends a job when a person (SIGINT) or a supervisor (SIGTERM) asks for it: the batch that is on its way is finished,
the query is stopped, and its group's lease is given back, so that the next driver need not wait for it.

A query with a backlog has one batch behind the other: the next one is refused at its beginning. One that waits for
messages is stopped. A handler may not talk to the JVM, whose answer the interrupted thread may be waiting for; so a
thread does. Asked a second time, the process ends as it would without this: what it leaves is put right by the next
start.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Protocol

from gateway.pipeline.errors import PipelineError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = 60.0
"""Seconds that a batch has to be finished."""
LOOK_SECONDS = 0.1
LOGGED = {"": "Exception while sending command", "py4j.clientserver": "There was an exception while executing"}
"""How py4j begins what it logs with a traceback, by logger: the JVM does not answer any more, and a batch has failed
for that or another reason. The error itself is raised, and told in a sentence."""


class Query(Protocol):
    """The part of a streaming query that is used here."""

    @property
    def isActive(self) -> bool:  # noqa: N802 -- Spark's name
        """Whether it runs."""

    @property
    def status(self) -> dict[str, Any]:
        """What it does at the moment."""

    def stop(self) -> None:
        """End it, in the middle of a batch if there is one."""


class Stop:
    """Whether a job was asked to end."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._done = threading.Event()
        self._before: dict[int, Any] = {}

    def is_asked(self) -> bool:
        """Whether it was."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Have it end."""
        self._asked.set()

    def is_done(self) -> bool:
        """Whether the query has been ended for it: a batch was refused, or the query stopped. What fails before that
        fails for a reason of its own, which has to be told."""
        return self._done.is_set()

    def check(self) -> None:
        """PipelineError at the beginning of a batch, and instead of the error of one that was cut, if it was."""
        if self.is_asked():
            self._done.set()
            raise PipelineError("the job was asked to stop") from None

    def wait(self, seconds: float) -> None:
        """Pause, but not beyond that."""
        self._asked.wait(seconds)

    @contextmanager
    def ends(self, query: Query) -> Iterator[None]:
        """Have the query stopped when the job is to end while this context holds."""
        over = threading.Event()
        thread = threading.Thread(target=self._end, args=(query, over), name="stop", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE)

    def _end(self, query: Query, over: threading.Event) -> None:
        while not self._asked.wait(LOOK_SECONDS):
            if over.is_set():
                return
        with suppress(Exception):  # its JVM was ended too, and so is the query: who waits for it is told
            until = time.monotonic() + PATIENCE
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
                over.wait(LOOK_SECONDS)
            if query.isActive:
                self._done.set()
                query.stop()

    @contextmanager
    def unheard(self, *, quiet: bool) -> Iterator[None]:
        """Have py4j log nothing of a JVM that does not answer: where the job is `quiet`, and otherwise once the end was
        asked for, as a supervisor that signals all processes of a job has ended it at the same moment."""

        def worth_telling(record: logging.LogRecord) -> bool:
            return not ((quiet or self.is_asked()) and str(record.msg).startswith(tuple(LOGGED.values())))

        loggers = [logging.getLogger(name) for name in LOGGED]
        for logger in loggers:
            logger.addFilter(worth_telling)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(worth_telling)

    def install(self) -> None:
        """Take the signals from now on, also from libraries that have taken them. Only the main thread can. One that
        was ignored, as shells have it for what runs in their background, is."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            before = self._before.setdefault(number, signal.getsignal(number))
            signal.signal(number, signal.SIG_IGN if before == signal.SIG_IGN else self._handle)

    def restore(self) -> None:
        """Leave them to whoever had them before."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._asked.set()
        for number in SIGNALS:
            if self._before.get(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
