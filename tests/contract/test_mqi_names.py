"""The contract of the MQI port: queue name resolution and transmission queues."""

from __future__ import annotations

import mq_builders
from embedded_rig import md, refused

from gateway.mq import situations
from gateway.mq.headers import xqh
from gateway.ports.mqi import ObjectDescriptor
from gateway.queue_manager.descriptor import Descriptor, text

DEFINITIONS = """
DEFINE QLOCAL(QM2) USAGE(XMITQ)
DEFINE QLOCAL(OTHER.XMIT) USAGE(XMITQ)
DEFINE QALIAS(ALIAS.A) TARGET(A) DEFPRTY(7) DEFPSIST(YES)
DEFINE QALIAS(ALIAS.NONE) TARGET(NONE)
DEFINE QALIAS(ALIAS.ALIAS) TARGET(ALIAS.A)
DEFINE QREMOTE(REMOTE) RNAME(THERE) RQMNAME(QM2)
DEFINE QREMOTE(REMOTE.NAMED) RNAME(THERE) RQMNAME(QM9) XMITQ(OTHER.XMIT)
DEFINE QREMOTE(REMOTE.LOST) RNAME(THERE) RQMNAME(QM9)
DEFINE QREMOTE(REMOTE.WRONG) RNAME(THERE) RQMNAME(QM9) XMITQ(NONE)
DEFINE QREMOTE(REMOTE.USAGE) RNAME(THERE) RQMNAME(QM9) XMITQ(A)
DEFINE QREMOTE(REMOTE.TYPE) RNAME(THERE) RQMNAME(QM9) XMITQ(ALIAS.A)
DEFINE QREMOTE(REMOTE.HERE) RNAME(A) RQMNAME(QM1)
DEFINE QREMOTE(REMOTE.BLANK) RNAME(A) RQMNAME(' ') XMITQ(OTHER.XMIT)
DEFINE QALIAS(ALIAS.HERE) TARGET(REMOTE.HERE)
DEFINE QREMOTE(QM5) RNAME(' ') RQMNAME(QM2)
DEFINE QREMOTE(MYSELF) RNAME(' ') RQMNAME(QM1)
DEFINE QREMOTE(REPLY.ALIAS) RNAME(REPLIES) RQMNAME(QM7)
"""


def test_aliases(mqi):
    mqi.mqsc(DEFINITIONS)
    descriptor = ObjectDescriptor("ALIAS.A")
    handle = mqi.connection.open(descriptor, 2 | 16).handle
    assert (descriptor.resolved_name, descriptor.resolved_queue_manager) == ("A", "QM1")
    put = Descriptor(mqi.put(handle, b"1").md)
    assert (put.priority, put.persistence) == (7, 1)
    assert mqi.get(handle).data == b"1"
    with refused(2082):
        mqi.open("ALIAS.NONE")
    with refused(2001):
        mqi.open("ALIAS.ALIAS")
    mqi.mqsc("ALTER QALIAS(ALIAS.A) PUT(DISABLED)")
    with refused(2051):
        mqi.put(handle, b"2")
    mqi.mqsc("ALTER QALIAS(ALIAS.A) PUT(ENABLED) TARGET(B)")
    with refused(2041):
        mqi.put(handle, b"2")


def test_remote_queues_go_through_a_transmission_queue(mqi):
    mqi.mqsc(DEFINITIONS)
    descriptor = ObjectDescriptor("REMOTE")
    handle = mqi.connection.open(descriptor, 16).handle
    assert (descriptor.resolved_name, descriptor.resolved_queue_manager) == ("THERE", "QM2")
    sent = mqi.put(handle, b"data", descriptor=md(format=b"MQSTR", correl_id=b"c" * 24, priority=3, persistence=1))
    got = mqi.get(mqi.open("QM2"))
    outside = Descriptor(got.md)
    header, inner, begin = mq_builders.unwrap_xqh(got.data)
    original = Descriptor(sent.md)
    assert (outside.format, outside.priority, outside.persistence) == (b"MQXMIT  ", 3, 1)
    assert outside.correl_id == original.msg_id != outside.msg_id
    assert (header.remote_q_name, header.remote_q_mgr_name, got.data[begin:]) == ("THERE", "QM2", b"data")
    embedded = Descriptor(inner)
    assert (embedded.msg_id, embedded.correl_id, embedded.format) == (original.msg_id, b"c" * 24, b"MQSTR   ")


def test_a_put_names_the_destination_or_the_queue_that_leads_to_it(mqi):
    mqi.mqsc(DEFINITIONS)
    handle = mqi.connection.open(ObjectDescriptor("REMOTE"), 16).handle
    for options, names in ((0, ("THERE", "QM2")), (0x40000, ("QM2", "QM1"))):
        put = mqi.put(handle, b"", options)
        once = mqi.put("REMOTE", b"", options)
        assert (put.resolved_name, put.resolved_queue_manager) == names
        assert (once.resolved_name, once.resolved_queue_manager) == names


def test_the_queue_that_leads_to_a_destination_is_named_by_mqopen_too(mqi):
    mqi.mqsc(DEFINITIONS)
    descriptor = ObjectDescriptor("REMOTE")
    mqi.connection.open(descriptor, 16 | 0x40000)
    assert (descriptor.resolved_name, descriptor.resolved_queue_manager) == ("QM2", "QM1")


def test_a_queue_that_is_opened_for_its_attributes_is_not_resolved(mqi):
    mqi.mqsc(DEFINITIONS)
    descriptor = ObjectDescriptor("ALIAS.A")
    mqi.connection.open(descriptor, 32)
    assert (descriptor.resolved_name, descriptor.resolved_queue_manager) == ("", "")


def test_the_separate_descriptor_is_the_senders_but_for_what_the_queue_manager_says(mqi):
    mqi.mqsc(DEFINITIONS)
    confirm, exception_with_data = 0x100 | 0x800, 0x3000000
    given = md(
        report=confirm | exception_with_data, type=1, expiry=600, reply_to_q=b"A", reply_to_qmgr=b"QM1",
        flags=8, group_id=b"g" * 24, sequence=2,
    )  # fmt: skip
    mqi.put("REMOTE", b"data", descriptor=given)
    got = mqi.get(mqi.open("QM2"))
    outside = Descriptor(got.md)
    assert (outside.report, outside.type, outside.expiry) == (exception_with_data, 1, 600)
    assert (text(outside.reply_to_q), text(outside.reply_to_qmgr), text(outside.user)) == ("A", "QM1", "ana")
    assert (outside.put_application_type, text(outside.put_application_name)) == (7, "QM1")
    assert (outside.encoding, outside.ccsid) == (546, 1208)
    assert (outside.group_id, outside.sequence, outside.flags) == (bytes(24), 1, 0)
    arrived = situations.from_transmission(got.md, got.data)
    inside = Descriptor(arrived.md)
    assert (inside.report, inside.group_id, inside.sequence) == (confirm | exception_with_data, b"g" * 24, 2)
    assert (inside.flags, arrived.data, mqi.depth("A")) == (8, b"data", 0)


def test_an_expiry_on_the_transmission_queue_is_reported_as_that_of_the_message_put(mqi):
    mqi.mqsc(DEFINITIONS)
    given = md(report=0x600000, expiry=10, reply_to_q=b"A", format=b"MQSTR")
    sent = Descriptor(mqi.put("REMOTE", b"data", descriptor=given).md)
    mqi.scheduler.advance(5)
    with refused(2033):
        mqi.get(mqi.open("QM2"))
    got = mqi.get(mqi.open("A"))
    report = Descriptor(got.md)
    assert (report.type, report.feedback, report.correl_id) == (4, 258, sent.msg_id)
    assert (report.format, got.data) == (b"MQSTR   ", b"data")


def test_transmission_queue_choice(mqi):
    mqi.mqsc(DEFINITIONS)
    mqi.put("REMOTE.NAMED", b"1")
    assert mqi.depth("OTHER.XMIT") == 1
    for name, reason in (("REMOTE.LOST", 2087), ("REMOTE.WRONG", 2196), ("REMOTE.USAGE", 2092), ("REMOTE.TYPE", 2091)):
        with refused(reason):
            mqi.put(name, b"1")
    mqi.mqsc("ALTER QMGR DEFXMITQ(OTHER.XMIT)")
    mqi.put("REMOTE.LOST", b"2")
    assert mqi.depth("OTHER.XMIT") == 2
    mqi.mqsc("ALTER QMGR DEFXMITQ(NONE)")
    with refused(2197):
        mqi.put("REMOTE.LOST", b"2")
    with refused(2045):
        mqi.open("REMOTE", 2)


def test_a_remote_queue_does_not_lead_to_its_own_queue_manager(mqi):
    """Reason code 2087 of the reference: whatever its XMITQ."""
    mqi.mqsc(DEFINITIONS)
    for name in ("REMOTE.HERE", "REMOTE.BLANK", "ALIAS.HERE"):
        with refused(2087):
            mqi.put(name, b"1")


def test_queue_manager_names(mqi):
    mqi.mqsc(DEFINITIONS)
    for queue_manager, transmission in (("QM2", "QM2"), ("QM5", "QM2")):
        descriptor = ObjectDescriptor("X", queue_manager)
        handle = mqi.connection.open(descriptor, 16).handle
        mqi.put(handle, b"x")
        got = mqi.get(mqi.open(transmission))
        assert xqh.parse(got.data).remote_q_mgr_name == "QM2"
    handle = mqi.connection.open(ObjectDescriptor("A", "MYSELF"), 16).handle
    mqi.put(handle, b"me")
    assert mqi.get(mqi.open("A")).data == b"me"
    for none in ("NOBODY", "REMOTE", "SYSTEM.DEFAULT.MODEL.QUEUE"):  # nor a remote queue, nor a model
        with refused(2087):
            mqi.connection.open(ObjectDescriptor("X", none), 16)


def test_a_reply_alias_replaces_both_names(mqi):
    mqi.mqsc(DEFINITIONS)
    put = Descriptor(mqi.put("A", b"x", descriptor=md(reply_to_q=b"REPLY.ALIAS")).md)
    assert (text(put.reply_to_q), text(put.reply_to_qmgr)) == ("REPLIES", "QM7")
    put = Descriptor(mqi.put("A", b"x", descriptor=md(reply_to_q=b"REPLY.ALIAS", reply_to_qmgr=b"QM3")).md)
    assert (text(put.reply_to_q), text(put.reply_to_qmgr)) == ("REPLY.ALIAS", "QM3")


def test_a_report_that_cannot_be_sent_is_dead_lettered(mqi):
    mqi.put("A", b"x", descriptor=md(report=256, reply_to_q=b"NONE"))
    got = mqi.get(mqi.open("SYSTEM.DEAD.LETTER.QUEUE"))
    assert got.data[:4] == b"DLH "
    assert int.from_bytes(got.data[8:12], "little") == 2085
    assert got.data[12:16] == b"NONE"
    header = situations.from_dead_letter(got.md, got.data).header
    assert (header.dest_q_mgr_name, header.put_appl_type, header.put_appl_name) == ("QM1", 7, "QM1")


def test_a_dead_letter_is_whole_or_the_put_is_refused(mqi):
    mqi.mqsc("ALTER QLOCAL(A) MAXDEPTH(0)\nDEFINE SUB(S) TOPICSTR('t') DEST(A)")
    mqi.mqsc("ALTER QLOCAL(SYSTEM.DEAD.LETTER.QUEUE) MAXMSGL(1000)")
    topic = mqi.connection.open(ObjectDescriptor(object_type=8, object_string="t"), 16).handle
    mqi.put(topic, b"x" * 500, descriptor=md(persistence=1))
    with refused(2502):
        mqi.put(topic, b"x" * 2000, descriptor=md(persistence=1))
    got = mqi.get(mqi.open("SYSTEM.DEAD.LETTER.QUEUE"))
    revived = situations.from_dead_letter(got.md, got.data)
    assert (revived.header.reason, revived.header.dest_q_name) == (2053, "A")
    assert revived.data.endswith(b"x" * 500)
    assert mqi.depth("SYSTEM.DEAD.LETTER.QUEUE") == 0
