"""A program of a user of `pymqi`, with its classes. Prints which of its parts worked, as JSON."""

# ruff: noqa: PT017  a program, not a test

import json
import sys
import traceback

import pymqi
from pymqi import CMQC


def connect():
    return pymqi.connect("QM1", "DEV.APP.SVRCONN", "localhost(1414)", "app", "pw")


def fails(reason, call, *arguments):
    try:
        call(*arguments)
    except pymqi.MQMIError as error:
        assert error.reason == reason, error
        return
    raise AssertionError(f"reason {reason} expected")


def drain(queue):
    while True:
        try:
            queue.get()
        except pymqi.MQMIError as error:
            assert error.reason == CMQC.MQRC_NO_MSG_AVAILABLE, error
            return


def put_and_get(qmgr, queue):
    sent, got = pymqi.MD(Format=CMQC.MQFMT_STRING), pymqi.MD()
    queue.put(b"hello", sent)
    assert queue.get(None, got) == b"hello"
    assert got.MsgId == sent.MsgId
    assert got.Format == CMQC.MQFMT_STRING


def long_message(qmgr, queue):
    data = bytes(range(256)) * 200
    queue.put(data)
    fails(CMQC.MQRC_TRUNCATED_MSG_FAILED, queue.get, 10)
    assert queue.get() == data


def browsing(qmgr, queue):
    for number in range(3):
        queue.put(b"%d" % number)
    seen, step = [], CMQC.MQGMO_BROWSE_FIRST
    while True:
        try:
            seen.append(queue.get(None, pymqi.MD(), pymqi.GMO(Options=step)))
        except pymqi.MQMIError as error:
            assert error.reason == CMQC.MQRC_NO_MSG_AVAILABLE, error
            break
        step = CMQC.MQGMO_BROWSE_NEXT
    assert seen == [b"0", b"1", b"2"], seen


def matching(qmgr, queue):
    ids = []
    for number in range(3):
        md = pymqi.MD()
        queue.put(b"%d" % number, md)
        ids.append(md.MsgId)
    assert queue.get(None, pymqi.MD(MsgId=ids[1])) == b"1"
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get, None, pymqi.MD(MsgId=ids[1]))


def units_of_work(qmgr, queue):
    queue.put(b"one", pymqi.MD(), pymqi.PMO(Options=CMQC.MQPMO_SYNCPOINT))
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get)
    qmgr.backout()
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get)
    queue.put(b"two", pymqi.MD(), pymqi.PMO(Options=CMQC.MQPMO_SYNCPOINT))
    qmgr.commit()
    for attempt in range(2):
        md = pymqi.MD()
        assert queue.get(None, md, pymqi.GMO(Options=CMQC.MQGMO_SYNCPOINT)) == b"two"
        assert md.BackoutCount == attempt
        qmgr.backout() if not attempt else qmgr.commit()


def waiting(qmgr, queue):
    fails(CMQC.MQRC_NO_MSG_AVAILABLE, queue.get, None, pymqi.MD(), pymqi.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=50))


def properties(qmgr, queue):
    handle = pymqi.MessageHandle(qmgr)
    handle.properties.set(b"colour", "red")
    handle.properties.set(b"ratio", 0.5, CMQC.MQTYPE_FLOAT64)
    put = pymqi.PMO(Version=CMQC.MQPMO_VERSION_3)
    put.OriginalMsgHandle = handle.msg_handle
    queue.put(b"data", pymqi.MD(), put)
    received = pymqi.MessageHandle(qmgr)
    get = pymqi.GMO(Version=CMQC.MQGMO_VERSION_4, Options=CMQC.MQGMO_PROPERTIES_IN_HANDLE)
    get.MsgHandle = received.msg_handle
    assert queue.get(None, pymqi.MD(), get) == b"data"
    assert received.properties.get(b"colour") in (b"red", "red")
    assert received.properties.get(b"ratio", property_type=CMQC.MQTYPE_FLOAT64) == 0.5


def every_type_of_property(qmgr, queue):
    values = {
        CMQC.MQTYPE_BOOLEAN: (True, 4),
        CMQC.MQTYPE_INT8: (-127, 1),
        CMQC.MQTYPE_INT16: (-32768, 2),
        CMQC.MQTYPE_INT32: (-2147483647, 4),
        CMQC.MQTYPE_INT64: (-9223372036854775808, 8),
        CMQC.MQTYPE_FLOAT32: (1.1754943508222875e-38, 4),
        CMQC.MQTYPE_FLOAT64: (2.2250738585072014e-308, 8),
        CMQC.MQTYPE_STRING: ("value", 5),
        CMQC.MQTYPE_BYTE_STRING: (b"\x00\xff\x01", 3),
        CMQC.MQTYPE_NULL: (None, 0),
    }
    for kind, (value, length) in values.items():
        handle = pymqi.MessageHandle(qmgr, pymqi.CMHO())
        handle.properties.set(b"test_name", value, value_length=length, property_type=kind)
        put = pymqi.PMO(Version=CMQC.MQPMO_CURRENT_VERSION)
        put.OriginalMsgHandle = handle.msg_handle
        queue.put(b"", pymqi.MD(Version=CMQC.MQMD_CURRENT_VERSION), put)
        received = pymqi.MessageHandle(qmgr, pymqi.CMHO())
        get = pymqi.GMO(Version=CMQC.MQGMO_CURRENT_VERSION, Options=CMQC.MQGMO_PROPERTIES_IN_HANDLE)
        get.MsgHandle = received.msg_handle
        assert queue.get(None, pymqi.MD(), get) == b""
        for asked in (0, 100):
            got = received.properties.get(b"test_name", property_type=CMQC.MQTYPE_AS_SET, max_value_length=asked)
            assert got == value, (kind, asked, got)
        fails(CMQC.MQRC_PROPERTY_NOT_AVAILABLE, received.properties.get, b"test_nametest_name")


def attributes(qmgr, queue):
    queue.put(b"x")
    assert queue.inquire(CMQC.MQIA_CURRENT_Q_DEPTH) == 1
    assert qmgr.inquire(CMQC.MQCA_Q_MGR_NAME).strip() == b"QM1"


def put1(qmgr, queue):
    qmgr.put1("APP.Q", b"by put1")
    assert queue.get() == b"by put1"


def publish_and_subscribe(qmgr, queue):
    descriptor = pymqi.SD(Options=CMQC.MQSO_CREATE | CMQC.MQSO_MANAGED | CMQC.MQSO_NON_DURABLE)
    descriptor.set_vs("ObjectString", "plant/#")
    subscription = pymqi.Subscription(qmgr)
    subscription.sub(sub_desc=descriptor)
    topic = pymqi.Topic(qmgr, topic_string="plant/lima")
    topic.open(open_opts=CMQC.MQOO_OUTPUT)
    topic.pub(b"21.5")
    assert subscription.get(None, pymqi.MD(), pymqi.GMO(Options=CMQC.MQGMO_WAIT, WaitInterval=5000)) == b"21.5"
    topic.close()
    subscription.close(sub_close_options=0, close_sub_queue=True)


def administration(qmgr, queue):
    pcf = pymqi.PCFExecute(qmgr)
    name = b"MADE.BY.PYMQI"
    pcf.MQCMD_CREATE_Q({CMQC.MQCA_Q_NAME: name, CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL, CMQC.MQIA_MAX_Q_DEPTH: 7})
    found = pcf.MQCMD_INQUIRE_Q({CMQC.MQCA_Q_NAME: b"MADE.BY.PY*"})
    assert [(one[CMQC.MQCA_Q_NAME].strip(), one[CMQC.MQIA_MAX_Q_DEPTH]) for one in found] == [(name, 7)]
    pcf.MQCMD_DELETE_Q({CMQC.MQCA_Q_NAME: name})
    pcf.disconnect()


PARTS = [
    put_and_get,
    long_message,
    browsing,
    matching,
    units_of_work,
    waiting,
    properties,
    every_type_of_property,
    attributes,
    put1,
    publish_and_subscribe,
    administration,
]


def main():
    results = {}
    for part in PARTS:
        qmgr = connect()
        options = CMQC.MQOO_OUTPUT | CMQC.MQOO_INPUT_SHARED | CMQC.MQOO_BROWSE | CMQC.MQOO_INQUIRE
        queue = pymqi.Queue(qmgr, "APP.Q", options)
        try:
            drain(queue)
            part(qmgr, queue)
            results[part.__name__] = "ok"
        except Exception:  # noqa: BLE001  reported to the test
            results[part.__name__] = traceback.format_exc()
        queue.close()
        qmgr.disconnect()
    json.dump(results, sys.stdout)


main()
