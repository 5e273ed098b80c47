"""Transmission queues, dead letters, extensions, context and segments: made, undone and compared."""

import mq_builders
import mq_segments
import pytest

from gateway.errors import HeaderError, MQError
from gateway.mq import constants, layout, mqmd, situations
from gateway.mq.headers import chain, header, rfh2, xqh
from gateway.mq.situations import Putter

QMGR = Putter("mqm", "QM1", 7, "20260102", "03040506")
ORIGINAL = mqmd.build(
    format="MQHRF2", encoding=273, coded_char_set_id=819, msg_id=b"m" * 24, correl_id=b"c" * 24, persistence=1,
    priority=7, report=constants.MQRO_COA | constants.MQRO_EXCEPTION, expiry=500, reply_to_q="R",
    user_identifier="ana", appl_origin_data="orig", put_appl_name="app", put_appl_type=28,
)  # fmt: skip
DATA = rfh2.build([rfh2.folder("usr", {"a": 1})], format_name=b"MQSTR   ", order=">") + b"body"
GROUPED = mqmd.patch(ORIGINAL, group_id=b"g" * 24, msg_seq_number=3, msg_flags=8)


@pytest.mark.parametrize(("md", "names"), [(ORIGINAL, ["MQXQH", "MQRFH2"]), (GROUPED, ["MQXQH", "MQMDE", "MQRFH2"])])
def test_transmission_queue_and_back(md, names):
    separate, data = situations.to_transmission(md, DATA, "Q.FAR", "QM2", msg_id=b"n" * 24, putter=QMGR)
    walked = chain.walk(separate, data)
    assert [each.name for each in walked] == names
    assert walked.payload == b"body"
    fields = mqmd.unpack(separate)
    assert (fields.format, fields.encoding, fields.coded_char_set_id) == ("MQXMIT", 546, 1208)
    assert (fields.msg_id, fields.correl_id) == (b"n" * 24, b"m" * 24)
    assert (fields.persistence, fields.priority, fields.expiry, fields.reply_to_q) == (1, 7, 500, "R")
    assert (fields.put_appl_type, fields.put_appl_name, fields.put_date, fields.appl_origin_data) == (
        7,
        "QM1",
        "20260102",
        "",
    )
    assert fields.report == constants.MQRO_EXCEPTION
    assert (fields.group_id, fields.msg_flags) == (bytes(24), 0)
    assert situations.from_transmission(separate, data) == ("Q.FAR", "QM2", md, DATA)


def test_transmission_header_of_another_platform():
    embedded = layout.pack(
        "MQMD", {"Format": "MQSTR", "ReplyToQ": "ANTWORT", "Expiry": 9}, version=1, order=">", charset="cp500"
    )
    raw = header.build("MQXQH", {"RemoteQName": "ZIEL", "MsgDesc": embedded}, order=">", charset="cp500")
    md = mqmd.build(format="MQXMIT", encoding=785, coded_char_set_id=500)
    arrived = situations.from_transmission(md, raw + b"x")
    assert arrived.remote_q_name == "ZIEL"
    assert arrived.md == mqmd.build(format="MQSTR", reply_to_q="ANTWORT", expiry=9)
    assert arrived.data == b"x"


def test_what_is_not_on_a_transmission_queue():
    with pytest.raises(HeaderError, match="begins with MQRFH2"):
        situations.from_transmission(ORIGINAL, DATA)
    with pytest.raises(HeaderError, match="no header"):
        situations.from_dead_letter(mqmd.build(), b"")


def test_dead_letter_and_back():
    dead = situations.to_dead_letter(ORIGINAL, DATA, 2053, "Q", "QM2", putter=QMGR)
    assert not dead.truncated
    assert [each.name for each in chain.walk(dead.md, dead.data)] == ["MQDLH", "MQRFH2"]
    assert chain.described_by(dead.md) == (546, 1208, b"MQDEAD  ")
    alive = situations.from_dead_letter(dead.md, dead.data)
    assert alive[1:] == (ORIGINAL, DATA)
    found = alive.header
    assert (found.reason, found.dest_q_name, found.dest_q_mgr_name, found.put_appl_name) == (2053, "Q", "QM2", "QM1")
    assert (found.encoding, found.coded_char_set_id, found.format) == (273, 819, b"MQHRF2  ")
    assert (found.put_appl_type, found.put_date, found.put_time) == (7, "20260102", "03040506")


def test_dead_letter_is_cut_to_the_queue():
    dead = situations.to_dead_letter(ORIGINAL, DATA, 2030, "Q", "QM2", putter=QMGR, max_length=200)
    assert dead.truncated
    assert len(dead.data) == 200
    with pytest.raises(HeaderError, match="raise its MAXMSGL"):
        situations.to_dead_letter(ORIGINAL, DATA, 2030, "Q", "QM2", putter=QMGR, max_length=100)


def test_an_extension_behind_version_2_fields_is_data():
    md = mqmd.patch(mqmd.build(format="MQHMDE", coded_char_set_id=1208), msg_flags=8)
    raw = header.build("MQMDE", {"MsgSeqNumber": 5})
    assert situations.absorb_extension(md, raw) == (md, raw)


def test_version_1_getters_see_the_extension():
    md, data = mq_builders.with_extension(GROUPED, DATA)
    assert [each.name for each in chain.walk(md, data)] == ["MQMDE", "MQRFH2"]
    assert situations.absorb_extension(mqmd.version_1(md), data) == (GROUPED, DATA)
    assert mq_builders.with_extension(ORIGINAL, DATA) == (ORIGINAL, DATA)


@pytest.mark.parametrize("order", ["<", ">"])
def test_extension_of_another_platform(order):
    values = {"Format": "MQSTR", "Encoding": 785, "CodedCharSetId": 500, "MsgSeqNumber": 5}
    raw = header.build("MQMDE", values, order=order, charset="cp500")
    md = mqmd.build(format="MQHMDE", encoding=785 if order == ">" else 546, coded_char_set_id=500)
    found = mqmd.unpack(situations.absorb_extension(md, raw + b"x", arrived=True)[0])
    assert (found.format, found.encoding, found.coded_char_set_id, found.msg_seq_number) == ("MQSTR", 785, 500, 5)
    assert situations.absorb_extension(md, raw + b"x") == (md, raw + b"x")


@pytest.mark.parametrize(
    "raw", [b"", b"MDE ", header.build("MQMDE", {"StrucLength": 71}), b"XXXX" + header.build("MQMDE", {})[4:]]
)
def test_an_extension_that_is_not_valid_is_data(raw):
    md = mqmd.build(format="MQHMDE")
    assert situations.absorb_extension(md, raw) == (md, raw)


ALLOWED = mqmd.build(msg_flags=1, msg_id=b"m" * 24)


@pytest.mark.parametrize("length", [1, 32, 33, 100])
def test_segments_are_put_together_again(length):
    data = bytes(range(length))
    parts = mq_segments.segments(ALLOWED, data, 32, group_id=b"g" * 24)
    assert [len(part) for _, part in parts] == [32] * ((length - 1) // 32) + [(length - 1) % 32 + 1]
    if len(parts) > 1:
        assert [mqmd.number(md, mqmd.AT_OFFSET) for md, _ in parts] == [32 * n for n in range(len(parts))]
        assert [mqmd.number(md, mqmd.AT_MSG_FLAGS) for md, _ in parts] == [3] * (len(parts) - 1) + [7]
        assert all(mq_segments.is_segment(md) for md, _ in parts)
        assert mq_segments.complete(parts[::-1]) == (ALLOWED, data)


def test_segments_are_cut_again():
    parts = mq_segments.segments(ALLOWED, bytes(100), 64, group_id=b"g" * 24)
    finer = [piece for md, data in parts for piece in mq_segments.segments(md, data, 16, group_id=b"h" * 24)]
    assert [mqmd.number(md, mqmd.AT_MSG_FLAGS) for md, _ in finer] == [3] * 6 + [7]
    assert mq_segments.complete(finer) == (ALLOWED, bytes(100))


def test_what_may_not_be_cut():
    for md, size in ((ORIGINAL, 32), (ALLOWED, 15)):
        with pytest.raises(MQError) as refused:
            mq_segments.segments(md, bytes(100), size, group_id=b"g" * 24)
        assert refused.value.reason == 2030


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda p: p[:-1], 2242), (lambda p: p[1:], 2242), (lambda p: p[:1] + p[2:], 2242),
        (lambda p: [p[0], (mqmd.with_number(p[1][0], 28, 37), p[1][1]), *p[2:]], 2243),
        (lambda p: [p[0], (mqmd.with_number(p[1][0], 24, 273), p[1][1]), *p[2:]], 2244),
        (lambda p: [p[0], (mqmd.with_persistence(p[1][0], 1), p[1][1]), *p[2:]], 2185),
    ],
)  # fmt: skip
def test_segments_that_do_not_fit(spoil, reason):
    with pytest.raises(MQError) as refused:
        mq_segments.complete(spoil(mq_segments.segments(ALLOWED, bytes(100), 32, group_id=b"g" * 24)))
    assert refused.value.reason == reason


def test_groups():
    made = mq_segments.group([(ALLOWED, b"1"), (ALLOWED, b"2"), (ALLOWED, b"3")], b"g" * 24)
    assert [(mqmd.number(md, mqmd.AT_MSG_SEQ_NUMBER), mqmd.number(md, mqmd.AT_MSG_FLAGS)) for md, _ in made] == [
        (1, 9),
        (2, 9),
        (3, 25),
    ]


def test_names_too_long():
    with pytest.raises(HeaderError, match=r"MQXQH.RemoteQName"):
        xqh.build("Q" * 49, "M", ORIGINAL)
