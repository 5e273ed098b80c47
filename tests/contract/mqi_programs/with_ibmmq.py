"""A program of a user of `ibmmq`, with its classes. Prints which of its parts worked, as JSON."""

# ruff: noqa: PT017  a program, not a test

import json
import os
import sys
import threading
import traceback

import ibmmq as mq
from ibmmq import CMQC, CMQCFC


def connect():
    return mq.connect("QM1", "DEV.APP.SVRCONN", "first(1414),localhost(1414)", user="app", password="pw")


def opened(qmgr, name="APP.Q", extra=0):
    options = CMQC.MQOO_OUTPUT | CMQC.MQOO_INPUT_SHARED | CMQC.MQOO_BROWSE | CMQC.MQOO_INQUIRE | extra
    return mq.Queue(qmgr, name, options)


def drain(queue):
    while True:
        try:
            queue.get(None, mq.MD(), get_options(CMQC.MQGMO_ACCEPT_TRUNCATED_MSG))
        except mq.MQMIError as error:
            if error.reason == CMQC.MQRC_TRUNCATED_MSG_ACCEPTED:
                continue
            assert error.reason == CMQC.MQRC_NO_MSG_AVAILABLE, error
            return


def get_options(options=0, **fields):
    made = mq.GMO()
    made.Options = options
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def put_options(options=0, **fields):
    made = mq.PMO()
    made.Options = options
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def fails(reason, call, *arguments):
    try:
        call(*arguments)
    except mq.MQMIError as error:
        assert error.reason == reason, error
        return error
    raise AssertionError(f"reason {reason} expected")


def put_and_get(qmgr, queue):
    sent = mq.MD()
    sent.Format = CMQC.MQFMT_STRING
    sent.CorrelId = b"c" * 24
    queue.put(b"hello", sent)
    got = mq.MD()
    assert queue.get(None, got) == b"hello"
    assert got.MsgId == sent.MsgId
    assert got.CorrelId == b"c" * 24
    assert got.Format == CMQC.MQFMT_STRING
    assert len(got.PutDate.strip()) == 8
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get)


def long_message(qmgr, queue):
    data = bytes(range(256)) * 200
    queue.put(data)
    error = fails(CMQC.MQRC_TRUNCATED_MSG_FAILED, queue.get, 10)
    assert error.original_length == len(data)
    assert queue.get() == data
    queue.put(data)
    error = fails(
        CMQC.MQRC_TRUNCATED_MSG_ACCEPTED, queue.get, 10, mq.MD(), get_options(CMQC.MQGMO_ACCEPT_TRUNCATED_MSG)
    )
    assert error.message == data[:10]
    queue.put(b"")
    assert queue.get() == b""


def matching(qmgr, queue):
    ids = []
    for number in range(5):
        md = mq.MD()
        md.CorrelId = bytes([number + 1]) * 24
        queue.put(b"%d" % number, md)
        ids.append(md.MsgId)
    by_id = mq.MD()
    by_id.MsgId = ids[3]
    assert queue.get(None, by_id) == b"3"
    by_correl = mq.MD()
    by_correl.CorrelId = b"\x02" * 24
    assert queue.get(None, by_correl) == b"1"
    same = mq.MD()
    same.MsgId = ids[3]
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get, None, same)
    drain(queue)


def browsing(qmgr, queue):
    for number in range(3):
        queue.put(b"%d" % number)
    seen = []
    options = get_options(CMQC.MQGMO_BROWSE_FIRST)
    while True:
        try:
            seen.append(queue.get(None, mq.MD(), options))
        except mq.MQMIError as error:
            assert error.reason == CMQC.MQRC_NO_MSG_AVAILABLE, error
            break
        options = get_options(CMQC.MQGMO_BROWSE_NEXT)
    assert seen == [b"0", b"1", b"2"], seen
    queue.get(None, mq.MD(), get_options(CMQC.MQGMO_BROWSE_FIRST))
    assert queue.get(None, mq.MD(), get_options(CMQC.MQGMO_BROWSE_NEXT)) == b"1"
    assert queue.get(None, mq.MD(), get_options(CMQC.MQGMO_MSG_UNDER_CURSOR)) == b"1"
    fails(CMQC.MQRC_NO_MSG_UNDER_CURSOR, queue.get, None, mq.MD(), get_options(CMQC.MQGMO_MSG_UNDER_CURSOR))
    drain(queue)


def units_of_work(qmgr, queue):
    queue.put(b"one", mq.MD(), put_options(CMQC.MQPMO_SYNCPOINT))
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get)
    qmgr.backout()
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get)
    queue.put(b"two", mq.MD(), put_options(CMQC.MQPMO_SYNCPOINT))
    qmgr.commit()
    for attempt in range(3):
        md = mq.MD()
        assert queue.get(None, md, get_options(CMQC.MQGMO_SYNCPOINT)) == b"two"
        assert md.BackoutCount == attempt
        qmgr.backout() if attempt < 2 else qmgr.commit()
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get)


def waiting(qmgr, queue):
    options = get_options(CMQC.MQGMO_WAIT | CMQC.MQGMO_FAIL_IF_QUIESCING, WaitInterval=50)
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get, None, mq.MD(), options)
    other = connect()
    got = []

    def wait():
        reading = mq.Queue(other, "APP.Q", CMQC.MQOO_INPUT_SHARED)
        got.append(reading.get(None, mq.MD(), get_options(CMQC.MQGMO_WAIT, WaitInterval=10000)))

    waiter = threading.Thread(target=wait)
    waiter.start()
    queue.put(b"at last")
    waiter.join(60)
    other.disconnect()
    assert got == [b"at last"]


def properties(qmgr, queue):
    handle = mq.MessageHandle(qmgr)
    handle.properties.set("colour", "red")
    handle.properties.set("count", 42, CMQC.MQTYPE_INT32)
    handle.properties.set("ratio", 0.5, CMQC.MQTYPE_FLOAT64)
    handle.properties.set("big", 1 << 40, CMQC.MQTYPE_INT64)
    handle.properties.set("on", True, CMQC.MQTYPE_BOOLEAN)
    handle.properties.set("raw", b"\x00\x01", CMQC.MQTYPE_BYTE_STRING, 2)
    queue.put(b"data", mq.MD(), put_options(OriginalMsgHandle=handle.msg_handle))
    received = mq.MessageHandle(qmgr)
    options = get_options(CMQC.MQGMO_PROPERTIES_IN_HANDLE, MsgHandle=received.msg_handle)
    assert queue.get(None, mq.MD(), options) == b"data"
    assert received.properties.get("colour") == "red"
    assert received.properties.get("usr.count") == 42
    assert received.properties.get("ratio") == 0.5
    assert received.properties.get("big") == 1 << 40
    assert received.properties.get("on") in (True, 1)
    assert received.properties.get("raw") == b"\x00\x01"
    names, step = set(), CMQC.MQIMPO_INQ_FIRST
    while True:
        try:
            names.add(received.properties.get("%", impo_options=step)[1])
        except mq.MQMIError as error:
            assert error.reason == CMQC.MQRC_PROPERTY_NOT_AVAILABLE, error
            break
        step = CMQC.MQIMPO_INQ_NEXT
    assert names == {"colour", "count", "ratio", "big", "on", "raw"}, names
    fails(CMQC.MQRC_PROPERTY_VALUE_TOO_BIG, lambda: received.properties.get("colour", max_value_length=1))
    received.properties.dlt("colour")
    fails(CMQC.MQRC_PROPERTY_NOT_AVAILABLE, received.properties.get, "colour")
    fails(CMQC.MQRC_PROPERTY_NAME_ERROR, handle.properties.set, "not", "x")
    handle.dlt()
    received.dlt()
    fails(CMQC.MQRC_HMSG_ERROR, mq.MessageHandle(qmgr, dup_handle=4711).properties.set, "x", "y")


def properties_got(qmgr, queue):
    received = mq.MessageHandle(qmgr)
    queue.get(None, mq.MD(), get_options(CMQC.MQGMO_PROPERTIES_IN_HANDLE, MsgHandle=received.msg_handle))
    found, step = {}, CMQC.MQIMPO_INQ_FIRST
    while True:
        try:
            value, name = received.properties.get("%", impo_options=step)
        except mq.MQMIError as error:
            assert error.reason == CMQC.MQRC_PROPERTY_NOT_AVAILABLE, error
            return found
        found[name], step = value, CMQC.MQIMPO_INQ_NEXT


def properties_of_a_message_that_is_passed_on(qmgr, queue):
    """MQPMO Action: what the copy options of the original let through, and all that the new handle has."""
    original, new = mq.MessageHandle(qmgr), mq.MessageHandle(qmgr)
    copies = {
        "all": CMQC.MQCOPY_ALL,
        "default": CMQC.MQCOPY_DEFAULT,
        "reply": CMQC.MQCOPY_REPLY,
        "none": CMQC.MQCOPY_NONE,
    }
    for name, copied in copies.items():
        pd = mq.PD()
        pd.CopyOptions = copied
        original.properties.set(name, "original", pd=pd)
    new.properties.set("new", "new")
    both = {"OriginalMsgHandle": original.msg_handle, "NewMsgHandle": new.msg_handle}
    expected = {
        CMQC.MQACTP_NEW: {"all", "default", "reply", "none", "new"},
        CMQC.MQACTP_FORWARD: {"all", "default", "new"},
        CMQC.MQACTP_REPLY: {"all", "reply", "new"},
        CMQC.MQACTP_REPORT: {"all", "default", "new"},
    }
    for action, wanted in expected.items():
        queue.put(b"", mq.MD(), put_options(Version=3, Action=action, **both))
        assert properties_got(qmgr, queue).keys() == wanted, action
    queue.put(b"", mq.MD(), put_options(Version=3, Action=CMQC.MQACTP_FORWARD, OriginalMsgHandle=original.msg_handle))
    assert properties_got(qmgr, queue).keys() == {"all", "default"}
    new.properties.set("default", "changed")
    new.properties.set("all", None, CMQC.MQTYPE_NULL)
    queue.put(b"", mq.MD(), put_options(Version=3, Action=CMQC.MQACTP_FORWARD, **both))
    assert properties_got(qmgr, queue) == {"default": "changed", "new": "new"}
    fails(CMQC.MQRC_ACTION_ERROR, lambda: queue.put(b"", mq.MD(), put_options(Version=3, Action=4)))
    fails(CMQC.MQRC_HMSG_ERROR, lambda: queue.put(b"", mq.MD(), put_options(Version=3, NewMsgHandle=4711)))


def synonyms_of_properties(qmgr, queue):
    """A property is found by the name it was set by, and by that of its element."""
    handle, received = mq.MessageHandle(qmgr), mq.MessageHandle(qmgr)
    handle.properties.set("JMSType", "order")
    handle.properties.set("MQTopicString", "a/b")
    queue.put(b"", mq.MD(), put_options(OriginalMsgHandle=handle.msg_handle))
    queue.get(None, mq.MD(), get_options(CMQC.MQGMO_PROPERTIES_IN_HANDLE, MsgHandle=received.msg_handle))
    found = [received.properties.get(name) for name in ("JMSType", "mcd.Type", "MQTopicString", "mqps.Top")]
    assert found == ["order", "order", "a/b", "a/b"], found
    fails(CMQC.MQRC_PROPERTY_NOT_AVAILABLE, received.properties.get, "JMSXGroupID")
    received.properties.set("JMSType", "invoice")
    queue.put(b"", mq.MD(), put_options(OriginalMsgHandle=received.msg_handle))
    assert properties_got(qmgr, queue) == {"mcd.Type": "invoice", "mqps.Top": "a/b"}
    received.properties.dlt("MQTopicString")
    fails(CMQC.MQRC_PROPERTY_NOT_AVAILABLE, received.properties.get, "mqps.Top")


def properties_without_a_handle(qmgr, queue):
    handle = mq.MessageHandle(qmgr)
    handle.properties.set("colour", "red")
    queue.put(b"data", mq.MD(), put_options(OriginalMsgHandle=handle.msg_handle))
    queue.put(b"data", mq.MD(), put_options(OriginalMsgHandle=handle.msg_handle))
    md = mq.MD()
    whole = queue.get(None, md)
    assert md.Format == CMQC.MQFMT_RF_HEADER_2
    header = mq.RFH2()
    header.unpack(whole)
    assert b"<colour>red</colour>" in header["usr"].replace(b" ", b""), header.get()
    assert whole[header["StrucLength"] :] == b"data"
    md = mq.MD()
    assert queue.get(None, md, get_options(CMQC.MQGMO_NO_PROPERTIES)) == b"data"
    assert md.Format == CMQC.MQFMT_NONE


def asynchronous_puts(qmgr, queue):
    for number in range(20):
        queue.put(b"%d" % number, mq.MD(), put_options(CMQC.MQPMO_ASYNC_RESPONSE))
    status = qmgr.stat(CMQC.MQSTAT_TYPE_ASYNC_ERROR)
    assert (status.PutSuccessCount, status.PutFailureCount) == (20, 0), status
    assert [queue.get() for _ in range(20)] == [b"%d" % number for number in range(20)]


def a_forked_child(qmgr, queue):
    """It has no part in its parent's connection, may make one of its own, and its end backs nothing out."""
    queue.put(b"parent", mq.MD(), put_options(CMQC.MQPMO_SYNCPOINT))
    child = os.fork()
    if not child:
        try:
            fails(CMQC.MQRC_HCONN_ERROR, queue.put, b"child")
            own = connect()
            mine = opened(own)
            mine.put(b"own")
            assert mine.get() == b"own"
            own.disconnect()
            os._exit(0)
        finally:  # nothing of the parent's is run here
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    qmgr.commit()
    assert queue.get() == b"parent"


def attributes(qmgr, queue):
    queue.put(b"x")
    assert queue.inquire(CMQC.MQIA_CURRENT_Q_DEPTH) == 1
    queue.get()
    assert queue.inquire(CMQC.MQCA_Q_NAME).strip() in (b"APP.Q", "APP.Q")
    setting = mq.Queue(qmgr, "APP.Q", CMQC.MQOO_SET)
    setting.set(CMQC.MQIA_INHIBIT_PUT, 1)
    fails(CMQC.MQRC_PUT_INHIBITED, queue.put, b"no")
    setting.set(CMQC.MQIA_INHIBIT_PUT, 0)
    queue.put(b"yes")
    queue.get()
    name = qmgr.inquire(CMQC.MQCA_Q_MGR_NAME)
    assert (name if isinstance(name, bytes) else name.encode()).strip() == b"QM1"


def put1(qmgr, queue):
    qmgr.put1(mq.OD(ObjectName=b"APP.Q"), b"by put1")
    assert queue.get() == b"by put1"
    fails(CMQC.MQRC_UNKNOWN_OBJECT_NAME, qmgr.put1, mq.OD(ObjectName=b"no such queue"), b"x")


def distribution_lists_are_refused(qmgr, queue):
    """MQRC_RECS_PRESENT_ERROR, in whichever structure the records are, as `MQIA_DIST_LISTS` says beforehand."""
    for records in (2, -1):
        listed = mq.OD(Version=CMQC.MQOD_VERSION_2, ObjectName="APP.Q", RecsPresent=records)
        fails(CMQC.MQRC_RECS_PRESENT_ERROR, mq.Queue, qmgr, listed, CMQC.MQOO_OUTPUT)
        fails(CMQC.MQRC_RECS_PRESENT_ERROR, qmgr.put1, listed, b"x", mq.MD(), mq.PMO())
        fails(CMQC.MQRC_RECS_PRESENT_ERROR, queue.put, b"x", mq.MD(), put_options(RecsPresent=records))
    assert qmgr.inquire(CMQC.MQIA_DIST_LISTS) == CMQC.MQDL_NOT_SUPPORTED


def temporary_queue(qmgr, queue):
    model = mq.OD(ObjectName=b"SYSTEM.DEFAULT.MODEL.QUEUE", DynamicQName=b"REPLY.*")
    reply = mq.Queue(qmgr, model, CMQC.MQOO_INPUT_EXCLUSIVE | CMQC.MQOO_OUTPUT)
    assert model.ObjectName.startswith(b"REPLY."), model.ObjectName
    reply.put(b"r")
    assert reply.get() == b"r"
    reply.close()
    fails(CMQC.MQRC_UNKNOWN_OBJECT_NAME, lambda: mq.Queue(qmgr, model.ObjectName.strip(), CMQC.MQOO_OUTPUT))


def publish_and_subscribe(qmgr, queue):
    descriptor = mq.SD()
    descriptor.Options = CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED | CMQC.MQSO_NON_DURABLE
    descriptor.set_vs("ObjectString", "plant/+/temperature")
    subscription = mq.Subscription(qmgr)
    subscription.sub(sub_desc=descriptor)
    topic = mq.Topic(qmgr, topic_string="plant/lima/temperature")
    topic.open(open_opts=CMQC.MQOO_OUTPUT)
    topic.pub(b"21.5")
    assert subscription.get(None, mq.MD(), get_options(CMQC.MQGMO_WAIT, WaitInterval=5000)) == b"21.5"
    elsewhere = mq.Topic(qmgr, topic_string="plant/lima/pressure")
    elsewhere.open(open_opts=CMQC.MQOO_OUTPUT)
    elsewhere.pub(b"9")
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, subscription.get)
    topic.close()
    elsewhere.close()
    subscription.close(sub_close_options=0, close_sub_queue=True)


def durable_subscription(qmgr, queue):
    descriptor = mq.SD()
    descriptor.Options = CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED | CMQC.MQSO_DURABLE
    descriptor.set_vs("ObjectString", "kept/#")
    descriptor.set_vs("SubName", "KEPT")
    made = mq.Subscription(qmgr)
    made.sub(sub_desc=descriptor)
    made.close(sub_close_options=CMQC.MQCO_KEEP_SUB, close_sub_queue=True)
    again = mq.SD()
    again.Options = CMQC.MQSO_RESUME
    again.set_vs("SubName", "KEPT")
    resumed = mq.Subscription(qmgr)
    resumed.sub(sub_desc=again)
    assert again.Options == CMQC.MQSO_RESUME | CMQC.MQSO_MANAGED | CMQC.MQSO_DURABLE, hex(again.Options)
    resumed.close(sub_close_options=CMQC.MQCO_REMOVE_SUB, close_sub_queue=True)


def callbacks(qmgr, queue):
    got, done = [], threading.Event()

    def consume(**given):
        if given["cbc"].CallType != CMQC.MQCBCT_MSG_REMOVED:
            return
        got.append(bytes(given["msg"]))
        if len(got) == 5:
            done.set()

    other = connect()
    reading = mq.Queue(other, "APP.Q", CMQC.MQOO_INPUT_SHARED)
    descriptor = mq.CBD()
    descriptor.CallbackFunction = consume
    reading.cb(
        operation=CMQC.MQOP_REGISTER, cbd=descriptor, md=mq.MD(), gmo=get_options(CMQC.MQGMO_WAIT, WaitInterval=-1)
    )
    other.ctl(CMQC.MQOP_START, mq.CTLO())
    for number in range(5):
        queue.put(b"%d" % number)
    assert done.wait(60), got
    other.ctl(CMQC.MQOP_STOP, mq.CTLO())
    other.disconnect()
    assert got == [b"0", b"1", b"2", b"3", b"4"], got


def administration(qmgr, queue):
    pcf = mq.PCFExecute(qmgr)
    name = b"MADE.BY.PCF"
    pcf.MQCMD_CREATE_Q({CMQC.MQCA_Q_NAME: name, CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL, CMQC.MQIA_MAX_Q_DEPTH: 7})
    found = pcf.MQCMD_INQUIRE_Q({CMQC.MQCA_Q_NAME: b"MADE.*"})
    assert [(one[CMQC.MQCA_Q_NAME].strip(), one[CMQC.MQIA_MAX_Q_DEPTH]) for one in found] == [(name, 7)]
    pcf.MQCMD_DELETE_Q({CMQC.MQCA_Q_NAME: name})
    try:
        pcf.MQCMD_INQUIRE_Q({CMQC.MQCA_Q_NAME: name})
    except mq.MQMIError as error:
        assert error.reason in (CMQC.MQRC_UNKNOWN_OBJECT_NAME, CMQCFC.MQRCCF_COMMAND_FAILED), error
    pcf.disconnect()


PARTS = [
    put_and_get,
    long_message,
    matching,
    browsing,
    units_of_work,
    waiting,
    properties,
    properties_of_a_message_that_is_passed_on,
    synonyms_of_properties,
    properties_without_a_handle,
    asynchronous_puts,
    a_forked_child,
    attributes,
    put1,
    distribution_lists_are_refused,
    temporary_queue,
    publish_and_subscribe,
    durable_subscription,
    callbacks,
    administration,
]


def main():
    results = {}
    for part in PARTS:
        qmgr = connect()
        queue = opened(qmgr)
        try:
            drain(queue)
            part(qmgr, queue)
            results[part.__name__] = "ok"
        except Exception:  # noqa: BLE001  reported to the test
            results[part.__name__] = traceback.format_exc()
        qmgr.disconnect()
    json.dump(results, sys.stdout)


main()
