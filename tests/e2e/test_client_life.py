"""A device's life in one command: connects, refusals, what it was denied, and why it waits; and the log names who."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from gateways import RunningGateway

from gateway.cli.main import main

SETTINGS = """
log: {connections: true}
mappings: [map.yaml]
queue_manager: {embedded: {objects: objects.mqsc}}
security: {acl: [{publish: ["up/#", "bad/#"], subscribe: ["down/#"]}]}
"""
MAPPING = """
version: 1
to_mq:
  - {name: up, topic: "up/{site}", queue: "FULL.Q", on_failure: {then: hold}}
  - {name: bad, topic: "bad/{site}", queue: "NOT.{site:upper}", payload: {format: json}}
"""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    (tmp_path / "map.yaml").write_text(MAPPING)
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(FULL.Q) MAXDEPTH(1) REPLACE\n")
    running = RunningGateway(tmp_path, settings=SETTINGS)
    try:
        yield running.start()
    finally:
        running.stop()


def connected(gateway: RunningGateway, client_id: str) -> socket.socket:
    link = gateway.connect()
    name = client_id.encode()
    body = b"\0\4MQTT\4\0\0\x3c" + struct.pack(">H", len(name)) + name
    link.sendall(b"\x10" + bytes([len(body)]) + body)
    assert link.recv(4) == b"\x20\2\0\1"[:2] + b"\0\0"
    return link


def publish(link: socket.socket, topic: str, number: int, payload: bytes = b"x") -> None:
    body = struct.pack(">H", len(topic)) + topic.encode() + struct.pack(">H", number) + payload
    link.sendall(b"\x32" + bytes([len(body)]) + body)


def eventually(look: Callable[[], Any]) -> Any:
    """What it answers once it answers something."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def shown(gateway: RunningGateway, *arguments: str) -> str:
    result = CliRunner().invoke(main, ["client", "show", *arguments, "--data", str(gateway.directory / "data")])
    assert result.exit_code == 0, result.output
    return result.output


def lines(gateway: RunningGateway, event: str, **wanted: object) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in gateway.log.splitlines() if line.startswith("{")]
    return [one for one in found if one["event"] == event and all(one.get(key) == wanted[key] for key in wanted)]


def test_a_device_that_is_held_back_is_told_of_with_queue_and_reason(gateway: RunningGateway) -> None:
    device = connected(gateway, "held")
    for number in range(1, 6):
        publish(device, "up/lima", number)
    held = eventually(lambda: gateway.api("GET", "/clients/held")["held_back"])
    assert "for queue FULL.Q (the first has topic up/lima): " in held
    assert "it is full" in held or "MQRC_Q_FULL" in held

    def waiting() -> list[dict[str, Any]]:
        return [one for one in gateway.api("GET", "/clients/held")["in_doubt"] if one["state"] == "held back"]

    eventually(lambda: len(waiting()) >= 4)
    waits = waiting()
    assert {one["queue"] for one in waits} == {"FULL.Q"}
    assert {one["topic"] for one in waits} == {"up/lima"}
    assert {one["packet_id"] for one in waits} <= {1, 2, 3, 4, 5}
    said = shown(gateway, "held", "--history")
    assert "connected" in said.splitlines()[0]
    assert "held back: " in said.splitlines()[-1]
    failed = eventually(lambda: lines(gateway, "mq.failed", queue="FULL.Q", reason="MQRC_Q_FULL"))
    assert "FULL.Q holds" in failed[0]["why"]
    device.close()
    eventually(lambda: "disconnected" in shown(gateway, "held", "--history"))


def test_what_was_denied_is_named_in_log_and_history(gateway: RunningGateway) -> None:
    device = connected(gateway, "denied")
    eventually(lambda: lines(gateway, "connected", client_id="denied", level="info"))
    publish(device, "forbidden/topic", 1)
    [line] = eventually(lambda: lines(gateway, "client.refused", client_id="denied"))
    assert (line["topic"], line["reason"], line["count"]) == ("forbidden/topic", "acl_publish", 1)
    assert line["peer"].startswith("127.0.0.1:")
    assert "topic=forbidden/topic" in eventually(lambda: shown(gateway, "denied", "--history"))
    publish(device, "bad/lima", 2, b"not json")
    [line] = eventually(lambda: lines(gateway, "message.dead_lettered"))
    assert (line["client_id"], line["topic"], line["queue"]) == ("denied", "bad/lima", "NOT.LIMA")
    device.close()


def test_a_dead_letter_of_a_refused_payload_is_replayed_once_its_queue_is_there(gateway: RunningGateway) -> None:
    device = connected(gateway, "d")
    publish(device, "bad/lima", 1, b"not json")
    eventually(lambda: gateway.api("GET", "/dlq")["total"] == 1)
    [row] = gateway.api("GET", "/dlq")["summary"]
    assert row["destination"] == "NOT.LIMA"
    data = str(gateway.directory / "data")
    runner = CliRunner()
    assert runner.invoke(main, ["mqsc", "--data", data], input="DEFINE QLOCAL(NOT.LIMA)").exit_code == 0
    done = runner.invoke(main, ["dlq", "replay", "--destination", "NOT.LIMA", "--data", data])
    assert done.exit_code == 0, done.output
    assert "not json" in runner.invoke(main, ["queue", "browse", "NOT.LIMA", "--data", data]).output
    device.close()


def test_a_client_nobody_has_seen(gateway: RunningGateway) -> None:
    result = CliRunner().invoke(
        main, ["client", "show", "nobody", "--history", "--data", str(gateway.directory / "data")]
    )
    assert result.exit_code == 1
    assert "nothing is known" in result.output
