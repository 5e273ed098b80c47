"""Client libraries people use, against a real gateway: paho, mosquitto_pub and _sub, aiomqtt, gmqtt."""

from __future__ import annotations

import asyncio
import json
import queue
import shutil
import subprocess
import uuid

import aiomqtt
import gmqtt
import paho.mqtt.client as paho
import pytest
from gateways import RunningGateway
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-mqtt")]
VERSIONS = [MQTTProtocolVersion.MQTTv31, MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5]
SECONDS = 60


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    gateway = RunningGateway(tmp_path_factory.mktemp("interop-mqtt"))
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture
def tag():
    return uuid.uuid4().hex[:10]


# --- paho -----------------------------------------------------------------------------------------------------------


class Paho:
    """A paho client with its callbacks turned into queues."""

    def __init__(self, gateway, version, client_id, *, clean=True, will=None):
        clean_session = None if version == MQTTProtocolVersion.MQTTv5 else clean
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id, clean_session, protocol=version)
        self.messages: queue.Queue = queue.Queue()
        self.subscribed: queue.Queue = queue.Queue()
        self.connected: queue.Queue = queue.Queue()
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)
        self.client.on_subscribe = lambda _c, _u, _mid, reasons, _p: self.subscribed.put([r.value for r in reasons])
        self.client.on_connect = lambda _c, _u, flags, reason, _p: self.connected.put((flags.session_present, reason))
        if will:
            self.client.will_set(*will)
        options = {}
        if version == MQTTProtocolVersion.MQTTv5:
            options["clean_start"] = clean
            if not clean:
                options["properties"] = Properties(PacketTypes.CONNECT)
                options["properties"].SessionExpiryInterval = 60
        self.client.connect("127.0.0.1", gateway.port, **options)
        self.client.loop_start()
        self.present, self.reason = self.connected.get(timeout=SECONDS)

    def subscribe(self, *args, **options):
        self.client.subscribe(*args, **options)
        return self.subscribed.get(timeout=SECONDS)

    def publish(self, topic, payload, qos=0, **options):
        self.client.publish(topic, payload, qos, **options).wait_for_publish(SECONDS)

    def receive(self):
        message = self.messages.get(timeout=SECONDS)
        return message.topic, message.payload.decode(), message.qos, message.retain

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self):
        self.client.loop_stop()
        self.client.socket().close()


@pytest.fixture
def client(gateway):
    made = []

    def make(*args, **options):
        made.append(Paho(gateway, *args, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_every_qos(client, tag, version):
    subscriber, publisher = client(version, f"{tag}s"), client(version, f"{tag}p")
    assert subscriber.subscribe([(f"{tag}/a", 2), (f"{tag}/b", 1)]) == [2, 1]
    for qos in (0, 1, 2):
        publisher.publish(f"{tag}/a", f"m{qos}", qos)
        assert subscriber.receive() == (f"{tag}/a", f"m{qos}", qos, False)
    publisher.publish(f"{tag}/b", "bounded", 2)
    assert subscriber.receive() == (f"{tag}/b", "bounded", 1, False)


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_a_thousand_in_order(client, tag, version):
    subscriber, publisher = client(version, f"{tag}s"), client(version, f"{tag}p")
    subscriber.subscribe(f"{tag}/n", 1)
    for number in range(1000):
        publisher.client.publish(f"{tag}/n", str(number), 1)
    assert [subscriber.receive()[1] for _ in range(1000)] == [str(number) for number in range(1000)]


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_retained_and_will(client, gateway, tag, version):
    publisher = client(version, f"{tag}p")
    publisher.publish(f"{tag}/kept", "last", 1, retain=True)
    subscriber = client(version, f"{tag}s")
    subscriber.subscribe(f"{tag}/#", 1)
    assert subscriber.receive() == (f"{tag}/kept", "last", 1, True)
    dying = Paho(gateway, version, f"{tag}w", will=(f"{tag}/will", "gone", 1, False))
    dying.drop()
    assert subscriber.receive() == (f"{tag}/will", "gone", 1, False)
    publisher.publish(f"{tag}/kept", "", 1, retain=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_persistent_session(client, gateway, tag, version):
    first = Paho(gateway, version, f"{tag}s", clean=False)
    assert first.present is False
    first.subscribe(f"{tag}/a", 2)
    first.close()
    publisher = client(version, f"{tag}p")
    for number in range(20):
        publisher.publish(f"{tag}/a", str(number), 1 + number // 10)  # QoS 2 is handed over at PUBREL
    second = client(version, f"{tag}s", clean=False)
    assert second.present is (version != MQTTProtocolVersion.MQTTv31)
    assert [second.receive()[1] for _ in range(20)] == [str(number) for number in range(20)]


def test_paho_5_properties(client, tag):
    subscriber, publisher = client(VERSIONS[2], f"{tag}s"), client(VERSIONS[2], f"{tag}p")
    wanted = Properties(PacketTypes.SUBSCRIBE)
    wanted.SubscriptionIdentifier = 7
    subscriber.subscribe(f"{tag}/a", options=SubscribeOptions(1, retainAsPublished=True), properties=wanted)
    sent = Properties(PacketTypes.PUBLISH)
    sent.UserProperty = [("b", "1"), ("a", "2"), ("b", "3")]
    sent.ResponseTopic, sent.CorrelationData, sent.ContentType = f"{tag}/r", b"\0\xff", "text/plain"
    sent.MessageExpiryInterval, sent.PayloadFormatIndicator = 600, 1
    publisher.publish(f"{tag}/a", "x", 1, properties=sent)
    got = subscriber.messages.get(timeout=SECONDS).properties
    assert got.UserProperty == sent.UserProperty
    assert (got.ResponseTopic, got.CorrelationData, got.ContentType) == (f"{tag}/r", b"\0\xff", "text/plain")
    assert 600 - SECONDS <= got.MessageExpiryInterval <= 600
    assert (got.PayloadFormatIndicator, got.SubscriptionIdentifier) == (1, [7])


def test_paho_5_shared_subscription(client, tag):
    members = [client(VERSIONS[2], f"{tag}s{n}") for n in range(3)]
    for member in members:
        member.subscribe(f"$share/g/{tag}/a", 1)
    publisher = client(VERSIONS[2], f"{tag}p")
    for number in range(30):
        publisher.publish(f"{tag}/a", str(number), 1)
    shares = [[member.receive()[1] for _ in range(10)] for member in members]
    assert sorted(int(one) for share in shares for one in share) == list(range(30))


# --- mosquitto clients ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquitto_clients(gateway, tag, version, qos):
    if shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto_pub and mosquitto_sub are needed: apt-get install mosquitto-clients")
    common = ["-p", str(gateway.port), "-V", version, "-q", qos]
    topic = f"{tag}/line"
    ready = subprocess.Popen(
        ["mosquitto_sub", *common, "-i", f"{tag}s", "-t", topic, "-t", f"{tag}/ready", "-C", "4", "-W", str(SECONDS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert ready.stdout is not None
    subprocess.run(["mosquitto_pub", *common, "-t", f"{tag}/ready", "-m", "ready", "-r"], check=True, timeout=SECONDS)
    assert ready.stdout.readline() == "ready\n"
    lines = "one\ntwo\nthree\n"
    subprocess.run(["mosquitto_pub", *common, "-t", topic, "-l"], input=lines, text=True, check=True, timeout=SECONDS)
    rest, _ = ready.communicate(timeout=SECONDS)
    assert rest == lines
    assert ready.returncode == 0


def test_mosquitto_request_and_response(gateway, tag):
    if shutil.which("mosquitto_rr") is None:
        pytest.skip("mosquitto_rr is needed: apt-get install mosquitto-clients")
    common = ["-p", str(gateway.port), "-V", "mqttv5"]
    command = ["mosquitto_sub", *common, "-t", f"{tag}/ask", "-F", "%R", "-C", "1", "-W", str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as answerer:
        ask = ["mosquitto_rr", *common, "-t", f"{tag}/ask", "-e", f"{tag}/answer", "-m", "what", "-W", str(SECONDS)]
        with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as asking:
            assert answerer.stdout is not None
            # The question may come before the answerer has subscribed: it is repeated until it is heard.
            while answerer.poll() is None:
                again = ["mosquitto_pub", *common, "-t", f"{tag}/ask", "-m", "what"]
                again += ["-D", "publish", "response-topic", f"{tag}/answer"]
                subprocess.run(again, check=True, timeout=SECONDS)
            response_topic = answerer.stdout.read().strip()
            assert response_topic == f"{tag}/answer"
            while asking.poll() is None:
                subprocess.run(
                    ["mosquitto_pub", *common, "-t", response_topic, "-m", "so"], check=True, timeout=SECONDS
                )
            assert asking.stdout is not None
            assert asking.stdout.read() == "so\n"


def test_mosquitto_sub_reads_the_brokers_state(gateway):
    if shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto_sub is needed: apt-get install mosquitto-clients")
    command = [
        "mosquitto_sub",
        "-p",
        str(gateway.port),
        "-t",
        "$SYS/broker/version",
        "-C",
        "1",
        "-W",
        str(SECONDS),
        "-F",
        "%j",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    assert json.loads(done.stdout)["payload"].startswith("mqgate")


# --- aiomqtt and gmqtt ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version", [aiomqtt.ProtocolVersion.V31, aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5]
)
def test_aiomqtt(gateway, tag, version):
    async def scenario():
        where = {"hostname": "127.0.0.1", "port": gateway.port, "protocol": version}
        async with (
            aiomqtt.Client(identifier=f"{tag}s", **where) as subscriber,
            aiomqtt.Client(identifier=f"{tag}p", **where) as publisher,
        ):
            await subscriber.subscribe(f"{tag}/+", qos=2)
            for qos in (0, 1, 2):
                await publisher.publish(f"{tag}/{qos}", f"m{qos}", qos=qos)
            got = []
            async for message in subscriber.messages:
                got.append((str(message.topic), message.payload, message.qos))
                if len(got) == 3:
                    return got
        return None

    got = asyncio.run(asyncio.wait_for(scenario(), SECONDS))
    assert got == [(f"{tag}/{qos}", f"m{qos}".encode(), qos) for qos in (0, 1, 2)]


@pytest.mark.parametrize("version", [4, 5])
def test_gmqtt(gateway, tag, version):
    async def scenario():
        received: asyncio.Queue = asyncio.Queue()
        granted = asyncio.Event()
        subscriber, publisher = gmqtt.Client(f"{tag}s"), gmqtt.Client(f"{tag}p")

        async def on_message(_client, topic, payload, qos, properties):
            received.put_nowait((topic, payload, qos, properties.get("user_property")))
            return 0

        subscriber.on_message = on_message
        subscriber.on_subscribe = lambda *_: granted.set()
        await subscriber.connect("127.0.0.1", gateway.port, version=version)
        await publisher.connect("127.0.0.1", gateway.port, version=version)
        subscriber.subscribe(f"{tag}/#", qos=2)
        await granted.wait()
        extra = {"user_property": ("k", "v")} if version == 5 else {}
        got = []
        for qos in (0, 1, 2):
            publisher.publish(f"{tag}/{qos}", f"m{qos}", qos=qos, **extra)
            got.append(await received.get())
        await publisher.disconnect()
        await subscriber.disconnect()
        return got

    got = asyncio.run(asyncio.wait_for(scenario(), SECONDS))
    pairs = [("k", "v")] if version == 5 else None
    assert got == [(f"{tag}/{qos}", f"m{qos}".encode(), qos, pairs) for qos in (0, 1, 2)]
