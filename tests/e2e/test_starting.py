"""A start that cannot succeed says so before anything was taken from anybody."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest
import waiting
from free_ports import free_port
from gateways import RunningGateway

from gateway.mqtt import client, writer
from gateway.mqtt.packets import Subscribe, Subscription
from gateway.queue_manager.journal.lock import DirectoryLock


class Knocker:
    """A device that tries a port all the time; whether anybody ever opened to it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.opened = 0
        self._over = False
        self._thread = threading.Thread(target=self._knock)

    def _knock(self) -> None:
        connect = client.encode_connect(client.connect(4, "knocker"))
        publish = writer.encode_publish(4, b"a", b"lost?", 0)
        while not self._over:
            with socket.socket() as sock:
                sock.settimeout(1)
                if sock.connect_ex(("127.0.0.1", self.port)) == 0:
                    sock.sendall(connect + publish)
                    self.opened += 1
            time.sleep(0.001)  # the gateway it waits for needs a processor too

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()


@pytest.mark.parametrize("which", ["admin", "second"])
def test_a_port_in_use_is_found_before_any_is_opened(tmp_path: Path, which: str) -> None:
    first = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        used = taken.getsockname()[1]
        second = used if which == "second" else 0
        gateway = RunningGateway(
            tmp_path, settings=f"listeners: [{{name: first, port: 0}}, {{name: second, port: {second}}}]\n"
        )
        with Knocker(first) as knocker, pytest.raises(AssertionError, match="did not start") as said:
            gateway.start(port=first, admin_port=used if which == "admin" else 0)
    assert knocker.opened == 0, "nobody's message was taken"
    name = "admin" if which == "admin" else "listener second"
    assert f"{name} on 127.0.0.1:{used}: Address already in use; stop what listens there" in str(said.value)
    assert gateway.process is not None
    assert gateway.process.wait(60) == 3


def test_a_unix_socket_that_somebody_listens_at_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mqtt.sock"
    gateway = RunningGateway(
        tmp_path, settings=f"listeners: [{{name: local, port: 0}}, {{name: unix, unix: {path}}}]\n"
    )
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(AssertionError, match=f"listener unix on {path}: Address already in use"):
            gateway.start()
    assert path.exists()
    with gateway, socket.socket(socket.AF_UNIX) as device:  # its owner has gone: the socket is taken over
        device.connect(str(path))
        device.sendall(client.encode_connect(client.connect(4, "d")))
        assert device.recv(4) == b"\x20\x02\x00\x00"


def test_a_limit_of_file_sizes_is_said_with_what_helps(tmp_path: Path) -> None:
    gateway = RunningGateway(tmp_path)
    gateway.segment_bytes = ""
    limited = ["sh", "-c", 'ulimit -f 16384; exec "$@"', "sh"]  # less than a segment
    gateway.launch = lambda command, **named: subprocess.Popen([*limited, *command], **named)
    with pytest.raises(AssertionError, match=r"File too large: .*`ulimit -f`.*`segment_bytes`"):
        gateway.start()
    assert "free disk space" not in gateway.log


def test_who_subscribes_to_sys_at_the_very_start_gets_it_retained_mqtt3_3_3_1_8(tmp_path: Path) -> None:
    with RunningGateway(tmp_path) as gateway, socket.create_connection(("127.0.0.1", gateway.port), 60) as sock:
        wanted = client.encode_subscribe(4, Subscribe(1, [Subscription("$SYS/broker/version", 0)]))
        sock.sendall(client.encode_connect(client.connect(4, "first")) + wanted)
        received = b""
        while b"mqgate version" not in received:
            received += sock.recv(4096)
    assert received.startswith(b"\x20\x02\0\0\x90\x03\0\1\0\x31"), "PUBLISH with RETAIN"


def collections(gateway: RunningGateway) -> int:
    """How often the garbage collector has looked at young objects since the process began."""
    found = re.search(r'^python_gc_collections_total\{generation="0"\} (\S+)', gateway.get("/metrics"), re.MULTILINE)
    assert found
    return int(float(found[1]))


def test_what_comes_back_is_not_searched_for_garbage_again_and_again(tmp_path: Path) -> None:
    topics = 20_000
    gateway = RunningGateway(tmp_path)
    gateway.launch = subprocess.Popen  # a copy of a process that has started others has their collections too
    with gateway, gateway.connect() as sock:
        empty = collections(gateway)
        retained = [writer.encode_publish(4, b"topic/%d" % n, b"x", 1, retain=True, packet_id=1) for n in range(topics)]
        sock.sendall(client.encode_connect(client.connect(4, "d")) + b"".join(retained))
        answers = 4 + 4 * topics
        while answers:
            answers -= len(sock.recv(1 << 16))
    with gateway:
        assert f'"recovered_retained":{topics}' in gateway.log
        assert collections(gateway) - empty < topics / 300, "objects that stay, hundreds at a time"


def test_a_reload_that_is_asked_for_during_the_start_comes_after_it(tmp_path: Path) -> None:
    held = DirectoryLock(tmp_path / "data")
    gateway = RunningGateway(tmp_path)

    def let_it_in() -> None:
        until = time.monotonic() + 60
        while not (gateway.process and "waiting for it, at most" in gateway.log) and time.monotonic() < until:
            time.sleep(0.01)
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGHUP)
        held.release()

    letting = threading.Thread(target=let_it_in)
    letting.start()
    with gateway:
        letting.join()
        until = time.monotonic() + 60
        while '"reloaded"' not in gateway.log:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_the_first_process_of_a_container_can_be_ended_while_it_starts(tmp_path: Path) -> None:
    """The kernel keeps from process 1 what it has no handler for: a pod that waited for its volume, or read a large
    journal, was there until it was killed."""
    if subprocess.run(["unshare", "--pid", "--fork", "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make process namespaces")
    held = DirectoryLock(tmp_path / "data")
    log = tmp_path / "log"
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "gateway", "run"]
    command += ["--port", "0", "--admin-port", "0", "--data", str(tmp_path / "data")]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, cwd=tmp_path) as process:
        try:
            waiting.until(lambda: "waiting for it, at most" in log.read_text())
            (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            assert process.wait(20) == 128 + signal.SIGTERM
        finally:
            process.kill()
            held.release()


IN_A_CIRCLE = """
import os
class Left:
    def __del__(self, write=os.write):
        write(2, b"looked at")
from gateway.app.gateway import Gateway
from gateway.cli import main
stop = Gateway.stop
def stopping(gateway):  # what exists at the start is never looked at
    left = Left()
    left.itself = left
    stop(gateway)
Gateway.stop = stopping
main()
"""


def test_a_gateway_that_ends_looks_through_nothing_that_it_has(tmp_path: Path) -> None:
    """Of a hundred thousand sessions that takes the interpreter many seconds."""
    gateway = RunningGateway(tmp_path)
    gateway.launch, gateway.program = subprocess.Popen, ["-c", IN_A_CIRCLE]
    with gateway:
        assert gateway.stop() == 0
    assert "looked at" not in gateway.log
