from __future__ import annotations

import resource
from typing import Any

import pytest

from gateway.net.descriptors import (
    CALM_SECONDS,
    PROBLEM,
    RESERVED,
    Descriptors,
    connections_of_operators,
    most_for_connections,
    most_for_programs,
)


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def warning(self, event: str, msg: str, **fields: object) -> None:
        self.lines.append(("warning", f"{event} {fields}: {msg}"))

    def info(self, event: str, msg: str, **_fields: object) -> None:
        self.lines.append(("info", f"{event}: {msg}"))


@pytest.mark.parametrize(
    ("limit", "most", "programs"),
    [
        (100_000, 100_000 - RESERVED, 100_000 - RESERVED // 2),
        (200, 100, 150),
        (resource.RLIM_INFINITY, (1 << 30) - RESERVED, (1 << 30) - RESERVED // 2),
    ],
)
def test_a_reserve_is_kept(monkeypatch: pytest.MonkeyPatch, limit: int, most: int, programs: int) -> None:
    """Programs may take half of it, so that connections do not keep them out, and they do not keep out the journal."""
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (limit, limit))
    assert most_for_connections() == most
    assert most_for_programs() == programs
    assert connections_of_operators() == (programs - most) // 2


def test_programs_that_are_turned_away_are_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (200, 200))
    log, problems = Log(), dict[str, Any]()
    Descriptors(log, problems, lambda: 1.0).exhausted_by_programs()
    assert problems[PROBLEM].startswith(
        "the gateway's own files, programs and connections have taken all 150 descriptors"
    )
    assert len(log.lines) == 1


def test_it_is_said_once_and_over_when_nobody_was_turned_away_for_a_while() -> None:
    log, problems, now = Log(), dict[str, Any](), [100.0]
    descriptors = Descriptors(log, problems, lambda: now[0])
    descriptors.look()
    for _ in range(3):
        descriptors.exhausted("plain")
        now[0] += CALM_SECONDS
        descriptors.look()
    ((kind, line),) = log.lines
    assert kind == "warning"
    assert line.startswith("descriptors {'listener': 'plain'}: the gateway's own files and connections have taken all ")
    assert PROBLEM in problems
    now[0] += 1
    descriptors.look()
    assert problems == {}
    assert log.lines[1:] == [("info", "descriptors: there are descriptors for connections again")]
