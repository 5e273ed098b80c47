"""A running gateway with a defect in one function: it lives and starts, the others are served, what met the defect is
set aside, seen everywhere an operator looks, and replayed when the defect is gone."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gateway_template
import pytest
from failpoints import points
from gateways import TREE, RunningGateway
from patient_device import Device

from gateway.errors import ProtocolError
from gateway.mqtt import client
from gateway.mqtt.packets import Will

LONG = bool(os.environ.get("MQGATE_LONG"))
MAPPING = """
version: 1
to_mq:
  - {name: canary, topic: "canary/#", queue: CANARY.Q}
  - {name: json, topic: "json/{device}", queue: JSON.Q, payload: {format: json},
     properties: {device: "{device}", t: "{json.t}"}}
to_mqtt:
  - {name: out, queue: OUT.Q, topic: "out/{usr.to}", qos: 1}
"""
OBJECTS = "DEFINE QLOCAL(CANARY.Q)\nDEFINE QLOCAL(JSON.Q)\nDEFINE QLOCAL(OUT.Q)\n"
PLACES = (
    ["bridge.payload.Body.document", "session.record.decode_json"] if not LONG else [point.name for point in points()]
)


class Defective(RunningGateway):
    """With a defect that can be switched on and off."""

    def __init__(self, directory: Path, place: str) -> None:
        self.flag = directory / "defect.on"
        (directory / "m.yaml").write_text(MAPPING)
        (directory / "objects.mqsc").write_text(OBJECTS)
        settings = "mappings: [m.yaml]\nqueue_manager: {embedded: {objects: objects.mqsc}}\n"
        environ = {"MQGATE_DEFECT": place, "MQGATE_DEFECT_WHILE": str(self.flag)}
        super().__init__(directory, settings=settings, environ=environ)
        self.program = [str(Path(__file__).with_name("defective_gateway.py"))]

    @contextmanager
    def defect(self) -> Iterator[None]:
        self.flag.touch()
        try:
            yield
        finally:
            self.flag.unlink()

    def device(self, client_id: str, **options: Any) -> Device:
        device = Device("127.0.0.1", self.port, client_id, version=options.pop("version", 4), timeout=60.0)
        connect = client.connect(device.version, client_id, clean_start=False, **options)
        device._socket.sendall(client.encode_connect(connect))
        device._next(2)
        return device

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        words = ["dlq", *arguments, "--data", str(self.directory / "data")]
        return gateway_template.run(*words, cwd=self.directory, env={**os.environ, "PYTHONPATH": TREE})

    def dlq(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert not done.stderr, done.stderr
        return done.stdout


def try_to(act: Any) -> None:
    """What may end its connection."""
    with suppress(OSError, TimeoutError, ProtocolError, ConnectionError):
        act()


@pytest.mark.parametrize("place", PLACES)
def test_it_lives_starts_and_serves(tmp_path: Path, place: str) -> None:
    running = Defective(tmp_path, place).start()
    try:
        canary = running.device("canary")
        canary.publish("canary/1", b"1")
        will = Will("json/d", b'{"t": 1}', 1, retain=False)

        def act() -> None:
            for _ in range(3):
                victim = running.device("victim", will=will)
                victim.subscribe("out/#", 1)
                victim.publish("json/d", b'{"t": 2}', 1)
                victim.publish("json/d", b'{"t": 3}', 2)
                victim._socket.close()

        try_to(act)
        with running.defect():
            for _ in range(3):
                try_to(act)
            running.kill()
            running.start()  # with the defect met by whatever is stored
        canary = running.device("canary")
        canary.publish("canary/2", b"2")
        act()
        canary.publish("canary/3", b"3")
        assert running.process is not None
        assert running.process.poll() is None
        assert '"fatal"' not in running.log
        assert {"1", "2", "3"} <= set(running.bodies("CANARY.Q"))
    finally:
        running.kill()


def test_it_is_seen_everywhere_and_replayed(tmp_path: Path) -> None:
    running = Defective(tmp_path, "bridge.payload.Body.document").start()
    try:
        assert "[+] defects\n" in running.get("/readyz")
        with running.defect():
            victim = running.device("victim", version=5, will=Will("json/w", b'{"t": "will"}', 1, retain=False))
            with pytest.raises((OSError, ProtocolError)):
                victim.publish("json/d", b'{"t": "mine"}', 1)
            victim = running.device("victim", version=5)
            with suppress(ProtocolError):  # it is told 0x83
                victim.publish("json/d", b'{"t": "mine"}', 1)
            listed = json.loads(running.dlq("list", "--set-aside", "--json"))
            whats = sorted(one["reason_name"].partition(":")[0] for one in listed["items"])
            assert whats == ["connection", "publication", "will"]
            assert "Boom" in running.dlq("list", "--set-aside")
        ready = running.get("/readyz")
        assert "[+] defects: 3 messages are set aside on MQGATE.SET.ASIDE" in ready
        assert ready.endswith("ok\n")
        problems = running.api("GET", "/overview")["problems"]
        assert any(one.startswith("set aside: 3 messages") for one in problems)
        metrics = running.get("/metrics")
        assert 'mqgate_set_aside_total{result="ok",what="will"} 1.0' in metrics
        assert "mqgate_set_aside_messages 3.0" in metrics
        defects = [json.loads(line) for line in running.log.splitlines() if line.startswith("{")]
        defects = [one for one in defects if one.get("event") == "defect"]
        assert sorted(one["what"] for one in defects) == ["connection", "publication", "will"]
        assert all(one["whom"] == "victim" and "Boom" in str(one) for one in defects)
        (token,) = [one["token"] for one in listed["items"] if one["reason_name"].startswith("will")]
        assert "Traceback" in running.dlq("show", "--set-aside", token)
        assert running.bodies("JSON.Q") == []
        result = running.run("replay", "--set-aside", "--json")
        answer = json.loads(result.stdout)
        assert (answer["matched"], answer["done"]) == (3, 2)
        assert "only reports a defect" in answer["failed"][0]["text"]
        canary = running.device("canary")
        canary.publish("canary/1", b"1")
        assert sorted(running.bodies("JSON.Q")) == ['{"t": "mine"}', '{"t": "will"}']
        assert "1 removed" in running.dlq("purge", "--set-aside", "--all", "--yes")
        assert "nothing is set aside" in running.dlq("list", "--set-aside")
    finally:
        running.kill()


@pytest.mark.parametrize("payload", [b'{"kind": "start", "at": 1, "text": "\\ud800"}', b'{"at": NaN}', b"[" * 50_000])
def test_hostile_json_in_a_will_ends_nothing(tmp_path: Path, payload: bytes) -> None:
    """With the mapping as shipped."""
    running = RunningGateway(tmp_path, settings=f"mappings: [{TREE}/mappings/plant-telemetry.yaml]\n").start()
    try:
        will = Will("plant/lima/line/7/events", payload, 1, retain=False)
        device = Device("127.0.0.1", running.port, "d", version=5)
        device._socket.sendall(client.encode_connect(client.connect(5, "d", clean_start=True, will=will)))
        device._next(2)
        device._socket.close()
        other = Device("127.0.0.1", running.port, "other")
        other.connect()
        other.publish("plant/lima/line/7/temperature", b"21.5", 0)
        with suppress(ProtocolError):
            other.publish("plant/lima/line/7/events", payload, 1)
        running.kill()
        running.start()
        assert urllib.request.urlopen(f"http://127.0.0.1:{running.admin}/readyz", timeout=60).status == 200
        assert '"defect"' not in running.log
    finally:
        running.kill()
