"""QoS 1 from MQTT to the MQI: the gateway on `ibm` beside mosquitto with mq-bridge, over the same library, in one run.

`python tests/bench/bridge_to_mq.py [--seconds 5]`. Both put into a queue manager in their own process's memory
(`c/memory_queue_manager.c`), which costs both the same and next to nothing. For
the gateway a message counts when its PUBACK is there, which is after MQCMIT; for mosquitto with mq-bridge when it is
on the queue, because mosquitto acknowledges before anything has been put. Both figures are given for the latter.
Rounds alternate and medians are compared; beside them stands the processor time a message costs, all processes of a
side together, which says more on a machine that others use too.

The load comes from the generator in C where `run.py` finds one, otherwise from the one below: in Python the devices of
ten messages in flight need as much processor time as half of the gateway, so that every ratio comes nearer to 1. The
one in C also says what bounds both sides: a server that parses and answers at once, and does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import memory_library
import mqi_clients
from free_ports import free_port
from servers import load_generator

from gateway.mqtt import client

BRIDGE_PROGRAM = """
import ctypes, json, os, sys, time
from mq_bridge import Route
port, seconds = sys.argv[1], float(sys.argv[2])
mqi = ctypes.CDLL(os.environ["MQB_IBM_MQ_LIB"])
Route.from_config({
    "input": {"mqtt": {"url": f"tcp://127.0.0.1:{port}", "topic": "bench/#", "qos": 1, "queue_capacity": 10000,
                       "max_inflight": 1000, "clean_session": True, "client_id": "bridge"}},
    "output": {"ibmmq": {"url": "h(1)", "queue_manager": "QM1", "channel": "C", "queue": "TELEMETRY",
                         "username": "app", "password": "pw"}},
    "batch_size": 128, "concurrency": 1,
}).start()
h, o, cc, rc, depth = (ctypes.c_int() for _ in range(5))
by = ctypes.byref
mqi.MQCONNX(b"QM1", ctypes.create_string_buffer(b"CNO \\x01\\0\\0\\0\\x40\\0\\0\\0", 12), by(h), by(cc), by(rc))
od = b"OD  \\x01\\0\\0\\0\\x01\\0\\0\\0TELEMETRY" + bytes(39 + 48) + b"AMQ.*" + bytes(60)
od = ctypes.create_string_buffer(od, 424)
mqi.MQOPEN(h, od, 32, by(o), by(cc), by(rc))
def count():
    mqi.MQINQ(h, o, 1, by(ctypes.c_int(3)), 1, by(depth), 0, None, by(cc), by(rc))
    return depth.value
print("ready", flush=True)
sys.stdin.readline()
begin, first = time.time(), count()
time.sleep(seconds)
print(json.dumps((count() - first) / (time.time() - begin)), flush=True)
os._exit(0)
"""


def wait_for(port: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"nobody listens on {port}")


def publish(port: int, seconds: float, devices: int, window: int, generator: Path | None = None) -> float:
    """Acknowledgements a second of `devices` publishers with `window` messages in flight each."""
    if generator is None:
        return published(port, seconds, devices, window)
    words = f"pub --port {port} --pubs {devices} --window {window} --qos 1 --size 256 --topic bench/a --warmup 0"
    command = [str(generator), *words.split(), "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout.splitlines()[-1])["pub_rate"])


def published(port: int, seconds: float, devices: int, window: int) -> float:
    """The same from this process."""
    body = b"\0\7bench/a"
    packets = [_publish(body + number.to_bytes(2, "big") + b"x" * 256) for number in range(1, window + 1)]
    chooser, tails = selectors.DefaultSelector(), {}
    for number in range(devices):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(client.encode_connect(client.connect(4, f"load-{number}")))
        sock.recv(4)
        sock.sendall(b"".join(packets))
        chooser.register(sock, selectors.EVENT_READ)
        tails[sock] = b""
    acknowledged, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for key, _ in chooser.select(1):
            sock = key.fileobj
            data = tails[sock] + sock.recv(65536)  # type: ignore[union-attr]
            count = len(data) // 4
            answers = [packets[int.from_bytes(data[4 * i + 2 : 4 * i + 4], "big") - 1] for i in range(count)]
            tails[sock] = data[4 * count :]
            acknowledged += count
            sock.sendall(b"".join(answers))  # type: ignore[union-attr]
    rate = acknowledged / (time.perf_counter() - begin)
    for sock in tails:
        sock.close()
    return rate


def _publish(rest: bytes) -> bytes:
    length = len(rest)
    return bytes((0x32, length & 0x7F | 0x80, length >> 7)) + rest


@contextmanager
def serving(port: int, command: list[str], **options: Any) -> Iterator[int]:
    """A server from when it listens: its process."""
    server = subprocess.Popen(command, **options)
    try:
        wait_for(port)
        yield server.pid
    finally:
        server.kill()
        server.wait()


@contextmanager
def gateway(folder: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    (folder / "map.yaml").write_text("version: 1\nto_mq:\n  - {name: all, topic: 'bench/#', queue: TELEMETRY}\n")
    settings = {
        "listeners": [{"name": "plain", "port": port}],
        "admin": {"port": 0},
        "queue_manager": {"ibm": {"name": "QM1", "connection": "h(1)", "channel": "C", "driver": "ibmmq"}},
        "mappings": ["map.yaml"],
        "log": {"level": "warning"},
    }
    (folder / "gateway.yaml").write_text(json.dumps(settings))
    environment = memory_library.program_environment(*mqi_clients.BINDINGS)
    environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    command = [sys.executable, "-m", "gateway", "run", "-c", str(folder / "gateway.yaml")]
    with serving(port, command, env=environment, cwd=folder) as process:
        yield port, process


@contextmanager
def mosquitto(folder: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
    )
    command = ["mosquitto", "-c", str(folder / "mosquitto.conf")]
    with serving(port, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield port, process


CASES = ((10, 1), (100, 1), (10, 10), (10, 100))
"""Devices, and messages each has in flight."""


def _spent(process: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load(NamedTuple):
    """What is sent in a round."""

    seconds: float
    devices: int
    window: int
    generator: Path | None


class Measured(NamedTuple):
    """One side in one round: messages a second acknowledged and on the queue, processor microseconds for each."""

    acknowledged: float
    arrived: float
    cost: float


def _measured(port: int, processes: list[int], load: Load) -> Measured:
    before, seconds = sum(map(_spent, processes)), load.seconds
    rate = publish(port, seconds, load.devices, load.window, load.generator)
    return Measured(rate, rate, (sum(map(_spent, processes)) - before) / (rate * seconds) * 1e6)


def bridged(folder: Path, load: Load) -> Measured:
    """Both processes between the devices and the queue."""
    environment = memory_library.program_environment(*mqi_clients.BRIDGE)
    with mosquitto(folder) as (port, process):
        command = [sys.executable, "-c", BRIDGE_PROGRAM, str(port), str(load.seconds)]
        bridge = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert bridge.stdin is not None
        assert bridge.stdout is not None
        assert bridge.stdout.readline() == "ready\n"
        time.sleep(1)  # its subscription
        bridge.stdin.write("go\n")
        bridge.stdin.flush()
        found = _measured(port, [process, bridge.pid], load)
        return found._replace(arrived=float(json.loads(bridge.stdout.readline())))


@contextmanager
def answerer(generator: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    with serving(port, [str(generator), "limit", "--port", str(port)], stdout=subprocess.DEVNULL) as process:
        yield port, process


def bound(load: Load) -> float:
    """What devices get that are answered at once."""
    if load.generator is None:
        return 0.0
    with answerer(load.generator) as (port, process):
        return _measured(port, [process], load).acknowledged


def _told(bound: float) -> str:
    return f"; answered at once, and nothing put, {bound:.0f}" if bound else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python-load", action="store_true", help="not the generator in C")
    given = parser.parse_args()
    os.environ.pop("MQGATE_MQI", None)
    generator = None if given.python_load else load_generator()
    by = "Python" if generator is None else "C"
    print(f"QoS 1, 256 bytes, a second; load by the generator in {by}; load average", os.getloadavg()[0])
    for devices, window in CASES:
        load, own, others, bounds = Load(given.seconds, devices, window, generator), [], [], []
        for _ in range(given.rounds):
            with tempfile.TemporaryDirectory() as folder, gateway(Path(folder)) as (port, process):
                own.append(_measured(port, [process], load))
            with tempfile.TemporaryDirectory() as folder:
                others.append(bridged(Path(folder), load))
            bounds.append(bound(load))
        _, ours, cost = (statistics.median(column) for column in zip(*own, strict=True))
        accepted, arrived, theirs = (statistics.median(column) for column in zip(*others, strict=True))
        print(
            f"{devices:3} devices, {window:3} in flight: gateway {ours:8.0f} ({cost:.0f} us each); mosquitto with"
            f" mq-bridge {arrived:8.0f} on the queue ({theirs:.0f} us each; {accepted:.0f} acknowledged):"
            f" {ours / max(arrived, 1):.2f} times{_told(statistics.median(bounds))}"
        )


if __name__ == "__main__":
    main()
