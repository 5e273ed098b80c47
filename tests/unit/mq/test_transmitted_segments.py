"""Segments behind transmission headers: read from bytes at the published offsets, walked, built and joined."""

import struct

import mq_segments
import pytest

from gateway.bridge.message import read_message
from gateway.mq import mqmd, situations
from gateway.mq import transmitted_segments as segments
from gateway.mq.headers import chain
from gateway.mq.situations import Putter

QMGR = Putter("mqm", "QM1", 7, "20260102", "03040506")
GROUP = b"GROUP-0000000000000000-1"
DATA = bytes(range(256))


def golden(offset, flags, body, *, order="<", ccsid=1208, charset="ascii"):
    """Returns MQXQH, version-1 MQMD, MQMDE and a segment, written by hand at the offsets of the reference."""
    encoding = 546 if order == "<" else 273

    def text(value, width):
        return value.ljust(width).encode(charset)

    def number(value):
        return struct.pack(order + "i", value)

    md = (
        text("MD", 4) + number(1) + number(0) + number(8) + number(-1) + number(0)
        + number(encoding) + number(ccsid) + text("MQHMDE", 8) + number(4) + number(1)
        + b"M" * 24 + bytes(24) + number(0) + text("", 48) + text("", 48) + text("ana", 12) + bytes(32)
        + text("", 32) + number(6) + text("app", 28) + text("20260102", 8) + text("03040506", 8) + text("", 4)
    )  # fmt: skip
    assert len(md) == 324
    xqh = text("XQH", 4) + number(1) + text("plant/cmd", 48) + text("device-1", 48) + md
    mde = (
        text("MDE", 4) + number(2) + number(72) + number(546) + number(819) + text("MQSTR", 8) + number(0)
        + GROUP + number(1) + number(offset) + number(flags) + number(-1)
    )  # fmt: skip
    assert (len(xqh), len(mde)) == (428, 72)
    return mqmd.build(format="MQXMIT", encoding=encoding, coded_char_set_id=ccsid), xqh + mde + body


FORMS = [("<", 1208, "ascii"), (">", 819, "ascii"), (">", 500, "cp500"), ("<", 37, "cp037")]


@pytest.mark.parametrize(("order", "ccsid", "charset"), FORMS)
def test_golden_bytes_are_walked(order, ccsid, charset):
    md, data = golden(100, 2, b"segment", order=order, ccsid=ccsid, charset=charset)
    walked = chain.walk(md, data)
    assert [one.name for one in walked] == ["MQXQH", "MQMDE"]
    assert (walked.payload, walked.body) == (b"segment", (546, 819, b"MQSTR   "))
    assert segments.part_of(md, data) == segments.Part(segments.Logical(GROUP, 1, 546, 819), 100, False, 7)


@pytest.mark.parametrize(("order", "ccsid", "charset"), FORMS)
def test_golden_bytes_arrive_as_a_segment(order, ccsid, charset):
    arrived = situations.from_transmission(*golden(100, 4, b"end", order=order, ccsid=ccsid, charset=charset))
    found = mqmd.unpack(arrived.md)
    assert arrived[:2] == ("plant/cmd", "device-1")
    assert (found.group_id, found.offset, found.msg_flags, found.original_length) == (GROUP, 100, 4, -1)
    assert (found.format, found.encoding, found.coded_char_set_id) == ("MQSTR", 546, 819)
    assert (found.priority, found.persistence, found.msg_id, arrived.data) == (4, 1, b"M" * 24, b"end")


@pytest.mark.parametrize(("order", "ccsid", "charset"), FORMS)
def test_golden_bytes_joined(order, ccsid, charset):
    form = {"order": order, "ccsid": ccsid, "charset": charset}
    md, first = golden(0, 2, DATA[:100], **form)
    _, second = golden(100, 2, DATA[100:200], **form)
    _, last = golden(200, 6, DATA[200:], **form)
    whole = segments.joined(md, [first, second, last])
    assert whole[:500] == golden(0, 0, b"", **form)[1][:500].replace(GROUP, bytes(24))
    assert whole[500:] == DATA
    assert segments.part_of(md, whole) is None
    arrived = situations.from_transmission(md, whole)
    assert (arrived.data, mqmd.unpack(arrived.md).format) == (DATA, "MQSTR")
    assert not mqmd.number(arrived.md, mqmd.AT_MSG_FLAGS)


def test_what_a_queue_manager_puts_there():
    """A message in segments, each made a message of a transmission queue, arrives with the same descriptors."""
    md = mqmd.build(format="MQSTR", coded_char_set_id=1208, msg_flags=1, persistence=1)
    parts = mq_segments.segments(md, DATA, 96, group_id=GROUP)
    sent = [
        situations.to_transmission(*one, "T", "DEV", msg_id=b"%024d" % at, putter=QMGR) for at, one in enumerate(parts)
    ]
    assert [situations.from_transmission(*one)[2:] for one in sent] == parts
    found = [segments.part_of(*one) for one in sent]
    assert [(one.offset, one.last, one.length) for one in found] == [(0, False, 96), (96, False, 96), (192, True, 64)]
    assert segments.is_whole(found)
    assert not segments.is_whole(found[:2])
    assert not segments.is_whole(found[1:])
    whole = segments.joined(sent[0][0], [data for _, data in sent])
    assert [one.name for one in chain.walk(sent[0][0], whole)] == ["MQXQH", "MQMDE"]
    arrived = situations.from_transmission(sent[0][0], whole)
    assert arrived.data == DATA
    assert arrived.md == md  # the flag that allowed it stays


def test_the_last_of_a_group_stays_the_last():
    md, first = golden(0, 2 | 8, b"a")
    whole = segments.joined(md, [first, golden(1, 4 | 8 | 16, b"b")[1]])
    found = mqmd.unpack(situations.from_transmission(md, whole).md)
    assert (found.msg_flags, found.group_id) == (24, GROUP)


def test_one_that_is_longer_than_a_message_may_be_says_so():
    md, first = golden(0, 2, b"aa")
    whole = segments.joined(md, [first, golden(2, 4, b"b")[1]], 9)
    assert mqmd.unpack(situations.from_transmission(md, whole).md).original_length == 9


@pytest.mark.parametrize("length", [0, 4, 427, 428, 499])
def test_what_is_cut_short_is_no_segment(length):
    md, data = golden(0, 2, b"segment")
    assert segments.part_of(md, data[:length]) is None


def test_what_is_no_segment():
    md, data = golden(0, 8, b"in a group")
    assert segments.part_of(md, data) is None
    assert segments.part_of(mqmd.with_format(md, b"MQSTR"), golden(0, 2, b"")[1]) is None
    assert segments.part_of(md, golden(0, 2, b"")[1].replace(b"MDE ", b"MDX ")) is None
    assert segments.part_of(md, golden(0, 2, b"")[1].replace(struct.pack("<i", 72), struct.pack("<i", 71))) is None


def test_rules_see_the_descriptor_with_its_extension():
    md, data = golden(100, 2 | 8, b"segment")
    message = read_message(md, data)
    found = mqmd.unpack(message.md)
    assert (found.group_id, found.offset, found.msg_flags, found.msg_seq_number) == (GROUP, 100, 10, 1)
    assert (found.format, found.coded_char_set_id, found.user_identifier) == ("MQSTR", 819, "ana")
    assert (message.remote_queue, message.remote_queue_manager, message.body.raw) == (
        "plant/cmd",
        "device-1",
        b"segment",
    )
