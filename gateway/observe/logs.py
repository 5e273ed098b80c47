"""Structured logs: one line for each event, as JSON or for human readers, with the same fields in both.

There is one line for each connection and one for each failed batch, never one for each message; and never a payload, a
password or a token. Warnings and errors that repeat are suppressed and counted. It is built on the standard library's
logging, so that lines of Twisted and of client libraries come out in the same form.

    log = logs.get("gateway.net.listener")
    log.info("client.connected", "connected", client_id=client_id, listener="plain", peer=peer, protocol="5.0")
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import OrderedDict
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Literal, cast

from gateway.config.counting import counted
from gateway.observe.log_output import LogOutput
from gateway.ports.counters import Counters, Level

Format = Literal["json", "human"]

FIELDS = ("client_id", "user", "listener", "peer", "protocol", "route", "topic", "qmgr", "queue", "packet_id", "msg_id",
          "mqrc", "reason", "count", "bytes", "duration_ms", "file", "worker", "trace_id", "span_id")  # fmt: skip
"""The fields that lines have in common, in the order in which they are written; others follow by name."""

SECRET = frozenset({"password", "payload", "token", "secret", "authorization", "key"})
_ORDER = {name: position for position, name in enumerate(FIELDS)}
_SYSLOG = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}


class EventLog:
    """A named log: an event name, a text and fields. `bind` returns one with fields on every line."""

    __slots__ = ("_bound", "_logger")

    def __init__(self, logger: logging.Logger, bound: dict[str, object] | None = None) -> None:
        self._logger = logger
        self._bound = bound or {}

    def bind(self, **fields: object) -> EventLog:
        """Returns the same log with these fields on every line, such as what is known about a connection."""
        return EventLog(self._logger, {**self._bound, **fields})

    def debug(self, event: str, msg: str, **fields: object) -> None:
        """Write a line for a developer."""
        self._write(logging.DEBUG, event, msg, fields)

    def info(self, event: str, msg: str, **fields: object) -> None:
        """Write a line that an operator may want to read."""
        self._write(logging.INFO, event, msg, fields)

    def warning(self, event: str, msg: str, **fields: object) -> None:
        """Write a line that an operator should read; repeats are suppressed."""
        self._write(logging.WARNING, event, msg, fields)

    def error(self, event: str, msg: str, **fields: object) -> None:
        """Write a line that an operator must act on; repeats are suppressed."""
        self._write(logging.ERROR, event, msg, fields)

    def exception(self, event: str, msg: str, error: BaseException, **fields: object) -> None:
        """Write a defect of the gateway, with its traceback."""
        trace = (type(error), error, error.__traceback__)
        self._write(logging.ERROR, event, msg, fields, trace)

    def _write(self, level: int, event: str, msg: str, fields: dict[str, object], trace: object = None) -> None:
        if self._logger.isEnabledFor(level):
            extra = {"event": event, "fields": {**self._bound, **fields}}
            self._logger.log(level, "%s", msg, extra=extra, exc_info=cast("None", trace))


def get(name: str) -> EventLog:
    """Returns the log of a module or component."""
    return EventLog(logging.getLogger(name))


@dataclass(slots=True)
class _Repeats:
    """One kind of line within the current window."""

    since: float
    written: int = 0
    suppressed: int = 0


class Suppression:
    """Lets `burst` equal warnings or errors through in `window` seconds, and counts the others for a line afterwards.

    Equal means: same log, event, level and, of the fields, the ones with few values. So a thousand devices with a wrong
    password are one kind of line, a full queue and an unknown one are two.
    """

    KEYS = ("listener", "route", "qmgr", "queue", "mqrc", "reason")
    MAX_KINDS = 1000

    def __init__(self, burst: int = 10, window: float = 10.0) -> None:
        self._burst = burst
        self._window = window
        self._kinds: OrderedDict[tuple[object, ...], _Repeats] = OrderedDict()

    def admit(self, record: logging.LogRecord, now: float) -> tuple[bool, int]:
        """Returns whether to write the line, and how many of its kind were suppressed before it. `now` is that of a
        clock that never jumps; otherwise setting the time back would prolong a window."""
        if record.levelno < logging.WARNING:
            return True, 0
        kind = self._kind(record)
        repeats = self._kinds.get(kind)
        before = 0
        if repeats is None or now - repeats.since >= self._window:
            before = repeats.suppressed if repeats else 0
            repeats = self._kinds[kind] = _Repeats(now)
            self._kinds.move_to_end(kind)
            if len(self._kinds) > self.MAX_KINDS:
                self._kinds.popitem(last=False)
        if repeats.written < self._burst:
            repeats.written += 1
            return True, before
        repeats.suppressed += 1
        return False, 0

    def finished(self, now: float) -> list[tuple[tuple[object, ...], int]]:
        """Returns the kinds of lines whose window has ended, with the number suppressed in it. Their next line begins a
        new window."""
        over = [kind for kind, repeats in self._kinds.items() if now - repeats.since >= self._window]
        return [(kind, suppressed) for kind in over if (suppressed := self._kinds.pop(kind).suppressed)]

    def _kind(self, record: logging.LogRecord) -> tuple[object, ...]:
        fields: dict[str, object] = getattr(record, "fields", {})
        event = getattr(record, "event", record.msg)
        return (record.name, record.levelno, event, *(fields.get(key) for key in self.KEYS))


class LogHandler(logging.Handler):
    """Writes lines to a stream, counting them by level and suppressing repeats."""

    def __init__(
        self, stream: IO[str], form: Format, counters: Counters, suppression: Suppression, *, priorities: bool = False
    ) -> None:
        super().__init__()
        self._output = LogOutput(stream)
        self._format = human_line if form == "human" else json_line
        self._counters = counters
        self._suppression = suppression
        self._priorities = priorities

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record unless it repeats others; never raises into the code that logged."""
        try:
            level = level_name(record.levelno)
            self._counters.log_events[level] += 1
            admitted, before = self._suppression.admit(record, time.monotonic())
            if admitted:
                self._write(record, {"suppressed": before} if before else {})
            else:
                self._counters.log_suppressed[level] += 1
        except Exception:  # noqa: BLE001 - a log that cannot be written must not stop messages
            self.handleError(record)

    def count_into(self, counters: Counters) -> None:
        """Count lines in these counters from now on, including those logged before."""
        for level, count in self._counters.log_events.items():
            counters.log_events[level] += count
        for level, count in self._counters.log_suppressed.items():
            counters.log_suppressed[level] += count
        self._counters = counters

    @property
    def unread(self) -> float:
        """For how many seconds lines have waited for the reader of the log; 0 if none wait."""
        return self._output.unread

    def flush(self) -> None:
        """Write what waits, at the end of the process."""
        with self.lock or nullcontext():
            self._output.finish()

    def sweep(self, now: float) -> None:
        """Write what waits, and how many lines were suppressed in windows that have ended. Called every few seconds."""
        with self.lock or nullcontext():
            self._say_lost()
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        for kind, suppressed in self._suppression.finished(now):
            name, level, event, *values = kind
            fields = {key: value for key, value in zip(Suppression.KEYS, values, strict=True) if value is not None}
            text = f"{counted(suppressed, 'more line like this was', 'more lines like this were')} suppressed"
            record = logging.LogRecord(str(name), cast("int", level), "", 0, text, (), None)
            record.__dict__.update(event=event, fields=fields)
            self._write(record, {"suppressed": suppressed})

    def _write(self, record: logging.LogRecord, more: dict[str, object]) -> None:
        self._say_lost()
        if not self._output.write(self._line(record, more)):
            self._counters.log_suppressed[level_name(record.levelno)] += 1

    def _line(self, record: logging.LogRecord, more: dict[str, object]) -> str:
        line = self._format(record, more) + "\n"
        return f"<{_SYSLOG[level_name(record.levelno)]}>{line}" if self._priorities else line

    def _say_lost(self) -> None:
        """Report how many lines are missing, once the log can be written again."""
        lost = self._output.lost
        if not self._output.go_on() or not lost:
            return
        text = f"{counted(lost, 'line was', 'lines were')} not written: nobody read the log, or its disk was full"
        record = logging.LogRecord("mqgate", logging.WARNING, "", 0, text, (), None)
        record.__dict__.update(event="log.lost", fields={"count": lost})
        self._output.lost = 0
        if not self._output.write(self._line(record, {})):
            self._output.lost = lost


def configure(
    form: Format = "json",
    level: str = "info",
    counters: Counters | None = None,
    stream: IO[str] | None = None,
    *,
    priorities: bool = False,
) -> LogHandler:
    """Route every log to `stream` (standard error). `priorities`: begin lines with `<N>`, which systemd's journal
    reads."""
    handler = LogHandler(stream or sys.stderr, form, counters or Counters(), Suppression(), priorities=priorities)
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each, LogHandler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    set_level(level)
    logging.captureWarnings(capture=True)
    return handler


def to_journal(stream: IO[str] | None = None) -> bool:
    """Whether the stream goes to systemd's journal, which reads priorities."""
    try:
        found = os.fstat((stream or sys.stderr).fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def set_level(level: str) -> None:
    """Change the level while the process runs."""
    logging.getLogger().setLevel(level.upper())


def level_name(level: int) -> Level:
    """Returns the name of the nearest level at or below a number."""
    for at, name in ((50, "critical"), (40, "error"), (30, "warning"), (20, "info")):
        if level >= at:
            return cast("Level", name)
    return "debug"


def json_line(record: logging.LogRecord, more: dict[str, object]) -> str:
    """Returns one JSON object, beginning with the keys that every line has."""
    line = {
        "ts": _timestamp(record.created),
        "level": level_name(record.levelno),
        "logger": record.name,
        "event": getattr(record, "event", "log"),
        "msg": record.getMessage(),
        **_fields(record, more),
    }
    trace = _trace(record)
    if trace:
        line["exception"] = trace
    return json.dumps(line, default=_text, ensure_ascii=False, separators=(",", ":"))


def human_line(record: logging.LogRecord, more: dict[str, object]) -> str:
    """Returns time, level, text and fields. Values with blanks or control characters are quoted, so that none can
    imitate a line."""
    fields = "".join(f" {name}={_quoted(value)}" for name, value in _fields(record, more).items())
    event = getattr(record, "event", record.name)
    text = record.getMessage()
    text = text if text.isprintable() else _quoted(text)
    trace = _trace(record)
    head = f"{_timestamp(record.created)[11:-1]} {level_name(record.levelno):<8} {event:<24} {text}{fields}"
    return f"{head}\n{trace}" if trace else head


def _fields(record: logging.LogRecord, more: dict[str, object]) -> dict[str, object]:
    found: dict[str, object] = {**getattr(record, "fields", {}), **more}
    names = sorted((name for name, value in found.items() if value is not None), key=lambda n: (_ORDER.get(n, 99), n))
    return {name: "***" if name in SECRET else found[name] for name in names}


def _timestamp(created: float) -> str:
    return datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(record: logging.LogRecord) -> str:
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    return logging.Formatter().formatException(record.exc_info)


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes | bytearray) else str(value)


def _quoted(value: object) -> str:
    text = _text(value)
    plain = text and text.isprintable() and not set(text) & set(' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)
