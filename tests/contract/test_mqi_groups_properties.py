"""The contract of the MQI port: groups, segments, properties, conversion."""

from __future__ import annotations

import struct

import pytest
from embedded_rig import md, refused

from gateway.ports.mqi import GetOptions, Property, PutOptions
from gateway.queue_manager.descriptor import Descriptor

LOGICAL, COMPLETE, ALL_MSGS, ALL_SEGMENTS = 0x8000, 0x10000, 0x20000, 0x40000
IN_GROUP, LAST, SEGMENT, LAST_SEGMENT, MAY_SEGMENT = 8, 16, 2, 4, 1
STRING, INT32 = 1024, 64


def group(mqi, handle, *datas, persistence=0):
    for index, data in enumerate(datas):
        flags = LAST if index == len(datas) - 1 else IN_GROUP
        result = mqi.put(handle, data, 4 | LOGICAL, md(flags=flags, persistence=persistence))
    return Descriptor(result.md)


def test_logical_order_numbers_the_messages(mqi):
    handle = mqi.open("A")
    last = group(mqi, handle, b"1", b"2", b"3")
    assert (last.sequence, last.flags) == (3, IN_GROUP | LAST)
    mqi.put(handle, b"alone", 4 | LOGICAL)
    other = mqi.open("A")
    got = [mqi.get(other, 4 | LOGICAL) for _ in range(4)]
    assert [one.data for one in got] == [b"1", b"2", b"3", b"alone"]
    assert [one.group_status for one in got] == [b"G", b"G", b"L", b" "]


def test_groups_interleaved_by_priority_come_in_order(mqi):
    one, two = mqi.open("A"), mqi.open("A")
    mqi.put(one, b"a1", 4 | LOGICAL, md(flags=IN_GROUP, priority=1))
    mqi.put(two, b"b1", 4 | LOGICAL, md(flags=IN_GROUP, priority=5))
    mqi.put(one, b"a2", 4 | LOGICAL, md(flags=LAST, priority=1))
    reader = mqi.open("A")
    with_all = 4 | LOGICAL | ALL_MSGS
    assert mqi.get(reader, with_all).data == b"a1"
    assert mqi.get(reader, with_all).data == b"a2"
    with refused(2033):
        mqi.get(reader, with_all)
    mqi.put(two, b"b2", 4 | LOGICAL, md(flags=LAST, priority=5))
    assert mqi.get(reader, with_all).data == b"b1"


def test_an_open_group_is_defended(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"1", 4 | LOGICAL, md(flags=IN_GROUP))
    with refused(2241):
        mqi.put(handle, b"x", 4 | LOGICAL)
    with refused(2185):
        mqi.put(handle, b"x", 4 | LOGICAL, md(flags=LAST, persistence=1))
    with refused(2245):
        mqi.put(handle, b"x", 2 | LOGICAL, md(flags=LAST))


def test_segments_made_by_the_queue_manager_are_put_together(mqi):
    mqi.mqsc("ALTER QLOCAL(A) MAXMSGL(100)")
    handle = mqi.open("A")
    data = bytes(range(250))
    with refused(2030):
        mqi.put(handle, data)
    mqi.put(handle, data, descriptor=md(flags=MAY_SEGMENT, format=b"MQSTR"))
    assert mqi.depth("A") == 3
    assert mqi.get(handle, 16).segment_status == b"S"
    got = mqi.get(handle, 4 | COMPLETE)
    assert (got.data, Descriptor(got.md).offset, got.segment_status) == (data, 0, b" ")
    assert mqi.depth("A") == 0


def test_incomplete_messages_wait(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"ab", 4 | LOGICAL, md(flags=SEGMENT))
    reader = mqi.open("A")
    with refused(2033):
        mqi.get(reader, 4 | COMPLETE)
    with refused(2242):
        mqi.put(handle, b"cd", 4 | LOGICAL)
    mqi.put(handle, b"cd", 4 | LOGICAL, md(flags=LAST_SEGMENT))
    assert mqi.get(reader, 4 | COMPLETE).data == b"abcd"


def test_properties_in_a_handle(mqi):
    handle = mqi.open("A")
    given = [Property("usr.site", "lima", STRING), Property("count", 7, INT32)]
    mqi.connection.put(handle, md(format=b"MQSTR"), PutOptions(4, properties=given), b"text")
    got = mqi.connection.get(handle, md(), GetOptions(4 | 0x8000000, handle_given=True), 100)
    assert (got.data, Descriptor(got.md).format) == (b"text", b"MQSTR   ")
    assert {(one.name, one.value, one.type) for one in got.properties} == {
        ("site", "lima", STRING),
        ("count", 7, INT32),
    }
    with refused(2460):
        mqi.get(handle, 4 | 0x8000000)


def test_properties_by_the_queues_control(mqi):
    handle = mqi.open("A")
    given = PutOptions(4, properties=[Property("site", "lima", STRING)])
    for control, visible in (("COMPAT", True), ("NONE", False), ("ALL", True), ("FORCE", True)):
        mqi.mqsc(f"ALTER QLOCAL(A) PROPCTL({control})")
        mqi.connection.put(handle, md(format=b"MQSTR"), given, b"text")
        got = mqi.get(handle)
        assert (Descriptor(got.md).format == b"MQHRF2  ") is visible, control
        assert got.data.endswith(b"text")
        assert (got.data == b"text") is not visible
    mqi.connection.put(handle, md(), given, b"text")
    assert mqi.get(handle, 4 | 0x4000000).data == b"text"


def test_property_lengths_do_not_count(mqi):
    mqi.mqsc("ALTER QLOCAL(A) MAXMSGL(4)")
    handle = mqi.open("A")
    given = PutOptions(4, properties=[Property("site", "lima", STRING)])
    mqi.connection.put(handle, md(), given, b"text")
    with refused(2030):
        mqi.connection.put(handle, md(), given, b"text.")


@pytest.mark.parametrize(("order", "encoding"), [("<", 546), (">", 273)])
@pytest.mark.parametrize("said", [40, -1, 0, 0x7FFFFFFF])
def test_a_message_is_no_shorter_for_what_its_header_says_of_itself(mqi, order, encoding, said):
    """MAXMSGL does not count properties, in either byte order, and counts what only pretends to be their header."""
    mqi.mqsc("ALTER QLOCAL(A) MAXMSGL(1000)")
    header = struct.pack(order + "4siiii8siii", b"RFH ", 2, said, 546, 1208, b"MQSTR   ", 0, 1208, 0)
    given = md(format=b"MQHRF2  ", encoding=encoding)
    mqi.put("A", header + b"x" * 960, descriptor=given)
    with refused(2030):
        mqi.put("A", header + b"x" * 1001, descriptor=given)
    with refused(2031):
        mqi.put("A", header + b"x" * 5_000_000, descriptor=given)


@pytest.mark.parametrize(("order", "encoding"), [("<", 546), (">", 273)])
def test_properties_do_not_count_in_the_length_of_a_message(mqi, order, encoding):
    mqi.mqsc("ALTER QLOCAL(A) MAXMSGL(1000)")
    folder = b"<usr><a>" + b"y" * 2000 + b"</a></usr>  "
    header = struct.pack(
        order + "4siiii8siii", b"RFH ", 2, 40 + len(folder), 546, 1208, b"MQSTR   ", 0, 1208, len(folder)
    )
    given = md(format=b"MQHRF2  ", encoding=encoding)
    mqi.put("A", header + folder + b"x" * 1000, descriptor=given)
    with refused(2030):
        mqi.put("A", header + folder + b"x" * 1001, descriptor=given)
