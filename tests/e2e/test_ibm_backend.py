"""The gateway on `ibm`: the real ibmmq and pymqi extensions, our MQI library, and a queue manager that gets killed.

Two processes: a queue manager (the embedded one, behind its MQI socket), and a gateway whose settings name `ibm`.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gateway_template
import mqi_clients
import paho.mqtt.client as paho
import pytest
from gateways import RunningGateway
from patient_device import Device

from gateway.errors import MqgateError
from gateway.mqtt import writer

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
SETTINGS = """
queue_manager:
  ibm: {{name: MQGATE, connection: "localhost(1414)", channel: DEV.APP.SVRCONN, driver: {driver}, connections: 2,
        reconnect_from: 100ms, reconnect_to: 500ms}}
mappings: [map.yaml]
"""
MAPPING = """
version: 1
to_mq:
  - {name: site, topic: "site/{site}", queue: "SITE.{site:upper}"}
  - {name: up, topic: "up/#", queue: UP.Q, properties: {client: "{client}"}}
to_mqtt:
  - {name: down, queue: DOWN.Q, topic: "down/{usr.site}"}
"""
OBJECTS = (
    "DEFINE QLOCAL(UP.Q) MAXDEPTH(900000) REPLACE\nDEFINE QLOCAL(DOWN.Q) REPLACE\nDEFINE QLOCAL(SITE.LIMA) REPLACE\n"
)


class Pair:
    """A queue manager and a gateway on it."""

    def __init__(self, directory: Path, driver: str) -> None:
        manager = directory / "qm"
        manager.mkdir()
        (manager / "objects.mqsc").write_text(OBJECTS + (ROOT / "deploy" / "mq" / "state.mqsc").read_text())
        socket = directory / "s"
        self.manager = RunningGateway(
            manager, settings=f"queue_manager: {{embedded: {{objects: objects.mqsc, socket: {socket}}}}}\n"
        )
        edge = directory / "gw"
        edge.mkdir()
        (edge / "map.yaml").write_text(MAPPING)
        environ = mqi_clients.program_environment(str(socket), *mqi_clients.BINDINGS)
        self.environ = environ
        self.gateway = RunningGateway(edge, settings=SETTINGS.format(driver=driver), environ=environ)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command beside the gateway, with its settings."""
        settings = self.gateway.directory / "settings.yaml"
        return gateway_template.run(*words, "-c", settings, cwd=self.gateway.directory, env=self.environ)


@pytest.fixture(scope="module", params=["ibmmq", "pymqi"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("ibm"), request.param)
    with made.manager, made.gateway:
        yield made


@pytest.mark.parametrize("version", [3, 4, 5])
def test_every_quality_of_service_reaches_the_queue(pair: Pair, version: int) -> None:
    with Device("127.0.0.1", pair.gateway.port, f"dev{version}", version=version) as device:
        assert device.connect() == 0
        for qos in (0, 1, 2):
            device.publish("up/a", f"{version}/{qos}".encode(), qos)
    until = time.monotonic() + 60
    while f"{version}/0" not in pair.manager.bodies("UP.Q") and time.monotonic() < until:
        time.sleep(0.05)
    found = pair.manager.bodies("UP.Q")
    assert [found.count(f"{version}/{qos}") for qos in (0, 1, 2)] == [1, 1, 1]


def test_headers_and_properties_are_those_of_a_telemetry_message(pair: Pair) -> None:
    with Device("127.0.0.1", pair.gateway.port, "decoded") as device:
        device.connect()
        device.publish("up/b/c", b"body", 1)
    items = pair.manager.api("GET", "/queues/UP.Q/messages?limit=500")["items"]
    token = next(one["token"] for one in items if one["preview"] == "body")
    message = pair.manager.api("GET", f"/queues/UP.Q/messages/{token}")
    assert message["properties"]["mqps.Top"] == "up/b/c"
    assert message["properties"]["mqtt.clientId"] == "decoded"
    assert message["properties"]["usr.client"] == "decoded"
    assert message["descriptor"]["Persistence"].startswith("MQPER_PERSISTENT")


def test_a_queue_whose_name_is_made_for_each_message_is_listed_once_it_was_put_to(pair: Pair) -> None:
    with Device("127.0.0.1", pair.gateway.port, "sites") as device:
        device.connect()
        device.publish("site/lima", b"21.5", 1)
    token = (pair.gateway.directory / "mqgate-data" / "admin.token").read_text().strip()
    request = urllib.request.Request(
        f"http://127.0.0.1:{pair.gateway.admin}/api/v1/queues", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        names = {one["name"] for one in json.load(answer)["items"]}
    assert {"SITE.LIMA", "UP.Q", "DOWN.Q"} <= names
    until = time.monotonic() + 60
    while 'mqgate_queue_depth{queue="SITE.LIMA"} 1.0' not in pair.gateway.get("/metrics"):
        assert time.monotonic() < until
        time.sleep(0.2)
    assert 'mqgate_queue_max_depth{queue="SITE.LIMA"} 5000.0' in pair.gateway.get("/metrics")
    assert 'mqgate_queue_high_depth{queue="SITE.LIMA"} 4000.0' in pair.gateway.get("/metrics")


def test_the_try_out_says_which_queue_is_not_there(pair: Pair) -> None:
    def missing(topic: str) -> list[str]:
        found: list[str] = pair.gateway.api("POST", "/explain", {"topic": topic})["missing_queues"]
        return found

    assert missing("site/lima") == missing("up/a") == []
    assert missing("site/quito") == ["SITE.QUITO"]


def test_a_message_on_a_queue_reaches_its_subscriber(pair: Pair) -> None:
    with Device("127.0.0.1", pair.gateway.port, "listener") as device:
        device.connect()
        assert device.subscribe("down/#", 1) == 1
        pair.manager.api("POST", "/queues/DOWN.Q/messages", {"text": "go", "properties": {"site": "lima"}})
        assert device.receive() == ("down/lima", b"go")


def test_a_durable_session_lives_on_the_queue_manager(pair: Pair) -> None:
    subscriber = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="durable", clean_session=False)
    got: list[bytes] = []
    ready = threading.Event()
    arrived = threading.Event()
    subscriber.on_subscribe = lambda *_: ready.set()
    subscriber.on_message = lambda _c, _u, message: (got.append(message.payload), arrived.set())
    subscriber.connect("127.0.0.1", pair.gateway.port)
    subscriber.subscribe("news/#", 1)
    subscriber.loop_start()
    assert ready.wait(60)
    subscriber.disconnect()
    subscriber.loop_stop()
    with Device("127.0.0.1", pair.gateway.port, "newsman") as device:
        device.connect()
        device.publish("news/1", b"while you were away", 1)
    pair.gateway.kill()
    pair.gateway.start()
    subscriber.connect("127.0.0.1", pair.gateway.port)
    subscriber.loop_start()
    assert arrived.wait(60)
    subscriber.disconnect()
    subscriber.loop_stop()
    assert got == [b"while you were away"]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_queue_manager_that_is_killed_costs_nothing_that_was_acknowledged(pair: Pair, qos: int) -> None:
    """Devices publish on while the queue manager is killed and comes back: at least once, QoS 2 exactly once."""
    acked: list[str] = []
    stop = threading.Event()
    threads = [
        threading.Thread(target=publish_on, args=(pair.gateway.port, number, qos, acked, stop)) for number in range(5)
    ]
    for thread in threads:
        thread.start()
    for _ in range(2):
        target = len(acked) + 40
        until = time.monotonic() + 30
        while len(acked) < target and time.monotonic() < until:
            time.sleep(0.005)
        pair.manager.kill()
        time.sleep(0.2)
        pair.manager.start()
    target, until = len(acked) + 40, time.monotonic() + 60
    while len(acked) < target and time.monotonic() < until:
        time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join(60)
    assert len(acked) >= target
    found = Counter(pair.manager.bodies("UP.Q"))
    assert not [one for one in acked if one not in found], "acknowledged and gone"
    if qos == 2:
        assert not [one for one in acked if found[one] > 1], "exactly once"


def test_while_the_queue_manager_is_away_it_is_said_and_not_waited_for(pair: Pair) -> None:
    """Probe, metric and API say so as soon as a call meets it; SIGTERM does not wait for what nobody can commit. It is
    the last of the pair's tests: both are gone behind it."""

    def connections() -> float:
        return pair.gateway.metric('mqgate_mq_connections{qmgr="MQGATE",worker="0"}')

    until = time.monotonic() + 60
    while not connections():  # the other worker may be the first that is back after the test before
        assert time.monotonic() < until
        time.sleep(0.05)
    with Device("127.0.0.1", pair.gateway.port, "waits", timeout=120) as device:
        device.connect()
        pair.manager.kill()
        device._socket.sendall(writer.encode_publish(4, b"up/away", b"unanswered", 1, packet_id=1))
        until = time.monotonic() + 30
        failed = 'mqgate_mq_connect_attempts_total{qmgr="MQGATE",result="failed"}'
        while connections() or not pair.gateway.metric(failed) or '"mq.away"' not in pair.gateway.log:
            assert time.monotonic() < until, pair.gateway.log
            time.sleep(0.05)
        with pytest.raises(urllib.error.HTTPError) as refused:
            pair.gateway.get("/readyz")
        assert refused.value.code == 503
        assert "no connection to MQGATE" in refused.value.read().decode()
        tried = pair.gateway.api("POST", "/explain", {"topic": "site/quito"})
        assert (tried["puts"][0]["queue"], tried["missing_queues"]) == ("SITE.QUITO", [])
        with pytest.raises(urllib.error.HTTPError) as unknown:  # an empty list would say that there are no queues
            pair.gateway.api("GET", "/queues")
        assert unknown.value.code == 503
        assert "2059" in unknown.value.read().decode()
        assert pair.gateway.stop() == 0
        assert device._socket.recv(100) == b"", "no acknowledgement"
    assert "1 message is left: the queue manager is away" in pair.gateway.log
    listed = pair.command("queue", "list")
    assert (listed.returncode, "MQRC 2059" in listed.stderr) == (3, True), listed.stderr


def publish_on(port: int, number: int, qos: int, acked: list[str], stop: threading.Event) -> None:
    """One device on one connection; its gateway stays up."""
    count = 0
    with Device("127.0.0.1", port, f"on-{qos}-{number}", timeout=60) as device:
        device.connect()
        while not stop.is_set():
            body = f"k{qos}-{number}-{count}"
            try:
                device.publish("up/k", body.encode(), qos)
            except (OSError, MqgateError):
                return
            acked.append(body)
            count += 1


def test_without_a_library_one_error_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAPPING)
    gateway = RunningGateway(tmp_path, settings=SETTINGS.format(driver="auto"), environ={"LD_LIBRARY_PATH": ""})
    with pytest.raises(AssertionError, match=r"libmqm_r\.so"):
        gateway.start()
