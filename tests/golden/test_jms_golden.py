"""Messages of JMS clients, byte for byte: read by rules, got by programs, given to devices, written for JMS readers.

`mq/jms.json` holds one message of each class as a JMS client writes it: an MQRFH2 in Java's byte order with the folders
mcd, jms and usr, and the body as IBM documents it for the class. Bodies are left alone, whatever they are.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from embedded_rig import MqiRig

from gateway.bridge import outbound
from gateway.bridge.inbound import Origin, plan
from gateway.bridge.payload import Body
from gateway.mq import conversion, mqmd, propctl, properties
from gateway.mq.headers import chain
from gateway.mq.properties import properties_of
from gateway.routing.table import compile_mappings
from gateway.rules.parse import parse_mappings

GOLDEN = json.loads((Path(__file__).parent / "mq" / "jms.json").read_text())
CASES = [(one["class"], one["format"], bytes.fromhex(one["header"]), bytes.fromhex(one["body"])) for one in GOLDEN]
REPLIES, MANAGER = "REPLIES", "QM1"
each_class = pytest.mark.parametrize(("kind", "form", "header", "body"), CASES, ids=[one[0] for one in CASES])


def descriptor(**fields):
    """As a JMS client sets it: Java's encoding, JMSExpiration as Expiry, JMSReplyTo as ReplyToQ."""
    given = {
        "format": "MQHRF2", "encoding": 273, "coded_char_set_id": 819, "persistence": 1, "priority": 4,
        "reply_to_q": REPLIES, "reply_to_q_mgr": MANAGER, "expiry": 600,
    }  # fmt: skip
    return mqmd.build(**given | fields)


@each_class
def test_a_chain_of_one_header(kind, form, header, body):
    walked = chain.walk(descriptor(), header + body)
    assert [(one.name, one.raw) for one in walked] == [("MQRFH2", header)]
    assert (walked.payload, walked.body) == (body, (273, 1208, form.encode().ljust(8)))


@each_class
def test_its_properties_are_typed(kind, form, header, body):
    found = {one.name: (one.value, one.dt) for one in properties_of(descriptor(), header + body)}
    assert found == {
        "mcd.Msd": (kind, "string"),
        "jms.Dst": ("queue:///PLANT.ORDERS?targetClient=0", "string"), "jms.Rto": ("queue://QM1/REPLIES", "string"),
        "jms.Tms": ("1700000000123", "string"), "jms.Exp": ("1700000060123", "string"),
        "jms.Cid": ("order 7", "string"), "jms.Dlv": ("2", "string"), "jms.Gid": ("batch-1", "string"),
        "jms.Seq": ("3", "string"),
        "site": ("lima", "string"), "line": (7, "i4"), "load": (0.5, "r8"), "hot": (True, "boolean"),
        "big": (5_000_000_000, "i8"), "none": (None, "string"),
    }  # fmt: skip


@each_class
def test_a_device_gets_the_body_and_the_properties(kind, form, header, body):
    mapping = "to_mqtt: [{name: r, queue: Q, topic: 'p/{usr.site}/{usr.line}/{md.CorrelIdText}'}]\n"
    rule = parse_mappings([("m.yaml", mapping)]).to_mqtt[0]
    made = outbound.publication(rule, descriptor(correl_id=b"order".ljust(24, b"\0")), header + body)
    assert (made.topic, made.payload, made.qos) == ("p/lima/7/order", body, 2)
    assert dict(made.properties[0x26]) == {
        "site": "lima", "line": "7", "load": "0.5", "hot": "true", "big": "5000000000", "none": "",
    }  # fmt: skip
    assert made.properties[0x02] == 60  # JMSExpiration, as Expiry has it
    assert (made.properties.get(0x01) == 1) is (form == "MQSTR")
    everything = parse_mappings([("m.yaml", mapping.replace("}]", ", user_properties: all}]"))]).to_mqtt[0]
    said = descriptor(correl_id=b"order".ljust(24, b"\0"))
    users = dict(outbound.publication(everything, said, header + body).properties[0x26])
    assert (users["mcd.Msd"], users["jms.Rto"], users["jms.Gid"]) == (kind, "queue://QM1/REPLIES", "batch-1")


@each_class
def test_whole_with_its_headers(kind, form, header, body):
    """A rule may pass all of it on, for a JMS reader at the other end."""
    mapping = "to_mqtt: [{name: r, queue: Q, topic: t, strip_headers: false}]\n"
    rule = parse_mappings([("m.yaml", mapping)]).to_mqtt[0]
    assert outbound.publication(rule, descriptor(), header + body).payload == header + body


@each_class
def test_conversion_leaves_what_is_no_text_alone(kind, form, header, body):
    """MQGMO_CONVERT to this platform: numbers of the header and text change, nothing else."""
    made = conversion.convert(descriptor(), header + body, encoding=546, ccsid=1208)
    after = chain.walk(made.md, made.data)
    assert made.reason == 0
    assert after.payload == body  # text is UTF-8 on both sides; of others nobody knows what they are
    assert after.find("MQRFH2").raw[4:8] == struct.pack("<i", 2)
    before = {one.name: one.value for one in properties_of(descriptor(), header + body)}
    assert {one.name: one.value for one in properties_of(made.md, made.data)} == before


@each_class
@pytest.mark.parametrize("control", ["COMPAT", "ALL", "FORCE", "NONE"])
def test_put_and_got_through_the_queue_manager(tmp_path, kind, form, header, body, control):
    """Byte for byte where the header comes back; and the body alone where it does not."""
    rig = MqiRig(None, f"DEFINE QLOCAL(JMS.Q) PROPCTL({control})")
    rig.put("JMS.Q", header + body, descriptor=descriptor())
    md, data = propctl_got(rig)
    if control == "NONE":
        assert (data, mqmd.text(md, mqmd.FORMAT)) == (body, form)
        assert chain.described_by(md)[:2] == (273, 1208)
    else:
        assert data == header + body
        assert chain.described_by(md) == (273, 819, b"MQHRF2  ")
    assert mqmd.text(md, mqmd.REPLY_TO_Q) == REPLIES
    rig.queue_manager.close()


def propctl_got(rig):
    handle = rig.open("JMS.Q")
    got = rig.get(handle)
    return got.md, got.data


@each_class
def test_taken_off_and_put_on_again(kind, form, header, body):
    """A program that reads properties by a handle and forwards them: the body is the same, so are the properties."""
    seen = propctl.as_got(descriptor(), header + body, handle=True, propctl=2)
    assert (seen.data, seen.md[mqmd.FORMAT]) == (body, form.encode().ljust(8))
    md, data = properties.with_properties(seen.md, seen.data, seen.properties)
    again = chain.walk(md, data)
    assert (again.payload, again.body) == (body, (273, 1208, form.encode().ljust(8)))
    held = {one.name: (one.value, one.dt) for one in properties_of(md, data)}
    assert held == {one.name: (one.value, one.dt) for one in properties_of(descriptor(), header + body)}


def folder(text):
    raw = text.encode()
    raw = raw.ljust(len(raw) + -len(raw) % 4)
    return struct.pack("<i", len(raw)) + raw


@pytest.mark.parametrize(
    ("form", "kind", "body"),
    [("string", "jms_text", b"21.5"), ("bytes", "jms_bytes", bytes.fromhex("aced000574000161")),
     ("string", "jms_text", b"<map><elt name='a'>1</elt></map>")],
)  # fmt: skip
def test_what_a_jms_reader_finds(form, kind, body):
    """The bytes of a message that a device's publication becomes: mcd first, then usr, and the body as it came."""
    text = (
        "version: 1\nto_mq:\n  - {name: r, topic: 'p/{site}/#', queue: Q, headers: [mcd], "
        f"payload: {{format: {form}}}, properties: {{site: '{{site}}', n: {{value: '7', type: int}}}}}}\n"
    )
    table = compile_mappings(parse_mappings([("m.yaml", text)]))
    [prepared] = plan(table, Origin("dev", "", "p/lima/x", 1), {}).prepared
    built = prepared.build(1, Body(body), 1_800_000_000.0)
    folders = folder(f"<mcd><Msd>{kind}</Msd></mcd>") + folder("<usr><site>lima</site><n dt='i4'>7</n></usr>")
    name = b"MQSTR   " if kind == "jms_text" else b" " * 8
    header = struct.pack("<4siiii8sii", b"RFH ", 2, 36 + len(folders), 546, 1208, name, 0, 1208) + folders
    assert built.head[364:] + built.body == header + body
