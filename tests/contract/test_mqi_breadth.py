"""The corners of the MQI and of PCF that other contract tests only pass by: every way to match, to filter, to name a
report.
"""

from __future__ import annotations

import os

import pytest
from embedded_rig import md, refused

from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.ports.batch import Takes, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor, SubscriptionDescriptor
from gateway.queue_manager.descriptor import Descriptor
from gateway.queue_manager.inspection import Inspection

GROUP, SEQUENCE, OFFSET = 4, 8, 16
IN_GROUP, LAST, SEGMENT, LAST_SEGMENT = 8, 16, 2, 4
Q_NAME, Q_TYPE, MAX_DEPTH, DESCRIPTION = 2016, 20, 15, 2013


def test_match_by_group_sequence_and_offset(mqi):
    handle = mqi.open("A")
    for group in (b"g" * 24, b"h" * 24):
        for sequence in (1, 2, 3):
            flags = LAST if sequence == 3 else IN_GROUP
            given = md(version=2, group_id=group, sequence=sequence, flags=flags)
            mqi.put(handle, group[:1] + b"%d" % sequence, descriptor=given)
    wanted = md(version=2, group_id=b"h" * 24, sequence=2)
    assert mqi.get(handle, match=GROUP | SEQUENCE, descriptor=wanted).data == b"h2"
    with refused(2033):
        mqi.get(handle, match=GROUP | SEQUENCE, descriptor=wanted)
    assert mqi.get(handle, match=SEQUENCE, descriptor=md(version=2, sequence=3)).data == b"g3"
    assert mqi.get(handle, match=GROUP, descriptor=wanted).data == b"h1"
    parts = ((0, SEGMENT), (2, SEGMENT), (4, LAST_SEGMENT))
    for offset, flags in parts:
        given = md(version=2, group_id=b"s" * 24, sequence=1, offset=offset, flags=flags)
        mqi.put(handle, b"%02d" % offset, descriptor=given)
    wanted = md(version=2, group_id=b"s" * 24, sequence=1, offset=4)
    assert mqi.get(handle, match=GROUP | SEQUENCE | OFFSET, descriptor=wanted).data == b"04"


@pytest.mark.parametrize(
    ("options", "same_msg_id", "correl_id"),
    [(0, False, "msg_id"), (128, True, "msg_id"), (64, False, "correl_id"), (192, True, "correl_id")],
)
def test_identifiers_of_reports(mqi, options, same_msg_id, correl_id):
    handle, replies = mqi.open("A"), mqi.open("B")
    given = md(report=256 | 2048 | options, reply_to_q=b"B", msg_id=b"m" * 24, correl_id=b"c" * 24)
    sent = Descriptor(mqi.put(handle, b"data", descriptor=given).md)
    mqi.get(handle)
    for feedback in (259, 260):
        report = Descriptor(mqi.get(replies).md)
        assert report.feedback == feedback
        assert (report.msg_id == sent.msg_id) is same_msg_id
        assert report.correl_id == getattr(sent, correl_id)


@pytest.mark.parametrize("got", ["MQGET", "MQCMIT", "rule", "operator"])
def test_a_report_lives_no_longer_than_was_left_to_the_message(mqi, got):
    """MQRO_PASS_DISCARD_AND_EXPIRY passes on the remaining Expiry; it was the whole one, from the get on."""
    handle = mqi.open("A")
    passes = mq.MQRO_COD | mq.MQRO_PASS_DISCARD_AND_EXPIRY | mq.MQRO_DISCARD_MSG
    mqi.put(handle, b"data", descriptor=md(report=passes, reply_to_q=b"B", expiry=500))
    mqi.scheduler.advance(40)
    if got in {"MQGET", "MQCMIT"}:
        mqi.get(handle, options=mq.MQGMO_SYNCPOINT if got == "MQCMIT" else mq.MQGMO_NO_SYNCPOINT)
        mqi.connection.commit()
    elif got == "operator":
        inspection = Inspection(mqi.queue_manager)
        assert inspection.remove("A", [one.token for one in inspection.browse("A")]) == 1
    else:
        (one,) = mqi.queue_manager.fetch("A", b"", 1)
        mqi.queue_manager.submit(Unit(takes=[Takes("A", b"", [one.token])]), lambda _unit, _outcome: None)
        mqi.scheduler.run_until(lambda: mqi.depth("B") == 1)
    report = Descriptor(mqi.get(mqi.open("B")).md)
    assert (report.expiry, report.report) == (100, mq.MQRO_DISCARD_MSG)


def test_the_report_of_an_expired_message_does_not_expire_with_it(mqi):
    handle = mqi.open("A")
    passes = mq.MQRO_EXPIRATION | mq.MQRO_PASS_DISCARD_AND_EXPIRY
    mqi.put(handle, b"data", descriptor=md(report=passes, reply_to_q=b"B", expiry=1))
    mqi.scheduler.advance(5)
    with refused(2033):
        mqi.get(handle)
    mqi.scheduler.advance(10)
    report = Descriptor(mqi.get(mqi.open("B")).md)
    assert (report.feedback, report.expiry) == (mq.MQFB_EXPIRATION, 500)


@pytest.mark.parametrize("notification", [1, 2])
def test_action_notifications_are_the_applications(mqi, notification):
    handle = mqi.open("A")
    sent = mqi.put(handle, b"x", descriptor=md(report=notification, reply_to_q=b"B"))
    assert Descriptor(mqi.get(handle).md).report == Descriptor(sent.md).report == notification
    assert mqi.depth("B") == 0


@pytest.mark.parametrize(
    ("operator", "found"),
    [(1, ["F1"]), (2, ["F2"]), (3, ["F1", "F2"]), (4, ["F3"]), (5, ["F1", "F3"]), (6, ["F2", "F3"])],
)
def test_every_comparison_of_numbers(mqi, ask, operator, found):
    for number in (1, 2, 3):
        mqi.mqsc(f"DEFINE QLOCAL(F{number}) MAXDEPTH({number})")
    name, kind = pcf.string(Q_NAME, "F*"), pcf.integer(Q_TYPE, 1)
    assert [one[Q_NAME] for one in ask(13, name, kind, pcf.integer_filter(MAX_DEPTH, operator, 2))] == found


@pytest.mark.parametrize(
    ("operator", "value", "found"),
    [
        (1, "bb", ["F1"]), (2, "bb", ["F2"]), (3, "bb", ["F1", "F2"]), (4, "bb", ["F3"]), (5, "bb", ["F1", "F3"]),
        (6, "bb", ["F2", "F3"]), (18, "b*", ["F2"]), (21, "b*", ["F1", "F3"]),
    ],
)  # fmt: skip
def test_every_comparison_of_texts(mqi, ask, operator, value, found):
    for number, text in enumerate(("aa", "bb", "cc"), 1):
        mqi.mqsc(f"DEFINE QLOCAL(F{number}) DESCR('{text}')")
    name, kind = pcf.string(Q_NAME, "F*"), pcf.integer(Q_TYPE, 1)
    assert [one[Q_NAME] for one in ask(13, name, kind, pcf.string_filter(DESCRIPTION, operator, value))] == found


@pytest.mark.parametrize(
    ("operator", "value", "found"),
    [(10, "N.B", ["N2"]), (13, "N.B", ["N1"]), (26, "N.*", ["N1", "N2"]), (29, "N.B*", ["N1"])],
)
def test_filters_of_lists(mqi, ask, operator, value, found):
    mqi.mqsc("DEFINE NAMELIST(N1) NAMES(N.A)\nDEFINE NAMELIST(N2) NAMES(N.A, N.B)")
    replies = ask(36, pcf.string(2010, "N*"), pcf.string_filter(2020, operator, value))
    assert [one[2010] for one in replies] == found


def test_connection_authority_by_pcf(mqi, ask):
    name = pcf.string(2045, "SYSTEM.DEFAULT.AUTHINFO.IDPWOS")
    assert ask(83, name)[0][258] == 0  # CHCKCLNT(OPTIONAL)
    ask(79, name, pcf.integer(66, 3), pcf.integer(258, 3))
    assert ask(83, name)[0][258] == 3
    assert "CHCKCLNT(REQUIRED)" in "\n".join(mqi.mqsc("DISPLAY AUTHINFO(SYSTEM.DEFAULT.AUTHINFO.IDPWOS) CHCKCLNT"))


def test_the_longest_messages(mqi):
    """100 MB with MQGATE_LONG=1, otherwise ten times the segment: both are larger than any segment of this store."""
    length = 104_857_600 if os.environ.get("MQGATE_LONG") else 20 << 20
    mqi.mqsc("ALTER QMGR MAXMSGL(104857600)\nALTER QLOCAL(A) MAXMSGL(104857600)")
    data = os.urandom(1 << 16) * (length >> 16)
    with refused(2031):
        mqi.put("A", bytes(104_857_601))
    mqi.put("A", data, descriptor=md(persistence=1))
    mqi.put("A", b"behind it", descriptor=md(persistence=1))
    mqi.restart()
    handle = mqi.open("A")
    got = mqi.get(handle, length=length)
    assert got.data == data
    assert mqi.get(handle).data == b"behind it"


@pytest.mark.parametrize(
    "options",
    [
        0x100000 | 16 | 512,  # MQGMO_MARK_BROWSE_HANDLE with LOCK, LOGICAL_ORDER, COMPLETE_MSG
        0x100000 | 16 | 0x8000,
        0x100000 | 16 | 0x10000,
        1024 | 64,  # MQGMO_UNLOCK with ACCEPT_TRUNCATED_MSG
        0x2000000 | 0x4000000,  # two ways to return properties
        0x10000000 | 0x4000000,
        8,  # MQGMO_SET_SIGNAL is of z/OS alone
        0x1000 | 0x10000,  # MQGMO_SYNCPOINT_IF_PERSISTENT with COMPLETE_MSG
    ],
)
def test_get_options_that_clash(mqi, options):
    handle = mqi.open("A")
    with refused(2046):
        mqi.get(handle, options)


def test_only_publications_are_retained(mqi):
    handle = mqi.open("A")
    for where in (handle, "A"):
        with refused(2046):
            mqi.put(where, b"", 0x200000)


@pytest.mark.parametrize(
    ("selector", "value", "reason"),
    [(9, 7, 2020), (10, 7, 2020), (24, 7, 2075), (29, 0, 2076), (26, -1, 2077), (28, 7, 2078)],
)
def test_a_wrong_value_is_refused_by_its_attribute(mqi, selector, value, reason):
    handle = mqi.open("A")
    with refused(reason):
        mqi.connection.set(handle, [selector], [value], [])


def test_a_character_attribute_is_set_in_its_whole_length(mqi):
    handle = mqi.open("A")
    with refused(2006):
        mqi.connection.set(handle, [2023], [], [b"short"])
    mqi.connection.set(handle, [2023], [], [b"data".ljust(64)])
    assert mqi.connection.inquire(handle, [2023]).characters == [b"data".ljust(64)]


def dynamic(mqi, kind):
    mqi.mqsc(f"DEFINE QMODEL(M) REPLACE DEFTYPE({kind})")
    return mqi.connection.open(ObjectDescriptor("M", dynamic_name="MADE"), 2 | 16 | 32).handle


@pytest.mark.parametrize("options", [0, 1, 2])
def test_a_temporary_queue_goes_with_its_maker_whoever_has_it_open(mqi, options):
    made = dynamic(mqi, "TEMPDYN")
    mqi.put(made, b"x")
    other = mqi.open("MADE", 2 | 16)
    mqi.connection.close(made, options)
    with refused(2052):
        mqi.get(other)
    mqi.connection.close(other)


def test_a_permanent_queue_is_not_deleted_in_the_middle_of_a_unit_of_work(mqi):
    made = dynamic(mqi, "PERMDYN")
    mqi.put(made, b"x", 2)
    with refused(2055):
        mqi.connection.close(made, 2)
    mqi.connection.commit()
    mqi.get(made, 2)
    with refused(2055):
        mqi.connection.close(made, 2)
    mqi.connection.back()
    mqi.connection.close(made, 2)
    with refused(2085):
        mqi.open("MADE")


def test_a_permanent_queue_is_deleted_whoever_has_it_open(mqi):
    made = dynamic(mqi, "PERMDYN")
    other = mqi.open("MADE", 2 | 16)
    answers = []
    mqi.connection.wait(other, md(), GetOptions(1 | 4), 100, None, answers.append)
    mqi.connection.close(made, 1)
    assert [answer.reason for answer in answers] == [2052]
    with refused(2052):
        mqi.put(other, b"x")
    mqi.connection.close(other)
    with refused(2085):
        mqi.open("MADE")


def test_a_permanent_queue_is_deleted_through_a_handle_for_its_attributes(mqi):
    dynamic(mqi, "PERMDYN")
    mqi.connection.close(mqi.open("MADE", 32), 1)
    with refused(2085):
        mqi.open("MADE")


@pytest.mark.parametrize("options", [4, 8])
def test_options_of_subscriptions_are_for_subscriptions(mqi, options):
    handle = mqi.open("A")
    with refused(2045):
        mqi.connection.close(handle, options)
    mqi.connection.close(handle)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"expiry": 0}, 2013), ({"expiry": -2}, 2013), ({"level": 10}, 2424), ({"level": -1}, 2424),
        ({"publication_priority": 10}, 2050), ({"publication_priority": -4}, 2050),
    ],
)  # fmt: skip
def test_a_subscription_out_of_range(mqi, wrong, reason):
    with refused(reason):
        mqi.connection.subscribe(SubscriptionDescriptor(options=2 | 32, object_string="plant", **wrong))
