"""A disk that hangs in a write: whoever runs the gateway is told while it does, whatever the disk is for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import mqi_clients
import pytest
from bridge_estate import Application
from free_ports import free_port
from gateways import RunningGateway
from patient_device import Device
from waiting import until

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
PROGRAM = str(Path(__file__).parent / "hanging_gateway.py")
ROOT = Path(__file__).parents[2]
BUFFERED = """
queue_manager:
  ibm: {name: MQGATE, connection: "localhost(1414)", channel: DEV.APP.SVRCONN, driver: ibmmq, reconnect_to: 1s}
  buffer: {path: bufferdata}
"""
SILENT = "the disk has not answered a write"


def ready(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=20) as answer:
            return str(answer.read().decode())
    except HTTPError as error:
        return error.read().decode()


@pytest.mark.parametrize(("settings", "check"), [("", "queue manager"), (BUFFERED, "spool")], ids=["store", "buffer"])
def test_a_gateway_says_that_its_disk_hangs(tmp_path: Path, settings: str, check: str) -> None:
    environ = mqi_clients.program_environment(str(tmp_path / "nobody"), "ibmmq") if settings else {}
    gateway = RunningGateway(tmp_path, settings=settings, environ={**environ, "MQGATE_HANGS": str(tmp_path)})
    gateway.program, gateway.launch = [PROGRAM], subprocess.Popen
    hang = tmp_path / "hang"

    def connections() -> float:
        return gateway.metric("mqgate_mq_connections{")

    def detail() -> str:
        return str(gateway.api("GET", "/overview")["queue_managers"][0]["detail"])

    with gateway, Device("127.0.0.1", gateway.port, "d") as device:
        assert device.connect() == 0
        device.publish("a/b", b"1", qos=1)
        before = connections()
        hang.touch()
        acknowledged = threading.Thread(target=device.publish, args=("a/b", b"2"), kwargs={"qos": 1})
        acknowledged.start()
        until(lambda: re.search(rf"\[-\] {check}: .*{SILENT} for \d+ s", ready(gateway.admin)))
        until(lambda: re.search(rf'"mq.away".*{SILENT}', gateway.log))
        assert connections() == 0
        assert SILENT in detail()
        assert "ok" in gateway.get("/livez")
        assert acknowledged.is_alive()
        hang.unlink()
        acknowledged.join(60)
        until(lambda: '"mq.back"' in gateway.log)
        assert SILENT not in ready(gateway.admin) + detail()
        assert connections() == before


def test_the_log_says_that_everybody_waits_for_the_first_write_that_hangs(tmp_path: Path) -> None:
    """Nothing else of the gateway can: whoever looks at a process that was killed for it knows why."""
    environ = {"MQGATE_HANGS": str(tmp_path), "MQGATE_HANGS_AFTER_FAST_WRITES": "1"}
    gateway = RunningGateway(tmp_path, environ=environ)
    gateway.program, gateway.launch = [PROGRAM], subprocess.Popen
    hang = tmp_path / "hang"
    with gateway, Device("127.0.0.1", gateway.port, "d") as device:
        assert device.connect() == 0
        device.publish("a/b", b"1", qos=1)
        hang.touch()
        acknowledged = threading.Thread(target=device.publish, args=("a/b", b"2"), kwargs={"qos": 1})
        acknowledged.start()
        said = r'"reactor.stall".*has been waiting for \d+ s, and still is.*queue_manager.journal.files.write'
        until(lambda: re.search(said, gateway.log))
        assert acknowledged.is_alive()
        hang.unlink()
        acknowledged.join(60)
        until(lambda: "everybody waited" in gateway.log)
        assert len(re.findall("and still is", gateway.log)) == 1


def test_a_queue_manager_process_says_that_its_disk_hangs(tmp_path: Path) -> None:
    port, log, hang = free_port(), tmp_path / "serve.log", tmp_path / "hang"
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(APP.Q)\n")
    command = [sys.executable, PROGRAM, "mqi", "serve", "qm", "--objects", "objects.mqsc", "--admin-port", str(port)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "MQGATE_HANGS": str(tmp_path)}
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=file, stderr=file, env=environ)
    try:
        until(lambda: '"started"' in log.read_text() or process.poll() is not None)
        program = Application(str(tmp_path / "qm" / "mqi.sock"))
        hang.touch()
        put = threading.Thread(target=program.put, args=("APP.Q", b"kept"))
        put.start()
        until(lambda: re.search(rf"\[-\] queue manager: .*{SILENT} for \d+ s", ready(port)))
        until(lambda: re.search(rf'"mq.away".*{SILENT}', log.read_text()))
        assert put.is_alive()
        hang.unlink()
        put.join(60)
        until(lambda: '"mq.back"' in log.read_text())
        assert "[+] queue manager" in ready(port)
        program.close()
    finally:
        hang.unlink(missing_ok=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
