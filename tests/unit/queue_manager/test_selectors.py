"""Selectors: the subset of SQL92 conditions."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from embedded_rig import md
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MQError
from gateway.mq import mqmd, properties
from gateway.mq.headers import rfh2
from gateway.queue_manager.objects.selectors import Like, compile_selector

MD, DATA = properties.with_properties(
    md(priority=5, format=b"MQSTR"),
    b"data",
    [
        properties.Property("site", "lima"),
        properties.Property("line", 7, "i4"),
        properties.Property("load", 0.5, "r8"),
        properties.Property("hot", value=True, dt="boolean"),
        properties.Property("größe", 3, "i4"),
    ],
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("site = 'lima'", True),
        ("site <> 'lima'", False),
        ("usr.site = 'lima'", True),
        ("line > 6 AND line < 8", True),
        ("line + 1 = 8 AND line * 2 = 14 AND -line = -7", True),
        ("line / 2 = 3.5", True),
        ("load >= 0.5", True),
        ("hot", True),
        ("NOT hot", False),
        ("hot = TRUE", True),
        ("missing = 1", False),
        ("NOT missing = 1", False),
        ("missing IS NULL", True),
        ("site IS NOT NULL", True),
        ("site IN ('quito', 'lima')", True),
        ("site NOT IN ('quito')", True),
        ("line BETWEEN 1 AND 7", True),
        ("line NOT BETWEEN 1 AND 7", False),
        ("site LIKE 'l_m%'", True),
        ("site LIKE 'l!_m%' ESCAPE '!'", False),
        ("site NOT LIKE 'x%'", True),
        ("site = 'quito' OR line = 7", True),
        ("missing = 1 OR line = 7", True),
        ("missing = 1 AND line = 7", False),
        ("(site = 'quito' OR line = 7) AND hot", True),
        ("Root.MQMD.Priority = 5", True),
        ("JMSPriority > 4", True),
        ("site > 'a'", False),
        ("line = '7'", False),
        ("line / 0 = 1", False),
        ("site = 'it''s'", False),
        ("\"site\" = 'lima'", True),
        ("line = 0x7 AND line < 0X1f AND line = 7L AND line = 07 AND line < 010", True),
        ("010 = 8 AND 0xffL = 255 AND -0x1 = -1", True),
        ("load = 0.5F AND load = 5e-1d AND load < 1D AND line = 7.", True),
        ("größe = 3", True),
        ('"0x0AFC" = "0X0afc"', True),
        ('"0x0AFC" = "0x0AFC00"', False),
    ],
)
def test_conditions(text, expected):
    assert compile_selector(text).accepts(MD, DATA) is expected


JMS = rfh2.build(
    [
        "<mcd><Msd>jms_text</Msd><Type>order</Type></mcd>",
        (
            "<jms><Dst>queue:///ORDERS</Dst><Rto>queue://QM1/REPLIES</Rto><Tms>1700000000123</Tms><Exp>0</Exp>"
            "<Cid>order 7</Cid><Dlv>2</Dlv><Gid>batch</Gid><Seq>3</Seq></jms>"
        ),
    ],
    format_name=b"MQSTR   ", coded_char_set_id=1208,
)  # fmt: skip
OLD = {"put_date": "20231114", "put_time": "22132012", "msg_id": b"\xab" * 24, "put_appl_name": "app"}


@pytest.mark.parametrize(
    ("text", "by_client", "by_others"),
    [
        ("JMSCorrelationID = 'order 7'", True, False),
        (f"JMSCorrelationID = 'ID:{'cd' * 24}'", False, True),
        (f"JMSMessageID = 'ID:{'ab' * 24}'", True, True),
        (f'Root.MQMD.MsgId = "0x{"ab" * 24}"', True, True),
        (f'Root.MQMD.CorrelId <> "0X{"CD" * 24}"', False, False),
        ("JMSPriority BETWEEN 4 AND 6", True, True),
        ("JMSTimestamp = 1700000000123", True, False),
        ("JMSTimestamp = 1700000000120", False, True),
        ("JMSTimestamp > 1600000000000", True, True),
        ("JMSDeliveryMode = 'PERSISTENT'", True, False),
        ("'NON_PERSISTENT' = JMSDeliveryMode", False, True),
        ("JMSDeliveryMode <> 'PERSISTENT'", False, True),
        ("JMSDeliveryMode IN ('PERSISTENT')", True, False),
        ("JMSDeliveryMode = 2", True, False),
        ("JMSType = 'order'", True, False),
        ("JMSType IS NULL", False, True),
        ("JMSRedelivered = TRUE", True, True),
        ("JMSXDeliveryCount = 2", True, True),
        ("JMSXGroupID = 'batch' AND JMSXGroupSeq = 3", True, False),
        (f"JMSXGroupID = 'ID:{'ef' * 24}' AND JMSXGroupSeq = 9", False, True),
        ("JMSReplyTo LIKE 'queue://QM1/%' AND JMSDestination = 'queue:///ORDERS'", True, False),
        ("JMSExpiration = 0", True, False),
        ("JMSXAppID = 'app' AND JMSXUserID = 'ana'", True, True),
    ],
)
def test_names_of_jms(text, by_client, by_others):
    """By the folders of a JMS client, and by the descriptor of a message without such folders."""
    said = mqmd.build(
        priority=5, backout_count=1, user_identifier="ana", correl_id=b"\xcd" * 24, group_id=b"\xef" * 24,
        msg_seq_number=9, msg_flags=8, persistence=0, **OLD,
    )  # fmt: skip
    selector = compile_selector(text)
    assert selector.accepts(mqmd.with_described(said, 546, 1208, b"MQHRF2  "), JMS + b"text") is by_client
    assert selector.accepts(said, b"data") is by_others


@pytest.mark.parametrize(
    "put", [("20231399", "22132012"), ("", ""), ("yesterda", "22132012"), ("20231114", "99999999")]
)
def test_no_time_of_put_is_no_timestamp(put):
    said = mqmd.build(put_date=put[0], put_time=put[1])
    assert compile_selector("JMSTimestamp IS NULL").accepts(said, b"")


@pytest.mark.parametrize(
    "text",
    ["", "site =", "site = = 1", "site LIKE 5", "(site = 1", "site NOT 5", "a IN ()", "'x", "a @ b",
     "line = 09", "line = 0x", "line = 0xL", "site LIKE 'l' ESCAPE '!!'", "site LIKE 'l' ESCAPE ''",
     'a = "0xAFC"', 'a = "0x"', "Root.MQMD.Priorty = 5"],
)  # fmt: skip
def test_what_is_no_condition(text):
    with pytest.raises(MQError) as caught:
        compile_selector(text)
    assert caught.value.reason == 2459


def test_depth_is_bounded():
    with pytest.raises(MQError):
        compile_selector("(" * 100 + "hot" + ")" * 100)


@given(st.text(alphabet="ab'=<>()+-*/ ANDORNTIKE_%.1", max_size=60))
def test_any_text_is_a_selector_or_refused(text):
    with suppress(MQError):
        assert compile_selector(text).accepts(MD, DATA) in {True, False}


@given(st.text("ab%_", max_size=7), st.text("ab", max_size=8))
def test_like_is_what_its_regular_expression_would_be(pattern: str, value: str) -> None:
    expression = "".join({"%": ".*", "_": "."}.get(one) or re.escape(one) for one in pattern)
    assert Like(pattern, "").matches(value) == (re.fullmatch(expression, value, re.DOTALL) is not None)


def test_an_escape_at_the_end_of_a_pattern_stands_for_nothing() -> None:
    assert Like("a!", "!").matches("a")
    assert not Like("a!", "!").matches("ab")
    assert Like("a!%", "!").matches("a%")


@pytest.mark.parametrize("text", ["NOT " * 300 + "x = 1", "-" * 300 + "1 = x", "x = " + "1+" * 300 + "1"])
def test_more_operations_within_each_other_than_can_be_evaluated_are_refused(text: str) -> None:
    with pytest.raises(MQError, match="2459"):
        compile_selector(text)


def test_a_number_of_a_client_that_is_none_selects_nothing():
    said = rfh2.build(["<jms><Gid>g</Gid><Seq>--5</Seq></jms>"], format_name=b"MQSTR   ", coded_char_set_id=1208)
    md = mqmd.with_described(mqmd.build(), 546, 1208, b"MQHRF2  ")
    assert not compile_selector("JMSXGroupSeq = 5").accepts(md, said + b"text")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Root.MQMD.Priority = 5", 0),
        ("JMSPriority = 5 AND JMSMessageID IS NULL", 0),
        ("Root.MQMD.Priority = 4 AND site = 'lima'", 0),
        ("site = 'lima' AND line = 7", 1),
        ("JMSCorrelationID IS NULL AND site = 'lima'", 1),
    ],
)
def test_properties_are_read_once_and_only_where_it_depends_on_them(
    text: str, read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, whole = 0, properties.properties_of

    def counted(head: bytes, data: bytes) -> object:
        nonlocal count
        count += 1
        return whole(head, data)

    monkeypatch.setattr(properties, "properties_of", counted)
    assert compile_selector(text).accepts(MD, DATA) == ("4" not in text)
    assert count == read
