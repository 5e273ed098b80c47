"""Segments: put together they are the message, and each is as MQ expects it."""

from __future__ import annotations

import mq_segments
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge.segments import is_further, segments
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.rules.feedback import Feedback

HEADER = rfh2.build([folder("usr", {"a": "1"})], format_name=b"MQSTR   ", coded_char_set_id=1208)
MD = mqmd.build(format="MQHRF2", coded_char_set_id=1208, persistence=1)


@given(st.binary(max_size=2000), st.integers(128, 1000))
def test_segments_put_together_are_the_message(payload, limit):
    made = segments(MD + HEADER, payload, limit, b"u")
    assert b"".join(head[364:] + body for head, body in made) == HEADER + payload
    if len(HEADER + payload) <= limit:
        assert made == [(MD + HEADER, payload)]
        return
    offset = 0
    descriptors = [mqmd.unpack(head) for head, _ in made]
    for (_, body), md in zip(made, descriptors, strict=True):
        assert len(body) <= limit
        assert md.offset == offset
        assert md.group_id == descriptors[0].group_id != bytes(24)
        assert md.msg_seq_number == 1
        offset += len(body)
    assert [md.msg_flags for md in descriptors] == [2] * (len(made) - 1) + [6]
    assert {md.format for md in descriptors[1:]} == {"MQSTR"}
    assert descriptors[0].format == "MQHRF2"
    assert all(len(body) % 16 == 0 for _, body in made[1:-1])


def test_a_group_that_is_there_stays():
    md = mqmd.build(group_id=b"g" * 24, msg_flags=8)
    made = [mqmd.unpack(head) for head, _ in segments(md, bytes(100), 32, b"u")]
    assert {one.group_id for one in made} == {b"g" * 24}
    assert made[0].msg_flags == 10


@pytest.mark.parametrize(("size", "limit"), [(100, 15), (200_000, 16), (100, 0)])
def test_what_cannot_be_segmented_is_refused(size, limit):
    with pytest.raises(Refused) as caught:
        segments(mqmd.build(), bytes(size), limit, b"u")
    assert caught.value.feedback == Feedback.TOO_LONG


def test_headers_that_do_not_fit_one_segment_are_refused():
    with pytest.raises(Refused):
        segments(MD + HEADER, bytes(1000), 48, b"u")


def test_all_agree_in_what_a_queue_manager_compares():
    """Also if the body is in another character set than the header: with 2243 and 2244 only a part would be
    returned."""
    header = rfh2.build([folder("usr", {"a": "1"})], format_name=b"MQSTR   ", coded_char_set_id=500)
    made = [mqmd.unpack(head) for head, _ in segments(MD + header, bytes(1000), 256, b"u")]
    assert {(one.coded_char_set_id, one.encoding) for one in made} == {(1208, 546)}
    assert mqmd.unpack(mq_segments.complete(segments(MD + header, bytes(1000), 256, b"u"))[0]).msg_flags == 0


def test_equal_messages_are_groups_of_their_own():
    groups = {mqmd.unpack(segments(MD + HEADER, bytes(500), 256, unique)[0][0]).group_id for unique in (b"1", b"2")}
    assert len(groups) == 2


def test_further_segments_are_no_messages_of_their_own():
    assert [is_further(head) for head, _ in segments(MD + HEADER, bytes(500), 256, b"u")] == [False, True, True]
