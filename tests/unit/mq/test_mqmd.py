"""The message descriptor: defaults, fields, patches, versions."""

import pytest

from gateway.errors import HeaderError
from gateway.mq import layout, mqmd

TABLE = layout.STRUCTURES["MQMD"]


def test_default_is_the_published_one():
    md = mqmd.build()
    assert len(md) == 364
    assert md == layout.pack("MQMD", {}, version=2)
    assert md[:48] == bytes.fromhex(
        "4d442020 02000000 00000000 08000000 ffffffff 00000000 22020000 00000000 2020202020202020 ffffffff 02000000"
    )


@pytest.mark.parametrize(
    ("constant", "name"),
    [
        (mqmd.AT_REPORT, "Report"), (mqmd.AT_MSG_TYPE, "MsgType"), (mqmd.AT_EXPIRY, "Expiry"),
        (mqmd.AT_FEEDBACK, "Feedback"), (mqmd.AT_ENCODING, "Encoding"), (mqmd.AT_CCSID, "CodedCharSetId"),
        (mqmd.AT_PRIORITY, "Priority"), (mqmd.AT_PERSISTENCE, "Persistence"),
        (mqmd.AT_BACKOUT_COUNT, "BackoutCount"), (mqmd.AT_PUT_APPL_TYPE, "PutApplType"),
        (mqmd.AT_MSG_SEQ_NUMBER, "MsgSeqNumber"), (mqmd.AT_OFFSET, "Offset"), (mqmd.AT_MSG_FLAGS, "MsgFlags"),
        (mqmd.AT_ORIGINAL_LENGTH, "OriginalLength"), (mqmd.AT_VERSION, "Version"),
    ],
)  # fmt: skip
def test_offsets_of_numbers(constant, name):
    assert TABLE[name] == constant


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (mqmd.FORMAT, "Format"), (mqmd.MSG_ID, "MsgId"), (mqmd.CORREL_ID, "CorrelId"), (mqmd.REPLY_TO_Q, "ReplyToQ"),
        (mqmd.REPLY_TO_Q_MGR, "ReplyToQMgr"), (mqmd.USER_IDENTIFIER, "UserIdentifier"),
        (mqmd.ACCOUNTING_TOKEN, "AccountingToken"), (mqmd.APPL_IDENTITY_DATA, "ApplIdentityData"),
        (mqmd.PUT_APPL_NAME, "PutApplName"), (mqmd.PUT_DATE, "PutDate"), (mqmd.PUT_TIME, "PutTime"),
        (mqmd.APPL_ORIGIN_DATA, "ApplOriginData"), (mqmd.GROUP_ID, "GroupId"),
    ],
)  # fmt: skip
def test_slices_of_fields(where, name):
    field = TABLE.field(name)
    assert (where.start, where.stop) == (field.offset, field.end)


def test_values_come_back():
    values = {"format": "MQSTR", "reply_to_q": "REPLIES", "msg_id": b"m" * 24, "expiry": 50, "group_id": b"g" * 24}
    back = mqmd.unpack(mqmd.build(**values))
    assert {name: getattr(back, name) for name in values} == values
    assert back.pack() == mqmd.build(**values)


@pytest.mark.parametrize(
    ("patched", "fields"),
    [
        (lambda md: mqmd.with_format(md, b"MQSTR"), {"format": "MQSTR"}),
        (lambda md: mqmd.with_msg_id(md, b"1" * 24), {"msg_id": b"1" * 24}),
        (lambda md: mqmd.with_correl_id(md, b"1" * 24), {"correl_id": b"1" * 24}),
        (lambda md: mqmd.with_expiry(md, 7), {"expiry": 7}),
        (lambda md: mqmd.with_persistence(md, 1), {"persistence": 1}),
        (lambda md: mqmd.with_number(md, mqmd.AT_REPORT, 5), {"report": 5}),
        (
            lambda md: mqmd.with_described(md, 273, 500, b"MQSTR   "),
            {"encoding": 273, "coded_char_set_id": 500, "format": "MQSTR"},
        ),
    ],
)
def test_patches_are_builds(patched, fields):
    assert patched(mqmd.build(user_identifier="x")) == mqmd.build(user_identifier="x", **fields)


def test_split_around_a_varying_field():
    head, tail = mqmd.split(mqmd.build(), mqmd.MSG_ID)
    assert head + b"i" * 24 + tail == mqmd.build(msg_id=b"i" * 24)


def test_version_1_loses_only_version_2_fields():
    md = mqmd.build(format="MQSTR", msg_flags=8)
    one = mqmd.version_1(md)
    assert len(one) == 324
    assert mqmd.unpack(one).version == 1
    assert mqmd.version_2(one) == mqmd.build(format="MQSTR")


def test_big_endian_and_nul_padded_fields():
    raw = layout.pack("MQMD", {"ReplyToQ": b"Q\0garbage", "Expiry": 9}, version=2, order=">")
    back = mqmd.unpack(raw, order=">")
    assert (back.reply_to_q, back.expiry, back.version) == ("Q", 9, 2)


def test_context_is_cut_and_names_are_not():
    assert mqmd.unpack(mqmd.build(user_identifier="device-with-a-long-name")).user_identifier == "device-with-"
    with pytest.raises(HeaderError, match=r"MQMD.ReplyToQ at offset 100.*shorten it"):
        mqmd.build(reply_to_q="Q" * 49)


@pytest.mark.parametrize("bad", [{"expiry": 1 << 31}, {"expiry": "x"}, {"format": 5}])
def test_values_of_another_type_are_refused(bad):
    with pytest.raises(HeaderError):
        mqmd.build(**bad)


def test_cut_descriptor():
    with pytest.raises(HeaderError, match="324 or 364 bytes, but here are 10"):
        mqmd.unpack(b"MD  123456")
