"""The contract of the MQI port: what is got of groups and segmented messages, in which order, when it is kept back."""

from __future__ import annotations

import pytest
from embedded_rig import md, refused

from gateway.queue_manager.descriptor import Descriptor

SYNCPOINT, NO_SYNCPOINT, BROWSE_FIRST, BROWSE_NEXT = 2, 4, 16, 32
LOGICAL, COMPLETE, ALL_MSGS, ALL_SEGMENTS = 0x8000, 0x10000, 0x20000, 0x40000
SEGMENT, LAST_SEGMENT, IN_GROUP, LAST_IN_GROUP = 2, 4, 8, 16
GROUP = b"G" * 24


def put_in_order(mqi, *parts, options=NO_SYNCPOINT, queue="A"):
    """Data and flags of each part of one group or message."""
    handle = mqi.open(queue)
    for data, flags in parts:
        mqi.put(handle, data, options | LOGICAL, md(flags=flags))
    return handle


def segment(mqi, data, offset, flags=SEGMENT, **others):
    mqi.put("A", data, NO_SYNCPOINT, md(flags=flags, group_id=GROUP, offset=offset, sequence=1, **others))


@pytest.mark.parametrize("kept_back", [ALL_SEGMENTS, ALL_MSGS, ALL_MSGS | ALL_SEGMENTS])
@pytest.mark.parametrize("syncpoint", [SYNCPOINT, NO_SYNCPOINT])
def test_the_rest_of_a_message_comes_once_its_first_segment_was_got(mqi, kept_back, syncpoint):
    """All of it was there then; what was got is no longer."""
    put_in_order(mqi, (b"ab", SEGMENT), (b"cd", SEGMENT), (b"e", LAST_SEGMENT), (b"alone", 0))
    reader = mqi.open("A")
    got = [mqi.get(reader, syncpoint | LOGICAL | kept_back) for _ in range(4)]
    assert [one.data for one in got] == [b"ab", b"cd", b"e", b"alone"]
    assert [one.segment_status for one in got] == [b"S", b"S", b"L", b" "]


@pytest.mark.parametrize("kept_back", [ALL_SEGMENTS, ALL_MSGS])
def test_a_message_of_which_a_segment_is_missing_is_kept_back(mqi, kept_back):
    writer = put_in_order(mqi, (b"ab", SEGMENT))
    reader = mqi.open("A")
    with refused(2033):
        mqi.get(reader, NO_SYNCPOINT | LOGICAL | kept_back)
    mqi.put(writer, b"cd", NO_SYNCPOINT | LOGICAL, md(flags=LAST_SEGMENT))
    assert [mqi.get(reader, NO_SYNCPOINT | LOGICAL | kept_back).data for _ in range(2)] == [b"ab", b"cd"]


def test_without_logical_order_they_always_have_an_effect(mqi):
    """A handle that is in a group by an earlier call with logical order is no different."""
    put_in_order(mqi, (b"1", IN_GROUP), (b"2", LAST_IN_GROUP))
    reader = mqi.open("A")
    assert mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_MSGS).data == b"1"
    with refused(2033):
        mqi.get(reader, NO_SYNCPOINT | ALL_MSGS)
    assert mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_MSGS).data == b"2"


def test_in_a_group_each_message_has_to_be_whole(mqi):
    """MQGMO_ALL_SEGMENTS_AVAILABLE has no effect in a current message; in a current group it has."""
    writer = put_in_order(mqi, (b"1", IN_GROUP), (b"2a", IN_GROUP | SEGMENT))
    reader = mqi.open("A")
    assert mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_SEGMENTS).data == b"1"
    with refused(2033):
        mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_SEGMENTS)
    mqi.put(writer, b"2b", NO_SYNCPOINT | LOGICAL, md(flags=IN_GROUP | LAST_SEGMENT))
    assert mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_SEGMENTS).data == b"2a"
    assert mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_SEGMENTS).data == b"2b"


def test_a_get_that_is_backed_out_returns_to_its_place_in_the_group(mqi):
    put_in_order(mqi, *((b"%d" % number, IN_GROUP) for number in range(1, 5)), (b"5", LAST_IN_GROUP))
    reader, options = mqi.open("A"), SYNCPOINT | LOGICAL | ALL_MSGS
    assert [mqi.get(reader, options).data for _ in range(2)] == [b"1", b"2"]
    mqi.connection.commit()
    assert [mqi.get(reader, options).data for _ in range(2)] == [b"3", b"4"]
    mqi.connection.back()
    assert [mqi.get(reader, options).data for _ in range(3)] == [b"3", b"4", b"5"]
    mqi.connection.commit()
    with refused(2033):
        mqi.get(reader, options)


def test_a_put_that_is_backed_out_returns_to_its_place_in_the_group(mqi):
    writer = put_in_order(mqi, (b"1", IN_GROUP), options=SYNCPOINT)
    mqi.connection.commit()
    for _ in range(2):
        mqi.put(writer, b"2", SYNCPOINT | LOGICAL, md(flags=IN_GROUP))
        last = mqi.put(writer, b"3", SYNCPOINT | LOGICAL, md(flags=LAST_IN_GROUP))
        assert Descriptor(last.md).sequence == 3
        mqi.connection.back()
    mqi.put(writer, b"2", SYNCPOINT | LOGICAL, md(flags=LAST_IN_GROUP))
    mqi.connection.commit()
    reader = mqi.open("A")
    assert [mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_MSGS).data for _ in range(2)] == [b"1", b"2"]


def test_a_group_is_got_inside_syncpoint_or_outside(mqi):
    put_in_order(mqi, (b"1", IN_GROUP), (b"2", LAST_IN_GROUP))
    reader = mqi.open("A")
    assert mqi.get(reader, SYNCPOINT | LOGICAL).data == b"1"
    with refused(2245):
        mqi.get(reader, NO_SYNCPOINT | LOGICAL)
    assert mqi.get(reader, SYNCPOINT | LOGICAL).data == b"2"


def test_browsing_has_a_place_of_its_own(mqi):
    put_in_order(mqi, (b"1", IN_GROUP), (b"2", IN_GROUP), (b"3", LAST_IN_GROUP))
    reader = mqi.open("A")
    assert mqi.get(reader, BROWSE_FIRST | LOGICAL).data == b"1"
    assert mqi.get(reader, BROWSE_NEXT | LOGICAL).data == b"2"
    assert mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_MSGS).data == b"1"
    assert mqi.get(reader, BROWSE_NEXT | LOGICAL).data == b"3"
    assert mqi.get(reader, NO_SYNCPOINT | LOGICAL | ALL_MSGS).data == b"2"
    with refused(2033):
        mqi.get(reader, BROWSE_FIRST | LOGICAL)  # what is left is not the first of its group


def test_browsing_in_logical_order_goes_on_where_the_group_began(mqi):
    """Its last message lies behind the first of another group, which is not passed over."""
    one, two = mqi.open("A"), mqi.open("A")
    for writer, data, flags in [(one, b"a1", IN_GROUP), (two, b"b1", IN_GROUP), (two, b"b2", LAST_IN_GROUP),
                                (one, b"a2", LAST_IN_GROUP)]:  # fmt: skip
        mqi.put(writer, data, NO_SYNCPOINT | LOGICAL, md(flags=flags))
    reader = mqi.open("A")
    seen = [mqi.get(reader, BROWSE_FIRST | LOGICAL).data]
    seen += [mqi.get(reader, BROWSE_NEXT | LOGICAL).data for _ in range(3)]
    assert seen == [b"a1", b"a2", b"b1", b"b2"]
    with refused(2033):
        mqi.get(reader, BROWSE_NEXT | LOGICAL)


def test_a_browse_does_not_change_its_order_in_the_middle(mqi):
    put_in_order(mqi, (b"1", IN_GROUP), (b"2", LAST_IN_GROUP))
    reader = mqi.open("A")
    mqi.get(reader, BROWSE_FIRST | LOGICAL)
    with refused(2259):
        mqi.get(reader, BROWSE_NEXT)
    assert mqi.get(reader, BROWSE_FIRST).data == b"1"
    assert mqi.get(reader, BROWSE_NEXT).data == b"2"
    with refused(2259):
        mqi.get(reader, BROWSE_NEXT | LOGICAL)


@pytest.mark.parametrize(
    ("field", "value", "reason"), [("ccsid", 500, 2243), ("encoding", 273, 2244)]
)  # EBCDIC, big-endian
def test_segments_that_are_not_of_one_kind_are_not_put_together(mqi, field, value, reason):
    """The first ones that agree come with a warning; the others are got one by one."""
    usual = {"ccsid": 1208, "encoding": 546}
    segment(mqi, b"ab", 0, **usual)
    segment(mqi, b"cd", 2, **usual)
    segment(mqi, b"ef", 4, SEGMENT | LAST_SEGMENT, **{**usual, field: value})
    reader = mqi.open("A")
    first = mqi.get(reader, NO_SYNCPOINT | COMPLETE)
    assert (first.data, first.comp_code, first.reason, first.segment_status) == (b"abcd", 1, reason, b"S")
    assert Descriptor(first.md).group_id == GROUP
    with refused(2033):
        mqi.get(reader, NO_SYNCPOINT | COMPLETE)
    rest = mqi.get(reader, NO_SYNCPOINT)
    assert (rest.data, rest.segment_status, getattr(Descriptor(rest.md), field)) == (b"ef", b"L", value)


def test_that_not_all_segments_agree_does_not_hide_that_the_buffer_is_too_short(mqi):
    segment(mqi, b"ab", 0, ccsid=1208)
    segment(mqi, b"cd", 2, SEGMENT | LAST_SEGMENT, ccsid=500)
    reader = mqi.open("A")
    assert mqi.get(reader, NO_SYNCPOINT | COMPLETE, length=1).reason == 2080
    assert mqi.depth("A") == 2
    assert mqi.get(reader, NO_SYNCPOINT | COMPLETE, length=2).reason == 2243


@pytest.mark.parametrize("options", [SYNCPOINT, NO_SYNCPOINT])
def test_a_program_that_was_restarted_goes_on_with_its_group(mqi, options):
    """It names the place of one message itself, and lets the queue manager number those behind it."""
    put_in_order(mqi, (b"1", IN_GROUP))
    first = Descriptor(mqi.get(mqi.open("A"), BROWSE_FIRST).md)
    handle = mqi.open("A")
    mqi.put(handle, b"2", options, md(flags=IN_GROUP, group_id=first.group_id, sequence=2))
    third = Descriptor(mqi.put(handle, b"3", options | LOGICAL, md(flags=LAST_IN_GROUP)).md)
    assert (third.group_id, third.sequence) == (first.group_id, 3)
    mqi.connection.commit()
    reader = mqi.open("A")
    assert mqi.get(reader, options, md(sequence=2), match=8).data == b"2"
    assert mqi.get(reader, options | LOGICAL).data == b"3"
    mqi.connection.commit()
    assert mqi.get(reader, options | LOGICAL).data == b"1"


def test_a_place_that_a_program_names_is_given_back_when_it_backs_out(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"2", SYNCPOINT, md(flags=IN_GROUP, group_id=GROUP, sequence=2))
    mqi.connection.back()
    assert Descriptor(mqi.put(handle, b"1", SYNCPOINT | LOGICAL, md(flags=IN_GROUP)).md).sequence == 1


@pytest.mark.parametrize(("flag", "reason"), [(IN_GROUP, 2241), (SEGMENT, 2242), (IN_GROUP | SEGMENT, 2242)])
def test_a_program_is_told_that_it_leaves_a_group_or_a_message_open(mqi, flag, reason):
    warned = (1, reason)
    mqi.put(writer := mqi.open("A"), b"plain", NO_SYNCPOINT)  # the next like it would not be looked at
    mqi.put(writer, b"1", NO_SYNCPOINT | LOGICAL, md(flags=flag))
    put = mqi.put(writer, b"plain", NO_SYNCPOINT)
    assert (put.comp_code, put.reason) == warned
    assert mqi.put(writer, b"plain", NO_SYNCPOINT).comp_code == 0
    reader = mqi.open("A")
    assert mqi.get(reader, NO_SYNCPOINT).data == b"plain"
    assert mqi.get(reader, NO_SYNCPOINT | LOGICAL).data == b"1"
    left = mqi.get(reader, NO_SYNCPOINT)
    assert (left.data, left.comp_code, left.reason) == (b"plain", *warned)


@pytest.mark.parametrize(("flag", "reason"), [(IN_GROUP, 2241), (SEGMENT, 2242)])
def test_closing_in_the_middle_of_a_group_is_a_warning(mqi, flag, reason):
    writer = put_in_order(mqi, (b"1", flag))
    with refused(reason):
        mqi.connection.close(writer)
    with refused(2019):
        mqi.put(writer, b"closed all the same")


@pytest.mark.parametrize("flags", [SEGMENT, SEGMENT | IN_GROUP])
def test_only_the_last_segment_may_be_empty(mqi, flags):
    with refused(2253):
        mqi.put("A", b"", NO_SYNCPOINT, md(flags=flags))
    mqi.put("A", b"", NO_SYNCPOINT, md(flags=flags | LAST_SEGMENT))


@pytest.mark.parametrize(
    ("place", "reason"),
    [({"sequence": 0}, 2250), ({"sequence": 1_000_000_000}, 2250), ({"offset": -1}, 2251), ({"offset": 1 << 30}, 2251)],
)
def test_a_place_that_cannot_be(mqi, place, reason):
    with refused(reason):
        mqi.put("A", b"1", NO_SYNCPOINT, md(flags=IN_GROUP | SEGMENT, group_id=GROUP, **place))
    mqi.put(mqi.open("A"), b"1", NO_SYNCPOINT | LOGICAL, md(flags=LAST_IN_GROUP, **place))


@pytest.mark.parametrize(("options", "persistence", "reason"), [(4, 1, 2185), (2, 0, 2245), (4, 0, 2241)])
def test_a_message_that_does_not_go_with_its_group_is_a_warning_without_logical_order(
    mqi, options, persistence, reason
):
    handle = mqi.open("A")
    first = mqi.put(handle, b"1", 0x8000 | 4, md(flags=8, persistence=0))
    group = Descriptor(first.md).group_id
    result = mqi.put(handle, b"2", options, md(flags=8, persistence=persistence, group_id=group, sequence=2))
    assert (result.comp_code, result.reason) == (1, reason)


def test_a_message_of_a_group_that_is_got_in_another_unit_of_work_is_a_warning_without_logical_order(mqi):
    handle = mqi.open("A")
    for flags in (8, 8, 24):
        mqi.put(handle, b"x", 0x8000 | 4, md(flags=flags))
    mqi.get(handle, 0x8000 | 2)
    got = mqi.get(handle, 4)
    assert (got.comp_code, got.reason) == (1, 2245)


def test_one_message_by_itself_is_in_no_order(mqi):
    with refused(2046):
        mqi.put("A", b"1", NO_SYNCPOINT | LOGICAL)


@pytest.mark.parametrize("browse", [0, BROWSE_NEXT])
@pytest.mark.parametrize(
    ("match", "asked"),
    [(1, {"msg_id": b"m" * 24}), (2, {"correl_id": b"c" * 24}), (4, {"group_id": b"O" * 24}), (8, {"sequence": 3})],
)
def test_what_is_next_in_a_group_cannot_be_another_message(mqi, browse, match, asked):
    put_in_order(mqi, (b"1", IN_GROUP), (b"2", IN_GROUP), (b"3", LAST_IN_GROUP))
    other = md(msg_id=b"m" * 24, correl_id=b"c" * 24, group_id=b"O" * 24, flags=IN_GROUP | LAST_IN_GROUP)
    mqi.put("A", b"other", NO_SYNCPOINT, other)
    reader = mqi.open("A")
    assert mqi.get(reader, LOGICAL | (BROWSE_FIRST if browse else NO_SYNCPOINT)).data == b"1"
    options = LOGICAL | (browse or NO_SYNCPOINT)
    with refused(2247):
        mqi.get(reader, options, match=match, descriptor=md(**asked))
    second = Descriptor(mqi.get(reader, options).md)
    assert second.sequence == 2
    third = mqi.get(reader, options, match=4 | 8, descriptor=md(group_id=second.group_id, sequence=3))
    assert third.data == b"3"
