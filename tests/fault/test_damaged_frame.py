"""A frame that is damaged while a gateway runs: the commands name it, and give the others; rules and sessions too."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import gateway_template
from bridge_estate import Talker
from gateways import TREE, RunningGateway
from patient_device import Device

SETTINGS = "queue_manager: {embedded: {objects: objects.mqsc}}\nmappings: [map.yaml]\n"
MAPPING = 'version: 1\nto_mq:\n  - {name: all, topic: "q/#", queue: Q, headers: []}\n'
RULE = 'to_mqtt:\n  - {name: back, queue: Q, topic: "from/q", qos: 1}\n'
PROGRAM = str(Path(__file__).with_name("uncached_gateway.py"))
CORRUPT = "mqgate_spool_corrupt_records_total"
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
            return gateway_template.run("queue", *words, *there, cwd=Path(TREE))

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


def uncached(directory: Path) -> RunningGateway:
    (directory / "map.yaml").write_text(MAPPING)
    (directory / "objects.mqsc").write_text("DEFINE QLOCAL(Q)\n")
    gateway = RunningGateway(directory, settings=SETTINGS)
    gateway.program = [PROGRAM]
    return gateway


def told(gateway: RunningGateway) -> list[str]:
    """The lines about what is damaged, once there is one and no other comes for two seconds."""
    until = time.monotonic() + 30
    while '"message.damaged"' not in gateway.log and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(2)
    return [line for line in gateway.log.splitlines() if '"message.damaged"' in line]


def test_a_rule_gives_the_others_to_devices(tmp_path: Path) -> None:
    with uncached(tmp_path) as gateway, Device("127.0.0.1", gateway.port, "d") as device:
        device.connect()
        for body in BODIES:
            device.publish("q/x", body.encode(), qos=1)
        damage(tmp_path / "data", BODIES[1].encode())
        device.subscribe("from/q", 1)
        (tmp_path / "map.yaml").write_text(MAPPING + RULE)
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGHUP)
        assert [device.receive(30)[1].decode() for _ in range(2)] == [BODIES[0], BODIES[2]]
        device.publish("q/x", b"later", qos=1)
        assert device.receive(30)[1] == b"later"
        (line,) = told(gateway)
        assert '"queue":"Q"' in line.replace(" ", "")
        assert "docs/runbooks/damaged-frame.md" in line
        assert gateway.metric(CORRUPT) == 1
        assert gateway.api("GET", "/queues/Q")["depth"] == 1
        assert '"defect"' not in gateway.log


def test_a_session_gets_the_others(tmp_path: Path) -> None:
    with uncached(tmp_path) as gateway, Device("127.0.0.1", gateway.port, "d") as device:
        device.connect()
        with Talker(gateway.port, "stored", clean=False) as stored:
            stored.subscribe("s/#", 2)
        for qos, body in enumerate(BODIES, 0):
            device.publish("s/x", body.encode(), qos=max(qos, 1))
        damage(tmp_path / "data", BODIES[1].encode())
        with Talker(gateway.port, "stored", clean=False) as stored:
            assert [stored.receive()[1].decode() for _ in range(2)] == [BODIES[0], BODIES[2]]
            device.publish("s/x", b"later", qos=1)
            assert stored.receive()[1] == b"later"
        (line,) = told(gateway)
        assert "MQGATE.OUT" in line
        assert gateway.metric(CORRUPT) == 1
        with Talker(gateway.port, "stored") as stored:  # the session ends, and another one begins
            stored.subscribe("s/#", 2)
            device.publish("s/x", b"after", qos=1)
            assert stored.receive()[1] == b"after"
        assert '"defect"' not in gateway.log
