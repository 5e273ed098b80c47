"""`mqgate status` after a reload that was refused."""

from __future__ import annotations

import time
from dataclasses import asdict

import pytest

from gateway.cli.running import _words
from gateway.errors import Finding


@pytest.mark.parametrize(
    ("finding", "said"),
    [
        (
            Finding("rules.yaml", 3, 5, "unknown key `quue`", "write `queue`"),
            "  rules.yaml:3:5: unknown key `quue`: write",
        ),
        (Finding("rules.yaml", 0, 0, "the file is empty", "restore it"), "  rules.yaml: the file is empty: restore it"),
    ],
)
def test_what_was_wrong_with_the_files_is_said_where_it_is(finding: Finding, said: str) -> None:
    answer = {
        "started": time.time(), "draining": False, "ready": True, "dead_letters": None, "connections": 1, "sessions": 1,
        "subscriptions": 0, "version": "1", "backend": "embedded", "problems": [],
        "last_reload": {"ok": False, "findings": [asdict(finding)], "waiting": []},
    }  # fmt: skip
    lines = _words(answer)
    assert lines[-2] == "! the last reload was refused; the previous settings are still in force:"
    assert lines[-1].startswith(said)
    assert not any("skipped" in line for line in lines)
    answer["skipped"] = {"count": 3, "client_id": "line7", "time": 1_800_000_000.0}
    said_of_sessions = (
        "3 messages skipped for sessions that were full (mqtt.max_queued), the last 2027-01-15 08:00:00Z for line7"
    )
    assert any(line.startswith(said_of_sessions) for line in _words(answer))
    answer["last_reload"] = {"ok": True, "findings": [], "waiting": []}
    assert not any("reload" in line for line in _words(answer))
