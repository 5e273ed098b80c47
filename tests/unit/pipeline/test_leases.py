"""gateway.pipeline.jobs.leases: the end of a run beside a gateway that does not answer."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from gateway.pipeline.jobs import leases
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.source import http_access

JOB = """
version: 1
name: plant
source: {{queue: Q, url: "http://127.0.0.1:{port}", token_file: {folder}/token}}
warehouse: {folder}/lake
"""


def test_a_gateway_that_stands_still_does_not_keep_a_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was `stopped` lived on for the minute that any other answer may take."""
    monkeypatch.setattr(leases, "TIMEOUT", 0.5)
    (tmp_path / "token").write_text("token")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are made, and nothing answers
        job = parse_job("job.yaml", JOB.format(port=silent.getsockname()[1], folder=tmp_path))
        ending = threading.Thread(target=leases.give_back, args=(job.inputs,), daemon=True)
        ending.start()
        ending.join(http_access.TIMEOUT / 2)
        assert not ending.is_alive()
