"""What comes and goes with connections and messages is freed when it is over, without the collector of cycles, which
the gateway asks rarely: what waited for it would be memory that grows for hours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from certificates import Authority
from free_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import collections, gc, json, os, socket, ssl, sys, threading, time

PORT, WAY = int(os.environ["DIALLED"]), os.environ["WAY"]
CONNECT = bytes.fromhex("101000044d5154540402000000046379636c")  # MQTT 3.1.1, clean session, client id "cycl"


class Framed:
    # MQTT in the frames of a WebSocket

    def __init__(self, sock):
        self.sock, self.data, self.close = sock, b"", sock.close
        sock.sendall(
            b"GET /mqtt HTTP/1.1\\r\\nHost: localhost\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n"
            b"Sec-WebSocket-Protocol: mqtt\\r\\n\\r\\n"
        )
        while not self.data.endswith(b"\\r\\n\\r\\n"):
            self.data += sock.recv(1)
        self.data = b""

    def sendall(self, data):
        self.sock.sendall(b"\\x82" + bytes([0x80 | len(data)]) + bytes(4) + data)

    def recv(self, count):
        if not self.data:
            length = exactly(self.sock, 2)[1]
            self.data = exactly(self.sock, length)
        found, self.data = self.data[:count], self.data[count:]
        return found


def dial():
    for _ in range(1200):
        try:
            sock = socket.create_connection(("127.0.0.1", PORT), 60)
            break
        except OSError:
            time.sleep(0.05)
    else:
        raise SystemExit("not up")
    if WAY in ("tls", "secureweb"):
        sock = ssl._create_unverified_context().wrap_socket(sock)
    return Framed(sock) if WAY in ("web", "secureweb") else sock


def exactly(sock, count):
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise SystemExit("closed early")
        data += piece
    return data


def until(sock, kind):
    while True:
        head = exactly(sock, 2)
        exactly(sock, head[1])
        if head[0] >> 4 == kind:
            return


def publish(sock, qos, packet_id):
    topic = b"q/a"
    body = len(topic).to_bytes(2, "big") + topic + packet_id.to_bytes(2, "big") + b"payload"
    sock.sendall(bytes([0x30 | qos << 1, len(body)]) + body)
    if qos == 1:
        return until(sock, 4)
    until(sock, 5)
    sock.sendall(b"\\x62\\x02" + packet_id.to_bytes(2, "big"))
    until(sock, 7)


def round_of_devices():
    for number in range(30):
        sock = dial()
        sock.sendall(CONNECT)
        until(sock, 2)
        publish(sock, 1, 1)
        publish(sock, 2, 2)
        if number % 3:
            sock.sendall(b"\\xe0\\x00")  # the others go without a word
        sock.close()
    sock = dial()  # everything before it has been handled when this one is answered
    sock.sendall(CONNECT)
    until(sock, 2)
    publish(sock, 1, 1)
    sock.close()


def work():
    try:
        round_of_devices()
        gc.disable()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        round_of_devices()
        time.sleep(1.5)  # a tick, which closes what is over
        gc.collect()
        ours = [type(one) for one in gc.garbage if type(one).__module__.startswith("gateway.")]
        found = collections.Counter(one.__qualname__ for one in ours)
        print(json.dumps({"garbage": found}), flush=True)
    finally:
        os._exit(0)


threading.Thread(target=work, daemon=True).start()
from gateway.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("way", ["plain", "tls", "web", "secureweb"])
def test_a_connection_leaves_no_cycle_behind(tmp_path: Path, way: str) -> None:
    certificate, key = Authority(tmp_path).issue("localhost")
    port = free_port()
    more = {
        "plain": "", "tls": f", tls: {{certificate: {certificate}, key: {key}}}", "web": ", websocket: {}",
        "secureweb": f", websocket: {{}}, tls: {{certificate: {certificate}, key: {key}}}",
    }  # fmt: skip
    (tmp_path / "map.yaml").write_text('version: 1\nto_mq: [{name: all, topic: "q/#", queue: Q}]\n')
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(Q)\n")
    (tmp_path / "mqgate.yaml").write_text(
        "mappings: [map.yaml]\nqueue_manager: {embedded: {objects: objects.mqsc}}\n"
        f"listeners:\n  - {{name: first, port: 0}}\n  - {{name: dialled, port: {port}{more[way]}}}\n"
    )
    arguments = [
        "run",
        "-c",
        "mqgate.yaml",
        "--port",
        str(free_port()),
        "--admin-port",
        str(free_port()),
        "--data",
        "d",
    ]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "WAY": way, "DIALLED": str(port)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    last = [line for line in done.stdout.splitlines() if line.startswith('{"garbage"')]
    assert last, done.stdout + done.stderr
    assert json.loads(last[0])["garbage"] == {}
