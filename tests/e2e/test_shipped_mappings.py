"""The shipped mappings on a running gateway: their own tests with real connections and queues, their MQSC as it stands.

What `mqgate check` rehearses is done here for each test of each file: a device publishes and the message is looked at
on its queue; an application's message is put and a device gets it.
"""

from __future__ import annotations

import base64
import json
import queue
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
from gateways import RunningGateway
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.bridge.rehearsal import message_of, payload_of
from gateway.mq import mqmd
from gateway.rules import model
from gateway.rules.feedback import Feedback
from gateway.rules.model import ExpectedPut, Publication
from gateway.rules.parse import load_mappings

ROOT = Path(__file__).parent.parent.parent
FILES = sorted((ROOT / "mappings").glob("*.yaml"))
DEAD = "SYSTEM.DEAD.LETTER.QUEUE"
PUBLISHED = "TEST.PUBLISHED"
"""Where everything goes that is published on MQ topics."""
SECONDS = 10


class Estate:
    """A gateway with one mapping, its queues, and an operator's view of them."""

    def __init__(self, gateway: RunningGateway, objects: str) -> None:
        self.gateway = gateway
        self.token = (gateway.directory / "data" / "admin.token").read_text().strip()
        self.transmission = dict(re.findall(r"DEFINE QREMOTE\(([^)]+)\).*XMITQ\(([^)]+)\)", objects))

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.gateway.admin}/api/v1{path}"
        request = urllib.request.Request(url, data, {"Authorization": f"Bearer {self.token}"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def messages(self, name: str, count: int) -> list[dict[str, Any]]:
        """The messages of a queue, as soon as there are so many."""
        where = f"/queues/{quote(self.transmission.get(name, name), safe='')}/messages"
        until = time.monotonic() + SECONDS
        while True:
            found = self.ask("GET", where)
            rows = found["messages"] if isinstance(found, dict) and "messages" in found else found.get("items", found)
            if len(rows) >= count or time.monotonic() > until:
                return [self.ask("GET", f"{where}/{row['token']}") for row in rows]
            time.sleep(0.05)

    def clear(self, *names: str) -> None:
        for name in names:
            where = quote(self.transmission.get(name, name), safe="")
            try:
                self.ask("DELETE", f"/queues/{where}/messages?confirm={where}")
            except urllib.error.HTTPError as error:
                if error.code != 404:  # no such queue: nothing to clear
                    raise


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.stem)
def estate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Estate, Path]]:
    path: Path = request.param
    with running(path, tmp_path_factory.mktemp(path.stem)) as found:
        yield found, path


@contextmanager
def running(path: Path, directory: Path) -> Iterator[Estate]:
    objects = "\n".join(re.findall(r"^# +((?:DEFINE|ALTER) .*)$", path.read_text(), re.MULTILINE))
    published = f"DEFINE QLOCAL({PUBLISHED}) REPLACE\nDEFINE SUB({PUBLISHED}) TOPICSTR('#') DEST({PUBLISHED}) REPLACE\n"
    (directory / "objects.mqsc").write_text(published + objects)
    settings = f"queue_manager: {{embedded: {{objects: objects.mqsc}}}}\nmappings: [{path}]\n"
    with RunningGateway(directory, settings=settings) as gateway:
        yield Estate(gateway, objects)


class Device:
    """A real MQTT 5 client."""

    def __init__(self, gateway: RunningGateway, client_id: str) -> None:
        self.received: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
        self.client.on_message = lambda client, data, message: self.received.put(message)
        self.client.on_subscribe = lambda *_: self.received.put(None)
        self.client.connect("127.0.0.1", gateway.port, clean_start=True)
        self.client.loop_start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def publish(self, one: Publication) -> None:
        properties = Properties(PacketTypes.PUBLISH)
        users = one.user_properties
        properties.UserProperty = list(users.items()) if isinstance(users, dict) else list(users)
        if one.response_topic is not None:
            properties.ResponseTopic = one.response_topic
        if one.correlation_data is not None:
            properties.CorrelationData = one.correlation_data.encode()
        self.client.publish(one.topic, payload_of(one), one.qos, one.retain, properties).wait_for_publish(SECONDS)

    def subscribe(self, filter_: str = "#") -> None:
        self.client.subscribe(filter_, 2)
        assert self.received.get(timeout=SECONDS) is None


def test_every_test_of_the_file_holds_on_a_running_gateway(estate: tuple[Estate, Path]) -> None:
    found, path = estate
    for placed in load_mappings([str(path)]).tests:
        test = placed.test
        if test.put is not None and test.put.queue.startswith("topic://"):
            continue  # what an application publishes on MQ topics: test_bridge_both_backends.py
        if test.publish is not None:
            check_publication(found, test)
        else:
            check_put(found, test)


def queue_of(expected: ExpectedPut) -> str:
    if expected.refused:
        return DEAD
    return PUBLISHED if expected.mq_topic is not None else str(expected.queue)


def check_publication(estate: Estate, test: model.Test) -> None:
    assert test.publish is not None
    wanted = [one for one in test.expect if isinstance(one, ExpectedPut)]
    queues = {queue_of(one) for one in wanted}
    estate.clear(DEAD, *queues)
    with Device(estate.gateway, test.publish.client) as device:
        device.publish(test.publish)
    for name in queues:
        here = [one for one in wanted if queue_of(one) == name]
        found = estate.messages(name, len(here))
        assert len(found) == len(here), (test.name, name, found)
        for expected, message in zip(here, found, strict=True):
            compare(expected, message, test)
    if not wanted:
        assert estate.messages(DEAD, 0) == []
    if test.publish.retain:  # or the next test's subscriber would get it
        with Device(estate.gateway, test.publish.client) as device:
            device.publish(Publication(topic=test.publish.topic, retain=True, qos=1))


def compare(expected: ExpectedPut, message: dict[str, Any], test: model.Test) -> None:
    assert test.publish is not None
    body, properties = message["body"], message["properties"]
    raw = body["text"].encode() if body["text"] is not None else base64.b64decode(body["base64"])
    assert raw == payload_of(test.publish), test.name
    if expected.refused:
        [header] = [one for one in message["headers"] if one["structure"] == "MQDLH"]
        assert str(Feedback[expected.refused.upper()].value) in str(header["fields"]["Reason"]), test.name
        return
    for name, value in (expected.properties or {}).items():
        if name != "received":  # the time of the rehearsal is a fixed one
            assert properties[name if "." in name else f"usr.{name}"] == value, (test.name, name, properties)
    if expected.persistence is not None:
        assert ("NOT" not in str(message["descriptor"]["Persistence"])) == (expected.persistence == "persistent"), (
            test.name
        )
    if expected.priority is not None:
        assert message["descriptor"]["Priority"] == expected.priority


def check_put(estate: Estate, test: model.Test) -> None:
    assert test.put is not None
    md, data = message_of(test.put)
    estate.clear(DEAD)
    client = next((one.client for one in test.expect if getattr(one, "client", None)), None) or "watcher"
    with Device(estate.gateway, client) as device:
        device.subscribe()
        while not device.received.empty():  # what an earlier test had retained
            device.received.get()
        message = {
            "base64": base64.b64encode(data).decode(), "format": mqmd.text(md, mqmd.FORMAT), "ccsid": 1208,
            "persistent": test.put.persistence == "persistent", "correl_id": test.put.correlation_id.encode().hex(),
            "reply_to": test.put.reply_to,
        }  # fmt: skip
        given = {name: value for name, value in message.items() if value != ""}
        estate.ask("POST", f"/queues/{quote(test.put.queue, safe='')}/messages", given)
        for expected in test.expect:
            if expected.refused:
                [dead] = estate.messages(DEAD, 1)
                [header] = [one for one in dead["headers"] if one["structure"] == "MQDLH"]
                assert str(Feedback[expected.refused.upper()].value) in str(header["fields"]["Reason"]), test.name
                continue
            found = device.received.get(timeout=SECONDS)
            assert found is not None
            for key, value in (("topic", found.topic), ("qos", found.qos), ("payload", found.payload.decode())):
                wanted = getattr(expected, key)
                assert wanted is None or wanted == value, (test.name, key, value)
            users = dict(getattr(found.properties, "UserProperty", []))
            assert (getattr(expected, "user_properties", None) or {}).items() <= users.items(), test.name


def test_a_device_gets_the_answer_to_its_request(tmp_path: Path) -> None:
    """Plain MQ on the application's side: the answer carries the request's MsgId as CorrelId and nothing else."""
    with (
        running(ROOT / "mappings" / "request-reply.yaml", tmp_path) as estate,
        Device(estate.gateway, "dev-7") as device,
    ):
        device.subscribe("orders/reply/#")
        asked = Publication(
            topic="orders/request",
            qos=1,
            payload="10 bolts",
            response_topic="orders/reply/dev-7",
            correlation_data="no 42",
        )
        device.publish(asked)
        [request] = estate.messages("ORDERS.REQUESTS", 1)
        assert request["descriptor"]["ReplyToQ"] == "ORDERS.REPLIES"
        assert "REQUEST" in str(request["descriptor"]["MsgType"])
        answer = {"text": "shipped", "correl_id": request["descriptor"]["MsgId"]}
        estate.ask("POST", "/queues/ORDERS.REPLIES/messages", answer)
        found = device.received.get(timeout=SECONDS)
        assert (found.topic, found.payload) == ("orders/reply/dev-7", b"shipped")
        assert found.properties.CorrelationData == b"no 42"
        estate.ask("POST", "/queues/ORDERS.REPLIES/messages", answer)  # a request is answered once
        [dead] = estate.messages(DEAD, 1)
        assert str(Feedback.TOPIC_NOT_VALID.value) in str(dead["headers"][0]["fields"]["Reason"])
