"""What a JMS application sees of our messages, and that it can answer them."""

import pytest

from gateway.errors import MQError
from gateway.mq import jms, mqmd, reports
from gateway.mq.properties import new, with_properties

MD = mqmd.build(
    msg_id=b"m" * 24, persistence=1, priority=5, put_date="20260102", put_time="03040506", user_identifier="ana",
    put_appl_name="app", put_appl_type=28, backout_count=2, reply_to_q="R", reply_to_q_mgr="QM", report=0x700,
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("bytes", b"\0\xff"),
        ("text", "größe €"),
        ("map", {"a b": 1, "c": "<x>", "d": None, "e": True}),
        ("stream", [1, "x", 2.5, b"\1"]),
        ("none", None),
    ],
)
def test_bodies(kind, body):
    seen = jms.view(*jms.build(MD, kind, body, [new("site", "lima"), new("line", 7)]))
    assert (seen.kind, seen.body) == (kind, body)
    assert (seen.properties["site"], seen.properties["line"]) == ("lima", 7)


def test_headers_from_the_folders():
    md, data = jms.build(
        MD, "text", "x", Dst="queue:///Q", Rto="queue://QM2/R2", Tms=12345, Dlv=2, Cid="mine", Exp=99, Gid="g", Seq=4
    )
    seen = jms.view(md, data)
    assert seen.headers == {
        "JMSMessageID": "ID:" + "6d" * 24, "JMSCorrelationID": "mine", "JMSDestination": "queue:///Q",
        "JMSReplyTo": "queue://QM2/R2", "JMSDeliveryMode": 2, "JMSPriority": 5, "JMSExpiration": 99,
        "JMSTimestamp": 12345, "JMSType": None, "JMSRedelivered": True,
    }  # fmt: skip
    assert (seen.properties["JMSXGroupID"], seen.properties["JMSXGroupSeq"]) == ("g", 4)


def test_headers_from_the_descriptor():
    md = mqmd.patch(
        MD, correl_id=b"c" * 24, msg_flags=24, group_id=b"g" * 24, msg_seq_number=3, format="MQSTR", feedback=5
    )
    seen = jms.view(md, b"text")
    assert seen.kind == "text"
    assert seen.headers["JMSCorrelationID"] == "ID:" + "63" * 24
    assert seen.headers["JMSReplyTo"] == "queue://QM/R"
    assert seen.headers["JMSTimestamp"] == 1767323045060
    assert seen.properties["JMSXGroupID"] == "ID:" + "67" * 24
    assert seen.properties["JMS_IBM_Last_Msg_In_Group"] is True
    assert seen.properties["JMS_IBM_Report_COA"] == 0x700
    assert seen.properties["JMSXDeliveryCount"] == 3
    assert seen.properties["JMS_IBM_Feedback"] == 5


def test_a_publication():
    md, data = with_properties(mqmd.build(), b"x", [new("mqps.Top", "a/b"), new("mcd.Type", "T"), new("mcd.Set", "S")])
    seen = jms.view(md, data)
    assert seen.kind == "bytes"
    assert seen.headers["JMSDestination"] == "topic://a/b"
    assert seen.headers["JMSType"] == "mcd:///S/T?format="


def test_a_jms_program_can_answer():
    seen = jms.view(*jms.build(MD, "bytes", b"question"))
    assert jms.queue_of(seen.headers["JMSReplyTo"]) == ("R", "QM")
    answer = mqmd.unpack(reports.reply(MD))
    assert f"ID:{answer.correl_id.hex()}" == seen.headers["JMSMessageID"]


@pytest.mark.parametrize(
    ("uri", "queue"),
    [
        ("queue:///Q", ("Q", "")),
        ("queue://QM/Q?targetClient=1", ("Q", "QM")),
        ("topic://a", None),
        ("queue://QM", None),
    ],
)
def test_queue_uris(uri, queue):
    assert jms.queue_of(uri) == queue


@pytest.mark.parametrize(
    ("date", "time"), [("", ""), ("20260230", "00000000"), ("2026x101", "00000000"), ("00000101", "00000000")]
)
def test_put_times_that_say_nothing(date, time):
    assert jms.put_milliseconds(date, time) == 0


def test_unknown_kind_and_broken_body():
    with pytest.raises(MQError, match="not one of"):
        jms.build(MD, "video", b"")
    md, data = jms.build(MD, "map", {})
    with pytest.raises(MQError, match="not the body of a JMS map"):
        jms.view(md, data[:-6])
