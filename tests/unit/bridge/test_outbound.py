"""From a message on a queue to a publication: topic, QoS, properties, conversion, transmission queues, refusals."""

from __future__ import annotations

import pytest

from gateway.bridge import outbound
from gateway.bridge.inbound import Origin, plan
from gateway.bridge.payload import Body
from gateway.bridge.request import Request
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.mq.headers import dlh, rfh2, xqh
from gateway.mq.headers.rfh2_folder import folder
from gateway.routing.table import compile_mappings
from gateway.rules.feedback import Feedback
from gateway.rules.parse import parse_mappings
from gateway.rules.templates import FIELDS

RFH2 = b"MQHRF2  "


def rule(text):
    return parse_mappings([("m.yaml", f"to_mqtt: [{{name: r, {text}}}]\n")]).to_mqtt[0]


def message(body=b"21.5", *, form="", ccsid=1208, folders=None, **md):
    descriptor = mqmd.build(**({"persistence": 1} | md), format=form, coded_char_set_id=ccsid)
    if folders is None:
        return descriptor, body
    texts = [folder(name, values) for name, values in folders.items()]
    data = rfh2.build(texts, format_name=form.encode().ljust(8), coded_char_set_id=ccsid) + body
    return mqmd.with_described(descriptor, 546, 1208, RFH2), data


def published(text, **kwargs):
    return outbound.publication(rule(text), *message(**kwargs))


def refused(text, **kwargs):
    with pytest.raises(Refused) as caught:
        published(text, **kwargs)
    return caught.value.feedback


def test_topics_are_made_of_properties_descriptor_and_json():
    folders = {"usr": {"site": "lima", "n": 7}, "mqps": {"Top": "a/b"}}
    assert published("queue: Q, topic: 'p/{usr.site}/{usr.n}'", folders=folders).topic == "p/lima/7"
    assert published("queue: Q, topic: 'x/{mqps.Top}'", folders=folders).topic == "x/a/b"
    assert published("queue: Q", folders=folders).topic == "a/b"
    assert published("queue: Q, topic: '{json.a.b}/{queue}'", body=b'{"a":{"b":"x"}}').topic == "x/Q"
    assert published("queue: Q, topic: 'u/{md.UserIdentifier}'", user_identifier="bob").topic == "u/bob"
    assert published("queue: Q, topic: 'c/{md.CorrelId}'", correl_id=b"\x01" * 24).topic == "c/" + "01" * 24
    assert published("queue: Q, topic: 'c/{md.CorrelIdText}'", correl_id=b"dev-1".ljust(24, b"\0")).topic == "c/dev-1"


@pytest.mark.parametrize("value", ["a/b", "#", "+", "x/../y"])
def test_a_value_is_one_level_unless_the_rule_says_otherwise(value):
    folders = {"usr": {"site": value}}
    assert refused("queue: Q, topic: 'p/{usr.site}'", folders=folders) == Feedback.TOPIC_NOT_VALID
    if "/" in value:
        assert published("queue: Q, topic: 'p/{usr.site:asis}'", folders=folders).topic == f"p/{value}"
    else:
        assert refused("queue: Q, topic: 'p/{usr.site:asis}'", folders=folders) == Feedback.TOPIC_NOT_VALID


def test_what_gives_no_topic_is_refused_with_the_reason():
    assert refused("queue: Q") == Feedback.TOPIC_NOT_VALID
    assert refused("queue: Q, topic: 'p/{usr.site}'", folders={"usr": {}}) == Feedback.VALUE_MISSING
    assert refused("queue: Q", folders={"mqps": {"Top": "$SYS/x"}}) == Feedback.TOPIC_NOT_VALID
    assert refused("queue: Q", folders={"mqps": {"Top": "a/#"}}) == Feedback.TOPIC_NOT_VALID


@pytest.mark.parametrize(
    ("text", "persistence", "given", "qos"),
    [
        ("qos: from_persistence", 1, 1, 2),
        ("qos: from_persistence", 0, 1, 0),
        ("qos: from_property", 1, 1, 1),
        ("qos: from_property", 1, 0, 0),
        ("qos: from_property", 1, None, 2),
        ("qos: from_property", 0, None, 0),
        ("qos: from_property", 1, 7, 2),
        ("qos: 1", 0, 2, 1),
        ("qos: from_persistence, max_qos: 1", 1, None, 1),
    ],
)
def test_quality_of_service(text, persistence, given, qos):
    folders = {"mqtt": {} if given is None else {"qos": given}}
    assert published(f"queue: Q, topic: a, {text}", folders=folders, persistence=persistence).qos == qos


def test_retain_comes_from_the_property_or_the_rule():
    kept = {"mqps": {"Ret": True}}
    assert published("queue: Q, topic: a", folders=kept).retain
    assert not published("queue: Q, topic: a, retain: false", folders=kept).retain
    assert published("queue: Q, topic: a, retain: true").retain
    assert not published("queue: Q, topic: a").retain


def test_the_body_is_untouched_unless_conversion_is_asked_for():
    body = bytes(range(256))
    assert published("queue: Q, topic: a", body=body, ccsid=500).payload == body
    text = "Größe".encode("cp500")
    plain = published("queue: Q, topic: a", body=text, form="MQSTR", ccsid=500)
    assert (plain.payload, plain.properties) == (text, {})
    converted = published("queue: Q, topic: a, convert: 1208", body=text, form="MQSTR", ccsid=500)
    assert (converted.payload.decode(), converted.properties) == ("Größe", {0x01: 1})
    assert published("queue: Q, topic: a, convert: 1208", body=text, ccsid=500).payload == text  # no format: not text
    for ccsid, body in ((1208, b"\xff"), (99999, b"x")):
        convert = "convert: 500" if ccsid == 1208 else "convert: 1208"
        assert (
            refused(f"queue: Q, topic: a, {convert}", body=body, form="MQSTR", ccsid=ccsid) == Feedback.TEXT_NOT_VALID
        )


@pytest.mark.parametrize(
    ("ccsid", "encoding", "codec"), [(500, 546, "cp500"), (1200, 546, "utf-16-le"), (1200, 273, "utf-16-be")]
)
def test_fields_are_read_in_the_character_set_of_the_message(ccsid, encoding, codec):
    """Encoding gives the byte order of UTF-16."""
    body = '{"site": "Größe", "line": 7}'.encode(codec)
    topic, said = (
        "queue: Q, topic: 'p/{json.site}/{json.line}'",
        {"form": "MQSTR", "ccsid": ccsid, "encoding": encoding},
    )
    made = published(f"{topic}, convert: 1208", body=body, **said)
    assert (made.topic, made.payload.decode()) == ("p/Größe/7", '{"site": "Größe", "line": 7}')
    made = published(topic, body=body, **said)
    assert (made.topic, made.payload) == ("p/Größe/7", body)


def test_fields_of_what_is_no_text_of_its_character_set_are_not_there():
    assert refused("queue: Q, topic: '{json.a}'", body=b'{"a": "x"}', form="MQSTR", ccsid=500)
    made = published("queue: Q, topic: '{json.a}'", body=b'{"a": "x"}', form="MQSTR", ccsid=60000)
    assert made.topic == "x"


def test_undefined_bytes_and_text_without_a_character_set_are_converted_as_mqget_does():
    """CCSID 0 in a header is MQCCSI_UNDEFINED; X'81' of 1252 stands for the control character with that number."""
    rule = "queue: Q, topic: a, convert: 1208"
    assert published(rule, body=b"\x81\xe4", form="MQSTR", ccsid=1252).payload.decode() == "\x81ä"
    assert published(rule, body="ä".encode(), form="MQSTR", ccsid=0, folders={}).payload.decode() == "ä"
    assert refused(rule, body=b"\xff", form="MQSTR", ccsid=0, folders={}) == Feedback.TEXT_NOT_VALID


def test_new_lines_of_ebcdic_become_line_feeds():
    made = published("queue: Q, topic: a, convert: 1208", body=b"\xc1\x15\xc2", form="MQSTR", ccsid=37)
    assert made.payload == b"A\nB"


def test_properties_of_every_type_become_user_properties():
    usr = {"s": "x", "i": 7, "b": True, "f": 1.5, "h": b"\x00\xff", "n": None, "b_x20_c": "y"}
    users = published("queue: Q, topic: a", folders={"usr": usr}).properties[0x26]
    assert users == [("s", "x"), ("i", "7"), ("b", "true"), ("f", "1.5"), ("h", "00ff"), ("n", ""), ("b c", "y")]
    assert 0x26 not in published("queue: Q, topic: a, user_properties: false", folders={"usr": usr}).properties


def test_everything_is_there_when_asked_for():
    md, data = message(folders={"usr": {"s": "x"}, "jms": {"Dst": "queue:///Q"}}, reply_to_q="R", priority=3)
    header = dlh.build(2053, "Q", "QM", md)
    md = mqmd.with_described(md, 546, 1208, dlh.FORMAT)
    found = outbound.publication(rule("queue: Q, topic: a, user_properties: all"), md, header + data)
    users = dict(found.properties[0x26])
    assert users["s"] == "x"
    assert users["jms.Dst"] == "queue:///Q"
    assert (users["md.ReplyToQ"], users["md.Priority"]) == ("R", "3")
    assert users["MQDLH.DestQName"] == "Q"
    assert found.payload == b"21.5"


@pytest.mark.parametrize(("flags", "named"), [(8, True), (24, True), (0, False), (1, False)])
def test_a_place_in_a_group_is_told_where_groups_are_wanted_whole(flags, named):
    group = {"group_id": b"g" * 24, "msg_seq_number": 3, "msg_flags": flags}
    names = {"md.GroupId": (b"g" * 24).hex(), "md.MsgSeqNumber": "3", "md.MsgFlags": str(flags)}
    users = published("queue: Q, topic: a, groups: whole", **group).properties.get(0x26, [])
    assert dict(users) == (names if named else {})
    assert not published("queue: Q, topic: a", **group).properties.get(0x26, [])
    assert not published("queue: Q, topic: a, groups: whole, user_properties: none", **group).properties.get(0x26, [])
    everything = dict(published("queue: Q, topic: a, user_properties: all", **group).properties[0x26])
    assert {name: everything[name] for name in names if flags} == (names if flags else {})


def test_headers_can_be_left_in_the_payload():
    md, data = message(folders={"usr": {"s": "x"}})
    assert outbound.publication(rule("queue: Q, topic: a, strip_headers: false"), md, data).payload == data


def test_expiry_is_given_in_seconds_and_never_as_nothing():
    assert 0x02 not in published("queue: Q, topic: a").properties
    assert published("queue: Q, topic: a", expiry=605).properties[0x02] == 60
    assert published("queue: Q, topic: a", expiry=3).properties[0x02] == 1


def test_what_mqtt_5_said_on_the_way_in_is_said_again():
    mqtt = {"contentType": "text/csv", "responseTopic": "answers/1", "correlationData": b"\x01\x02"}
    properties = published("queue: Q, topic: a", folders={"mqtt": mqtt}).properties
    assert properties == {0x03: "text/csv", 0x08: "answers/1", 0x09: b"\x01\x02"}


def test_a_request_of_an_application_tells_the_device_where_to_answer():
    text = "queue: Q, topic: a, response_topic: 'answers/{md.ReplyToQ}'"
    request = {"msg_type": 1, "reply_to_q": "APP.REPLIES", "msg_id": b"m" * 24, "correl_id": b"c" * 24}
    properties = published(text, **request).properties
    assert (properties[0x08], properties[0x09]) == ("answers/APP.REPLIES", b"m" * 24)
    assert published(text, **request, report=0x40).properties[0x09] == b"c" * 24
    assert 0x08 not in published(text, **request | {"msg_type": 8}).properties


@pytest.mark.parametrize("group", [bytes(24), b"g" * 24])
def test_a_transmission_queue_names_client_and_topic(group):
    md, data = message(folders={"usr": {"s": "x"}}, persistence=1, group_id=group, expiry=100)
    outer = mqmd.build(format="MQXMIT", persistence=1)
    found = outbound.publication(rule("transmission_queue: X"), outer, xqh.build("dev/cmd", "dev-1", md) + data)
    assert (found.client, found.topic, found.payload, found.qos) == ("dev-1", "dev/cmd", b"21.5", 2)
    assert found.properties == {0x02: 10, 0x26: [("s", "x")]}


def test_publications_of_mq_telemetry_have_their_topic_in_the_properties():
    md, data = message(folders={"mqps": {"Top": "a/b"}})
    outer = mqmd.build(format="MQXMIT", persistence=1)
    header = xqh.build("SYSTEM.MQTT.PUBLICATION.QUEUE", "dev-1", md)
    assert outbound.publication(rule("transmission_queue: X"), outer, header + data).topic == "a/b"
    with pytest.raises(Refused) as caught:
        outbound.publication(rule("transmission_queue: X"), outer, xqh.build("t", "", md) + data)
    assert caught.value.feedback == Feedback.DEVICE_UNKNOWN


@pytest.mark.parametrize(("form", "reason"), [("MQHRF2", 2334), ("MQXMIT", 2260), ("MQDEAD", 2334)])
def test_headers_that_are_not_there_are_refused_with_their_mqrc(form, reason):
    assert refused("queue: Q, topic: a", body=b"no header here", form=form) == reason


def test_properties_in_several_headers_and_byte_orders_are_all_read():
    big = rfh2.build([folder("usr", {"a": "1"})], encoding=546, format_name=RFH2, order=">")
    little = rfh2.build([folder("usr", {"a": "2", "b": "3"})])
    md = mqmd.build(persistence=1, encoding=273, coded_char_set_id=1208, format="MQHRF2")
    found = outbound.publication(rule("queue: Q, topic: 'x/{usr.a}/{usr.b}'"), md, big + little + b"body")
    assert (found.topic, found.payload) == ("x/1/3", b"body")


def test_the_client_comes_from_a_template_and_a_key_without_effect_refuses_nothing():
    text = "queue: Q, topic: a, order_by: '{usr.none}', client: 'dev-{usr.k}'"
    assert published(text, folders={"usr": {"k": 5}}).client == "dev-5"


def test_requests_have_equal_tokens_exactly_when_they_are_equal():
    one = Request("c", "t", b"x", 5)
    assert one.token == Request("c", "t", b"x", 9).token
    assert len({one.token, Request("ct", "", b"x", 5).token, Request("c", "tx", b"", 5).token}) == 3


def test_a_publication_that_comes_back_names_the_gateway_it_came_through():
    mappings = parse_mappings([("m", "to_mq: [{name: a, topic: '#', queue: Q}]\nto_mqtt: [{name: b, queue: Q}]\n")])
    [prepared] = plan(compile_mappings(mappings, "gate-1"), Origin("c", "", "a/b", 1), {}).prepared
    built = prepared.build(1, Body(b""), 0.0)
    md, data = built.head[:364], built.head[364:] + built.body
    assert outbound.publication(mappings.to_mqtt[0], md, data).gateway == "gate-1"
    assert outbound.publication(rule("queue: Q, topic: 'x/{mqps.Top}'"), md, data).gateway == ""


@pytest.mark.parametrize("name", FIELDS["md"])
def test_every_field_of_the_descriptor_has_a_value(name):
    values = {
        "msg_id": b"i" * 24, "correl_id": b"correl", "group_id": b"g" * 24, "reply_to_q": "RQ", "reply_to_q_mgr": "RM",
        "user_identifier": "bob", "appl_identity_data": "data", "put_appl_name": "prog", "put_date": "20260101",
        "put_time": "00000000", "priority": 5, "feedback": 7, "msg_type": 1, "backout_count": 2, "report": 64,
    }  # fmt: skip
    topic = published(f"queue: Q, topic: 'x/{{md.{name}}}'", form="MQSTR", **values).topic
    assert len(topic) > 2


def test_names_of_the_transmission_header_are_values():
    md, data = message()
    outer = mqmd.build(format="MQXMIT", persistence=1)
    made = rule("transmission_queue: X, client: '{xqh.RemoteQMgrName}.{xqh.RemoteQName}'")
    found = outbound.publication(made, outer, xqh.build("a/b", "dev-1", md) + data)
    assert found.client == "dev-1.a/b"
    assert published("queue: Q, topic: a, client: '{queue}'").client == "Q"


def test_correlation_data_may_come_from_the_descriptor_alone():
    properties = published(
        "queue: Q, topic: a", folders={"mqtt": {"responseTopic": "r"}}, correl_id=b"c" * 24
    ).properties
    assert properties == {0x08: "r", 0x09: b"c" * 24}


def test_groups_in_a_folder_are_named_with_dots():
    text = "<mq_usr><a><b>x</b></a></mq_usr>"
    data = rfh2.build([text, "", folder("usr", {"s": "y"})], name_value_ccsid=1200) + b"body"
    found = outbound.publication(
        rule("queue: Q, topic: a, user_properties: all"), mqmd.build(format="MQHRF2", coded_char_set_id=1208), data
    )
    users = dict(found.properties[0x26])
    assert (users["mq_usr.a.b"], users["s"]) == ("x", "y")
    assert found.payload == b"body"


def test_folders_that_are_no_text_are_refused():
    data = rfh2.build([folder("usr", {"s": "y"})]).replace(b"<s>", b"<\xff>")
    with pytest.raises(Refused) as caught:
        outbound.publication(rule("queue: Q, topic: a"), mqmd.build(format="MQHRF2", coded_char_set_id=1208), data)
    assert caught.value.feedback == 2334


def test_quality_of_service_may_be_written_as_text():
    assert published("queue: Q, topic: a", folders={"mqtt": {"qos": "1"}}).qos == 1


def test_of_several_rules_for_a_queue_the_first_that_can_be_followed_is_used():
    two = "{name: a, queue: Q, topic: '{usr.x}'}, {name: b, queue: Q, topic: '{usr.y}'}"
    text = f"to_mqtt: [{two}, {{name: c, mq_topic: t}}]\n"
    by_source = outbound.sources(parse_mappings([("m", text)]).to_mqtt)
    assert list(by_source) == [("Q", ""), ("topic://t", "")]
    for usr, name, topic in (({"x": "1", "y": "2"}, "a", "1"), ({"y": "2"}, "b", "2")):
        used, found = outbound.first_publication(by_source["Q", ""], *message(folders={"usr": usr}))
        assert (used.name, found.topic) == (name, topic)
    with pytest.raises(Refused, match=r"usr\.y"):
        outbound.first_publication(by_source["Q", ""], *message(folders={"usr": {"z": "1"}}))


def test_a_correlation_identifier_without_a_response_topic_is_no_correlation_data():
    assert published("queue: Q, topic: a", correl_id=b"c" * 24).properties == {}
    assert published("queue: Q, topic: a", folders={"mqtt": {"responseTopic": "r"}}).properties == {0x08: "r"}


def test_half_a_surrogate_pair_makes_no_topic():
    assert refused("queue: Q, topic: '{json.x}'", body=b'{"x": "\\ud800"}') == Feedback.VALUE_MISSING  # it is no JSON
    assert published("queue: Q, topic: '{json.x}'", body='{"x": "\u0416"}'.encode()).topic == "\u0416"


@pytest.mark.parametrize("value", ["x" * 65_536, "é" * 40_000, "a\0b"])
def test_what_mqtt_has_no_room_for_is_left_out_and_the_message_is_not_lost(value):
    found = published(
        "queue: Q, topic: a", folders={"usr": {"long": value, "short": "x"}, "mqtt": {"contentType": value}}
    )
    assert found.properties == {0x26: [("short", "x")]}
    name = "n" * 65_536
    assert published("queue: Q, topic: a", folders={"usr": {name: "x", "short": "x"}}).properties == {
        0x26: [("short", "x")]
    }


@pytest.mark.parametrize("field", [mqmd.FORMAT, mqmd.REPLY_TO_Q, mqmd.USER_IDENTIFIER, mqmd.APPL_IDENTITY_DATA])
def test_bytes_of_the_descriptor_that_are_no_characters_are_left_out_and_the_message_is_not_lost(field):
    md, data = message()
    md = md[: field.start] + b"\xd8\xc1".ljust(field.stop - field.start) + md[field.stop :]
    found = outbound.publication(rule("queue: Q, topic: a, user_properties: all"), md, data)
    assert dict(found.properties[0x26])["md.Persistence"] == "1"
    assert all(value.isascii() for _, value in found.properties[0x26])


def test_bytes_that_are_no_characters_name_no_client():
    text = "queue: Q, topic: a, client: '{md.ApplIdentityData}'"
    md, data = message(appl_identity_data="device")
    assert outbound.publication(rule(text), md, data).client == "device"
    with pytest.raises(Refused) as caught:
        outbound.publication(rule(text), md.replace(b"device", b"d\xffvice"), data)
    assert caught.value.feedback == Feedback.DEVICE_UNKNOWN
