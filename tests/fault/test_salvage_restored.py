"""A damaged journal: what can be read of it goes into another one, each message once, whatever interrupts that."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import gateway_template
import pytest
from gateways import TREE, RunningGateway
from patient_device import Device

from gateway.queue_manager.journal.segment import read_header

pytestmark = pytest.mark.timeout(240)
MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: 'q/#', queue: Q}\n"
OBJECTS = "DEFINE QLOCAL(Q) MAXDEPTH(999999999) REPLACE\n"
SETTINGS = "queue_manager: {embedded: {objects: objects.mqsc, segment_bytes: 1MiB}}\nmappings: [map.yaml]\n"
COUNT, BYTES = 60, 45_000
"""Messages, of which each segment has some twenty."""


def gateway_in(directory: Path) -> RunningGateway:
    directory.mkdir(exist_ok=True)
    (directory / "map.yaml").write_text(MAPPING)
    (directory / "objects.mqsc").write_text(OBJECTS)
    return RunningGateway(directory, settings=SETTINGS)


def command(*words: str | Path, text: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    return gateway_template.run(*words, text=text, cwd=Path(TREE), env={**os.environ, **environ})


def in_use(data: Path) -> list[Path]:
    """The segments that have been written, oldest first."""
    serials = {}
    for path in data.glob("*.segment"):
        content = memoryview(path.read_bytes())
        header = read_header(content, len(content))[0]
        if header is not None:
            serials[header.serial] = path
    return [serials[serial] for serial in sorted(serials)]


def numbers(gateway: RunningGateway) -> list[int]:
    return [int(body.split()[0]) for body in gateway.bodies("Q")]


@pytest.fixture
def damaged(tmp_path: Path) -> RunningGateway:
    """A gateway that is stopped, with a frame of its second segment damaged."""
    gateway = gateway_in(tmp_path / "gw")
    with gateway:
        with Device("127.0.0.1", gateway.port, "kept", version=4) as device:
            device._socket.sendall(b"\x10\x10\x00\x04MQTT\x04\x00\x00\x3c\x00\x04kept")  # a persistent session
            device._next(2)
            device.subscribe("x", 1)
        for number in range(COUNT):
            gateway.api("POST", "/queues/Q/messages", {"text": f"{number} " + "x" * BYTES})
        assert gateway.stop() == 0
    with in_use(gateway.directory / "data")[-2].open("r+b") as file:
        file.seek(400_000)
        file.write(b"\xff" * 5000)
    return gateway


def test_what_can_be_read_is_restored_once(damaged: RunningGateway, tmp_path: Path) -> None:
    data, saved = damaged.directory / "data", tmp_path / "saved.jsonl"
    with pytest.raises(AssertionError, match="journal salvage"):
        damaged.start()
    salvaged = command("journal", "salvage", saved, "--data", data, "--json")
    assert salvaged.returncode == 1, "not all could be read"
    told = json.loads(salvaged.stdout)
    assert len(told["problems"]) == 1
    assert COUNT - 5 <= sum('"queue": "Q"' in line for line in saved.open()) <= COUNT, (
        "it may be the gateway's own frame"
    )

    data.rename(damaged.directory / "damaged")
    killed = command("journal", "restore", saved, "--data", data, MQGATE_FAILPOINT="restore.messages:1")
    assert killed.returncode == -9
    restored = command("journal", "restore", saved, "--data", data, "--json")
    assert restored.returncode == 0, restored.stderr
    again = json.loads(command("journal", "restore", saved, "--data", data, "--json").stdout)
    assert (again["messages"], again["before"]) == (0, saved.stat().st_size)
    with damaged:
        found = numbers(damaged)
        assert found == sorted(found)
        assert max(Counter(found).values()) == 1
        assert COUNT - 5 <= len(found) <= COUNT
        assert "kept" in json.dumps(damaged.api("GET", "/clients"))
        damaged.api("DELETE", "/queues/Q/messages?confirm=Q")
        refused = command("journal", "restore", saved, "--data", data)
        assert refused.returncode == 3
        assert "has this store open" in refused.stderr
        assert damaged.stop() == 0
    assert json.loads(command("journal", "restore", saved, "--data", data, "--json").stdout)["messages"] == 0
    with damaged:
        assert numbers(damaged) == [], "what has been restored and taken does not come again"


def test_messages_that_are_there_are_not_put_twice(damaged: RunningGateway, tmp_path: Path) -> None:
    """Into a queue manager that has some of them, and others of its own."""
    saved, part, rest = tmp_path / "saved.jsonl", tmp_path / "part.jsonl", tmp_path / "rest.jsonl"
    command("journal", "salvage", saved, "--data", damaged.directory / "data")
    lines = saved.read_text().splitlines(keepends=True)
    part.write_text("".join(lines[:20]))
    rest.write_text("".join(lines))
    other = gateway_in(tmp_path / "other")
    with other:
        other.api("POST", "/queues/Q/messages", {"text": "7777 of its own"})
        assert other.stop() == 0
    first = json.loads(command("journal", "restore", part, "--data", other.directory / "data", "--json").stdout)
    second = json.loads(command("journal", "restore", rest, "--data", other.directory / "data", "--json").stdout)
    assert second["present"] >= first["messages"] > 0
    with other:
        found = Counter(numbers(other))
        assert max(found.values()) == 1
        assert found[7777] == 1
        assert len(found) >= COUNT - 4


def test_a_lost_segment_and_a_queue_that_is_not_defined(damaged: RunningGateway, tmp_path: Path) -> None:
    data, saved = damaged.directory / "data", tmp_path / "saved.jsonl"
    lost = in_use(data)[-2]
    lost.unlink()
    salvaged = command("journal", "salvage", saved, "--data", data)
    assert salvaged.returncode == 1
    assert lost.name in salvaged.stderr
    assert "missing" in salvaged.stderr
    only_messages = [line for line in saved.open() if '"queue"' in line]
    saved.write_text("".join(only_messages).replace('"queue": "Q"', '"queue": "NEVER.DEFINED"'))
    refused = command("journal", "restore", saved, "--data", tmp_path / "new")
    assert refused.returncode == 3
    assert "DEFINE QLOCAL(NEVER.DEFINED)" in refused.stderr
    known = [line for line in only_messages if '"queue": "Q"' in line]
    saved.write_text("".join(known[:10]) + "".join(known[10:]).replace('"queue": "Q"', '"queue": "?"'))
    command("mqsc", "--data", tmp_path / "new", text="DEFINE QLOCAL(Q)\n")
    done = command("journal", "restore", saved, "--data", tmp_path / "new", "--json")
    assert done.returncode == 0, done.stderr
    restored = json.loads(done.stdout)
    assert restored["queues"] == {"Q": 10, "RESTORED.UNNAMED": len(known) - 10}
    assert restored["unnamed"] == len(known) - 10
    again = command("journal", "restore", saved, "--data", tmp_path / "new")
    assert again.returncode == 0
    assert again.stdout.startswith("0 messages")
