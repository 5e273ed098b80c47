"""What several gateway processes on one machine cost: `python tests/bench/several_processes.py [--seconds 5]`.

Acknowledged QoS 1 publications of 64 bytes, ten clients with a window of 100 and a hundred with 1, into one gateway
with the queue manager inside, and into one, two and three gateways that share a queue manager process. Ratios matter:
processor time of all processes for a message, and messages a second.
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import mqi_clients  # noqa: E402
from gateways import RunningGateway  # noqa: E402

from gateway.mqtt import client, writer  # noqa: E402

OBJECTS = "DEFINE QLOCAL(APP.Q) MAXDEPTH(999999999)\n"
MAPPING = 'version: 1\nto_mq:\n  - {name: up, topic: "bench/#", queue: APP.Q}\n'
SHARED = "queue_manager: {{ibm: {{name: QM1, connection: 'unix:{socket}', driver: ibmmq, connections: 2}}}}\n"
ALONE = "queue_manager: {embedded: {objects: objects.mqsc}}\n"
LOADS = {"10 x 100": (10, 100), "100 x 1": (100, 1)}


def spent(pids: list[int]) -> float:
    """Seconds of processor time of these processes."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def publish(ports: list[int], seconds: float, devices: int, window: int) -> int:
    """How many publications were acknowledged, of devices spread over the ports: a whole window at a time each."""
    chooser, waiting = selectors.DefaultSelector(), {}
    packets = b"".join(writer.encode_publish(4, b"bench/a", bytes(64), 1, packet_id=1 + n) for n in range(window))
    for number in range(devices):
        sock = socket.create_connection(("127.0.0.1", ports[number % len(ports)]))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(client.encode_connect(client.connect(4, f"load-{number}")))
        assert sock.recv(4) == b"\x20\x02\0\0"
        sock.sendall(packets)
        waiting[sock] = 4 * window
        chooser.register(sock, selectors.EVENT_READ)
    acknowledged, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for key, _ in chooser.select(1):
            sock = key.fileobj  # type: ignore[assignment]
            waiting[sock] -= len(sock.recv(1 << 16))
            if not waiting[sock]:
                acknowledged += window
                waiting[sock] = 4 * window
                sock.sendall(packets)
    for sock in waiting:
        sock.close()
    return acknowledged


@contextmanager
def estate(folder: Path, gateways: int) -> Iterator[tuple[list[int], list[int]]]:
    """(ports, processes) of so many gateways that share a queue manager; 0: one that has it inside."""
    folder.mkdir()
    environ = {"PYTHONPATH": str(mqi_clients.packages(*mqi_clients.BINDINGS))}
    pids: list[int] = []
    server: subprocess.Popen[bytes] | None = None
    if gateways:
        (folder / "objects.mqsc").write_text(OBJECTS)
        command = [sys.executable, "-m", "gateway", "mqi", "serve", "qm", "--name", "QM1", "--objects", "objects.mqsc"]
        with (folder / "serve.log").open("wb") as log:
            server = subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=log)
        while "started" not in (folder / "serve.log").read_text():
            time.sleep(0.05)
        pids.append(server.pid)
    running = []
    for number in range(gateways or 1):
        edge = folder / f"g{number}"
        edge.mkdir()
        (edge / "objects.mqsc").write_text(OBJECTS)
        (edge / "map.yaml").write_text(MAPPING)
        settings = (SHARED.format(socket=folder / "qm" / "mqi.sock") if gateways else ALONE) + "mappings: [map.yaml]\n"
        running.append(RunningGateway(edge, settings=settings, environ=environ if gateways else {}).start())
        pids.append(running[-1].process.pid)  # type: ignore[union-attr]
    try:
        yield [one.port for one in running], pids
    finally:
        for one in running:
            one.kill()
        if server is not None:
            server.send_signal(signal.SIGKILL)
            server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--gateways", default="0,1,2,3", help="0: one process with the queue manager inside")
    given = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as place:
        for gateways in map(int, given.gateways.split(",")):
            with estate(Path(place) / f"e{gateways}", gateways) as (ports, pids):
                for name, (devices, window) in LOADS.items():
                    publish(ports, 1, devices, window)
                    before, begin = spent(pids), time.monotonic()
                    count = publish(ports, given.seconds, devices, window)
                    took, used = time.monotonic() - begin, spent(pids) - before
                    what = f"{gateways} gateways and a queue manager" if gateways else "one process"
                    print(f"{what:32} {name:9} {count / took:9,.0f} a second, {used / count * 1e6:6.1f} us a message")


if __name__ == "__main__":
    main()
