"""The bridge's promises one by one, end to end, on the embedded queue manager and on `ibm`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from bridge_estate import BACKENDS, Estate, Talker, estate, wait

from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.mqtt.packets import Will
from gateway.rules.feedback import Feedback

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
DEAD = "B.DEAD"
MAPPING = """
version: 1
unmatched: dead_letter
to_mq:
  - name: reading
    topic: plant/{site}/line/{line}/{kind}
    when: {qos: [1, 2], json: {good: true}}
    queue: READ.{site}
    payload: {format: json, schema: reading.json}
    descriptor:
      {priority: 4, expiry: 5m, reply_to: {queue: REPORTS}, report: [coa, exception], application_data: "{kind}"}
    properties: {site: "{site}", line: "{line:int}", who: "{client}", unit: "{property.unit}", value: "{json.value}"}
    group_by: "{client}"
    group_sequence: "{property.part}"
    group_last: "{property.last}"
  - {name: small, topic: "when/#", queue: SMALL.Q, when: {payload: {at_most: 3}}}
  - {name: kept, topic: "when/#", queue: KEPT.Q, when: {retained: true}}
  - {name: known, topic: "when/#", queue: KNOWN.Q, when: {client: "dev-*", properties: {kind: "a*"}}}
  - {name: first, topic: "both/#", queue: FIRST.Q, continue: true}
  - {name: second, topic: "both/#", queue: SECOND.Q}
  - {name: far, topic: "far/#", queue: FAR.Q, queue_manager: QM2}
  - {name: topic, topic: "pub/{x*}", mq_topic: "Plants/{x}"}
  - {name: text, topic: "text/#", queue: TEXT.Q, payload: {format: string}, headers: [mcd]}
  - {name: cut, topic: "cut/#", queue: SHORT.Q, too_long: segment}
  - {name: short, topic: "short/#", queue: SHORT.Q}
  - {name: alias, topic: "alias/#", queue: SHORT.ALIAS}
  - {name: reject, topic: "reject/#", queue: SHORT.Q, too_long: reject}
  - {name: drop, topic: "drop/#", queue: FULL.Q, on_failure: {retry: {times: 0}, then: drop}}
  - {name: out, topic: "out/#", queue: FULL.Q, on_failure: {retry: {times: 1, from: 10ms, to: 10ms}, then: disconnect}}
  - {name: later, topic: "later/#", queue: FULL.Q, on_failure: {retry: {times: 1, from: 10ms, to: 10ms}}}
  - {name: unable, topic: "unable/#", queue: FULL.Q, on_failure: {retry: {times: 1, from: 10ms, to: 10ms}}}
  - {name: to, topic: "to/{name}", queue: "TO.{name}"}
  - {name: round, topic: "round/#", queue: ROUND.Q}
  - {name: ask, topic: "ask", queue: ASK.Q, descriptor: {reply_to: {queue: ANSWERS}}}
  - {name: wills, topic: "gone/{who}", queue: GONE.Q}
  - {name: held, topic: "held/#", queue: HELD.Q, on_failure: {retry: {times: 0}, then: hold}}
  - {name: joined, topic: "joined/#", queue: GONE.Q, syncpoint: always}
to_mqtt:
  - {name: back, queue: ROUND.Q, topic: "back/{mqtt.clientId}"}
  - {name: answers, queue: ANSWERS, topic: "stray/answers"}
  - {name: by property, queue: DOWN.Q, topic: "down/{usr.site}/{json.n}", user_properties: all}
  - {name: by descriptor, queue: PLAIN.Q, topic: "plain/{md.CorrelIdText}", qos: from_persistence, convert: 1208}
  - {name: devices, transmission_queue: DEVICES}
  - {name: alarms, mq_topic: "Alarms/+", qos: 1}
  - {name: ordered, queue: ORDER.Q, topic: "order", order_by: "{usr.key}", qos: 1}
"""
OBJECTS = f"""
DEFINE QLOCAL({DEAD}) MAXDEPTH(99999) REPLACE
ALTER QMGR DEADQ({DEAD})
DEFINE QLOCAL(QM2) USAGE(XMITQ) REPLACE
DEFINE QLOCAL(DEVICES) USAGE(XMITQ) REPLACE
DEFINE QLOCAL(PUBLISHED) REPLACE
DEFINE SUB(PUBS) TOPICSTR('Plants/#') DEST(PUBLISHED) REPLACE
DEFINE QLOCAL(SHORT.Q) REPLACE
DEFINE QALIAS(SHORT.ALIAS) TARGET(SHORT.Q) REPLACE
DEFINE QLOCAL(FULL.Q) PUT(DISABLED) REPLACE
DEFINE QLOCAL(HELD.Q) PUT(DISABLED) NOREPLACE
DEFINE QLOCAL(POISON.Q) BOTHRESH(2) BOQNAME(ASIDE.Q) REPLACE
""" + "\n".join(
    f"DEFINE QLOCAL({name}) REPLACE" for name in (
        "READ.LIMA", "REPORTS", "SMALL.Q", "KEPT.Q", "KNOWN.Q", "FIRST.Q", "SECOND.Q", "TEXT.Q", "ROUND.Q", "ASK.Q",
        "ANSWERS", "GONE.Q", "DOWN.Q", "PLAIN.Q", "ORDER.Q", "ASIDE.Q", "TO.A",
    )
)  # fmt: skip
SCHEMA = '{"type": "object", "required": ["value"], "properties": {"value": {"type": "number"}}}'
USER, EXPIRY, CONTENT, RESPONSE, CORRELATION, INDICATOR = 0x26, 0x02, 0x03, 0x08, 0x09, 0x01
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
COA, PAN, NAN, EXPIRATION, EXCEPTION = 0x100, 1, 2, 0x200000, 0x1000000


@pytest.fixture(scope="module", params=BACKENDS)
def bridge(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Estate]:
    directory = tmp_path_factory.mktemp(request.param)
    for name in ("qm", "gw"):
        (directory / f"{name}.json").write_text(SCHEMA)
    mapping = MAPPING.replace("reading.json", str(directory / "qm.json"))
    with estate(directory, request.param, mapping, OBJECTS) as made:
        made.mapping = mapping  # type: ignore[attr-defined]
        yield made


@pytest.fixture(autouse=True)
def _nothing_of_other_tests(bridge: Estate) -> None:
    bridge.application.clear(
        DEAD, "REPORTS", "READ.LIMA", "SMALL.Q", "KEPT.Q", "KNOWN.Q", "FIRST.Q", "SECOND.Q", "TEXT.Q", "PUBLISHED",
        "QM2", "GONE.Q", "SHORT.Q", "ASK.Q",
    )  # fmt: skip


@pytest.fixture
def short(bridge: Estate) -> Iterator[None]:
    """SHORT.Q is: not where a gateway starts, which would be refused, as `max_packet` allows more."""
    bridge.mqsc("ALTER QLOCAL(SHORT.Q) MAXMSGL(600)")
    with bridge.device("learner") as device:  # the gateway goes by what it knows of a queue until it is refused
        device.publish("short/x", bytes(1024))
    dead(bridge)
    yield
    bridge.mqsc("ALTER QLOCAL(SHORT.Q) MAXMSGL(4194304)")


@pytest.fixture
def device(bridge: Estate) -> Iterator[Talker]:
    with bridge.device("dev-1") as made:
        yield made


def dead(bridge: Estate, count: int = 1) -> list[tuple[int, bytes]]:
    """Reason and body of the dead letters, which are cleared."""
    letters = wait(lambda: len(got := bridge.application.look(DEAD)) >= count and got)
    found = [(int.from_bytes(stored.data[8:12], "little"), stored.data[172:]) for stored in letters]
    bridge.application.clear(DEAD)
    return found


def md_of(message: Any) -> mqmd.Mqmd:
    return mqmd.unpack(message.md)


# -- device to MQ --


def test_a_rule_with_everything(bridge: Estate, device: Talker) -> None:
    """Levels, conditions, template, schema, descriptor, typed properties, group sequence, folders, context, report."""
    for part, last in (("1", []), ("2", [("last", "true")])):
        properties = {USER: [("unit", "C"), ("part", part), *last, ("traceparent", TRACE)], EXPIRY: 200}
        device.publish("plant/lima/line/7/temp", b'{"good": true, "value": 21.5}', int(part), properties=properties)
    first, second = bridge.application.messages("READ.LIMA", 2)
    usr = {name: first.property("usr", name) for name in ("site", "line", "who", "unit", "value", "part")}
    assert usr == {"site": "lima", "line": 7, "who": "dev-1", "unit": "C", "value": 21.5, "part": "1"}
    assert first.property("mqps", "Top") == "plant/lima/line/7/temp"
    assert [one.property("mqtt", "qos") for one in (first, second)] == [1, 2]
    assert first.property("mqtt", "clientId") == "dev-1"
    md, other = md_of(first), md_of(second)
    assert (md.priority, md.persistence, md.appl_identity_data.strip()) == (4, 1, "temp")
    assert 1000 < md.expiry <= 2000
    assert md.user_identifier.strip() == "dev-1"
    assert md.group_id == other.group_id != bytes(24)
    assert [(one.msg_seq_number, one.msg_flags) for one in (md, other)] == [(1, 8), (2, 24)]
    spans = [str(one.property("usr", "traceparent")) for one in (first, second)]
    assert all(re.fullmatch(rf"{TRACE[:35]}-[0-9a-f]{{16}}-01", span) for span in spans)
    assert len({*spans, TRACE}) == 3
    confirmed = [md_of(one) for one in bridge.application.messages("REPORTS", 2)]
    assert {one.feedback for one in confirmed} == {259}  # MQFB_COA
    assert {one.correl_id for one in confirmed} == {md.msg_id, other.msg_id}


@pytest.mark.parametrize("payload", [b'{"good": true}', b'{"good": true, "value": "warm"}'])
def test_a_payload_against_the_schema_is_dead_lettered_and_reported(
    bridge: Estate, device: Talker, payload: bytes
) -> None:
    properties = {USER: [("unit", "C"), ("part", "1")]}
    assert device.publish("plant/lima/line/7/temp", payload, properties=properties) == 0
    assert [reason for reason, _ in dead(bridge)] == [Feedback.SCHEMA]
    assert Feedback.SCHEMA in [md_of(report).feedback for report in bridge.application.messages("REPORTS")]


def test_conditions_choose_the_rule_and_what_none_takes_is_dead_lettered(bridge: Estate, device: Talker) -> None:
    device.publish("when/x", b"1")
    device.publish("when/x", b"long", retain=True)
    device.publish("when/x", b"long enough", properties={USER: [("kind", "apple")]})
    device.publish("when/x", b"long enough", properties={USER: [("kind", "pear")]})
    device.publish("when/x", b"", retain=True)
    assert [len(bridge.application.look(queue)) for queue in ("SMALL.Q", "KEPT.Q", "KNOWN.Q")] == [2, 1, 1]
    assert [reason for reason, _ in dead(bridge)] == [Feedback.NO_RULE]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_several_destinations_and_persistence_by_qos(bridge: Estate, device: Talker, qos: int) -> None:
    device.publish("both/x", b"twice", qos)
    found = [bridge.application.messages(queue)[0] for queue in ("FIRST.Q", "SECOND.Q")]
    assert [(one.body.raw, md_of(one).persistence) for one in found] == [(b"twice", int(qos > 0))] * 2


def test_qos_0_stands_by_itself_beside_what_is_refused(bridge: Estate, device: Talker) -> None:
    """Out of syncpoint: what its batch was refused for makes it neither double nor late; in its unit where the rule
    says so."""
    packets = []
    for number in range(40):
        body = b"%d" % number
        packets.append(writer.encode_publish(5, b"gone/x", body, 0))
        packets.append(writer.encode_publish(5, b"joined/x", body, 0))
        packets.append(writer.encode_publish(5, b"unable/x", body, 1, packet_id=1 + number))
    device.socket.sendall(b"".join(packets))
    assert [device.next(p.PUBACK)[1] for _ in range(40)] == list(range(1, 41))
    device.publish("gone/x", b"last")
    found = bridge.application.messages("GONE.Q", 81)
    bodies = [one.body.raw for one in found if md_of(one).persistence == 0]
    assert sorted(bodies) == sorted([b"%d" % number for number in range(40)] * 2)
    assert len(dead(bridge, 40)) == 40


def test_a_remote_queue_manager_gets_it_through_its_transmission_queue(bridge: Estate, device: Talker) -> None:
    device.publish("far/x", b"over there")
    [message] = bridge.application.messages("QM2")
    assert (message.remote_queue, message.remote_queue_manager) == ("FAR.Q", "QM2")
    assert message.body.raw == b"over there"


def test_an_mq_topic_is_published_to(bridge: Estate, device: Talker) -> None:
    device.publish("pub/lima/7", b"for all", 2)
    [message] = bridge.application.messages("PUBLISHED")
    assert message.property("mqps", "Top") == "Plants/lima/7"
    assert message.body.raw == b"for all"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_retained_publication_is_retained_on_its_mq_topic(bridge: Estate, device: Talker, qos: int) -> None:
    """A program that subscribes later gets it, marked as retained; an empty one takes it away."""
    topic, read = f"Plants/kept/{qos}", bridge.application.retained
    device.publish(f"pub/kept/{qos}", b"old", qos, retain=True)
    device.publish(f"pub/kept/{qos}", b"good", qos, retain=True)
    device.publish(f"pub/kept/{qos}", b"news", qos)
    device.publish("pub/kept/none", b"a commit behind it")
    [kept] = wait(lambda: read(topic))
    assert kept.body.raw == b"good"
    assert kept.property("mqps", "Ret") is True
    assert kept.property("mqps", "Top") == topic
    device.publish(f"pub/kept/{qos}", b"", qos, retain=True)
    wait(lambda: not read(topic))


def test_text_is_checked_and_described(bridge: Estate, device: Talker) -> None:
    device.publish("text/x", "grüße".encode())
    [message] = bridge.application.messages("TEXT.Q")
    assert (message.described.format, message.described.ccsid) == (b"MQSTR   ", 1208)
    assert message.body.raw == "grüße".encode()
    device.publish("text/x", b"\xff\xfe")
    assert [reason for reason, _ in dead(bridge)] == [Feedback.TEXT_NOT_VALID]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("qos", [1, 2])
def test_size_policies(bridge: Estate, device: Talker, qos: int) -> None:
    body = bytes(range(256)) * 4
    assert device.publish("reject/x", body, qos) == 0x97
    device.publish("short/x", body, qos)
    assert [reason for reason, _ in dead(bridge)] == [2030]
    device.publish("cut/x", body, qos)
    parts = bridge.application.look("SHORT.Q")
    assert len(parts) > 1
    assert len({one.md[mqmd.GROUP_ID] for one in parts}) == 1
    whole = b"".join(one.data for one in parts)
    assert whole.endswith(body)
    assert mqmd.unpack(parts[-1].md).msg_flags & 4  # MQMF_LAST_SEGMENT


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("topic", ["short/late", "alias/late"])
def test_qos_0_that_is_too_long_is_a_dead_letter_and_never_only_counted(
    bridge: Estate, device: Talker, topic: str
) -> None:
    """Through an alias, or after MAXMSGL was lowered, the queue manager says so when the put is long over."""
    rule = topic.partition("/")[0]
    lost = bridge.account().get(rule, {}).get("messages_dropped", 0)
    for _ in range(2):
        device.publish(topic, b"fits", 0)
    wait(lambda: len(bridge.application.look("SHORT.Q")) == 2)
    bridge.mqsc("ALTER QLOCAL(SHORT.Q) MAXMSGL(300)")
    for body in (b"also fits", b"l" * 400, b"fits too"):
        device.publish(topic, body, 0)
    [(reason, body)] = dead(bridge)
    assert (reason, body[-400:]) == (2030, b"l" * 400)
    wait(lambda: len(bridge.application.look("SHORT.Q")) == 4)
    assert bridge.account().get(rule, {}).get("messages_dropped", 0) == lost


def test_failure_policies(bridge: Estate, device: Talker) -> None:
    assert device.publish("drop/x", b"gone") == 0
    assert device.publish("later/x", b"set aside") == 0
    [(reason, letter)] = dead(bridge)
    assert reason == 2051
    assert letter.endswith(b"set aside")
    with bridge.device("leaver") as leaver, pytest.raises((AssertionError, OSError)):
        leaver.publish("out/x", b"unwanted")
    account = bridge.account()
    assert account["drop"]["messages_dropped"] == 1
    assert account["later"]["dlq_messages"] == 1


@pytest.mark.parametrize("level", ["A B", "x" * 60, "é", "a.b", "*", "%00"])
def test_a_hostile_level_is_refused_and_counted(bridge: Estate, device: Talker, level: str) -> None:
    before = bridge.account()["to"]["transform_errors"]
    device.publish(f"to/{level}", b"attack")
    reasons = [reason for reason, _ in dead(bridge)]
    if level != "%00":
        assert reasons == [Feedback.NAME_NOT_VALID]
        assert bridge.account()["to"]["transform_errors"] == before + 1
    else:
        assert reasons == [2085]


def test_mqtt_5_properties_go_through_mq_and_come_back(bridge: Estate) -> None:
    """Names MQ refuses, repeats and order of user properties; expiry, content type, format, correlation data."""
    users = [("a b", "1"), ("JMSx", "é"), ("a b", ""), ("", "empty"), ("select", "x"), ("NOT", "y")]
    with bridge.device("sender") as sender, bridge.device("watcher") as watcher:
        watcher.subscribe("back/#")
        given = {
            USER: users,
            EXPIRY: 1000,
            CONTENT: "text/plain",
            INDICATOR: 1,
            RESPONSE: "r/1",
            CORRELATION: b"\0" * 40,
        }
        sender.publish("round/x", b"text", 2, properties=given)
        topic, payload, first, found = watcher.receive()
    assert (topic, payload, first >> 1 & 3) == ("back/sender", b"text", 2)
    assert 900 <= found.pop(EXPIRY) <= 1000
    assert found == {key: value for key, value in given.items() if key != EXPIRY}


def test_an_application_answers_with_plain_request_and_reply(bridge: Estate) -> None:
    with bridge.device("asker") as asker:
        asker.subscribe("answers/asker")
        asker.publish("ask", b"how many?", properties={RESPONSE: "answers/asker", CORRELATION: b"question 7"})
        [request] = bridge.application.messages("ASK.Q")
        md = md_of(request)
        assert (md.msg_type, md.reply_to_q) == (1, "ANSWERS")
        bridge.application.put("ANSWERS", b"seven", msg_type=2, correl_id=md.msg_id)
        topic, payload, _, found = asker.receive()
    assert (topic, payload, found[CORRELATION]) == ("answers/asker", b"seven", b"question 7")


def test_wills_and_retained_publications_follow_rules(bridge: Estate, device: Talker) -> None:
    bridge.device("mortal", will=Will("gone/mortal", b"farewell", 1, retain=False)).cut()
    [message] = bridge.application.messages("GONE.Q")
    assert (message.body.raw, message.property("mqtt", "clientId")) == (b"farewell", "mortal")
    device.publish("gone/kept", b"last known", retain=True)
    assert bridge.application.messages("GONE.Q", 2)[1].property("mqps", "Ret") is True


# -- MQ to device --


def test_topic_from_properties_and_json_and_all_properties(bridge: Estate, device: Talker) -> None:
    device.subscribe("down/#")
    usr: dict[str, Any] = {"site": "lima", "traceparent": TRACE, "n": 7}
    bridge.application.put("DOWN.Q", b'{"n": 42}', usr=usr, mqps={"Ret": True}, mqtt={"qos": 1})
    topic, payload, first, found = device.receive()
    assert (topic, payload, first & 7) == ("down/lima/42", b'{"n": 42}', 2)  # RETAIN is for later subscribers
    users = dict(found[USER])
    assert (users["site"], users["n"]) == ("lima", "7")
    assert re.fullmatch(rf"{TRACE[:35]}-[0-9a-f]{{16}}-01", users["traceparent"])
    assert users["traceparent"] != TRACE
    assert any(name.startswith("md.") for name in users)
    with bridge.device("late") as late:
        late.subscribe("down/#")
        assert late.receive()[2] & 1
    device.publish("down/lima/42", b"", retain=True)


@pytest.mark.parametrize(("persistence", "qos"), [(0, 0), (1, 2)])
def test_topic_from_the_descriptor_and_conversion(bridge: Estate, device: Talker, persistence: int, qos: int) -> None:
    device.subscribe("plain/#")
    correl_id = b"dev-7".ljust(24, b"\0")
    bridge.application.put("PLAIN.Q", "grüße".encode("cp500"), ccsid=500, correl_id=correl_id, persistence=persistence)
    topic, payload, first, _ = device.receive()
    assert (topic, payload.decode(), first >> 1 & 3) == ("plain/dev-7", "grüße", qos)
    bridge.application.put("PLAIN.Q", b"\0\xff raw", format="", correl_id=correl_id, persistence=persistence)
    assert device.receive()[1] == b"\0\xff raw"


def test_a_transmission_queue_is_for_devices_by_name(bridge: Estate) -> None:
    """Connected or not; expiry and reports of the one that is away; a stranger is a dead letter."""
    with bridge.device("pump-1", clean=False):
        pass
    bridge.mqsc("DEFINE QREMOTE(CMD.PUMP) RNAME('cmd/set') RQMNAME('pump-1') XMITQ(DEVICES) REPLACE")
    bridge.mqsc("DEFINE QREMOTE(CMD.NOBODY) RNAME('cmd/set') RQMNAME('stranger') XMITQ(DEVICES) REPLACE")
    report = {"reply_to_q": "REPORTS", "reply_to_q_mgr": "MQGATE"}
    bridge.application.put("CMD.PUMP", b"soon", report=EXPIRATION, expiry=15, **report)
    bridge.application.put("CMD.PUMP", b"on", report=PAN, **report)
    bridge.application.put("CMD.NOBODY", b"?", report=NAN | EXCEPTION, **report)
    assert [reason for reason, _ in dead(bridge)] == [Feedback.DEVICE_UNKNOWN]
    found = bridge.application.messages("REPORTS", 3)
    assert sorted(md_of(one).feedback for one in found) == sorted([258, 276, Feedback.DEVICE_UNKNOWN])
    with bridge.device("pump-1", clean=False) as pump:
        assert pump.receive()[:2] == ("cmd/set", b"on")
        assert pump.silent()
    assert 275 in [md_of(one).feedback for one in bridge.application.messages("REPORTS", 4)]


def test_a_subscription_to_an_mq_topic_is_durable_and_in_order(bridge: Estate) -> None:
    with bridge.device("guard", clean=False) as guard:
        guard.subscribe("Alarms/#", 1)
        bridge.application.put("topic://Alarms/fire", b"0")
        assert guard.receive()[:2] == ("Alarms/fire", b"0")
    for number in range(1, 60):
        bridge.application.put("topic://Alarms/fire", b"%d" % number)
        if number == 30:
            bridge.restart()
    with bridge.device("guard", clean=False) as guard:
        assert [guard.receive()[1] for _ in range(59)] == [b"%d" % number for number in range(1, 60)]
        assert guard.silent()


def test_what_its_own_devices_published_comes_back_to_nobody_twice(bridge: Estate) -> None:
    mirrored = bridge.mapping.replace('mq_topic: "Plants/{x}"', 'mq_topic: "pub/{x}"')  # type: ignore[attr-defined]
    bridge.reload(mirrored + '  - {name: mirror, mq_topic: "pub/#"}\n')
    with bridge.device("echo") as echo:
        echo.subscribe("pub/#")
        echo.publish("pub/a", b"mine")
        assert echo.receive()[:2] == ("pub/a", b"mine")
        wait(lambda: bridge.account()["mirror"]["messages_returned"] == 1)
        assert echo.silent()
        bridge.application.put("topic://pub/a", b"theirs")
        assert echo.receive()[:2] == ("pub/a", b"theirs")
    bridge.reload(bridge.mapping)  # type: ignore[attr-defined]


def test_order_is_kept(bridge: Estate, device: Talker) -> None:
    device.subscribe("order", 1)
    for number in range(120):
        bridge.application.put("ORDER.Q", b"%d" % number, usr={"key": str(number % 3)})
    assert [device.receive()[1] for _ in range(120)] == [b"%d" % number for number in range(120)]


def test_poison_goes_where_the_queue_says(bridge: Estate, device: Talker) -> None:
    """BackoutCount against BOTHRESH, to BOQNAME; what stands behind it goes on."""
    poison = bridge.application.put("POISON.Q", b"poison")
    bridge.application.put("POISON.Q", b"food")
    bridge.application.back_out("POISON.Q", poison, 2)
    device.subscribe("poison", 1)
    bridge.reload(bridge.mapping + "  - {name: poison, queue: POISON.Q, topic: poison}\n")  # type: ignore[attr-defined]
    assert device.receive()[1] == b"food"
    [aside] = bridge.application.messages("ASIDE.Q")
    assert (aside.body.raw, md_of(aside).msg_id) == (b"poison", poison)
    bridge.reload(bridge.mapping)  # type: ignore[attr-defined]


def test_a_queue_that_rules_put_to_can_be_deleted_when_they_name_it_no_more(bridge: Estate, device: Talker) -> None:
    bridge.mqsc("DEFINE QLOCAL(SOON.Q)")
    mapping: str = bridge.mapping  # type: ignore[attr-defined]
    bridge.reload(mapping.replace("to_mq:\n", 'to_mq:\n  - {name: soon, topic: "soon/#", queue: SOON.Q}\n'))
    assert device.publish("soon/x") == 0
    bridge.reload(mapping)
    wait(lambda: bridge._ask(bridge.manager, "/mqsc", {"text": "DELETE QLOCAL(SOON.Q) PURGE"})["ok"])


def test_state_queues_are_shown_to_those_who_ask_for_all(bridge: Estate) -> None:
    some, everything = (
        {one["name"] for one in bridge._ask(bridge.gateway, f"/queues?limit=500{more}", None)["items"]}
        for more in ("", "&all=true")
    )
    assert "MQGATE.FORWARD" not in some
    assert some | {"MQGATE.FORWARD", "MQGATE.SUBSCRIPTIONS", "MQGATE.OUT"} <= everything


def test_a_local_subscriber_has_once_what_a_queue_is_waited_for(bridge: Estate) -> None:
    """QoS 2, released to a queue that refuses and to a stored session; `kill -9`; the queue takes it."""
    with bridge.device("watcher", clean=False) as watcher:
        watcher.subscribe("held/#", 2)
        publisher = bridge.device("publisher", clean=False)
        publisher.socket.sendall(writer.encode_publish(5, b"held/x", b"once", 2, packet_id=9))
        publisher.next(p.PUBREC)
        publisher.socket.sendall(writer.encode_acks(p.PUBREL, [9]))
        assert watcher.receive()[1] == b"once"
    bridge.restart()
    with bridge.device("watcher", clean=False) as watcher:
        publisher = bridge.device("publisher", clean=False)
        publisher.socket.sendall(writer.encode_acks(p.PUBREL, [9]))
        bridge.mqsc("ALTER QLOCAL(HELD.Q) PUT(ENABLED)")
        assert publisher.next(p.PUBCOMP)[1] == 9
        assert [one.body.raw for one in bridge.application.messages("HELD.Q")] == [b"once"]
        assert watcher.silent()
    publisher.close()


def test_everything_is_accounted_for(bridge: Estate) -> None:
    """Since the gateway was started last, by rule."""
    for rule, counts in bridge.account().items():
        received, got = counts["mqtt_publish_received"], counts["mq_get_messages"]
        aside = counts["dlq_messages"] + counts["messages_dropped"]
        if received:
            assert received == counts["mq_put_messages"] + aside + counts.get("messages_held", 0), rule
        elif got:
            assert got == counts["mqtt_publish_sent"] + aside, rule
