"""Nobody reads the gateway's standard error, or it is closed: devices do not notice."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import IO, Any

from free_ports import free_port
from gateways import TREE, RunningGateway
from patient_device import Device
from waiting import until


class Shipper:
    """A program that gets the log through a pipe of the smallest size and writes it to a file, and that can hang."""

    def __init__(self, log: IO[bytes]) -> None:
        self.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
        assert self.process.stdin is not None
        self.pipe = self.process.stdin
        fcntl.fcntl(self.pipe, fcntl.F_SETPIPE_SZ, 4096)

    def hang(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


def test_a_log_reader_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    gateway, shippers = RunningGateway(tmp_path), []

    def launch(command: list[str], **named: Any) -> subprocess.Popen[bytes]:
        shippers.append(shipper := Shipper(named["stdout"]))
        return subprocess.Popen(command, **{**named, "stdout": shipper.pipe, "stderr": shipper.pipe})

    def ended() -> int:
        lines = [json.loads(line) for line in gateway.log.splitlines()]
        return sum(line["event"] == "disconnected" for line in lines)

    gateway.launch = launch
    with gateway:
        (shipper,) = shippers
        shipper.hang()
        for number in range(100):
            with Device("127.0.0.1", gateway.port, f"d{number}") as device:
                assert device.connect() == 0
                device.publish("a/b", b"x", qos=1)
        until(lambda: any("standard error" in text for text in gateway.api("GET", "/overview")["problems"]))
        assert ended() < 100
        shipper.go_on()
        until(lambda: ended() == 100)
        until(lambda: not any("standard error" in text for text in gateway.api("GET", "/overview")["problems"]))
        shipper.hang()
        assert gateway.stop() == 0
        shipper.go_on()
        shipper.pipe.close()
        shipper.process.wait(60)


def test_a_gateway_whose_standard_error_is_closed(tmp_path: Path) -> None:
    port = free_port()
    program = f'exec "$@" --admin-port 0 --port {port} --data {tmp_path / "data"} >&- 2>&-'
    command = ["sh", "-c", program, "sh", sys.executable, "-m", "gateway", "run"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=TREE)
    try:
        until(lambda: (tmp_path / "data" / "gateway.json").exists() or process.poll() is not None)
        with Device("127.0.0.1", port, "d") as device:
            assert device.connect() == 0
            device.publish("a/b", b"x", qos=1)
        for number in (1, 2):  # no file of the journal
            assert Path(f"/proc/{process.pid}/fd/{number}").readlink() == Path("/dev/null")
    finally:
        process.terminate()
        assert process.wait(60) == 0


def is_live(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=20) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_lines_of_a_queue_manager_process_do_not_wait_for_the_next_one(tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()
    with log.open("wb") as file:
        shipper = Shipper(file)
    shipper.hang()
    shipper.pipe.write(b"-" * 4095 + b"\n")  # as much as the pipe takes
    shipper.pipe.flush()
    command = [sys.executable, "-m", "gateway", "mqi", "serve", "qm", "--admin-port", str(port)]
    environ = {**os.environ, "PYTHONPATH": TREE}
    process = subprocess.Popen(command, stdout=shipper.pipe, stderr=shipper.pipe, env=environ, cwd=tmp_path)
    try:
        until(lambda: is_live(port))  # the reactor runs: the last line is written, or waits
        shipper.go_on()
        until(lambda: '"started"' in log.read_text())
    finally:
        shipper.go_on()
        process.terminate()
        assert process.wait(60) == 0
        shipper.pipe.close()
        shipper.process.wait(60)
