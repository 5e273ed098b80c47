"""Logs: one line for each event, fields in order, no secrets, no forged lines, and repeats counted instead of
written."""

from __future__ import annotations

import io
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.observe import logs
from gateway.ports.counters import Counters


@pytest.fixture
def counters() -> Counters:
    return Counters()


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_the_common_keys_first_and_its_fields(stream: io.StringIO, counters: Counters) -> None:
    logs.configure("json", "info", counters, stream)
    logs.get("gateway.net").info(
        "client.connected", "connected", zebra=1, peer="10.0.0.1:5", client_id="m-1", user=None
    )
    (line,) = lines(stream)
    assert list(line) == ["ts", "level", "logger", "event", "msg", "client_id", "peer", "zebra"]
    assert line["event"] == "client.connected"
    assert str(line["ts"]).endswith("Z")
    assert counters.log_events["info"] == 1


def test_a_bound_log_keeps_its_fields(stream: io.StringIO) -> None:
    logs.configure("json", "info", None, stream)
    log = logs.get("gateway").bind(client_id="m-1").bind(listener="tls")
    log.info("client.connected", "connected")
    log.info("client.disconnected", "gone", reason="keepalive", client_id="m-2")
    first, second = lines(stream)
    assert (first["client_id"], first["listener"]) == ("m-1", "tls")
    assert (second["client_id"], second["reason"]) == ("m-2", "keepalive")


@pytest.mark.parametrize("form", ["json", "human"])
def test_secrets_and_payloads_are_never_written(stream: io.StringIO, form: logs.Format) -> None:
    logs.configure(form, "info", None, stream)
    logs.get("gateway").info("auth", "checked", password="swordfish", token="swordfish", payload=b"swordfish")
    assert "swordfish" not in stream.getvalue()
    assert "***" in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "human"])
def test_no_field_or_text_can_forge_a_line(stream: io.StringIO, form: logs.Format) -> None:
    logs.configure(form, "info", None, stream)
    logs.get("gateway").info("client.connected", "hello\nforged", client_id='a\n2026 error "x"', topic="\x1b[31m")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_a_human_line_reads_from_left_to_right(stream: io.StringIO) -> None:
    logs.configure("human", "info", None, stream)
    logs.get("gateway").warning("mq.put_failed", "queue is full", queue="T.LIMA", mqrc=2053, reason="try again")
    assert stream.getvalue()[13:].startswith("warning  mq.put_failed")
    assert stream.getvalue().endswith('queue is full queue=T.LIMA mqrc=2053 reason="try again"\n')


def test_repeated_warnings_are_suppressed_counted_and_summed_up(stream: io.StringIO, counters: Counters) -> None:
    handler = logs.configure("json", "info", counters, stream)
    log = logs.get("gateway")
    for n in range(100):
        log.warning("mq.put_failed", "queue is full", queue="T", client_id=f"m-{n}")
    log.warning("mq.put_failed", "queue is full", queue="OTHER")
    assert len(lines(stream)) == 11
    assert counters.log_events["warning"] == 101
    assert counters.log_suppressed["warning"] == 90
    handler.sweep(time.monotonic() + 60)
    last = lines(stream)[-1]
    assert last["suppressed"] == 90
    assert (last["event"], last["queue"]) == ("mq.put_failed", "T")


def test_the_next_line_after_the_window_says_how_many_are_missing(stream: io.StringIO) -> None:
    suppression = logs.Suppression(burst=1, window=10)
    record = logging.LogRecord("gateway", logging.ERROR, "", 0, "full", (), None)
    assert suppression.admit(record, 100.0) == (True, 0)
    assert suppression.admit(record, 100.0) == (False, 0)
    assert suppression.admit(record, 111.0) == (True, 1)


def test_one_line_per_connection_is_never_suppressed(stream: io.StringIO) -> None:
    logs.configure("json", "info", None, stream)
    for n in range(50):
        logs.get("gateway.net").info("client.connected", "connected", client_id=f"m-{n}")
    assert len(lines(stream)) == 50


def test_the_kinds_remembered_are_bounded() -> None:
    suppression = logs.Suppression()
    for n in range(suppression.MAX_KINDS * 2):
        suppression.admit(logging.LogRecord("gateway", logging.ERROR, "", 0, f"text {n}", (), None), float(n))
    assert len(suppression._kinds) == suppression.MAX_KINDS


def test_an_exception_keeps_its_traceback(stream: io.StringIO) -> None:
    logs.configure("json", "info", None, stream)
    try:
        {}["x"]
    except KeyError as error:
        logs.get("gateway").exception("broker.failed", "a turn failed", error)
    (line,) = lines(stream)
    assert "KeyError: 'x'" in str(line["exception"])


def test_lines_of_other_libraries_come_out_alike(stream: io.StringIO) -> None:
    logs.configure("json", "info", None, stream)
    logging.getLogger("twisted").info("Listening on %d", 1883)
    (line,) = lines(stream)
    assert (line["event"], line["msg"], line["logger"]) == ("log", "Listening on 1883", "twisted")


def test_level_and_priorities(stream: io.StringIO) -> None:
    logs.configure("human", "warning", None, stream, priorities=True)
    log = logs.get("gateway")
    log.info("a", "not written")
    log.debug("a", "not written")
    logs.set_level("debug")
    log.debug("b", "written")
    log.error("c", "written")
    assert [line[:3] for line in stream.getvalue().splitlines()] == ["<7>", "<3>"]


def test_a_broken_stream_does_not_reach_the_code_that_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    broken = io.StringIO()
    logs.configure("json", "info", None, broken)
    broken.close()
    logs.get("gateway").error("x", "y")


def test_lines_before_the_counters_are_there_are_counted_too(stream: io.StringIO, counters: Counters) -> None:
    handler = logs.configure("json", "info", None, stream)
    logs.get("gateway").info("a", "before")
    handler.count_into(counters)
    logs.get("gateway").info("b", "after")
    assert counters.log_events["info"] == 2


def test_the_journal_is_recognised_by_its_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log").open("w") as written:
        found = os.fstat(written.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        assert logs.to_journal(written)
        monkeypatch.setenv("JOURNAL_STREAM", "1:2")
        assert not logs.to_journal(written)
    assert not logs.to_journal(io.StringIO())


def test_a_clock_that_is_set_back_suppresses_nothing_for_longer(
    stream: io.StringIO, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = logs.configure("json", "info", counters, stream)
    log = logs.get("gateway")
    for _ in range(11):
        log.warning("mq.put_failed", "queue is full", queue="T")
    set_back, later = time.time() - 3600, time.monotonic() + 11
    monkeypatch.setattr(time, "time", lambda: set_back)
    monkeypatch.setattr(time, "monotonic", lambda: later)
    log.warning("mq.put_failed", "queue is full", queue="T")
    assert lines(stream)[-1]["suppressed"] == 1
    handler.sweep(later + 11)
