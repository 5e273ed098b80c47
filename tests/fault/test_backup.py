"""Backups of a gateway that works, and their restoration: consistent, complete or not there, killed at any place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import gateway_template
import pytest
from gateways import TREE, RunningGateway
from long_form import in_long_form
from patient_device import Device
from small_disks import tmpfs
from waiting import until

from gateway.queue_manager.journal.segment import read_header

pytestmark = pytest.mark.timeout(240)
MAPPING = """
version: 1
to_mq:
  - {name: all, topic: "q/#", queue: Q, continue: true}
  - {name: copy, topic: "q/#", queue: COPY}
"""
OBJECTS = "DEFINE QLOCAL(Q) MAXDEPTH(999999999) REPLACE\nDEFINE QLOCAL(COPY) MAXDEPTH(999999999) REPLACE\n"
SETTINGS = "queue_manager: {embedded: {objects: objects.mqsc, segment_bytes: 1MiB}}\nmappings: [map.yaml]\n"
MESSAGES = 48


def gateway_in(directory: Path) -> RunningGateway:
    directory.mkdir(exist_ok=True)
    (directory / "map.yaml").write_text(MAPPING)
    (directory / "objects.mqsc").write_text(OBJECTS)
    return RunningGateway(directory, settings=SETTINGS)


def command(*words: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return gateway_template.run(*words, cwd=Path(TREE), env={**os.environ, **environ})


class Publisher(threading.Thread):
    """Publishes numbers at QoS 1 as fast as they are acknowledged."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.device = Device("127.0.0.1", port, "publisher", timeout=60.0)
        self.acknowledged = 0
        self.ending = False

    def run(self) -> None:
        self.device.connect()
        while not self.ending:
            self.device.publish("q/a", b"%d " % (self.acknowledged + 1) + b"x" * 3000)
            self.acknowledged += 1


def in_use(data: Path) -> list[Path]:
    """The segments that have been written, oldest first."""
    serials = {}
    for path in data.glob("*.segment"):
        content = memoryview(path.read_bytes())
        header = read_header(content, len(content))[0]
        if header is not None:
            serials[header.serial] = path
    return [serials[serial] for serial in sorted(serials)]


def fill(gateway: RunningGateway) -> None:
    """Messages for some segments."""
    for number in range(MESSAGES):
        gateway.api("POST", "/queues/Q/messages", {"text": f"{number} " + "x" * 75_000})


def numbers(gateway: RunningGateway, queue: str) -> list[int]:
    return [int(body.split()[0]) for body in gateway.bodies(queue)]


def test_a_gateway_that_works_is_backed_up_and_put_back(tmp_path: Path) -> None:
    gateway = gateway_in(tmp_path / "gw")
    with gateway:
        late = Device("127.0.0.1", gateway.port, "late", version=5)
        late.connect()
        publisher = Publisher(gateway.port)
        publisher.start()
        until(lambda: publisher.acknowledged >= 300)
        for number in range(3):
            before = publisher.acknowledged
            made = command("backup", tmp_path / f"b{number}", "--data", gateway.directory / "data", "--json")
            after = publisher.acknowledged
            assert made.returncode == 0, made.stderr
            if number < 2:  # some is taken meanwhile, and segments are used again
                gateway.api("DELETE", "/queues/COPY/messages?confirm=COPY")
        publisher.ending = True
        publisher.join()
    other = gateway_in(tmp_path / "other")
    put_back = command("restore", tmp_path / "b2", "--data", other.directory / "data")
    assert put_back.returncode == 0, put_back.stderr
    with other:
        found, copies = numbers(other, "Q"), numbers(other, "COPY")
        assert found == list(range(1, len(found) + 1))
        assert before <= len(found) <= after + 1
        assert copies == found[len(found) - len(copies) :], "both rows of a publication, or none"
        assert other.stop() == 0
    stopped = command("backup", tmp_path / "b3", "--data", other.directory / "data")
    assert stopped.returncode == 0, stopped.stderr


@pytest.mark.parametrize("place", ["backup.file:3", *in_long_form("backup.file:1")])
def test_a_backup_that_is_killed_is_not_there(tmp_path: Path, place: str) -> None:
    gateway = gateway_in(tmp_path / "gw")
    data = gateway.directory / "data"
    with gateway:
        fill(gateway)
        assert command("backup", tmp_path / "b", "--data", data, MQGATE_FAILPOINT=place).returncode == -9
        assert not (tmp_path / "b").exists()
        refused = command("restore", tmp_path / "b.partial", "--data", tmp_path / "other")
        assert refused.returncode == 3
        assert "no backup here" in refused.stderr
        assert command("backup", tmp_path / "b", "--data", data).returncode == 0
        assert not (tmp_path / "b.partial").exists()
        assert command("backup", tmp_path / "b", "--data", data).returncode == 3


@pytest.mark.parametrize("place", ["restore.file:2", "restore.aside:3", "restore.renamed:3",
                                   *in_long_form("restore.aside:1", "restore.moved", "restore.renamed:1")])  # fmt: skip
def test_a_restore_that_is_killed_is_done_again(tmp_path: Path, place: str) -> None:
    gateway = gateway_in(tmp_path / "gw")
    data = gateway.directory / "data"
    with gateway:
        fill(gateway)
        assert command("backup", tmp_path / "b", "--data", data).returncode == 0
        gateway.api("DELETE", "/queues/Q/messages?confirm=Q")
        gateway.api("POST", "/queues/Q/messages", {"text": "7777 of today"})
        assert gateway.stop() == 0
    refused = command("restore", tmp_path / "b", "--data", data)
    assert refused.returncode == 3
    assert "--replace" in refused.stderr
    assert command("restore", tmp_path / "b", "--data", data, "--replace", MQGATE_FAILPOINT=place).returncode == -9
    if place == "restore.file:2":  # nothing has been touched yet
        with gateway:
            assert numbers(gateway, "Q") == [7777]
            assert gateway.stop() == 0
    else:
        with pytest.raises(AssertionError, match="a restore has not ended: run `mqgate restore` once more"):
            gateway.start()
    again = command("restore", tmp_path / "b", "--data", data, "--replace", "--json")
    assert again.returncode == 0, again.stderr
    aside = Path(json.loads(again.stdout)["aside"])
    with gateway:
        assert numbers(gateway, "Q") == list(range(MESSAGES))
        assert gateway.stop() == 0
    other = gateway_in(tmp_path / "of-today")
    aside.rename(other.directory / "data")
    with other:
        assert numbers(other, "Q") == [7777]


def test_a_damaged_backup_changes_nothing(tmp_path: Path) -> None:
    gateway = gateway_in(tmp_path / "gw")
    data = gateway.directory / "data"
    with gateway:
        gateway.api("POST", "/queues/Q/messages", {"text": "1 stays"})
        running = command("restore", tmp_path / "b", "--data", data)
        assert running.returncode == 3
        assert command("backup", tmp_path / "b", "--data", data).returncode == 0
        assert "has this store open" in command("restore", tmp_path / "b", "--data", data).stderr
        assert gateway.stop() == 0
    segment = next((tmp_path / "b").glob("*.segment"))
    with segment.open("r+b") as file:
        file.seek(9000)
        file.write(b"\xff\x00\xff")
    refused = command("restore", tmp_path / "b", "--data", data, "--replace")
    assert refused.returncode == 3
    assert "damaged: its checksum" in refused.stderr
    with gateway:
        assert numbers(gateway, "Q") == [1]


def test_a_backup_is_not_worked_on(tmp_path: Path) -> None:
    gateway, backup = gateway_in(tmp_path / "gw"), tmp_path / "backup"
    with gateway:
        gateway.api("POST", "/queues/Q/messages", {"text": "1 stays"})
        assert command("backup", backup, "--data", gateway.directory / "data").returncode == 0
    before = {file.name: file.stat().st_mtime_ns for file in backup.iterdir()}
    for words in (["queue", "list"], ["queue", "get", "Q"], ["run", "--port", "0", "--admin-port", "0"]):
        refused = command(*words, "--data", backup)
        assert refused.returncode == 3
        assert f"{backup} is a backup: restore it to a directory of its own" in refused.stderr
    assert {file.name: file.stat().st_mtime_ns for file in backup.iterdir()} == before


def test_a_damaged_journal_makes_no_backup(tmp_path: Path) -> None:
    gateway = gateway_in(tmp_path / "gw")
    data = gateway.directory / "data"
    with gateway:
        fill(gateway)
        assert gateway.stop() == 0
    with in_use(data)[0].open("r+b") as file:
        file.seek(300_000)
        file.write(bytes(8192))
    refused = command("backup", tmp_path / "b", "--data", data)
    assert refused.returncode == 3
    assert "damaged at byte" in refused.stderr
    assert not (tmp_path / "b").exists()


def test_without_room_nothing_is_left_and_nothing_is_lost(tmp_path: Path) -> None:
    """Neither a part of a backup, nor a message that was taken and could be written only in part: without a buffer, as
    in the container, a write that is cut short is no error by itself."""
    data, body = tmp_path / "data", tmp_path / "body"
    body.write_text("x" * 900_000)
    (tmp_path / "objects").write_text("DEFINE QLOCAL(Q)\n")
    assert command("mqsc", tmp_path / "objects", "--data", data).returncode == 0
    for _ in range(3):
        assert command("queue", "put", "Q", "--file", body, "--data", data).returncode == 0
    with tmpfs(tmp_path / "disk", "2m") as disk:
        refused = command("backup", disk / "b", "--data", data)
        assert refused.returncode == 3
        assert "are needed there" in refused.stderr
        assert list(disk.iterdir()) == []
        with (disk / "taken").open("wb") as out:
            done = subprocess.run(
                [sys.executable, "-m", "gateway", "queue", "get", "Q", "--raw", "-n", "3", "--data", str(data)],
                stdout=out, stderr=subprocess.PIPE, text=True, check=False, cwd=TREE, timeout=120,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        assert (done.returncode, done.stderr) == (3, "Error: the output cannot be written: No space left on device\n")
    left = json.loads(command("queue", "list", "--json", "--data", data).stdout)
    assert [one["depth"] for one in left if one["name"] == "Q"] == [1]
