"""Devices publish the whole time, a gateway takes it, and a job lands it on object storage, while all of them are
killed and the store fails: what was acknowledged is in each table, once, and nothing else is.

A message of QoS 2 is there once. One of QoS 1 is there as often as it was sent at most: the protocol has it put again
when its PUBACK was lost [MQTT-4.3.2]. No message of the queue manager's is in a table twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from device_fleet import EPOCH_MS
from free_ports import free_port
from gateways import RunningGateway
from s3_server import MANIFEST, Fault, Proxy
from test_pipeline_object_kills import FAULTS, KILLS, LONG, POINTS, SEED, Rig, proxy
from test_qos_2_windows import Sender
from waiting import until

from gateway.mqtt import packets as p
from gateway.mqtt import writer

pytestmark = [
    pytest.mark.spark,
    pytest.mark.stress,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not LONG, reason="the long form: tests/run --long"),
]
_ = proxy  # a fixture
WINDOW = 10
PAUSE = 0.5
"""Between the windows of a device: what a cold Spark lands in the long run."""
SETTINGS = """
listeners: [{name: plain, port: 0, bind: 127.0.0.1}]
mappings: [map.yaml]
queue_manager: {embedded: {objects: objects.mqsc}}
"""
MAPPING = "version: 1\nto_mq: [{name: all, topic: 'windows/{device}', queue: TELEMETRY.A}]\n"
METHODS = ("GET", "PUT", "POST", "DELETE", "HEAD")
ENDS = ("400 ExpiredToken", "403 AccessDenied")
"""What credentials that have ended are told, which ends a run."""
OUTAGES = ("500 InternalError", "503 SlowDown", "reset", "lost", *ENDS)
SECONDS = 10.0


class Meter(Sender):
    """A device that publishes windows of readings, at QoS 1 or 2, over all that happens to its connection."""

    def __init__(self, number: int) -> None:
        super().__init__(f"meter{number}")
        self.qos = 1 + number % 2
        self.times: Counter[bytes] = Counter()
        """How often each was sent."""

    def publish(self, port: int) -> None:
        while self.open or not self.finish:
            self.run(port)
            time.sleep(PAUSE)  # a device comes back after a moment

    def window(self) -> Iterator[bytes]:
        time.sleep(PAUSE)
        for number in range(1, WINDOW + 1):
            n = len(self.sent)
            payload = json.dumps({"device": self.name, "n": n, "ts": EPOCH_MS + n}).encode()
            self.sent.append(payload)
            self.open[number] = payload, False
            yield self.encoded(number, payload)

    def again(self) -> Iterator[bytes]:
        for number, (payload, received) in self.open.items():
            yield writer.encode_acks(p.PUBREL, [number]) if received else self.encoded(number, payload, dup=True)

    def encoded(self, number: int, payload: bytes, *, dup: bool = False) -> bytes:
        self.times[payload] += 1
        return writer.encode_publish(4, self.topic, payload, self.qos, packet_id=number, dup=dup)


class Plant:
    """Devices and their gateway, on ports that stay."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "map.yaml").write_text(MAPPING)
        (folder / "objects.mqsc").write_text("DEFINE QLOCAL(TELEMETRY.A) MAXDEPTH(999999)\n")
        self.gateway = RunningGateway(folder, settings=SETTINGS)
        self.port, self.admin = free_port(), free_port()
        self.meters = [Meter(number) for number in range(6)]

    @property
    def address(self) -> str:
        data = self.gateway.directory / "data"
        return f"path: {data}, url: 'http://127.0.0.1:{self.admin}', token_file: {data}/admin.token"

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """In the end all is acknowledged."""
        self.begin()
        threads = [threading.Thread(target=meter.publish, args=(self.port,), daemon=True) for meter in self.meters]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            for meter in self.meters:
                meter.finish = True
            for thread in threads:
                thread.join(120)
        assert not any(meter.open for meter in self.meters)

    def begin(self) -> None:
        self.gateway.start(port=self.port, admin_port=self.admin)

    def kill(self) -> None:
        self.gateway.kill()
        self.begin()


class Trouble:
    """What happens to a job that runs, by chance."""

    def __init__(self, rig: Rig, plant: Plant, chance: random.Random) -> None:
        self.rig, self.plant, self.chance = rig, plant, chance
        self.kills: Counter[str] = Counter()
        self.outages = 0

    def one_run(self) -> None:
        """A job, what happens meanwhile, and its end."""
        point = self.chance.choice(["", f"{self.chance.choice(POINTS)}:{self.chance.randint(1, 3)}"])
        entries = self._entries()
        job = self.rig.started(point, stays=True)
        try:
            until(lambda: job.poll() is not None or self._entries() > entries, 300)
            while job.poll() is None and self.chance.random() < 0.8:
                self.chance.choice([self._kill_gateway, self._outage, self._faults])()
                self._wait(job)
            self._end(job, point)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)

    def _entries(self) -> int:
        return sum(method == "PUT" and MANIFEST in path for method, path in list(self.rig.proxy.seen))

    def _wait(self, job: subprocess.Popen[bytes]) -> None:
        with suppress(subprocess.TimeoutExpired):
            job.wait(self.chance.uniform(0, SECONDS / 2))

    def _kill_gateway(self) -> None:
        self.plant.kill()
        self.kills["gateway"] += 1

    def _faults(self) -> None:
        self.rig.proxy.faults[:] = [Fault(*self.chance.choice(FAULTS), times=self.chance.randint(1, 3)) for _ in "abc"]

    def _outage(self) -> None:
        """Nothing of a store for a while: as one that was killed, is overloaded, or knows nobody any more."""
        does = self.chance.choice(OUTAGES)
        self.rig.proxy.faults[:] = [Fault(method, "", does, times=1 << 30) for method in METHODS]
        time.sleep(self.chance.uniform(0, SECONDS))
        self.rig.proxy.faults.clear()
        self.kills["store"] += does in ("reset", "lost")
        self.outages += 1

    def _end(self, job: subprocess.Popen[bytes], point: str) -> None:
        """Killed as a whole, or its driver alone, or its JVM alone. The next run begins beside what is left of it."""
        if job.poll() is not None:
            code = job.wait()
            self.kills["job at a point"] += code == -signal.SIGKILL
            assert code in (1, -signal.SIGKILL), (code, point)
            return
        kind = self.chance.choice(["job", "driver", "JVM"])
        if kind == "job":
            os.killpg(job.pid, signal.SIGKILL)
        else:
            os.kill(job.pid if kind == "driver" else jvm_of(job.pid) or job.pid, signal.SIGKILL)
        self.kills[kind] += 1
        job.wait(120)

    @property
    def all_kills(self) -> int:
        return sum(self.kills.values())


def jvm_of(group: int) -> int | None:
    """The JVM of a group of processes."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            name, _, rest = stat.read_text().rpartition(")")
            if name.endswith("(java") and int(rest.split()[2]) == group:
                return int(stat.parent.name)
    return None


def expect_exact(rig: Rig, plant: Plant) -> None:
    sent = sum((meter.times for meter in plant.meters), Counter())
    once = {payload for meter in plant.meters if meter.qos == 2 for payload in meter.sent}
    numbers = rig.values("bronze", "seq")
    assert len(numbers) == len(set(numbers)), "a message is there twice"
    assert sorted(rig.values("readings", "seq")) == sorted(numbers)
    found = Counter(rig.values("bronze", "payload"))
    assert found.keys() == sent.keys(), (len(sent.keys() - found.keys()), len(found.keys() - sent.keys()))
    assert not [payload for payload, times in found.items() if times > (1 if payload in once else sent[payload])]


@pytest.mark.timeout(14400)
@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_all_are_killed_while_devices_publish(
    proxy: Proxy,
    tmp_path: Path,
    table_format: str,
    record_property: Any,
) -> None:
    plant = Plant(tmp_path / "plant")
    rig = Rig(proxy, tmp_path, f"live-{table_format}", table_format, plant.address, batch=20_000)
    trouble = Trouble(rig, plant, random.Random(f"live {table_format}{SEED}"))
    try:
        with plant.publishing():
            while trouble.all_kills < KILLS // 3:
                trouble.one_run()
                proxy.faults.clear()
        rig.finish()
    finally:
        plant.gateway.stop()
        record_property("kills", dict(trouble.kills))
        record_property("outages", trouble.outages)
        record_property("messages", sum(len(meter.sent) for meter in plant.meters))
    expect_exact(rig, plant)
