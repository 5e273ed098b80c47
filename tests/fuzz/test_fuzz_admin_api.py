"""The admin API of a running gateway against requests made from its own OpenAPI document, right and wrong ones.

Nothing answers 500, every status and body is one the document describes, what the document forbids is refused, what it
allows is accepted, and without a token nothing is said. Long form: MQGATE_LONG=1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import RunningGateway
from patient_device import Device

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "gateway/net/static/openapi.json"
LONG = bool(os.environ.get("MQGATE_LONG"))
EXAMPLES = "300" if LONG else "6"
TOKEN = "a-token-of-the-tests"
NOT_SAID_BY_A_SCHEMA = (
    "DELETE /queues/{queue}/messages",
    "POST /device-users",
    "POST /explain",
    "POST /queues/{queue}/messages",
    "POST /session",
    "PUT /device-roles/{role}",
    "PUT /mapping",
)
"""What these refuse no schema says: `confirm` repeats the name, topics, filters and names of properties have rules,
guesses are bounded, a user stands once in a request, and a mapping file is one that the gateway has."""
REFUSED = "[400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429]"
"""Answers to what the document forbids: a text beyond its length may be a body beyond what the route takes."""
SETTINGS = """
admin: {token_file: admin.token}
mappings: [plant.yaml]
"""
MAPPING = """
version: 1
to_mq:
  - {name: readings, topic: "plant/{site}/temperature", queue: MQGATE.DEFAULT, properties: {site: "{site}"}}
  - {name: lost, topic: "lost/#", queue: NO.SUCH.QUEUE, on_failure: {then: dead_letter}}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("api")
    (directory / "admin.token").write_text(TOKEN + "\n")
    (directory / "plant.yaml").write_text(MAPPING)
    with RunningGateway(directory, settings=SETTINGS) as running:
        with Device("127.0.0.1", running.port, "line-007") as device:
            assert device.connect() == 0
            for number in range(5):
                device.publish("plant/lima/temperature", b"%d" % number, 1)
                device.publish("lost/a", b"%d" % number, 1)
        yield running


@pytest.mark.timeout(3700 if LONG else 300)
def test_requests_made_from_the_document_are_answered_as_it_says(gateway: RunningGateway) -> None:
    configuration = gateway.directory / "schemathesis.toml"
    configuration.write_text(
        f"[checks.negative_data_rejection]\nexpected-statuses = {REFUSED}\n"
        + "".join(
            f"[[operations]]\ninclude-name = {json.dumps(name)}\nchecks.positive_data_acceptance.enabled = false\n"
            for name in NOT_SAID_BY_A_SCHEMA
        )
    )
    command = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(configuration), "run"]
    command += [str(DOCUMENT), "--url", f"http://127.0.0.1:{gateway.admin}/api/v1", "--max-examples", EXAMPLES]
    command += ["--header", f"Authorization: Bearer {TOKEN}", "--request-timeout", "60", "--continue-on-failure"]
    command += ["--exclude-path", "/drain", "--exclude-path", "/trace", "--output-truncate", "false"]
    command += [] if LONG else ["--seed", "8", "--phases", "examples,coverage,fuzzing"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=3600 if LONG else 280, check=False, cwd=gateway.directory
    )
    assert done.returncode == 0, found_in(done.stdout) + done.stderr
    assert '"defect"' not in gateway.log


def found_in(report: str) -> str:
    """What was found and how to repeat it, and the numbers at the end; of a request that is megabytes the beginning."""
    lines = [line if len(line) <= 600 else f"{line[:600]}... ({len(line)} characters)" for line in report.splitlines()]
    begin = next((number for number, line in enumerate(lines) if line.startswith("===") and line[-1] == "="), 0)
    text = "\n".join(lines[begin:])
    return text if len(text) <= 40_000 else text[:30_000] + "\n...\n" + text[-10_000:]


def test_no_request_left_anything_behind(gateway: RunningGateway) -> None:
    with Device("127.0.0.1", gateway.port, "line-007") as device:
        assert device.connect() == 0
        device.publish("plant/lima/temperature", b"after", 1)
    assert "ok" in gateway.get("/readyz")
