"""A gateway with a buffer, the real ibmmq, and a queue manager: either is killed at any time, and both. Devices that
keep the protocol's promises publish on; in the end everything is counted. MQGATE_LONG=1 runs more rounds."""

from __future__ import annotations

import json
import os
import random
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import mqi_clients
import pytest
from gateways import RunningGateway
from schedulers import ManualScheduler
from stubborn import Stubborn

from gateway.queue_manager.embedded import EmbeddedQueueManager

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(7200 if os.environ.get("MQGATE_LONG") else 240)]
ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("MQGATE_KILLS", "40")) if os.environ.get("MQGATE_LONG") else 1
SETTINGS = """
queue_manager:
  ibm: {{name: MQGATE, connection: "localhost(1414)", channel: DEV.APP.SVRCONN, driver: {driver}, connections: 2,
        reconnect_from: 50ms, reconnect_to: 200ms}}
  buffer: {{path: buffer, max_bytes: {limit}}}
mappings: [map.yaml]
"""
MAPPING = """
version: 1
to_mq:
  - {name: one, topic: "one/#", queue: ONE.Q, headers: []}
  - {name: two, topic: "two/#", queue: TWO.Q, headers: []}
to_mqtt:
  - {name: down, queue: DOWN.Q, topic: "down"}
"""
OBJECTS = "\n".join(f"DEFINE QLOCAL({name}) MAXDEPTH(900000) REPLACE" for name in ("ONE.Q", "TWO.Q", "DOWN.Q")) + "\n"


class Site:
    """A queue manager, a gateway with a buffer in front of it, and devices."""

    def __init__(self, directory: Path, driver: str = "ibmmq", limit: str = "1GiB") -> None:
        manager, edge = directory / "qm", directory / "gw"
        manager.mkdir()
        edge.mkdir()
        (manager / "objects.mqsc").write_text(OBJECTS + (ROOT / "deploy" / "mq" / "state.mqsc").read_text())
        (edge / "map.yaml").write_text(MAPPING)
        socket = directory / "s"
        self.manager = RunningGateway(
            manager, settings=f"queue_manager: {{embedded: {{objects: objects.mqsc, socket: {socket}}}}}\n"
        )
        environ = mqi_clients.program_environment(str(socket), *mqi_clients.BINDINGS)
        self.gateway = RunningGateway(edge, settings=SETTINGS.format(driver=driver, limit=limit), environ=environ)
        self.devices = [
            Stubborn(f"d{number}", f"{('one', 'two')[number % 2]}/{number}", lambda: self.gateway.port)
            for number in range(6)
        ]

    def acked(self) -> int:
        return sum(len(device.acked) for device in self.devices)

    def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{self.gateway.log[-3000:]}"
            time.sleep(0.01)

    def more(self, count: int) -> None:
        """So many more acknowledgements."""
        target = self.acked() + count
        self.until(lambda: self.acked() >= target)

    def state(self) -> str:
        """The buffer's, by the metrics; blank while the gateway cannot be asked."""
        with suppress(OSError, AssertionError):
            for state in ("connected", "buffering", "draining"):
                if self.gateway.metric(f'mqgate_spool_state{{state="{state}"}}'):
                    return state
        return ""

    def is_silent(self) -> bool:
        """Whether the gateway acknowledges nothing for a while. Devices hear it later, on a busy machine much later."""
        before = self.answers()
        time.sleep(0.5)
        return self.answers() == before

    def answers(self) -> float:
        """How much the gateway has acknowledged."""
        sent = 'mqgate_mqtt_packets_total{direction="out",type="%s"}'
        return sum(self.gateway.metric(sent % kind) for kind in ("puback", "pubrec", "pubcomp"))

    def settle(self) -> None:
        """Everything is up: devices see their last through, the buffer empties."""
        for device in self.devices:
            device.stop()
        for device in self.devices:
            device.join(60)
            assert not device.is_alive()
        self.until(lambda: self.state() == "connected")
        assert self.gateway.metric("mqgate_spool_messages") == 0

    def close(self) -> None:
        for device in self.devices:
            device.stop()
        for process in (self.gateway, self.manager):
            if process.process is not None and process.process.poll() is None:
                process.kill()

    def count(self) -> None:
        """Exactly what was acknowledged is there, QoS 2 once, in the order of each device."""
        found = self.on_queues()
        counts = Counter(body for bodies in found.values() for body in bodies)
        for device in self.devices:
            for body, qos in device.acked:
                assert 1 <= counts[body] <= (1 if qos == 2 else device.sent[body]), (body, qos, counts[body])
            prefix = device.client_id + "/"
            mine = [body for bodies in found.values() for body in dict.fromkeys(bodies) if body.startswith(prefix)]
            assert mine == [body for body, _ in device.acked]
        assert len(counts) == self.acked()

    def on_queues(self) -> dict[str, list[str]]:
        self.manager.kill()
        queue_manager = EmbeddedQueueManager.open(self.manager.directory / "data", "MQGATE", ManualScheduler())
        try:
            return {
                name: [stored.data.decode() for _, stored in queue_manager.load(name)] for name in ("ONE.Q", "TWO.Q")
            }
        finally:
            queue_manager.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def test_either_side_is_killed_while_buffering_and_while_draining(site: Site) -> None:
    site.manager.start()
    site.gateway.start()
    site.until(lambda: site.state() == "connected")
    for device in site.devices:
        device.start()
    site.more(30)
    rng = random.Random(7)
    for _ in range(ROUNDS):
        site.manager.kill()
        site.more(60)  # devices are served on
        assert site.state() == "buffering"
        site.gateway.kill()
        site.gateway.start()  # while IBM MQ is away
        site.more(100)
        site.manager.start()  # the drain begins
        time.sleep(rng.random() * 0.3)
        site.gateway.kill()
        site.gateway.start()
        time.sleep(rng.random() * 0.3)
        site.manager.kill()
        site.gateway.kill()  # both
        site.gateway.start()
        site.more(30)
        site.manager.start()
        site.more(30)
    site.settle()
    assert all(device.resumed for device in site.devices), "sessions live in the buffer's store"
    site.count()


def test_a_full_buffer_withholds_acknowledgements_until_mq_is_back(tmp_path: Path) -> None:
    site = Site(tmp_path, limit="32KiB")
    try:
        site.gateway.start()  # the first start ever, and IBM MQ is away
        assert site.state() == "buffering"
        assert "IBM MQ is away" in site.gateway.log or "messages are buffered" in site.gateway.log
        for device in site.devices:
            device.start()
        pauses = 'mqgate_backpressure_events_total{cause="spool_full"}'
        site.until(lambda: site.gateway.metric(pauses) > 0)
        site.until(site.is_silent)  # what was committed before may still be answered
        assert site.gateway.metric("mqgate_spool_bytes") <= 32 * 1024
        assert site.is_silent()
        with pytest.raises(HTTPError, match="503"):  # nobody new is wanted while it is full
            site.gateway.get("/readyz")
        site.manager.start()
        site.more(100)
        site.settle()
        site.count()
    finally:
        site.close()


def test_sessions_move_into_a_new_buffer_and_the_api_shows_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    try:
        site.manager.start()
        buffered = site.gateway.settings
        site.gateway.settings = re.sub(r"  buffer: .*\n", "", buffered)
        site.gateway.start()
        device = site.devices[0]
        device.start()
        site.more(5)
        site.gateway.stop()
        site.gateway.settings = buffered
        site.gateway.start()
        site.more(5)
        assert device.resumed, "the session was taken over"
        site.until(lambda: site.state() == "connected")
        token = (site.gateway.directory / "buffer" / "admin.token").read_text().strip()
        site.manager.kill()
        site.more(5)
        url = f"http://127.0.0.1:{site.gateway.admin}/api/v1/overview"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            overview = json.loads(answer.read())
        assert overview["spool"]["state"] == "buffering"
        assert overview["spool"]["messages"] >= 5
        assert overview["spool"]["detail"]
        assert any(one.startswith("queue manager: away, and messages go to the buffer") for one in overview["problems"])
        assert not overview["queue_managers"][0]["connected"]
        assert "ok" in site.gateway.get("/readyz")
        site.until(lambda: site.gateway.metric("mqgate_spool_sync_seconds_count") > 0)
        assert site.gateway.metric('mqgate_spool_oldest_message_age_seconds{route="one"}') > 0
        site.manager.start()
        for other in site.devices[1:]:
            other.start()
        site.settle()
        site.count()
    finally:
        site.close()


def test_a_new_buffer_takes_nothing_that_gateways_use_which_run_without_one(tmp_path: Path) -> None:
    """As when replicas are replaced one after the other: the others' sessions stay theirs."""
    site = Site(tmp_path)
    late = RunningGateway(tmp_path / "late", settings=site.gateway.settings, environ=site.gateway.environ)
    late.directory.mkdir()
    (late.directory / "map.yaml").write_text(MAPPING)
    try:
        site.manager.start()
        site.gateway.settings = re.sub(r"  buffer: .*\n", "", site.gateway.settings)
        site.gateway.start()
        site.devices[0].start()
        site.more(5)
        sessions = site.manager.bodies("MQGATE.SESSIONS")
        assert sessions
        with pytest.raises(AssertionError, match="did not start"):
            late.start()
        assert "gateways without a buffer run on this queue manager" in late.log
        assert "Traceback" not in late.log
        assert site.manager.bodies("MQGATE.SESSIONS") == sessions
        site.more(5)
        site.devices[0].stop()
        site.devices[0].join(60)
        site.gateway.stop()
        forward = "/queues/MQGATE.FORWARD/messages"
        site.manager.api("POST", forward, {"text": "for a session of a gateway that has ended"})
        with pytest.raises(AssertionError, match="did not start"):
            late.start()
        assert "lie on MQGATE.FORWARD" in late.log
        assert site.manager.bodies("MQGATE.SESSIONS")
        [left] = site.manager.api("GET", forward)["items"]
        site.manager.api("DELETE", f"{forward}/{left['token']}")
        late.start()
        assert not site.manager.bodies("MQGATE.SESSIONS")
    finally:
        late.kill()
        site.close()
