"""Whether busy MQI programs keep devices waiting: `python tests/bench/mqi_beside_devices.py [--programs 1]`.

A gateway with its embedded queue manager, twenty devices with one QoS 1 publication in flight each, and programs that
put as fast as they can through the MQI socket of the same process: one persistent message at a time, one that is not,
and asynchronously with a commit every 500.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import mqi_clients
from bridge_to_mq import _publish
from gateways import RunningGateway

from gateway.mqtt import client

ROOT = Path(__file__).parents[2]
DEVICES = 20
PROGRAM = """
import sys, time
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.structures import object_descriptor, plain_md, put_options
from gateway.mq import constants as mq, mqmd
how, seconds = sys.argv[1], float(sys.argv[2])
session = load("ibmmq").connect(ConnectSettings("MQGATE", "h(1)", "C"))
queue = session.open(bytes(bytearray(object_descriptor("APP.Q"))), mq.MQOO_OUTPUT)
together = how == "asynchronous"
options = put_options(mq.MQPMO_SYNCPOINT | mq.MQPMO_ASYNC_RESPONSE if together else mq.MQPMO_NO_SYNCPOINT)
before, behind = plain_md(mqmd.build(), 0, how != "not persistent")
count, begin = 0, time.time()
print("ready", flush=True)
while time.time() - begin < seconds:
    for _ in range(500 if together else 1):
        assert session.mqput(session.handle, queue, before + behind, options(), b"x" * 256)[-1] == 0
        count += 1
    if together:
        session.commit()
print(int(count / (time.time() - begin)), flush=True)
"""


def delays(port: int, seconds: float) -> list[float]:
    """From each PUBLISH to its PUBACK, in milliseconds, sorted."""
    chooser, sent, found = selectors.DefaultSelector(), {}, []
    packet = _publish(b"\0\7bench/a\0\1" + b"x" * 200)
    for number in range(DEVICES):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(client.encode_connect(client.connect(4, f"device-{number}")))
        sock.recv(4)
        sock.sendall(packet)
        sent[sock] = time.perf_counter()
        chooser.register(sock, selectors.EVENT_READ)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for key, _ in chooser.select(1):
            sock = key.fileobj
            sock.recv(64)  # type: ignore[union-attr]
            now = time.perf_counter()
            found.append((now - sent[sock]) * 1000)  # type: ignore[index]
            sent[sock] = now  # type: ignore[index]
            sock.sendall(packet)  # type: ignore[union-attr]
    for sock in sent:
        sock.close()
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--programs", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "objects").write_text("DEFINE QLOCAL(APP.Q) MAXDEPTH(99999999)\n")
        settings = f"queue_manager: {{embedded: {{objects: objects, socket: {place}/s}}}}\n"
        gateway = RunningGateway(place, settings=settings, environ={"PYTHONPATH": str(ROOT)}).start()
        environment = mqi_clients.program_environment(str(place / "s"), *mqi_clients.BINDINGS)
        environment["PYTHONPATH"] += f":{ROOT}"
        delays(gateway.port, 1)
        print("milliseconds to the PUBACK; load average", os.getloadavg()[0])
        for how in ("idle", "persistent", "not persistent", "asynchronous", "idle"):
            command = [sys.executable, "-c", PROGRAM, how, str(given.seconds + 0.5)]
            count = 0 if how == "idle" else given.programs
            programs = [
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(count)
            ]
            for program in programs:
                assert program.stdout is not None
                assert program.stdout.readline() == "ready\n"
            found = delays(gateway.port, given.seconds)
            puts = [int(program.communicate()[0]) for program in programs]
            middle, tail = found[len(found) // 2], found[int(len(found) * 0.99)]
            rate = len(found) / given.seconds
            print(f"{how:16} {rate:7.0f} a second, median {middle:6.1f}, 99% {tail:6.1f}; puts {puts}")
        gateway.kill()


if __name__ == "__main__":
    main()
