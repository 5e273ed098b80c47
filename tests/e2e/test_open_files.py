"""Connections that take all descriptors there are: what the journal and operators need stays."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateways import RunningGateway
from patient_device import Device

LIMIT = 200
"""Half of it is for connections."""
RULES = "version: 1\nto_mq: [{name: up, topic: up, queue: Q}]\n"
SETTINGS = """
mappings: [rules.yaml]
queue_manager: {embedded: {path: data, objects: objects.mqsc, segment_bytes: 1MiB}}
"""


def launch(command: list[str], **named: Any) -> subprocess.Popen[bytes]:
    limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *command]
    return subprocess.Popen(limited, **named)


def until(holds: Callable[[], object]) -> None:
    limit = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_connections_leave_descriptors_for_the_journal_and_operators(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(Q)\n")
    gateway = RunningGateway(tmp_path, settings=SETTINGS)
    gateway.launch = launch
    with gateway, contextlib.ExitStack() as crowd:
        steady = crowd.enter_context(Device("127.0.0.1", gateway.port, "steady"))
        assert steady.connect() == 0
        for _ in range(LIMIT):
            crowd.enter_context(contextlib.suppress(OSError))
            crowd.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 5))
        until(lambda: '"descriptors"' in gateway.log)
        for _ in range(LIMIT):  # and programs that come and say nothing
            program = crowd.enter_context(socket.socket(socket.AF_UNIX))
            crowd.enter_context(contextlib.suppress(OSError))
            program.settimeout(5)
            program.connect(str(tmp_path / "data" / "mqi.sock"))
        (text,) = [one for one in gateway.api("GET", "/overview")["problems"] if one.startswith("open files: ")]
        assert "connections have taken all 100 descriptors that they may have" in text
        assert "LimitNOFILE" in text
        with contextlib.ExitStack() as operators:  # or who would be one
            for _ in range(LIMIT):
                operators.enter_context(contextlib.suppress(OSError))
                operators.enter_context(socket.create_connection(("127.0.0.1", gateway.admin), 5))
            for _ in range(60):  # several segments of the journal
                steady.publish("up", bytes(100_000), 1)
        assert gateway.api("GET", "/queues/Q")["depth"] == 60
        assert "disk_full" not in gateway.log
        assert "Traceback" not in gateway.log
        crowd.pop_all().close()

        def connects() -> bool:
            with contextlib.suppress(OSError), Device("127.0.0.1", gateway.port, "late") as late:
                return late.connect() == 0
            return False

        until(connects)
