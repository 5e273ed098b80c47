"""Counters that grow become lines: one for each cause, with a number; none if nothing has happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.observe.reports import REPORTS, Reports
from gateway.ports.counters import BY_NAME, Counters, Names


class Kept:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def warning(self, event: str, msg: str, **fields: object) -> None:
        self.lines.append((event, msg, fields))

    info = warning


@pytest.fixture
def counters() -> Counters:
    return Counters(Names(("plain",), ("r",), ("QM1",)))


def test_growth_is_reported_once_with_its_labels(counters: Counters) -> None:
    log = Kept()
    counters.messages_dropped["r", "expired"] += 3
    reports = Reports(counters, log)
    reports.look()
    assert log.lines == []
    counters.messages_dropped["r", "expired"] += 7
    counters.mq_errors["QM1", "put", "MQRC_Q_FULL"] += 2
    reports.look()
    reports.look()
    assert log.lines == [
        ("message.dropped", "messages were dropped", {"count": 7, "route": "r", "reason": "expired"}),
        ("mq.failed",
         "calls of the queue manager failed: the queue is at MAXDEPTH: consume from it or raise MAXDEPTH",
         {"count": 2, "qmgr": "QM1", "call": "put", "reason": "MQRC_Q_FULL"}),
    ]  # fmt: skip
    counters.mq_errors["QM1", "put", "other"] += 1
    reports.look()
    assert log.lines[-1][1] == "calls of the queue manager failed", "of which code is not known"


def test_an_outage_has_a_beginning_and_an_end(counters: Counters) -> None:
    log = Kept()
    reports = Reports(counters, log)
    for held in (False, True, True, False, False):
        reports.look(held=held, why=lambda: "MQRC_Q_MGR_NOT_AVAILABLE")
    assert [(event, text) for event, text, _ in log.lines] == [
        ("mq.away", "nothing can be committed: MQRC_Q_MGR_NOT_AVAILABLE"),
        ("mq.back", "commits go through again"),
    ]


def test_reports_are_of_counters_in_the_catalogue() -> None:
    for report in REPORTS:
        assert BY_NAME[report.metric].kind == "counter"


def test_events_named_in_the_documentation_are_written_somewhere() -> None:
    source = "".join(path.read_text() for path in Path("gateway").rglob("*.py"))
    for page in Path("docs").rglob("*.md"):
        for event in re.findall(r"event `([a-z._]+)`", page.read_text()):
            assert f'"{event}"' in source, f"{page.name}: {event}"


def test_a_line_names_one_of_those_it_counts(counters: Counters) -> None:
    log, told = Kept(), []
    reports = Reports(counters, log, lambda *given: told.append(given))
    counters.messages_dropped["r", "expired"] += 3
    for client in ("a", "b", "a"):
        counters.examples.note("messages_dropped", ("r", "expired"), client, topic=f"t/{client}")
    counters.mq_errors["QM1", "put", "MQRC_Q_FULL"] += 1
    counters.examples.note("mq_errors", ("QM1", "put", "MQRC_Q_FULL"), queue="TELEMETRY.LIMA")
    reports.look()
    assert [fields for _, _, fields in log.lines] == [
        {"count": 3, "route": "r", "reason": "expired", "client_id": "a", "topic": "t/a"},
        {"count": 1, "qmgr": "QM1", "call": "put", "reason": "MQRC_Q_FULL", "queue": "TELEMETRY.LIMA"},
    ]
    assert [(client, event) for client, event, _ in told] == [("a", "message.dropped"), ("b", "message.dropped")]
    counters.messages_dropped["r", "expired"] += 1
    reports.look()
    assert log.lines[-1][2] == {"count": 1, "route": "r", "reason": "expired"}, "an example is told once"


def test_a_refused_connect_has_a_line_of_its_own_only(counters: Counters) -> None:
    log = Kept()
    reports = Reports(counters, log)
    counters.mqtt_auth_failures["plain", "bad_credentials"] += 1
    counters.mqtt_auth_failures["plain", "acl_publish"] += 1
    reports.look()
    assert [fields["reason"] for _, _, fields in log.lines] == ["acl_publish"]


def test_examples_are_bounded(counters: Counters) -> None:
    for number in range(10_000):
        counters.examples.note("messages_dropped", ("r", "expired"), f"c{number}", topic="t")
    assert len(counters.examples.take("messages_dropped", ("r", "expired"))) == 20
