"""The shipped mappings on a running gateway, on both backends, with real MQTT clients and a real MQ program (`ibmmq`).

What `mqgate check` rehearses is done here for each test of each file: a device publishes and the program looks at its
queue; the program puts and a device gets it. Then what the comments of each file and its page promise beyond that.
"""

from __future__ import annotations

import queue
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest
from bridge_estate import BACKENDS, Estate, wait
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.bridge.message import Message
from gateway.bridge.rehearsal import message_of, payload_of
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.ports.batch import Puts
from gateway.rules import trials
from gateway.rules.feedback import Feedback
from gateway.rules.parse import load_mappings
from gateway.rules.trials import ExpectedPublication, ExpectedPut, Publication

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
ROOT = Path(__file__).parent.parent.parent
FILES = sorted((ROOT / "mappings").glob("*.yaml"))
DEAD = "SYSTEM.DEAD.LETTER.QUEUE"
PUBLISHED = "TEST.PUBLISHED"
"""Where everything goes that is published on MQ topics."""
OBJECTS = (
    "\n".join(re.findall(r"^# +((?:DEFINE|ALTER) .*)$", "".join(map(Path.read_text, FILES)), re.MULTILINE))
    + f"""
DEFINE QLOCAL({PUBLISHED}) REPLACE
DEFINE SUB({PUBLISHED}) TOPICSTR('#') DEST({PUBLISHED}) REPLACE
ALTER QMGR DEADQ({DEAD})
"""
)
TRANSMISSION = dict(re.findall(r"DEFINE QREMOTE\(([^)]+)\).*XMITQ\(([^)]+)\)", OBJECTS))
SECONDS = 60
COA, COD = 259, 260


class Device:
    """A real MQTT 5 client."""

    def __init__(self, bridge: Estate, client_id: str, *, session: int = 0) -> None:
        self.received: queue.Queue[Any] = queue.Queue()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
        self.client.on_message = lambda client, data, message: self.received.put(message)
        self.client.on_subscribe = lambda *_: self.received.put(None)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = session
        self.client.connect("127.0.0.1", bridge.gateway.port, clean_start=not session, properties=properties)
        self.client.loop_start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def publish(self, one: Publication, *, seconds: float = SECONDS) -> bool:
        """Whether it was acknowledged."""
        properties = Properties(PacketTypes.PUBLISH)
        users = one.user_properties
        properties.UserProperty = list(users.items()) if isinstance(users, dict) else list(users)
        if one.response_topic is not None:
            properties.ResponseTopic = one.response_topic
        if one.correlation_data is not None:
            properties.CorrelationData = one.correlation_data.encode()
        sent = self.client.publish(one.topic, payload_of(one), one.qos, one.retain, properties)
        sent.wait_for_publish(seconds)
        return sent.is_published()

    def subscribe(self, filter_: str = "#") -> None:
        """Also takes what is retained there."""
        self.client.subscribe(filter_, 2)
        while self.received.get(timeout=SECONDS) is not None:
            pass

    def next(self) -> Any:
        return self.received.get(timeout=SECONDS)


def say(bridge: Estate, topic: str, payload: str = "x", qos: int = 1, **named: Any) -> bool:
    """A device publishes and leaves."""
    with Device(bridge, named.pop("client", "dev-7")) as device:
        return device.publish(Publication(topic=topic, payload=payload, qos=qos, **named))


class Program:
    """An MQ application with `ibmmq`, as its manual has it."""

    def __init__(self, bridge: Estate) -> None:
        self.mq = bridge.application.driver.module
        self.manager = bridge.application.connection.session._owner

    def get(self, name: str, *, selector: str = "", seconds: int = SECONDS) -> tuple[Any, bytes]:
        """Take a message; its descriptor and data."""
        wanted = self.mq.OD(ObjectName=name.encode())
        if selector:
            wanted.set_vs("SelectionString", selector.encode())
        opened = self.mq.Queue(self.manager, wanted, mq.MQOO_INPUT_SHARED)
        md, gmo = self.mq.MD(), self.mq.GMO(Options=mq.MQGMO_WAIT, WaitInterval=seconds * 1000)
        with closing(opened):
            data = opened.get(None, md, gmo)
        return md, data

    def put(self, name: str, body: bytes, *, manager: str = "", **descriptor: Any) -> Any:
        """Put a message; its descriptor."""
        md = self.mq.MD(Persistence=1, **descriptor)
        self.manager.put1(self.mq.OD(ObjectName=name.encode(), ObjectQMgrName=manager.encode()), body, md)
        return md

    def publish(self, topic: str, body: bytes) -> None:
        opened = self.mq.Topic(self.manager, topic_string=topic, open_opts=mq.MQOO_OUTPUT)
        with closing(opened):
            opened.pub(body, self.mq.MD(Persistence=1))

    def refused(self, name: str, **named: Any) -> int:
        """The reason why there is nothing to get."""
        with pytest.raises(self.mq.MQMIError) as error:
            self.get(name, seconds=0, **named)
        return int(error.value.reason)


@pytest.fixture(scope="module", params=BACKENDS)
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    made = Estate(tmp_path_factory.mktemp(request.param), request.param, FILES[0].read_text(), OBJECTS)
    shutil.copytree(ROOT / "mappings" / "schemas", made.gateway.directory / "schemas")
    try:
        made.start()
        yield made
    finally:
        made.stop()


def use(bridge: Estate, name: str) -> Program:
    """The gateway follows this mapping from now on; nothing is left of the one before."""
    bridge.reload((ROOT / "mappings" / f"{name}.yaml").read_text())
    names = set(re.findall(r"DEFINE QLOCAL\(([^)]+)\)", OBJECTS)) | {DEAD}
    bridge.application.clear(*names)
    return Program(bridge)


# -- the tests of the files --


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_test_of_the_file_holds_on_a_running_gateway(bridge: Estate, path: Path) -> None:
    use(bridge, path.stem)
    for placed in load_mappings([str(path)]).tests:
        if placed.test.publish is not None:
            check_publication(bridge, placed.test)
        else:
            check_put(bridge, placed.test)


def queue_of(expected: ExpectedPut) -> str:
    if expected.refused:
        return DEAD
    name = PUBLISHED if expected.mq_topic is not None else str(expected.queue)
    return TRANSMISSION.get(name, name)


def check_publication(bridge: Estate, test: trials.Test) -> None:
    assert test.publish is not None
    wanted = [one for one in test.expect if isinstance(one, ExpectedPut)]
    queues = {queue_of(one) for one in wanted}
    bridge.application.clear(DEAD, *queues)
    with Device(bridge, test.publish.client) as device:
        assert device.publish(test.publish)
    for name in queues:
        here = [one for one in wanted if queue_of(one) == name]
        found = bridge.application.messages(name, len(here))
        assert len(found) == len(here), (test.name, name, found)
        for expected, message in zip(here, found, strict=True):
            compare(expected, message, test)
    if not wanted:
        assert bridge.application.look(DEAD) == []
    if test.publish.retain:  # or the next test's subscriber would get it
        say(bridge, test.publish.topic, "", retain=True)


def compare(expected: ExpectedPut, message: Message, test: trials.Test) -> None:
    assert test.publish is not None
    assert message.body.raw == payload_of(test.publish), test.name
    if expected.refused:
        assert reason_of(message) == Feedback[expected.refused.upper()], test.name
        return
    for name, value in (expected.properties or {}).items():
        if name != "received":  # the time of the rehearsal is a fixed one
            folder, _, rest = name.rpartition(".")
            assert message.property(folder or "usr", rest) == value, (test.name, name)
    if expected.properties == {}:
        assert not message.folders, test.name
    md = mqmd.unpack(message.md)
    if expected.persistence is not None:
        assert md.persistence == int(expected.persistence == "persistent"), test.name
    assert expected.priority in {None, md.priority}, test.name
    if expected.format is not None:
        assert message.described.format.decode().strip() == expected.format, test.name


def reason_of(message: Message) -> int:
    return int.from_bytes(message.data[8:12], "little")


def check_put(bridge: Estate, test: trials.Test) -> None:
    assert test.put is not None
    md, data = message_of(test.put)
    bridge.application.clear(DEAD)
    wanted = [one for one in test.expect if isinstance(one, ExpectedPublication)]
    client = next((one.client for one in wanted if one.client), None) or "watcher"
    with Device(bridge, client) as device:
        device.subscribe()
        persistent = test.put.persistence == "persistent"
        head = mqmd.with_described(md, 546, 1208, md[mqmd.FORMAT])
        bridge.application.connection.put_run(
            Puts(test.put.queue, persistent=persistent, heads=[head], bodies=[data]), False
        )
        bridge.application.connection.session.commit()
        for expected in test.expect:
            if expected.refused:
                [dead] = bridge.application.messages(DEAD)
                assert reason_of(dead) == Feedback[expected.refused.upper()], test.name
                continue
            found = device.next()
            for key, value in (("topic", found.topic), ("qos", found.qos), ("payload", found.payload.decode())):
                assert getattr(expected, key) in {None, value}, (test.name, key, value)
            users = dict(getattr(found.properties, "UserProperty", []))
            assert (getattr(expected, "user_properties", None) or {}).items() <= users.items(), test.name
            if getattr(expected, "retain", False):
                kept(bridge, found.topic, found.payload)


def kept(bridge: Estate, topic: str, payload: bytes) -> None:
    """A device that comes later gets it, once; then it is forgotten."""
    with Device(bridge, "late") as late:
        late.client.subscribe(topic, 2)
        got = [late.next(), late.next()]  # SUBACK and this, as they come
        [message] = [one for one in got if one is not None]
        assert (message.retain, message.payload) == (True, payload)
    say(bridge, topic, "", retain=True)


# -- what they promise beyond that --


def test_alarms_are_confirmed_on_arrival_and_on_delivery(bridge: Estate) -> None:
    program = use(bridge, "alarms")
    say(bridge, "plant/lima/alarm/critical", "fire")
    first, _ = program.get("ALARMS.REPORTS")
    alarm, data = program.get("ALARMS")
    second, _ = program.get("ALARMS.REPORTS")
    assert (first.Feedback, second.Feedback) == (COA, COD)
    assert first.CorrelId == second.CorrelId == alarm.MsgId
    assert data.endswith(b"fire")
    assert program.get("ALARMS.ARCHIVE")[1].endswith(b"fire")


def test_an_alarm_is_on_both_queues_or_on_none_and_never_given_up(bridge: Estate) -> None:
    program = use(bridge, "alarms")
    say(bridge, "plant/lima/alarm/minor", "before")
    program.get("ALARMS.ARCHIVE")
    bridge.mqsc("ALTER QLOCAL(ALARMS) PUT(DISABLED)")
    with Device(bridge, "dev-7") as device:
        assert not device.publish(Publication(topic="plant/lima/alarm/critical", payload="fire", qos=1), seconds=1.0)
        assert bridge.application.look("ALARMS.ARCHIVE") == []
        bridge.mqsc("ALTER QLOCAL(ALARMS) PUT(ENABLED)")
        assert program.get("ALARMS.ARCHIVE")[1].endswith(b"fire")
        assert program.get("ALARMS")[1].endswith(b"fire")  # the higher priority first
    say(bridge, "nobody/knows", "this")
    assert [reason_of(one) for one in bridge.application.messages(DEAD)] == [Feedback.NO_RULE]


def test_an_application_opens_the_device_as_a_queue_manager(bridge: Estate) -> None:
    """Through DEFXMITQ, as with MQ Telemetry; a device that is away gets it when it comes back."""
    program = use(bridge, "commands")
    with Device(bridge, "valve-1", session=300) as device:
        program.put("valve/set", b"1", manager="valve-1")
        found = device.next()
        assert (found.topic, found.payload, found.qos) == ("valve/set", b"1", 2)
    program.put("valve/set", b"2", manager="valve-1")
    with Device(bridge, "valve-1", session=300) as device:
        assert device.next().payload == b"2"
    with Device(bridge, "valve-1"):
        pass  # its session goes


def test_what_came_while_its_rule_was_away_is_delivered_when_it_is_back(bridge: Estate) -> None:
    use(bridge, "commands")
    use(bridge, "alarms")
    bridge.application.put("COMMANDS", b"open", usr={"site": "lima", "device": "dev-7"})
    with Device(bridge, "dev-7") as device:
        device.subscribe("plant/#")
        bridge.reload((ROOT / "mappings" / "commands.yaml").read_text())
        assert device.next().payload == b"open"


def test_commands_stay_in_order_for_each_device_and_host_text_is_converted(bridge: Estate) -> None:
    program = use(bridge, "commands")
    with Device(bridge, "watcher") as device:
        device.subscribe("plant/#")
        for number in range(40):
            usr = {"site": "lima", "device": f"dev-{number % 2}"}
            bridge.application.put("COMMANDS", b"%d" % number, usr=usr)
        got = [device.next() for _ in range(40)]
        for which in (0, 1):
            mine = [int(one.payload) for one in got if one.topic == f"plant/lima/dev-{which}/cmd"]
            assert mine == list(range(which, 40, 2))
        bridge.application.put("DEVICE.SETTINGS", "Rate=5 °C".encode("cp500"), ccsid=500, usr={"site": "lima"})
        found = device.next()
        assert found.payload.decode() == "Rate=5 °C"
        assert not getattr(found.properties, "UserProperty", [])
    kept(bridge, "plant/lima/settings", "Rate=5 °C".encode())
    assert program.refused("COMMANDS") == mq.MQRC_NO_MSG_AVAILABLE


def test_a_device_gets_the_answer_to_its_request(bridge: Estate) -> None:
    """Plain MQ on the application's side: the answer carries the request's MsgId as CorrelId and nothing else."""
    program = use(bridge, "request-reply")
    with Device(bridge, "dev-7") as device:
        device.subscribe("orders/reply/#")
        asked = {"response_topic": "orders/reply/dev-7", "correlation_data": "no 42"}
        device.publish(Publication(topic="orders/request", qos=1, payload="10 bolts", **asked))
        request, data = program.get("ORDERS.REQUESTS")
        assert (request.MsgType, request.ReplyToQ.strip()) == (1, b"ORDERS.REPLIES")
        assert 0 < request.Expiry <= 300
        assert data.endswith(b"10 bolts")
        reply_to = request.ReplyToQ.strip().decode()
        program.put(reply_to, b"shipped", MsgType=2, CorrelId=request.MsgId)
        found = device.next()
        assert (found.topic, found.payload) == ("orders/reply/dev-7", b"shipped")
        assert found.properties.CorrelationData == b"no 42"
        program.put(reply_to, b"shipped", MsgType=2, CorrelId=request.MsgId)  # a request is answered once
        [dead] = bridge.application.messages(DEAD)
        assert reason_of(dead) == Feedback.REQUEST_UNKNOWN


def test_an_application_gets_the_answer_of_a_device(bridge: Estate) -> None:
    program = use(bridge, "request-reply")
    with Device(bridge, "dev-7") as device:
        device.subscribe("questions/dev-7")
        msg_id = bridge.application.put(
            "DEVICE.REQUESTS", b"status?", usr={"device": "dev-7"}, msg_type=1, reply_to_q="APP.REPLIES"
        )
        question = device.next()
        properties = Properties(PacketTypes.PUBLISH)
        properties.CorrelationData = question.properties.CorrelationData
        device.client.publish(question.properties.ResponseTopic, b"running", 1, False, properties).wait_for_publish(
            SECONDS
        )
    answer, data = program.get("APP.REPLIES")
    assert (answer.MsgType, answer.CorrelId) == (2, msg_id)
    assert data.endswith(b"running")


def test_mq_publish_and_subscribe_on_both_sides(bridge: Estate) -> None:
    program = use(bridge, "mq-topics")
    say(bridge, "plant/lima/line/7/temperature", "21.5", retain=True)
    [last] = wait(lambda: bridge.application.retained("Plants/lima/line/7/temperature"))
    assert last.body.raw == b"21.5"
    say(bridge, "plant/lima/line/7/temperature", "", retain=True)
    wait(lambda: not bridge.application.retained("Plants/lima/line/7/temperature"))
    with Device(bridge, "watcher") as device:
        device.subscribe("Alarms/#")
        program.publish("Alarms/fire/hall-3", b"leave")
        assert (found := device.next()).topic == "Alarms/fire/hall-3"
        assert (found.payload, found.qos) == (b"leave", 1)


def test_a_log_in_parts_is_got_whole_and_in_order(bridge: Estate) -> None:
    program = use(bridge, "mq-topics")
    whole = mq.MQGMO_ALL_MSGS_AVAILABLE | mq.MQGMO_LOGICAL_ORDER | mq.MQGMO_WAIT
    for part in (3, 1):
        users = {"upload": "4711", "part": str(part)} | ({"last": "true"} if part == 3 else {})
        say(bridge, "upload/dev-7", f"part {part}", 2, user_properties=users)
    say(bridge, "upload/dev-7", "part 2", 2, user_properties={"upload": "4711", "part": "2"})
    opened = program.mq.Queue(program.manager, "UPLOADS", mq.MQOO_INPUT_SHARED)
    with closing(opened):
        got = []
        for _ in range(3):
            gmo = program.mq.GMO(Options=whole, WaitInterval=SECONDS * 1000)
            got.append(opened.get(None, program.mq.MD(), gmo))
    assert [one[-6:] for one in got] == [b"part 1", b"part 2", b"part 3"]


def test_an_estate_that_has_used_mq_telemetry_need_not_change(bridge: Estate) -> None:
    program = use(bridge, "mq-telemetry")
    say(bridge, "plant/lima/temperature", "21.5", client="dev-9")
    [message] = bridge.application.messages(PUBLISHED)
    assert (message.property("mqps", "Top"), message.property("mqtt", "clientId")) == (
        "plant/lima/temperature",
        "dev-9",
    )
    assert message.property("mqtt", "qos") == 1
    with Device(bridge, "dev-9") as device:
        device.subscribe("devices/#")
        program.publish("devices/dev-9/limits", b"80")
        assert (found := device.next()).topic == "devices/dev-9/limits"
        assert found.payload == b"80"
        program.put("valve/set", b"1", manager="dev-9")
        assert (found := device.next()).topic == "valve/set"
        assert found.qos == 2


def test_selectors_of_jms_consumers_compare_typed_properties(bridge: Estate) -> None:
    program = use(bridge, "jms-consumers")
    for line in (3, 7):
        say(bridge, f"plant/lima/line/{line}/temperature", '{"value": 21.5, "valid": true}')
    assert program.refused("JMS.TELEMETRY", selector="site = 'oslo'") == mq.MQRC_NO_MSG_AVAILABLE
    _, data = program.get("JMS.TELEMETRY", selector="site = 'lima' AND line > 5 AND value > 20.0 AND valid = TRUE")
    assert b"<line dt='i4'>7</line>" in data.replace(b'"', b"'")
    assert program.refused("JMS.TELEMETRY", selector="line > 5") == mq.MQRC_NO_MSG_AVAILABLE


def test_receivers_without_properties_get_the_body_alone(bridge: Estate) -> None:
    program = use(bridge, "v6-receivers")
    say(bridge, "plant/lima/temperature", "21.5", user_properties={"a": "b"})
    md, data = program.get("HOST.READINGS")
    assert (data, md.Format.strip(), md.CodedCharSetId) == (b"21.5", b"MQSTR", 1208)
    assert (md.UserIdentifier.strip(), md.ApplIdentityData.strip()) == (b"dev-7", b"lima")
    say(bridge, "orders/4711", "10")
    [order] = bridge.application.messages("MVS1.XMIT")
    assert (order.remote_queue, order.remote_queue_manager) == ("ORDERS", "MVS1")
    assert mqmd.unpack(order.md).correl_id.rstrip(b"\0") == b"4711"
    assert mqmd.unpack(order.md).coded_char_set_id == 500
    say(bridge, "tx/pay1", "\0\1")
    md, data = program.get("HOST.TX")
    assert (md.Format, md.Encoding, md.ApplIdentityData.strip()) == (b"MYFORMAT", 273, b"PAY1")


def test_readings_of_a_device_are_a_group_and_wait_while_their_queue_is_full(bridge: Estate) -> None:
    program = use(bridge, "plant-telemetry")
    bridge.mqsc("ALTER QLOCAL(TELEMETRY.LIMA) MAXDEPTH(2)")
    with Device(bridge, "dev-7") as device:
        for number in range(2):
            device.publish(Publication(topic="plant/lima/line/7/temperature", payload=str(number), qos=1))
        reading = Publication(topic="plant/lima/line/7/temperature", payload="2", qos=1)
        assert not device.publish(reading, seconds=1.0)
        groups = [program.get("TELEMETRY.LIMA")[0].GroupId for _ in range(3)]
    assert len(set(groups)) == 1
    assert groups[0] != bytes(24)
    bridge.mqsc("ALTER QLOCAL(TELEMETRY.LIMA) MAXDEPTH(1000000)")


def test_large_readings_go_to_a_queue_of_their_own_or_the_device_is_told(bridge: Estate) -> None:
    program = use(bridge, "plant-telemetry")
    large = "w" * (256 << 10)
    say(bridge, "plant/lima/line/7/wave", large)
    assert len(program.get("TELEMETRY.LARGE")[1]) > len(large)
    assert bridge.application.look("TELEMETRY.LIMA") == bridge.application.look(DEAD) == []


def test_without_a_mapping_everything_is_on_one_queue(bridge: Estate) -> None:
    """With the client people try things out with."""
    program = use(bridge, "default")
    for qos in ("0", "1", "2"):
        command = ["mosquitto_pub", "-p", str(bridge.gateway.port), "-t", "any/topic", "-m", f"at {qos}", "-q", qos]
        subprocess.run(command, check=True, timeout=SECONDS)
    found = bridge.application.messages("MQGATE.DEFAULT", 3)
    assert sorted(one.body.raw for one in found) == [b"at 0", b"at 1", b"at 2"]
    assert {one.property("mqps", "Top") for one in found} == {"any/topic"}
    assert program.get("MQGATE.DEFAULT")[1].startswith(b"RFH ")
