"""From a publication to MQ messages: bytes, descriptor fields, properties, refusals."""

from __future__ import annotations

import struct

import pytest

from gateway.bridge import payload
from gateway.bridge.inbound import Origin, plan, prepare, unmatched
from gateway.bridge.payload import Body
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import parse_folder
from gateway.routing.table import Context, compile_mappings
from gateway.rules.feedback import Feedback
from gateway.rules.parse import parse_mappings

NOW = 1_800_000_000.25


def table(*rules, load=None, top=""):
    text = "version: 1\n" + top + "to_mq:\n"
    text += "".join(f"  - {{name: r{n}, {rule}}}\n" for n, rule in enumerate(rules))
    return compile_mappings(parse_mappings([("m.yaml", text)], *([load] if load else [])))


def one(rule, topic="plant/lima/line/7/t", qos=1, properties=None, **origin):
    [prepared] = plan(
        table(rule), Origin("dev-1", origin.pop("username", ""), topic, qos, **origin), properties or {}
    ).prepared
    return prepared


def message(prepared, packet_id=7, body=b"21.5"):
    built = prepared.build(packet_id, Body(body), NOW)
    md, data = mqmd.unpack(built.head[:364]), built.head[364:] + built.body
    header = rfh2.parse(data)
    folders = {}
    for text in header.texts():
        folder = parse_folder(text)
        folders[folder.name] = {child.name: child.value for child in folder.children}
    return built, md, header, folders, data[header.length :]


def test_the_bytes_of_a_message_are_exactly_these():
    prepared = one("topic: '#', queue: Q1", topic="a/b")
    assert prepared.simple
    texts = [b"<mcd><Msd>jms_bytes</Msd></mcd>", b"<mqps><Top>a/b</Top></mqps>"]
    folders = b"".join(struct.pack("<i", len(text) + -len(text) % 4) + text + b" " * (-len(text) % 4) for text in texts)
    before = b"<mqtt><clientId>dev-1</clientId><qos dt='i4'>1</qos><msgId dt='i4'>"
    after = b"7</msgId></mqtt>"
    size = len(before) + 5 + len(b"</msgId></mqtt>")
    size += -size % 4
    last = struct.pack("<i", size) + (before + after).ljust(size)
    fixed = struct.pack("<4siiii8sii", b"RFH ", 2, 36 + len(folders + last), 546, 1208, b" " * 8, 0, 1208)
    md = mqmd.build(
        priority=0, persistence=1, format="MQHRF2", coded_char_set_id=1208, user_identifier="dev-1",
        put_appl_type=6, put_appl_name="mqgate",
    )  # fmt: skip
    assert prepared.head + prepared.tails[7] + b"21.5" == md + fixed + folders + last + b"21.5"


@pytest.mark.parametrize("packet_id", [0, 1, 9, 10, 999, 65535])
def test_every_packet_identifier_gives_a_header_of_the_same_length(packet_id):
    prepared = one("topic: '#', queue: Q1")
    _, _, header, folders, body = message(prepared, packet_id)
    assert folders["mqtt"]["msgId"] == packet_id
    assert len(prepared.tails[packet_id]) == len(prepared.tails[1])
    assert body == b"21.5"
    assert header.length % 4 == 0


def test_identifiers_and_put_time_are_left_to_the_queue_manager():
    md = mqmd.unpack(one("topic: '#', queue: Q1").head)
    assert (md.msg_id, md.correl_id, md.put_date, md.put_time) == (bytes(24), bytes(24), "", "")


@pytest.mark.parametrize(("qos", "persistent"), [(0, False), (1, True), (2, True)])
def test_persistence_follows_the_quality_of_service(qos, persistent):
    prepared = one("topic: '#', queue: Q1", qos=qos)
    assert prepared.persistent == persistent == bool(mqmd.unpack(prepared.head).persistence)


def test_the_example_of_the_design():
    prepared = one(
        "topic: 'plant/{site}/line/{line}/{_}', queue: 'TELEMETRY.{site}', "
        "descriptor: {persistence: from_qos, priority: 4, expiry: 5m, reply_to: {queue: REPLIES}, "
        "report: [coa, exception]}, "
        "properties: {site: '{site}', line: '{line:int}', received: '{received_at}'}, "
        "headers: [mqtt, mqps], group_by: '{client}'"
    )
    assert not prepared.simple
    built, md, _, folders, _ = message(prepared)
    assert (built.queue, built.priority, built.persistent) == ("TELEMETRY.LIMA", 4, True)
    assert (md.priority, md.expiry, md.reply_to_q, md.report) == (4, 3000, "REPLIES", 0x1000100)
    assert folders["usr"] == {"site": "lima", "line": 7, "received": "2027-01-15T08:00:00.250Z"}
    assert folders["mqps"]["Top"] == "plant/lima/line/7/t"
    assert "mcd" not in folders
    assert md.msg_flags == 24
    assert md.group_id != bytes(24)


@pytest.mark.parametrize(
    ("properties", "rule", "expiry"),
    [
        ({}, "", -1),
        ({0x02: 60}, "", 600),
        ({0x02: 0}, "", 1),
        ({0x02: 0xFFFFFFFF}, "", 999_999_999),
        ({0x02: 60}, "expiry: 10s", 100),
        ({0x02: 5}, "expiry: 10s", 50),
        ({0x02: 60}, "expiry: never", -1),
    ],
)
def test_expiry_is_the_shorter_of_what_device_and_rule_say(properties, rule, expiry):
    prepared = one(f"topic: '#', queue: Q1, descriptor: {{{rule}}}", properties=properties)
    assert mqmd.unpack(prepared.head).expiry == expiry


def test_text_is_announced_when_the_device_or_the_rule_says_so():
    for prepared in (
        one("topic: '#', queue: Q1", properties={0x01: 1}),
        one("topic: '#', queue: Q1, payload: {format: string}"),
    ):
        _, _, header, folders, _ = message(prepared)
        assert (header.format, header.coded_char_set_id) == (b"MQSTR   ", 1208)
        assert folders["mcd"]["Msd"] == "jms_text"


def test_without_headers_the_message_is_its_body():
    prepared = one("topic: '#', queue: Q1, headers: [], user_properties: false, payload: {format: string, ccsid: 37}")
    with pytest.raises(Refused):
        one("topic: '#', queue: Q1, payload: {format: string}").build(1, Body(b"\xff"), NOW)
    built = prepared.build(1, Body(b"\xf1"), NOW)
    md = mqmd.unpack(built.head)
    assert (len(built.head), built.body) == (364, b"\xf1")
    assert (md.format, md.coded_char_set_id) == ("MQSTR", 37)


def test_what_mqtt_5_adds_is_kept_as_properties():
    properties = {0x03: "text/csv", 0x08: "answers/1", 0x09: b"\x00\xff", 0x26: [("a", "1"), ("b c", "2"), ("a", "3")]}
    _, md, _, folders, _ = message(one("topic: '#', queue: Q1", properties=properties, dup=True, username="bob"))
    assert folders["usr"] == {"a": "1", "b_x20_c": "2", "a_xR2_": "3"}
    assert folders["mqtt"] == {
        "clientId": "dev-1", "qos": 1, "userName": "bob", "dup": True, "contentType": "text/csv",
        "responseTopic": "answers/1", "correlationData": b"\x00\xff", "userProperties": "a,b_x20_c,a_xR2_", "msgId": 7,
    }  # fmt: skip
    assert md.correl_id == b"\x00\xff".ljust(24, b"\0")
    assert md.user_identifier == "bob"


def test_a_device_cannot_replace_a_property_that_the_rule_sets():
    rule = "topic: 'plant/{site}/#', queue: Q1, properties: {site: '{site}'}"
    _, _, _, folders, _ = message(one(rule, properties={0x26: [("site", "cuzco")]}))
    assert folders["usr"] == {"site": "lima", "site_xR2_": "cuzco"}


def test_a_request_carries_a_token_by_which_its_answer_is_found():
    prepared = one(
        "topic: '#', queue: Q1, descriptor: {reply_to: {queue: ANSWERS}}",
        properties={0x08: "answers/1", 0x09: b"x" * 40},
    )
    md = mqmd.unpack(prepared.head)
    assert md.msg_type == 1
    assert md.msg_id == md.correl_id == prepared.request.token
    assert len(prepared.request.token) == 24
    assert type(prepared.request).decode(prepared.request.encode()) == prepared.request


def test_what_the_payload_decides_is_settled_per_message():
    rules = table(
        "topic: a, queue: HOT, when: {json: {kind: alarm}}, continue: true",
        "topic: a, queue: BIG, when: {payload: {at_least: 100}}",
        "topic: a, queue: REST",
    )
    made = plan(rules, Origin("c", "", "a", 1), {})
    assert not made.simple
    queues = lambda payload: [prepared.queue for prepared in made.settle(Body(payload))]  # noqa: E731
    assert queues(b'{"kind": "alarm"}') == ["HOT", "REST"]
    assert queues(b'{"kind": "alarm", "x": "' + b"x" * 100 + b'"}') == ["HOT", "BIG"]
    assert queues(b"no json") == ["REST"]


def test_values_from_the_payload():
    rule = "topic: a, queue: 'Q.{json.site}', properties: {n: '{json.list.1:int}', gone: '{json.none}', o: '{json.o}'}"
    built, _, _, folders, _ = message(one(rule, topic="a"), body=b'{"site":"lima","list":[1,2],"o":{"x":1}}')
    assert built.queue == "Q.LIMA"
    assert folders["usr"] == {"n": 2, "o": '{"x":1}'}
    with pytest.raises(Refused) as caught:
        one(rule, topic="a").build(1, Body(b"no json"), NOW)
    assert caught.value.feedback == Feedback.VALUE_MISSING


def test_a_schema_is_checked():
    load = lambda path: '{"type": "object", "required": ["t"], "properties": {"t": {"type": "number"}}}'  # noqa: E731
    rules = table("topic: a, queue: Q1, payload: {format: json, schema: s.json}", load=load)
    [prepared] = plan(rules, Origin("c", "", "a", 1), {}).prepared
    assert prepared.build(1, Body(b'{"t": 1}'), NOW).queue == "Q1"
    hostile = [b'{"t": "\\ud800"}', b'{"t": 1, "\\udfff": 1}', b'{"t": 1, "u": "\xed\xa0\x80"}', b'{"t": NaN}']
    hostile += [b'{"t": ' + b"[" * deep + b"]" * deep + b"}" for deep in (900, 100_000)]
    for wrong in (b'{"t": "x"}', b"{}", b"no json", b"\xff", *hostile):
        with pytest.raises(Refused) as caught:
            prepared.build(1, Body(wrong), NOW)
        assert caught.value.feedback == Feedback.SCHEMA
    with pytest.raises(Refused) as caught:
        prepared.build(1, Body(b'{"t": "s3cret"}'), NOW)
    assert str(caught.value) == 't: the value is not of type "number"'


def test_unmatched_publications_are_not_put_unless_the_file_says_so():
    assert plan(table("topic: b, queue: Q1"), Origin("c", "", "a", 1), {}).prepared == []
    wanted = plan(table("topic: b, queue: Q1", top="unmatched: dead_letter\n"), Origin("c", "", "a", 1), {})
    assert wanted.dead_letter
    prepared = unmatched(Origin("c", "", "a", 1), {})
    assert prepared.refused.feedback == Feedback.NO_RULE
    assert prepared.rule.spec.on_failure.then == "dead_letter"
    assert prepared.persistent
    assert len(prepared.head) > 364


def test_an_mq_topic_is_a_destination():
    prepared = one("topic: 'plant/{site}/#', mq_topic: 'Plants/{site}'")
    assert (prepared.queue, prepared.mq_topic) == ("topic://Plants/lima", "Plants/lima")
    wild = one("topic: 'plant/{site}/#', mq_topic: 'Plants/{property.x}'", properties={0x26: [("x", "#")]})
    assert wild.refused.feedback == Feedback.NAME_NOT_VALID


@pytest.mark.parametrize(
    "level",
    ["", "a.b", "SYSTEM.X", "a b", "á", "a-b", "%s" * 30, "x" * 50, "'", "a*", "..", "a\x00b", "\U0001f600", "ß", "ﬁx"],
)
def test_what_a_hostile_level_could_name_is_refused(level):
    prepared = one("topic: 'p/{site}', queue: 'T.{site}'", topic=f"p/{level}")
    assert prepared.refused is not None
    assert prepared.refused.feedback == Feedback.NAME_NOT_VALID
    assert not plan(table("topic: 'p/{site}', queue: 'T.{site}'"), Origin("c", "", f"p/{level}", 1), {}).simple
    with pytest.raises(Refused):
        prepared.build(1, Body(b""), NOW)
    assert len(prepared.head) > 364  # what goes behind a dead-letter header


@pytest.mark.parametrize("topic", ["SYSTEM/ADMIN/COMMAND", "mqgate/x/y", "amq/1/2"])
def test_levels_cannot_spell_a_queue_of_the_system(topic):
    prepared = one("topic: '{a}/{b}/{c}', queue: '{a}.{b}.{c}', allowed_queues: ['*']", topic=topic)
    assert prepared.refused.feedback == Feedback.NAME_NOT_VALID


def test_allowed_queues_confine_a_template():
    rule = "topic: '{a}/#', queue: '{a}', allowed_queues: ['TEL*', ALARM]"
    assert one(rule, topic="alarm/x").queue == "ALARM"
    assert one(rule, topic="tel1/x").queue == "TEL1"
    assert one(rule, topic="payroll/x").refused is not None


def test_preparing_one_match_is_what_a_plan_does():
    rules = table("topic: 'p/{site}', queue: 'T.{site}'")
    [match] = rules.match("p/lima", Context("c", "u", 1))
    made = prepare(match, Origin("c", "u", "p/lima", 1, retain=True), {0x02: 5})
    [wanted] = plan(rules, Origin("c", "u", "p/lima", 1, True), {0x02: 5}).prepared
    assert made.build(3, Body(b"x"), NOW) == wanted.build(3, Body(b"x"), NOW)


def test_packet_identifiers_and_users_are_values():
    built, _, _, folders, _ = message(one("topic: '#', queue: Q, properties: {p: '{packet_id}', u: '{user}'}"), 17)
    assert folders["usr"] == {"p": 17}
    assert built.queue == "Q"


def test_json_that_is_too_long_has_no_fields(monkeypatch):
    monkeypatch.setattr(payload, "MAX_JSON_BYTES", 10)
    rules = table("topic: a, queue: Q1, when: {json: {a: 1}}", "topic: a, queue: Q2")
    made = plan(rules, Origin("c", "", "a", 1), {})
    assert [found.queue for found in made.settle(Body(b'{"a": 1}'))] == ["Q1"]
    assert [found.queue for found in made.settle(Body(b'{"a": 1}     '))] == ["Q2"]


def test_a_character_set_that_is_not_known_here_is_the_readers_business():
    prepared = one("topic: '#', queue: Q1, payload: {format: string, ccsid: 99999}")
    assert prepared.build(1, Body(b"\xff"), NOW).body.endswith(b"\xff")


@pytest.mark.parametrize("body", [b'{"site": "\\ud800"}', b'{"o": {"\\udc00": 1}}', b'{"site": "\xed\xa0\x80"}'])
def test_half_of_a_surrogate_pair_is_no_json(body):
    """No message could hold it, neither in a property nor in JSON text."""
    rule = "topic: a, queue: Q1, properties: {site: '{json.site}', o: '{json.o}'}, payload: {format: json}"
    with pytest.raises(Refused, match="not JSON"):
        one(rule, topic="a").build(1, Body(body), NOW)


def test_json_null_is_json():
    prepared = one("topic: '#', queue: Q1, payload: {format: json}")
    assert prepared.build(1, Body(b" null "), NOW).queue == "Q1"
    with pytest.raises(Refused):
        prepared.build(1, Body(b""), NOW)


@pytest.mark.parametrize(("encoding", "codec"), [("", "utf-16-le"), (", encoding: 273", "utf-16-be")])
def test_text_in_utf_16_has_the_byte_order_of_its_encoding(encoding, codec):
    """In the other byte order the first letter would be half of a surrogate pair."""
    prepared = one(f"topic: '#', queue: Q1, payload: {{format: string, ccsid: 1200{encoding}}}")
    prepared.build(1, Body("Ülö".encode(codec)), NOW)
