"""`mqgate pipeline drain` with the real binding, killed at every point between MQGET, the journal and MQCMIT, and the
queue manager killed under it: each message is in the journal once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import mqi_clients
import pytest
from free_ports import free_port
from ibm_rig import Rig, ServingProcess

from gateway.mq import mqmd
from gateway.pipeline.errors import QueueUnreachable
from gateway.pipeline.failpoint import POINTS
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.owner import StoreJournal
from gateway.pipeline.source.http_access import HttpAccess
from gateway.pipeline.source.options import Options
from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.journal.store import Store
from gateway.queue_manager.store.unit import StoreUnit

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(600)]

LONG = bool(os.environ.get("MQGATE_LONG"))
KILLS = int(os.environ.get("MQGATE_KILLS", "60"))
NAMED = [point for point in POINTS if point.startswith("drain.")]
SETTINGS = """
queue_manager:
  ibm: {name: QM1, connection: "localhost(1414)", channel: GATEWAY.SVRCONN, user: app, password_file: pw, driver: %s,
        reconnect_from: 100ms}
"""


class Source:
    """A queue manager of its own process, and a drainer that dies."""

    def __init__(self, folder: Path, driver: str = "ibmmq") -> None:
        mqi_clients.load_bindings()
        self.folder, self.socket, self.journal = folder, folder / "mqi.sock", folder / "journal"
        (folder / "pw").write_text("pw\n")
        (folder / "mqgate.yaml").write_text(SETTINGS % driver)
        self.sent = 0
        self.fired = 0
        self.manager = ServingProcess(folder)
        self.start, self.kill = self.manager.start, self.manager.kill
        self.rig = Rig("ibmmq", str(self.socket))

    def close(self) -> None:
        self.rig.close()
        self.kill()

    def put(self, count: int) -> None:
        """Some of them with one MsgId: it names nothing."""
        numbers = range(self.sent, self.sent + count)
        heads = [mqmd.build(persistence=1, msg_id=b"S" * 24 if at % 3 == 0 else bytes(24)) for at in numbers]
        assert not self.rig.commit(
            Unit(puts=[Puts("APP.Q", heads=heads, bodies=[b"%d" % at for at in numbers])])
        ).failures
        self.sent += count

    def drain(self, point: str = "", *, once: bool = True, batch: int = 20, port: int = 0) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "gateway",
            "pipeline",
            "drain",
            "APP.Q",
            "-c",
            str(self.folder / "mqgate.yaml"),
        ]
        command += ["--journal", str(self.journal), "--batch", str(batch), "--json", *(["--once"] if once else [])]
        command += ["--port", str(port)] if port else []
        environment = mqi_clients.program_environment(str(self.socket), *mqi_clients.BINDINGS)
        environment |= {"MQGATE_FAILPOINT": point, "MQGATE_MQI": str(self.socket)}
        environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], str(Path(__file__).parents[2])])
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def drained(self, point: str = "", **more: int) -> dict[str, int]:
        """A run to its end; what it says it did, or nothing when it was killed."""
        process = self.drain(point, **more)
        out, err = process.communicate(timeout=120)
        if point and process.returncode == -signal.SIGKILL:
            self.fired += 1
            return {}
        assert process.returncode == 0, err
        found: dict[str, int] = json.loads(out)["queues"]["APP.Q"]
        return found

    def landed(self) -> Counter[int]:
        store = Store.open(self.journal, clock=time.time)
        try:
            return Counter(int(message.body) for message in store.fetch("APP.Q", limit=1_000_000))
        finally:
            store.close()

    def expect_exact(self) -> None:
        landed = self.landed()
        assert [at for at in range(self.sent) if landed[at] != 1] == []
        assert len(landed) == self.sent
        assert self.rig.queue_manager.depth("APP.Q") == 0


@pytest.fixture
def source(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Source]:
    made = Source(tmp_path, getattr(request, "param", "ibmmq"))
    yield made
    made.close()


@pytest.mark.parametrize("source", ["ibmmq", "pymqi"] if LONG else ["ibmmq"], indirect=True)
def test_killed_at_named_points(source: Source) -> None:
    repeated = 0
    for point in NAMED:
        for nth in (1, 3) if LONG else (2,):
            source.put(70)
            source.drained(f"{point}:{nth}")
            repeated += source.drained()["repeated"]
    assert source.fired == len(NAMED) * (2 if LONG else 1)
    assert repeated >= 20, "a unit was to be in doubt"
    source.expect_exact()


def test_the_queue_manager_goes_away(source: Source) -> None:
    """The drainer connects again by itself, and what it had in doubt is looked at again."""
    port = free_port()
    process = source.drain(once=False, port=port)
    try:
        for _ in range(2):
            source.put(150)
            source.kill()
            source.start()
        source.put(50)
        until = time.monotonic() + 90
        while source.rig.queue_manager.depth("APP.Q") and time.monotonic() < until:
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        read_beside(port, source)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert json.loads(out)["queues"]["APP.Q"]["messages"] == source.sent
    finally:
        process.kill()
        process.communicate()
    source.expect_exact()


def read_beside(port: int, source: Source) -> None:
    """Cursors and counts through the process that owns the journal, for whoever has the token."""
    url, token = f"http://127.0.0.1:{port}", source.journal / "admin.token"
    access = HttpAccess(Options(url=url, token_file=str(token), queue="APP.Q"))
    group = access.acquire(ConsumerGroup("spark", "APP.Q"), "driver:1", 60.0)
    end = access.extent("APP.Q", group.cursor, None)
    assert end.messages == source.sent
    access.acknowledge("spark", group.epoch, end.next, 60.0)
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        assert f'mqgate_drain_messages_total{{queue="APP.Q"}} {source.sent}' in answer.read().decode()
    with pytest.raises(QueueUnreachable, match="refuses the token"):
        HttpAccess(Options(url=url, token="guessed", queue="APP.Q")).count("APP.Q", 0, 1)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
@pytest.mark.parametrize("source", ["ibmmq", "pymqi"], indirect=True)
def test_killed_many_times(source: Source) -> None:
    chance = random.Random(7)
    while source.fired < KILLS // 2:
        source.put(200)
        if chance.random() < 0.6:
            source.drained(f"{chance.choice(NAMED)}:{chance.randint(1, 5)}", batch=chance.choice([1, 20, 150]))
            continue
        process = source.drain(batch=5)
        time.sleep(chance.uniform(0.3, 1.5))
        source.fired += process.poll() is None
        process.kill()
        process.communicate()
    source.drained()
    source.expect_exact()


@pytest.mark.stress
@pytest.mark.skipif(not LONG, reason="the long form: tests/run --long")
def test_the_counting_notices_a_drainer_that_forgets(source: Source) -> None:
    """The negative control: without its record the unit in doubt is there twice."""
    source.put(70)
    source.drained("drain.append.after:2")
    store = Store.open(source.journal, clock=time.time)
    StoreJournal(store).commit(StoreUnit(state={b"pipeline/drain/APP.Q": None}))
    store.close()
    source.drained()
    assert max(source.landed().values()) == 2
