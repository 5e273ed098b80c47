"""The contract of the MQI port: MQOPEN, MQPUT, MQGET, units of work. Section 7 of the MQI reference."""

from __future__ import annotations

import pytest
from embedded_rig import OPEN_ALL, md, refused

from gateway.errors import MQError
from gateway.mq import situations
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions
from gateway.queue_manager.descriptor import Descriptor, text

SYNC, NO_SYNC = 2, 4
BROWSE_FIRST, BROWSE_NEXT, UNDER_CURSOR, BROWSE_UNDER_CURSOR, LOCK, UNLOCK = 16, 32, 256, 2048, 512, 1024


def test_put_fills_the_descriptor_in(mqi):
    handle = mqi.open("A")
    result = mqi.put(handle, b"hello", descriptor=md(format=b"MQSTR", reply_to_q=b"B"))
    put = Descriptor(result.md)
    assert put.msg_id.startswith(b"AMQ QM1         ")
    assert (put.priority, put.persistence, put.ccsid) == (0, 0, 1208)
    assert (put.format, text(put.reply_to_qmgr), text(put.user)) == (b"MQSTR   ", "QM1", "ana")
    assert (put.put_application_type, text(put.put_application_name)) == (6, "tests")
    assert put.put_date == b"20270115"
    assert (result.resolved_name, result.resolved_queue_manager) == ("A", "QM1")
    got = mqi.get(handle)
    assert (got.data, got.length, got.md) == (b"hello", 5, result.md)


def test_order_is_priority_then_arrival(mqi):
    handle = mqi.open("A")
    for priority, data in ((1, b"c"), (9, b"a"), (1, b"d"), (5, b"b")):
        mqi.put(handle, data, descriptor=md(priority=priority))
    assert mqi.drain(handle) == [b"a", b"b", b"c", b"d"]


def test_fifo_queues_ignore_priority(mqi):
    mqi.mqsc("ALTER QLOCAL(A) MSGDLVSQ(FIFO)")
    handle = mqi.open("A")
    for priority, data in ((1, b"a"), (9, b"b"), (3, b"c")):
        mqi.put(handle, data, descriptor=md(priority=priority))
    assert Descriptor(mqi.get(handle, BROWSE_FIRST).md).priority == 1
    assert mqi.drain(handle) == [b"a", b"b", b"c"]


def test_priority_above_the_maximum_is_a_warning(mqi):
    handle = mqi.open("A")
    result = mqi.put(handle, b"x", descriptor=md(priority=20))
    assert (result.comp_code, result.reason) == (1, 2049)
    assert Descriptor(mqi.get(handle).md).priority == 20


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"expiry": 0}, 2013),
        ({"persistence": 7}, 2047),
        ({"priority": -2}, 2050),
        ({"type": 0}, 2029),
        ({"type": 1}, 2027),
        ({"report": 256}, 2027),
        ({"flags": 64}, 2249),
        ({"feedback": -1}, 2014),
        ({"feedback": 1_000_000_000}, 2014),
    ],
)
def test_wrong_descriptors_are_refused(mqi, fields, reason):
    handle = mqi.open("A")
    with refused(reason):
        mqi.put(handle, b"x", descriptor=md(**fields))
    assert mqi.depth("A") == 0


@pytest.mark.parametrize(("report", "outcome"), [(0x8, 2104), (1 << 30, 2104), (0x20000, 2061), (0x100000, 2061)])
def test_report_options_that_are_not_known(mqi, report, outcome):
    """The mask that a bit is in says whether the message is put all the same."""
    handle = mqi.open("A")
    if outcome == 2061:
        with refused(outcome):
            mqi.put(handle, b"x", descriptor=md(report=report))
    else:
        put = mqi.put(handle, b"x", descriptor=md(report=report))
        assert (put.comp_code, put.reason) == (1, outcome)


def test_some_report_options_need_to_be_known_only_where_the_message_goes(mqi):
    mqi.mqsc("DEFINE QLOCAL(QM2) USAGE(XMITQ)\nDEFINE QREMOTE(FAR) RNAME(X) RQMNAME(QM2)")
    put = mqi.put("FAR", b"x", descriptor=md(report=0x20000))
    assert (put.comp_code, put.reason) == (1, 2104)


@pytest.mark.parametrize("options", [2 | 4, 32 | 512, 1 << 30, 0x1000])
def test_put_options_that_clash(mqi, options):
    handle = mqi.open("A")
    with refused(2046):
        mqi.put(handle, b"x", options=options)


def test_match_by_identifiers(mqi):
    handle = mqi.open("A")
    ids = [
        mqi.put(handle, bytes([65 + i]), descriptor=md(correl_id=bytes([i % 2 + 1]) * 24)).md[48:72] for i in range(4)
    ]
    assert mqi.get(handle, descriptor=md(msg_id=ids[2])).data == b"C"
    assert mqi.get(handle, descriptor=md(correl_id=b"\2" * 24)).data == b"B"
    with refused(2033):
        mqi.get(handle, descriptor=md(msg_id=ids[0], correl_id=b"\2" * 24))
    assert mqi.get(handle, descriptor=md(msg_id=ids[3]), match=0).data == b"A"
    assert mqi.get(handle, descriptor=md(msg_id=ids[0]), match=2).data == b"D"


def test_match_by_token(mqi):
    handle = mqi.open("A")
    for data in (b"1", b"2"):
        mqi.put(handle, data)
    mqi.get(handle, BROWSE_FIRST)
    token = mqi.get(handle, BROWSE_NEXT).token
    assert mqi.get(handle, match=32, message_token=token).data == b"2"
    with refused(2033):
        mqi.get(handle, match=32, message_token=token)


def test_truncation(mqi):
    handle = mqi.open("A")
    sent = mqi.put(handle, b"0123456789")
    got = mqi.get(handle, length=4)
    assert (got.comp_code, got.reason, got.data, got.length, got.md) == (1, 2080, b"0123", 10, sent.md)
    got = mqi.get(handle, 4 | 64, length=4)
    assert (got.comp_code, got.reason, got.data, got.length) == (1, 2079, b"0123", 10)
    with refused(2033):
        mqi.get(handle)
    mqi.put(handle, b"")
    assert mqi.get(handle, length=0).reason == 0


def test_browse_and_cursor(mqi):
    handle = mqi.open("A")
    for data in (b"1", b"2", b"3"):
        mqi.put(handle, data)
    assert mqi.get(handle, BROWSE_NEXT).data == b"1"
    assert mqi.get(handle, BROWSE_NEXT).data == b"2"
    assert mqi.get(handle, BROWSE_UNDER_CURSOR).data == b"2"
    assert mqi.get(handle, UNDER_CURSOR).data == b"2"
    with refused(2034):
        mqi.get(handle, UNDER_CURSOR)
    assert mqi.get(handle, BROWSE_NEXT).data == b"3"
    with refused(2033):
        mqi.get(handle, BROWSE_NEXT)
    assert mqi.get(handle, BROWSE_FIRST).data == b"1"
    assert mqi.depth("A") == 2


def test_a_locked_message_is_hidden_until_unlocked(mqi):
    one, two = mqi.open("A"), mqi.open("A")
    mqi.put(one, b"1")
    assert mqi.get(one, BROWSE_FIRST | LOCK).data == b"1"
    with refused(2033):
        mqi.get(two)
    assert mqi.get(one, UNLOCK).reason == 0
    assert mqi.get(two).data == b"1"
    again = mqi.get(one, UNLOCK)
    assert (again.comp_code, again.reason) == (1, 2209)


def test_a_locked_message_is_visible_to_the_handle_that_has_locked_it(mqi):
    """MQGMO_LOCK: invisible to any *other* handle."""
    handle, other = mqi.open("A"), mqi.open("A")
    for data in (b"1", b"2"):
        mqi.put(handle, data)
    for _ in range(2):
        assert mqi.get(handle, BROWSE_FIRST | LOCK).data == b"1"
    assert mqi.get(other, BROWSE_FIRST).data == b"2"
    assert mqi.get(handle).data == b"1"
    assert mqi.get(handle).data == b"2"


def test_a_lock_outlasts_gets_of_other_messages(mqi):
    one, two = mqi.open("A"), mqi.open("A")
    for data in (b"1", b"2"):
        mqi.put(one, data)
    mqi.get(one, BROWSE_FIRST | LOCK)
    assert mqi.get(two).data == b"2"
    assert mqi.get(one, UNDER_CURSOR | SYNC).data == b"1"
    mqi.connection.back()
    assert mqi.get(two).data == b"1"


def test_marks_of_browsers(mqi):
    handle = mqi.open("A")
    for data in (b"1", b"2"):
        mqi.put(handle, data)
    marking = BROWSE_FIRST | 0x100000 | 0x1000000
    assert mqi.get(handle, marking).data == b"1"
    assert mqi.get(handle, marking).data == b"2"
    with refused(2033):
        mqi.get(handle, marking)


def test_marks_of_browsers_together_are_for_these_alone(mqi):
    together, alone = mqi.open("A", OPEN_ALL | 0x20000), mqi.open("A")
    mqi.put(alone, b"1")
    unmarked = BROWSE_FIRST | 0x1000000
    assert mqi.get(together, unmarked | 0x200000).data == b"1"
    with refused(2033):
        mqi.get(mqi.open("A", OPEN_ALL | 0x20000), unmarked)
    assert mqi.get(alone, unmarked).data == b"1"


def test_syncpoint_hides_until_commit(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"1", SYNC)
    other = mqi.queue_manager.connect(user="bea")
    reader = other.open(ObjectDescriptor("A"), 2).handle
    with refused(2033):
        other.get(reader, md(), GetOptions(4), 100)
    with refused(2033):
        mqi.get(handle)
    assert mqi.depth("A") == 1
    mqi.connection.commit()
    assert other.get(reader, md(), GetOptions(SYNC), 100).data == b"1"
    with refused(2033):
        mqi.get(handle)
    assert mqi.depth("A") == 1
    other.commit()
    assert mqi.depth("A") == 0


def test_back_returns_messages_to_their_places(mqi):
    handle = mqi.open("A")
    for data in (b"1", b"2", b"3"):
        mqi.put(handle, data, descriptor=md(persistence=1))
    mqi.put(handle, b"4", SYNC)
    assert [mqi.get(handle, SYNC).data for _ in range(2)] == [b"1", b"2"]
    mqi.connection.back()
    got = [mqi.get(handle, SYNC) for _ in range(3)]
    assert [one.data for one in got] == [b"1", b"2", b"3"]
    assert [Descriptor(one.md).backout_count for one in got] == [1, 1, 0]
    mqi.connection.back()
    mqi.restart()
    handle = mqi.open("A")
    assert [Descriptor(mqi.get(handle).md).backout_count for _ in range(3)] == [2, 2, 1]


def test_skip_backout(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"1")
    mqi.get(handle, SYNC | 128)
    mqi.connection.back()
    with refused(2033):
        mqi.get(handle)
    mqi.connection.back()
    assert Descriptor(mqi.get(handle).md).backout_count == 1


def test_a_lost_connection_backs_out_and_disc_commits(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"1", SYNC)
    mqi.connection.disconnect(commit=False)
    mqi.connection = mqi.queue_manager.connect(user="ana")
    mqi.put(mqi.open("A"), b"2", SYNC)
    mqi.connection.disconnect()
    with refused(2018):
        mqi.put("A", b"3")
    mqi.connection = mqi.queue_manager.connect(user="ana")
    assert mqi.drain(mqi.open("A")) == [b"2"]


def test_limits(mqi):
    mqi.mqsc("ALTER QLOCAL(A) MAXDEPTH(2) MAXMSGL(10)\nALTER QMGR MAXUMSGS(2)")
    handle = mqi.open("A")
    with refused(2030):
        mqi.put(handle, b"x" * 11)
    mqi.put(handle, b"1", SYNC)
    mqi.put(handle, b"2", SYNC)
    with refused(2053):
        mqi.put(handle, b"3", SYNC)
    with refused(2024):
        mqi.put("B", b"3", SYNC)
    mqi.connection.back()
    mqi.put(handle, b"3")


def test_inhibited_queues(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"1")
    mqi.connection.set(handle, [10, 9], [1, 1], [])
    with refused(2051):
        mqi.put(handle, b"2")
    with refused(2016):
        mqi.get(handle)
    mqi.connection.set(handle, [10, 9], [0, 0], [])
    assert mqi.get(handle).data == b"1"


def test_expiry(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"short", descriptor=md(expiry=50, report=0x200000, reply_to_q=b"B"))
    mqi.put(handle, b"long", descriptor=md(expiry=500))
    mqi.scheduler.advance(5)
    got = mqi.get(handle)
    assert (got.data, Descriptor(got.md).expiry) == (b"long", 450)
    report = mqi.get(mqi.open("B"))
    assert (Descriptor(report.md).feedback, Descriptor(report.md).type, report.data) == (258, 4, b"")


def test_expired_messages_go_by_themselves(mqi):
    handle = mqi.open("A")
    for expiry in (10, 10, 600, -1):
        mqi.put(handle, b"x", descriptor=md(expiry=expiry, report=0x200000, reply_to_q=b"B"))
    mqi.scheduler.advance(31)
    mqi.scheduler.advance(0.1)
    assert (mqi.depth("A"), mqi.depth("B")) == (2, 2)
    mqi.scheduler.advance(31)
    assert (mqi.depth("A"), mqi.depth("B")) == (1, 3)


def test_reports_of_arrival_and_delivery(mqi):
    handle, replies = mqi.open("A"), mqi.open("B")
    sent = mqi.put(handle, b"data", SYNC, md(report=768 | 0x3800 | 64, reply_to_q=b"B", correl_id=b"c" * 24))
    assert mqi.depth("B") == 1  # counted, not to be seen
    with refused(2033):
        mqi.get(replies)
    mqi.connection.commit()
    arrival = mqi.get(replies)
    put, made = Descriptor(sent.md), Descriptor(arrival.md)
    assert (made.feedback, made.correl_id, arrival.data) == (259, b"c" * 24, b"data")
    assert made.msg_id != put.msg_id
    mqi.get(handle, SYNC)
    with refused(2033):
        mqi.get(replies)
    mqi.connection.commit()
    assert Descriptor(mqi.get(replies).md).feedback == 260


COA_FULL, COD_FULL, DEAD = 0x700, 0x3800, "SYSTEM.DEAD.LETTER.QUEUE"


@pytest.mark.parametrize(
    ("objects", "reply_to", "reason"),
    [
        ("ALTER QLOCAL(B) MAXMSGL(10)", b"B", 2030),
        ("ALTER QLOCAL(B) MAXDEPTH(0)", b"B", 2053),
        ("ALTER QLOCAL(B) PUT(DISABLED)", b"B", 2051),
        ("", b"NOWHERE", 2085),
    ],
)
@pytest.mark.parametrize("report", [COA_FULL, COD_FULL])
def test_a_report_that_its_queue_does_not_take_is_a_dead_letter(mqi, objects, reply_to, reason, report):
    lost = []
    mqi.queue_manager.placer.on_lost = lost.append
    mqi.mqsc(f"{objects}\nALTER QLOCAL({DEAD}) MAXMSGL(272)")
    handle = mqi.open("A")
    mqi.put(handle, b"data" * 100, descriptor=md(report=report, reply_to_q=reply_to))
    mqi.get(handle)
    got = mqi.get(mqi.open(DEAD))
    revived = situations.from_dead_letter(got.md, got.data)
    assert (revived.header.reason, revived.header.dest_q_name.strip()) == (reason, reply_to.decode())
    assert (Descriptor(revived.md).type, revived.data) == (4, b"data" * 25)  # cut: MQDLH and MAXMSGL(272)
    assert lost == []


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        (f"ALTER QLOCAL({DEAD}) MAXMSGL(100)", "172"),
        (f"ALTER QLOCAL({DEAD}) MAXDEPTH(0)", "MAXDEPTH"),
        (f"ALTER QLOCAL({DEAD}) PUT(DISABLED)", "PUT"),
        ("ALTER QMGR DEADQ(' ')", "no DEADQ"),
        ("ALTER QMGR DEADQ(NOWHERE)", "NOWHERE"),
    ],
)
def test_a_report_that_goes_nowhere_is_told(mqi, objects, why):
    lost = []
    mqi.queue_manager.placer.on_lost = lost.append
    mqi.mqsc(objects)
    mqi.put("A", b"data", descriptor=md(report=COA_FULL, reply_to_q=b"NO.SUCH"))
    [one] = lost
    assert (Descriptor(one.md).feedback, one.queue, one.reason) == (259, "NO.SUCH", 2085)
    assert why in one.why


def test_a_lost_report_of_a_unit_of_work_is_told_when_that_is_committed(mqi):
    lost = []
    mqi.queue_manager.placer.on_lost = lost.append
    mqi.mqsc("ALTER QMGR DEADQ(' ')")
    for committed in (False, True):
        mqi.put("A", b"data", 2, descriptor=md(report=COA_FULL, reply_to_q=b"NO.SUCH"))
        assert lost == []
        if committed:
            mqi.connection.commit()
        else:
            mqi.connection.back()
    assert len(lost) == 1
    mqi.get(mqi.open("A"))


@pytest.mark.parametrize(("option", "reason"), [(0x100, 2094), (0x200, 2093), (0x400, 2096), (0x800, 2095)])
def test_a_context_needs_its_option_of_mqopen(mqi, option, reason):
    source = mqi.open("B", 2 | 128)
    mqi.put("B", b"x")
    mqi.get(source)
    handle = mqi.open("A", 16)
    with refused(reason):
        mqi.connection.put(handle, md(), PutOptions(4 | option, context=source), b"x")
    allowed = mqi.open("A", 16 | option)
    mqi.connection.put(allowed, md(), PutOptions(4 | option, context=source), b"x")
    assert mqi.depth("A") == 1


def test_persistence_survives_restart(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"kept", descriptor=md(persistence=1))
    mqi.put(handle, b"lost", descriptor=md(persistence=0))
    mqi.restart()
    assert mqi.drain(mqi.open("A")) == [b"kept"]


def test_context(mqi):
    source, target = mqi.open("A", 2 | 16 | 128 | 2048), mqi.open("B", 2 | 16 | 512 | 1024)
    given = md(user=b"eva", application_identity=b"id", put_application_name=b"maker", put_date=b"20200101",
               put_time=b"11223344", put_application_type=28, application_origin=b"orig")  # fmt: skip
    mqi.put(source, b"1", 4 | 2048, given)
    with refused(2095):
        mqi.put(target, b"x", 4 | 2048, given)
    with refused(2098):
        mqi.connection.put(target, md(), PutOptions(4 | 512, context=source), b"x")
    mqi.get(source)
    mqi.connection.put(target, md(), PutOptions(4 | 512, context=source), b"2")
    got = Descriptor(mqi.get(target).md)
    assert (text(got.user), text(got.put_application_name), got.put_time) == ("eva", "maker", b"11223344")
    mqi.connection.put(target, given, PutOptions(4 | 1024), b"3")
    got = Descriptor(mqi.get(target).md)
    assert (text(got.user), text(got.put_application_name)) == ("eva", "tests")
    mqi.put(target, b"4", 4 | 0x4000)
    assert text(Descriptor(mqi.get(target).md).user) == ""


def test_open_refusals(mqi):
    with refused(2085):
        mqi.open("NONE")
    with refused(2046):
        mqi.open("A", 0x2000)
    with refused(2046):
        mqi.open("A", 2 | 4)
    with refused(2043):
        mqi.open("A", object_type=99)
    for binds in (0x4000 | 0x8000, 0x4000 | 0x400000):
        with refused(2046):
            mqi.open("A", 16 | binds)
    with refused(2045):
        mqi.open("", 16, object_type=5)
    handle = mqi.open("A", 16)
    with refused(2037):
        mqi.get(handle)
    with refused(2019):
        mqi.put(99, b"")
    reader = mqi.open("A", 2)
    with refused(2039):
        mqi.put(reader, b"")
    with refused(2036):
        mqi.get(reader, BROWSE_FIRST)
    with refused(2042):
        mqi.open("A", 4)
    mqi.connection.close(reader)
    mqi.open("A", 4)
    with refused(2042):
        mqi.open("A", 2)


def test_model_queues_become_dynamic(mqi):
    descriptor = ObjectDescriptor("SYSTEM.DEFAULT.MODEL.QUEUE", dynamic_name="TEMP.*")
    handle = mqi.connection.open(descriptor, 2 | 16).handle
    assert descriptor.name.startswith("TEMP.")
    assert len(descriptor.name) == 20
    mqi.put(handle, b"1")
    with refused(2048):
        mqi.put(handle, b"1", descriptor=md(persistence=1))
    mqi.connection.close(handle)
    with refused(2085):
        mqi.open(descriptor.name)
    mqi.mqsc("DEFINE QMODEL(M) DEFTYPE(PERMDYN)")
    handle = mqi.connection.open(ObjectDescriptor("M", dynamic_name="KEPT"), 2 | 16).handle
    mqi.put(handle, b"1", descriptor=md(persistence=1))
    mqi.connection.close(handle)
    mqi.restart()
    handle = mqi.open("KEPT")
    with refused(2055):
        mqi.connection.close(handle, 1)
    mqi.connection.close(handle, 2)
    with refused(2085):
        mqi.open("KEPT")


def test_waiters_get_one_message_each_in_order(mqi):
    handle = mqi.open("A")
    answers = []
    for name in ("first", "second"):
        mqi.connection.wait(
            handle, md(), GetOptions(1), 100, None, lambda got, name=name: answers.append((name, got.data))
        )
    mqi.connection.wait(
        handle, md(correl_id=b"k" * 24), GetOptions(1), 100, None, lambda got: answers.append(("keyed", got.data))
    )
    mqi.put("A", b"k", descriptor=md(correl_id=b"k" * 24), options=SYNC)
    mqi.put("A", b"1", SYNC)
    assert not answers
    mqi.connection.commit()
    mqi.scheduler.run_until(lambda: len(answers) == 2)
    assert answers == [("first", b"k"), ("second", b"1")]
    mqi.put("A", b"2")
    mqi.put("A", b"3", descriptor=md(correl_id=b"k" * 24))
    mqi.scheduler.run_until(lambda: len(answers) == 3)
    assert answers[2:] == [("keyed", b"3")]
    assert mqi.drain(handle) == [b"2"]


def test_waits_end(mqi):
    handle = mqi.open("A")
    answers = []
    told = answers.append
    mqi.connection.wait(handle, md(), GetOptions(1), 100, mqi.scheduler.monotonic() + 2, told)
    mqi.scheduler.advance(1)
    assert not answers
    mqi.scheduler.advance(1.5)
    assert answers.pop().reason == 2033
    cancel = mqi.connection.wait(handle, md(), GetOptions(1), 100, None, told)
    cancel()
    mqi.put("A", b"1")
    assert not answers
    mqi.drain(handle)
    mqi.connection.wait(handle, md(), GetOptions(1), 100, None, told)
    mqi.mqsc("ALTER QLOCAL(A) GET(DISABLED)")
    assert answers.pop().reason == 2016
    mqi.mqsc("ALTER QLOCAL(A) GET(ENABLED)")
    mqi.connection.wait(handle, md(), GetOptions(1), 100, None, told)
    mqi.connection.close(handle)
    assert answers.pop().reason == 2019
    mqi.connection.wait(mqi.open("A"), md(), GetOptions(1), 100, None, told)
    mqi.connection.disconnect()
    assert answers.pop().reason == 2009


def test_closing_the_queue_manager_ends_what_is_open(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"kept", descriptor=md(persistence=1))
    mqi.get(handle, SYNC)
    mqi.put(handle, b"undone", SYNC, md(persistence=1))
    answers = []
    other = mqi.queue_manager.connect()
    reader = other.open(ObjectDescriptor("A"), 2).handle
    other.wait(reader, md(), GetOptions(1), 100, None, answers.append)
    mqi.restart()
    assert answers[0].reason == 2009
    got = mqi.get(mqi.open("A"))
    assert (got.data, Descriptor(got.md).backout_count) == (b"kept", 1)


def test_inquire(mqi):
    handle = mqi.open("A")
    found = mqi.connection.inquire(handle, [3, 2016, 15, 2013, 20])
    assert found.integers == [0, 5000, 1]
    assert found.characters == [b"A".ljust(48), b" " * 64]
    manager = mqi.connection.open(ObjectDescriptor(object_type=5), 32).handle
    assert mqi.connection.inquire(manager, [2015, 2006]).characters[0] == b"QM1".ljust(48)
    other = mqi.open("A", 16)
    with refused(2038):
        mqi.connection.inquire(other, [3])


BASE_QUEUE, REMOTE_QUEUE, VERSION, COMMAND_LEVEL, MAX_HANDLES = 2002, 2018, 2120, 31, 11
Q_NAME, DEPTH, NAME_COUNT, NO_ATTRIBUTE = 2016, 3, 19, 1999


def test_an_attribute_of_another_type_of_queue_is_a_warning(mqi):
    handle = mqi.open("A")
    found = mqi.connection.inquire(handle, [BASE_QUEUE, DEPTH, REMOTE_QUEUE])
    assert (found.comp_code, found.reason, found.integers) == (1, 2068, [0])
    assert found.characters == [b"*" * 48, b"*" * 48]


def test_an_attribute_that_a_queue_does_not_have_is_as_long_as_where_there_is_it(mqi):
    mqi.mqsc("DEFINE QALIAS(ALIAS) TARGET(A)")
    trigger_data, description = 2023, 2013
    found = mqi.connection.inquire(mqi.open("ALIAS", 32), [trigger_data, description, BASE_QUEUE])
    assert (found.reason, found.characters) == (2068, [b"*" * 64, b" " * 64, b"A".ljust(48)])


@pytest.mark.parametrize("selector", [VERSION, COMMAND_LEVEL, MAX_HANDLES, NAME_COUNT, NO_ATTRIBUTE])
def test_an_attribute_of_another_type_of_object_is_an_error(mqi, selector):
    handle = mqi.open("A")
    with refused(2067):
        mqi.connection.inquire(handle, [DEPTH, selector])


@pytest.mark.parametrize("selector", [Q_NAME, DEPTH, BASE_QUEUE])
def test_attributes_of_queues_are_none_of_the_queue_manager(mqi, selector):
    manager = mqi.connection.open(ObjectDescriptor(object_type=5), 32).handle
    with refused(2067):
        mqi.connection.inquire(manager, [selector])


@pytest.mark.parametrize(("kind", "options"), [(1, 16), (1, 32), (8, 16)])
def test_a_selection_string_is_for_what_is_got_or_browsed(mqi, kind, options):
    wanted = ObjectDescriptor("A" if kind == 1 else "", object_type=kind, object_string="t", selection="a = 1")
    with refused(2516):
        mqi.connection.open(wanted, options)


def test_mqput1_takes_no_selection_string(mqi):
    with refused(2516):
        mqi.connection.put1(ObjectDescriptor("A", selection="a = 1"), md(), PutOptions(4), b"")


@pytest.mark.parametrize("options", [16 | 32, 16 | 64, 32])
def test_topics_have_no_attributes_to_inquire(mqi, options):
    with refused(2045):
        mqi.connection.open(ObjectDescriptor(object_type=8, object_string="t"), options)


def test_another_queue_manager_is_not_opened(mqi):
    with refused(2086):
        mqi.connection.open(ObjectDescriptor(object_type=5, queue_manager="QM9"), 32)


def test_async_puts_report_through_status(mqi):
    handle = mqi.open("A")
    mqi.mqsc("ALTER QLOCAL(A) MAXDEPTH(1)")
    mqi.put(handle, b"1", SYNC | 0x10000)
    with pytest.raises(MQError):
        mqi.put(handle, b"2", SYNC | 0x10000)
    status = mqi.connection.status()
    assert (status.comp_code, status.reason, status.successes, status.failures) == (2, 2053, 1, 1)
    assert status.object_name == "A"
    assert mqi.connection.status().failures == 0
    with refused(2003):
        mqi.connection.commit()
    assert mqi.depth("A") == 0


def test_selectors_on_open(mqi):
    handle = mqi.connection.open(ObjectDescriptor("A", selection="Root.MQMD.Priority > 3"), 2).handle
    for priority in (1, 5, 2, 7):
        mqi.put("A", bytes([priority]), descriptor=md(priority=priority))
    assert mqi.drain(handle) == [b"\7", b"\5"]
    with refused(2459):
        mqi.connection.open(ObjectDescriptor("A", selection="a = = 3"), 2)


def test_a_wait_interval_counts_only_for_a_get_that_waits(mqi):
    handle = mqi.open("A")
    mqi.put(handle, b"there")
    with refused(2090):
        mqi.get(handle, 4 | 1, wait_interval=-2)
    assert mqi.get(handle, 4, wait_interval=-2).data == b"there"
