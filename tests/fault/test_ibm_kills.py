"""The queue manager dies in MQPUT, before, in and after MQCMIT: what one or two gateways have promised is there, once.

The queue manager is a process of its own behind a proxy that sees each call; it is killed at the call that is meant,
and started again.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import mqi_clients
import pytest
from frame_proxy import CUT_AFTER, CUT_BEFORE, FORWARD, FrameProxy
from gateways import RunningGateway
from ibm_rig import HEAD, OBJECTS, Rig, ServingProcess
from patient_device import Device

from gateway.errors import MqgateError
from gateway.mqi.wire import Verb
from gateway.ports.batch import Puts, Replace, Unit

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(300)]
LONG = "MQGATE_LONG" in os.environ
KILLS = 12 if LONG else 2
SETTINGS = """
queue_manager:
  ibm: {name: QM1, connection: "localhost(1414)", channel: C, user: app, password_file: pw, driver: ibmmq,
        connections: 2, reconnect_from: 100ms, reconnect_to: 500ms}
mappings: [map.yaml]
"""
MAPPING = """
version: 1
to_mq:
  - {name: up, topic: "up/#", queue: APP.Q}
"""
BEFORE, WITHIN, AFTER = "before", "within", "after"


class MortalQueueManager:
    """A queue manager, and the proxy in front of it that can kill it at a call."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._plan: tuple[int, int, str] | None = None
        self.kills = 0
        self.alive = threading.Event()
        self._process = ServingProcess(folder, f"{OBJECTS}\nALTER QLOCAL(APP.Q) MAXDEPTH(900000)")
        self.alive.set()
        self.proxy = FrameProxy(folder / "s", self._process.socket, self._decide)
        self.proxy.answered = self._kill

    def plan(self, verb: int, calls: int, when: str) -> None:
        """Die at that many more calls of this kind."""
        with self._lock:
            self._plan = (verb, calls, when)

    def end(self) -> None:
        self.alive.wait(60)
        self.proxy.close()
        self._process.kill()

    def _decide(self, verb: int) -> str:
        with self._lock:
            if self._plan is None or self._plan[0] != verb:
                return FORWARD
            wanted, calls, when = self._plan
            self._plan = (wanted, calls - 1, when) if calls > 1 else None
            if calls > 1:
                return FORWARD
        if when == BEFORE:
            self._kill()
            return CUT_BEFORE
        if when == WITHIN:
            threading.Timer(random.random() / 500, self._kill).start()
            return FORWARD
        return CUT_AFTER

    def _kill(self) -> None:
        with self._lock:
            if not self.alive.is_set():
                return
            self.alive.clear()
        self._process.kill()
        self.kills += 1
        self.proxy.cut()
        threading.Thread(target=self._start).start()

    def _start(self) -> None:
        self._process.start()
        self.alive.set()


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[MortalQueueManager]:
    mqi_clients.load_bindings()
    made = MortalQueueManager(tmp_path)
    yield made
    made.end()


def _bodies(rig: Rig, queue: str) -> list[bytes]:
    return [stored.data for stored in rig.queue_manager.fetch(queue, b"", 1_000_000)]


def _wait(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("verb", "when"),
    [(Verb.PUT, WITHIN), (Verb.COMMIT, BEFORE), (Verb.COMMIT, WITHIN), (Verb.COMMIT, AFTER)][0 if LONG else 2 :],
)
def test_a_unit_is_committed_once_whenever_the_queue_manager_dies(
    verb: Verb, when: str, mortal: MortalQueueManager
) -> None:
    rig = Rig("ibmmq", str(mortal.proxy.path))
    try:
        mortal.plan(verb, 6, when)
        for number in range(10):
            unit = Unit(
                puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"%d" % number])],
                replaces=[Replace("MQGATE.STATE", b"session", b"%d" % number)],
            )
            assert not rig.commit(unit).failures
        _wait(lambda: mortal.kills == 1, "the queue manager was meant to die")
        assert mortal.alive.wait(60)
        assert _bodies(rig, "APP.Q") == [b"%d" % number for number in range(10)]
        assert _bodies(rig, "MQGATE.STATE") == [b"9"]
    finally:
        rig.close()


class Fleet:
    """Devices on gateways that publish on and note what was acknowledged."""

    def __init__(self) -> None:
        self.acked: dict[int, list[str]] = {1: [], 2: []}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def join(self, port: int, name: str, qos: int) -> None:
        self._threads.append(threading.Thread(target=self._publish, args=(port, name, qos)))
        self._threads[-1].start()

    def _publish(self, port: int, name: str, qos: int) -> None:
        count = 0
        with Device("127.0.0.1", port, name, timeout=90) as device:
            device.connect()
            while not self._stop.is_set():
                body = f"{name}-{count}"
                try:
                    device.publish("up/k", body.encode(), qos)
                except (OSError, MqgateError):
                    return
                self.acked[qos].append(body)
                count += 1

    def total(self) -> int:
        return sum(map(len, self.acked.values()))

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(90)


@contextmanager
def _gateways(folder: Path, count: int, where: Path) -> Iterator[list[RunningGateway]]:
    made = []
    environ = mqi_clients.program_environment(str(where), *mqi_clients.BINDINGS)
    try:
        for number in range(count):
            edge = folder / f"gateway{number}"
            edge.mkdir()
            (edge / "map.yaml").write_text(MAPPING)
            (edge / "pw").write_text("pw\n")
            (edge / "pw").chmod(0o600)
            made.append(RunningGateway(edge, settings=SETTINGS, environ=environ).start())
        yield made
    finally:
        for gateway in made:
            gateway.kill()


@pytest.mark.parametrize("count", [1, 2] if LONG else [2])
def test_what_devices_were_told_is_there_once(count: int, mortal: MortalQueueManager, tmp_path: Path) -> None:
    """One gateway, and two on the same queue manager whose doubts must not get mixed up."""
    fleet, chooser = Fleet(), random.Random(count)
    with _gateways(tmp_path, count, mortal.proxy.path) as gateways:
        for number, gateway in enumerate(gateways):
            for qos in (1, 2):
                for device in range(2):
                    fleet.join(gateway.port, f"g{number}q{qos}d{device}", qos)
        plan = [(verb, when) for verb in (Verb.COMMIT, Verb.PUT) for when in (AFTER, WITHIN, BEFORE)]
        for kill in range(KILLS):
            target = fleet.total() + 30
            _wait(lambda target=target: fleet.total() >= target, f"no progress after {kill} kills")
            verb, when = plan[kill % len(plan)]
            mortal.plan(verb, chooser.randint(1, 9), when)
            _wait(lambda kill=kill: mortal.kills > kill, "the queue manager was meant to die")
            assert mortal.alive.wait(60)
        target = fleet.total() + 30
        _wait(lambda: fleet.total() >= target, "no progress at the end")
        fleet.end()
    rig = Rig("ibmmq", str(mortal.proxy.path))
    found = Counter(body.decode().rsplit("\0", 1)[-1][-40:] for body in _payloads(rig))
    rig.close()
    lost = [body for qos in (1, 2) for body in fleet.acked[qos] if body not in found]
    doubled = [body for body in fleet.acked[2] if found[body] > 1]
    sys.stdout.write(json.dumps({"kills": mortal.kills, "acknowledged": fleet.total(), "found": found.total()}) + "\n")
    assert not lost, f"acknowledged and gone: {lost[:5]}"
    assert not doubled, f"QoS 2 twice: {doubled[:5]}"


def _payloads(rig: Rig) -> Iterator[bytes]:
    """Behind the MQRFH2 that the mapping's headers put in front."""
    for data in _bodies(rig, "APP.Q"):
        yield data[int.from_bytes(data[8:12], "little") :] if data[:4] == b"RFH " else data
