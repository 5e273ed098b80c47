"""What has failed since the last look, as log lines: at most one a second for each cause, however many messages it
affects.

The broker counts and may not log; this reads its counters. It is called once a second in the reactor's thread. Pure
except for the log that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from gateway.mq.reason_policy import TABLE
from gateway.observe.logs import EventLog
from gateway.ports.counters import BY_NAME, MQRC_LABELS, Counters


class Report(NamedTuple):
    """A counter that is logged when it grows."""

    metric: str
    event: str
    text: str


REPORTS = (
    Report("messages_dropped", "message.dropped", "messages were dropped"),
    Report("dlq_messages", "message.dead_lettered", "messages were put on the dead-letter queue"),
    Report("transform_errors", "message.not_built", "messages could not be built from what the rule says"),
    Report("mq_errors", "mq.failed", "calls of the queue manager failed"),
    Report("mqtt_auth_failures", "client.refused", "requests of clients were refused"),
)


def _nobody(_client_id: str, _event: str, _fields: dict[str, object]) -> None:
    """Does nothing: no history is kept."""


class Reports:
    """Remembers what was counted at the last look."""

    def __init__(
        self, counters: Counters, log: EventLog, happened: Callable[[str, str, dict[str, object]], None] = _nobody
    ) -> None:
        """`happened` is called with client identifier, event and fields of what happened to a client."""
        self._counters = counters
        self._happened = happened
        self._log = log
        self._seen = {report.metric: self._now(report.metric) for report in REPORTS}
        self._held = False

    def look(self, *, held: bool = False, why: Callable[[], str] = str) -> None:
        """Log a line for each series that has grown. `held`: nothing can be committed; `why` gives the reason."""
        for report in REPORTS:
            before, now = self._seen[report.metric], self._now(report.metric)
            if now == before:
                continue
            self._seen[report.metric] = now
            for key, count in now.items():
                if count > before.get(key, 0):
                    self._report(report, key, count - before.get(key, 0))
        self._report_held(held, why)

    def _report(self, report: Report, key: Any, count: int) -> None:
        """Log one line, with client, topic and queue of one of the cases, and note one event in the history of each
        known client."""
        examples, fields = self._counters.examples.take(report.metric, key), _fields(report, key)
        for one in examples:
            if one.get("client_id"):
                self._happened(str(one["client_id"]), report.event, {**fields, **one})
        if report.metric == "mqtt_auth_failures" and not str(fields.get("reason")).startswith("acl_"):
            return  # each refused CONNECT has a line of its own
        one = next(iter(examples), {})
        named = {name: value for name, value in one.items() if value is not None and name not in fields}
        advice = _advice().get(str(fields.get("reason")), "") if report.metric == "mq_errors" else ""
        text = f"{report.text}: {advice}" if advice else report.text
        self._log.warning(report.event, text, count=count, **fields, **named)

    def _report_held(self, held: bool, why: Callable[[], str]) -> None:
        if held and not self._held:
            self._log.warning("mq.away", f"nothing can be committed: {why()}")
        elif self._held and not held:
            self._log.info("mq.back", "commits go through again")
        self._held = held

    def _now(self, metric: str) -> Mapping[Any, int]:
        found: Mapping[Any, int] = getattr(self._counters, metric)
        return dict(found)


@cache
def _advice() -> dict[str, str]:
    """Returns what an operator does about a reason code, by its name."""
    return {MQRC_LABELS[reason]: policy.advice for reason, policy in TABLE.items() if reason in MQRC_LABELS}


def _fields(report: Report, key: Any) -> dict[str, object]:
    values = key if isinstance(key, tuple) else (key,)
    names = [label.name for label in BY_NAME[report.metric].labels]
    return dict(zip(names, values, strict=True))
