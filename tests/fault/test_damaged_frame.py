"""A frame that is damaged while a gateway runs: the commands name it, and give the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from gateways import TREE, RunningGateway
from patient_device import Device

SETTINGS = "queue_manager: {embedded: {objects: objects.mqsc}}\nmappings: [map.yaml]\n"
MAPPING = 'version: 1\nto_mq:\n  - {name: all, topic: "q/#", queue: Q, headers: []}\n'
BODIES = [number * 1000 for number in ("1", "2", "3")]


def damage(directory: Path, what: bytes) -> None:
    for path in directory.glob("*.segment"):
        at = path.read_bytes().find(what)
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                file.write(b"x")


def test_what_is_damaged_is_named_and_the_others_are_got(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAPPING)
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(Q)\n")
    with RunningGateway(tmp_path, settings=SETTINGS) as gateway:
        with Device("127.0.0.1", gateway.port, "d") as device:
            assert device.connect() == 0
            for body in BODIES:
                device.publish("q/x", body.encode(), qos=1)
        assert gateway.stop() == 0
        gateway.start()  # nothing is in memory
        damage(tmp_path / "data", BODIES[0].encode())

        def queue(*words: str) -> subprocess.CompletedProcess[str]:
            there = ("--data", str(tmp_path / "data"), "-c", str(tmp_path / "settings.yaml"))
            command = [sys.executable, "-m", "gateway", "queue", *words, *there]
            return subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=60, check=False)

        assert "mqgate_queue_oldest_message_age_seconds" in gateway.get("/metrics")
        browsed = queue("browse", "Q", "--short")
        assert browsed.returncode == 0, browsed.stderr
        lines = zip(browsed.stdout.splitlines(), ("damaged", "222", "333"), strict=True)
        assert all(text in line for line, text in lines), browsed.stdout
        got = queue("get", "Q", "-n", "3", "--raw")
        assert got.returncode == 0, got.stderr
        assert got.stdout == "".join(BODIES[1:])
        assert got.stderr.count("docs/runbooks/damaged-frame.md") == 1
        assert gateway.api("GET", "/queues/Q")["depth"] == 1
        assert '"defect"' not in gateway.log
