"""Three probes, three questions: each condition alone turns exactly the probes it should."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import Any

import pytest

from gateway.observe.health import Snapshot, livez, readyz, startupz
from gateway.ports.batch import StorageFull

WELL = Snapshot(
    configured=True,
    recovered=True,
    listening={"plain": True, "tls": True},
    heartbeat_ages={"0": 0.2},
    queue_managers={"QM1": True},
    spool_bytes=10,
    spool_limit_bytes=100,
)


def verdicts(**change: Any) -> str:
    """Returns the first letters of the probes that answer 200."""
    now = replace(WELL, **change)
    return "".join(letter for letter, probe in (("s", startupz), ("l", livez), ("r", readyz)) if probe(now).ok)


@pytest.mark.parametrize(
    ("change", "well"),
    [
        ({}, "slr"),
        ({"configured": False}, "l"),
        ({"recovered": False}, "l"),
        ({"listening": {"plain": True, "tls": False}}, "l"),
        ({"listening": {}}, "l"),
        ({"draining": True}, "sl"),
        ({"heartbeat_ages": {"0": 0.1, "1": 16.0}}, "sr"),
        ({"queue_managers": {"QM1": False}}, "sl"),
        ({"queue_managers": {"QM1": False}, "buffered": True}, "slr"),
        ({"queue_managers": {"QM1": False}, "buffered": True, "spool_bytes": 90}, "sl"),
        ({"spool_bytes": 89.9}, "slr"),
        ({"spool_limit_bytes": 0, "spool_bytes": 5}, "slr"),
    ],
)
def test_which_probes_a_condition_fails(change: dict[str, Any], well: str) -> None:
    assert verdicts(**change) == well


def test_a_failed_probe_says_why() -> None:
    verdict = readyz(replace(WELL, queue_managers={"QM1": False}))
    assert verdict.status == 503
    assert "[-] queue manager: no connection to QM1 and no buffer is set" in verdict.text()


def test_a_connected_queue_manager_that_says_nothing() -> None:
    verdict = readyz(replace(WELL, silence=12.3))
    assert verdict.status == 503
    assert "[-] queue manager: it has not answered for 12 s" in verdict.text()
    assert readyz(replace(WELL, silence=12.3, buffered=True)).ok


def test_a_queue_manager_that_is_away_behind_a_buffer_is_told() -> None:
    verdict = readyz(replace(WELL, queue_managers={"QM1": False}, buffered=True, buffering="QM1: 2059"))
    assert verdict.status == 200
    assert "[+] queue manager: away, and messages go to the buffer: QM1: 2059\n" in verdict.text()


@pytest.mark.parametrize(("number", "what", "cure"), [
    (errno.ENOSPC, "full since 1970", "make room"), (errno.EDQUOT, "full since 1970", "make room"),
    (errno.EIO, "not writable since 1970", "dmesg"), (errno.EROFS, "not writable since 1970", "dmesg"),
    (errno.EUCLEAN, "not writable since 1970", "dmesg"), (errno.ESTALE, "not writable since 1970", "dmesg"),
])  # fmt: skip
def test_a_disk_that_takes_nothing_says_what_helps(number: int, what: str, cure: str) -> None:
    text = readyz(replace(WELL, storage_full=StorageFull(0.0, "/data", os.strerror(number)))).text()
    assert f"[-] spool: {what}" in text
    assert cure in text
    assert ("make room" in text) == (cure == "make room")


def test_a_passed_probe_lists_its_checks() -> None:
    verdict = startupz(WELL)
    assert verdict.status == 200
    assert verdict.text() == "[+] configuration\n[+] recovery\n[+] listeners\nok\n"


def test_files_that_cannot_be_reached_are_not_called_removed() -> None:
    full = StorageFull(0.0, "/data", "00000004.segment cannot be reached: Permission denied", files_missing=True)
    text = readyz(replace(WELL, storage_full=full)).text()
    assert "[-] spool: not whole since 1970" in text
    assert "do not stop the gateway: it still has its files open: docs/runbooks/lost-segment.md" in text
    assert "removed" not in text
