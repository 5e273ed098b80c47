"""What is the same as in MQ Telemetry: one test for each row of docs/reference/mq-telemetry.md that says so."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from broker_harness import Harness

from gateway.bridge import outbound
from gateway.bridge.inbound import Origin, plan
from gateway.bridge.payload import Body
from gateway.mq import mqmd, situations
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mq.properties import properties_of
from gateway.mq.situations import Putter
from gateway.routing.table import compile_mappings
from gateway.rules.parse import load_mappings

ROOT = Path(__file__).parents[3]
MAPPINGS = load_mappings([str(ROOT / "mappings" / "mq-telemetry.yaml")])
TABLE = compile_mappings(MAPPINGS)
DIRECT, FROM_TOPICS = MAPPINGS.to_mqtt
QMGR = Putter("mqm", "QM1", 7, "20260102", "03040506")
XMITQ = "SYSTEM.MQTT.TRANSMIT.QUEUE"


def sent(topic="plant/7", qos=1, body=b"21.5", packet_id=9, username="", **flags):
    """The message that a device's publication becomes: where, descriptor, data."""
    [prepared] = plan(TABLE, Origin("dev-7", username, topic, qos, **flags), {}).prepared
    built = prepared.build(packet_id if qos else 0, Body(body), 1_800_000_000.0)
    return built, mqmd.unpack(built.head[:364]), built.head[364:] + built.body


def read(built, data):
    return {one.name: (one.value, one.dt) for one in properties_of(built.head[:364], data)}


def to_device(body=b"80", *, queue="valve/set", client="dev-7", folders=None, **md):
    """What the gateway makes of a message on the transmission queue."""
    texts = [folder(name, values) for name, values in (folders or {}).items()]
    described = mqmd.build(**{"persistence": 1} | md)
    data = body
    if texts:
        data = rfh2.build(texts, coded_char_set_id=1208) + body
        described = mqmd.with_described(described, 546, 1208, b"MQHRF2  ")
    separate, whole = situations.to_transmission(described, data, queue, client, msg_id=b"n" * 24, putter=QMGR)
    return outbound.publication(DIRECT, separate, whole)


def test_three_parts():
    _, md, data = sent()
    assert (md.format, data[:4], rfh2.parse(data).format) == ("MQHRF2", b"RFH ", b" " * 8)


def test_payload():
    for body in (b"", bytes(range(256)), "ñ €".encode()):
        data = sent(body=body)[2]
        assert data[rfh2.parse(data).length :] == body


def test_class():
    built, _, data = sent()
    assert read(built, data)["mcd.Msd"] == ("jms_bytes", "string")


def test_topic():
    built, _, data = sent("plant/lima/ñ")
    assert read(built, data)["mqps.Top"] == ("plant/lima/ñ", "string")


def test_mq_topic():
    built = sent("plant/lima/7")[0]
    assert (built.queue, built.mq_topic) == ("topic://plant/lima/7", "plant/lima/7")


def test_client():
    built, _, data = sent()
    assert read(built, data)["mqtt.clientId"] == ("dev-7", "string")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_qos(qos):
    built, _, data = sent(qos=qos)
    assert read(built, data)["mqtt.qos"] == (qos, "i4")


def test_packet():
    built, _, data = sent(packet_id=65535)
    assert read(built, data)["mqtt.msgId"] == (65535, "i4")


@pytest.mark.parametrize(("qos", "persistence"), [(0, 0), (1, 1), (2, 1)])
def test_persistence(qos, persistence):
    built, md, _ = sent(qos=qos)
    assert (md.persistence, built.persistent) == (persistence, bool(persistence))


def test_retained():
    built, _, data = sent(retain=True)
    assert read(built, data)["mqps.Ret"] == (True, "boolean")
    assert b"<Ret dt='boolean'>1</Ret>" in data
    built, _, data = sent()
    assert "mqps.Ret" not in read(built, data)


def test_retained_qos_0():
    assert sent(qos=0, retain=True)[1].persistence == 0


def test_cleared():
    built, _, data = sent(retain=True, body=b"")
    assert data[rfh2.parse(data).length :] == b""
    assert "mqps.Ret" in read(built, data)


def test_will():
    plain, last = sent(qos=2, retain=True), sent(qos=2, retain=True, will=True)
    names = set(read(last[0], last[2])) - set(read(plain[0], plain[2]))
    assert names == {"mqtt.will"}
    assert last[0].mq_topic == plain[0].mq_topic
    assert last[1].persistence == 1


def test_user():
    assert sent()[1].user_identifier == "dev-7"
    assert sent(username="ana")[1].user_identifier == "ana"


def test_expiry():
    assert sent()[1].expiry == -1


def test_ids():
    md = sent()[1]
    assert (md.msg_id, md.correl_id, md.group_id) == (bytes(24), bytes(24), bytes(24))


def test_transmission():
    assert DIRECT.spec.transmission_queue == XMITQ
    assert to_device().client == "dev-7"


def test_remote_queue_is_topic():
    assert to_device(queue="a/" * 23 + "bc").topic == "a/" * 23 + "bc"


def test_publication_queue():
    found = to_device(queue="SYSTEM.MQTT.PUBLICATION.QUEUE", folders={"mqps": {"Top": "plant/limits/" + "x" * 80}})
    assert (found.topic, found.client) == ("plant/limits/" + "x" * 80, "dev-7")


def test_body():
    body = bytes(range(256))
    assert to_device(body).payload == body
    assert to_device(body, folders={"usr": {"a": "1"}, "mcd": {"Msd": "jms_bytes"}}).payload == body


@pytest.mark.parametrize(("persistence", "qos"), [(0, 0), (1, 2)])
def test_persistence_to_qos(persistence, qos):
    assert to_device(persistence=persistence).qos == qos
    assert to_device(persistence=persistence, folders={"mqtt": {"qos": 1}}).qos == 1


def test_retained_to_device():
    assert to_device(folders={"mqps": {"Top": "t", "Ret": True}}).retain
    assert not to_device(folders={"mqps": {"Top": "t"}}).retain
    raw = rfh2.build(["<mqps><Top>t</Top><Ret>1</Ret></mqps>"])  # as text
    made = outbound.publication(FROM_TOPICS, mqmd.build(format="MQHRF2", coded_char_set_id=1208), raw)
    assert (made.topic, made.retain) == ("t", True)


def test_expiry_to_device():
    assert to_device(expiry=605).properties[0x02] == 60


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_lower_qos(granted):
    bench = Harness((ROOT / "mappings" / "mq-telemetry.yaml").read_text())
    device = bench.device(4, "dev-7").connect()
    device.subscribe("devices/#", granted)
    device.take()
    header = rfh2.build(["<mqps><Top>devices/7</Top></mqps>"], coded_char_set_id=1208)
    md = mqmd.build(format="MQHRF2", coded_char_set_id=1208, persistence=1)
    bench.queues.arrive("DEVICE.PUBLICATIONS", (md, header + b"80"))
    bench.advance(0.5)
    [packet] = [one for one in device.take() if one[0] >> 4 == 3]
    assert (packet[0] >> 1 & 3, packet[1], packet[4]) == (granted, b"devices/7", b"80")


def test_big_endian_headers_of_the_service_are_read_the_same():
    """Messages that MQ Telemetry itself has put, in the byte order of Java."""
    texts = [
        "<mqps><Top>a/b</Top><Ret dt='boolean'>1</Ret></mqps>",
        "<mqtt><clientId>old</clientId><qos dt='i4'>1</qos></mqtt>",
    ]
    raw = rfh2.build(texts, order=">", encoding=273, coded_char_set_id=1208)
    md = mqmd.build(format="MQHRF2", encoding=273, coded_char_set_id=819, persistence=1)
    assert raw[4:8] == struct.pack(">i", 2)
    made = outbound.publication(FROM_TOPICS, md, raw + b"80")
    assert (made.topic, made.payload, made.retain) == ("a/b", b"80", True)


def test_every_row_that_says_same_has_its_test():
    page = (ROOT / "docs" / "reference" / "mq-telemetry.md").read_text()
    rows = re.findall(r"^\| `([a-z0-9_]+)` \|.*\| same \|$", page, re.MULTILINE)
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(rows) - tests == set()
    assert len(rows) > 20
