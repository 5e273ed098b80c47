"""A program of a user of `pymqi`, with its classes. Prints which of its parts worked, as JSON."""

# ruff: noqa: PT017  a program, not a test

import json
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

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


def connections_by_filter(qmgr, queue):
    """A byte string, a number and a list of numbers as parameters, an integer filter."""
    pcf = pymqi.PCFExecute(qmgr)
    wanted = [
        pymqi.CFBS(Parameter=pymqi.CMQCFC.MQBACF_GENERIC_CONNECTION_ID, String=b""),
        pymqi.CFIN(Parameter=pymqi.CMQCFC.MQIACF_CONN_INFO_TYPE, Value=pymqi.CMQCFC.MQIACF_CONN_INFO_CONN),
        pymqi.CFIL(Parameter=pymqi.CMQCFC.MQIACF_CONNECTION_ATTRS, Values=[pymqi.CMQCFC.MQIACF_ALL]),
    ]
    users = pymqi.CFIF(Parameter=CMQC.MQIA_APPL_TYPE, Operator=pymqi.CMQCFC.MQCFOP_EQUAL, FilterValue=CMQC.MQAT_USER)
    assert pcf.MQCMD_INQUIRE_CONNECTION(wanted, [users])
    older = {
        pymqi.CMQCFC.MQBACF_GENERIC_CONNECTION_ID: pymqi.ByteString(b""),
        pymqi.CMQCFC.MQIACF_CONN_INFO_TYPE: pymqi.CMQCFC.MQIACF_CONN_INFO_CONN,
        pymqi.CMQCFC.MQIACF_CONNECTION_ATTRS: [
            pymqi.CMQCFC.MQCACH_CONNECTION_NAME, pymqi.CMQCFC.MQCACH_CHANNEL_NAME,
        ],
    }  # fmt: skip
    found = pcf.MQCMD_INQUIRE_CONNECTION(older, [pymqi.Filter(CMQC.MQIA_APPL_TYPE).equal(CMQC.MQAT_USER)])
    assert pymqi.CMQCFC.MQCACH_CONNECTION_NAME in found[0]
    assert pymqi.CMQCFC.MQCACH_CHANNEL_NAME in found[0]
    pcf.disconnect()


def queues_by_filter(qmgr, queue):
    """By depth and by description, with a text that ends in a star."""
    queue.put(b"x")
    pcf = pymqi.PCFExecute(qmgr)
    pcf.MQCMD_CREATE_Q({
        CMQC.MQCA_Q_NAME: b"DESCRIBED.Q", CMQC.MQIA_Q_TYPE: CMQC.MQQT_LOCAL, CMQC.MQCA_Q_DESC: b"line seven",
        pymqi.CMQCFC.MQIACF_REPLACE: pymqi.CMQCFC.MQRP_YES,
    })  # fmt: skip
    wanted = [
        pymqi.CFST(Parameter=CMQC.MQCA_Q_NAME, String=b"*"),
        pymqi.CFIN(Parameter=CMQC.MQIA_Q_TYPE, Value=CMQC.MQQT_LOCAL),
        pymqi.CFIL(Parameter=pymqi.CMQCFC.MQIACF_Q_ATTRS, Values=[CMQC.MQIA_CURRENT_Q_DEPTH, CMQC.MQCA_Q_DESC]),
    ]
    deep = pymqi.CFIF(Parameter=CMQC.MQIA_CURRENT_Q_DEPTH, Operator=pymqi.CMQCFC.MQCFOP_GREATER, FilterValue=0)
    found = pcf.MQCMD_INQUIRE_Q(wanted, [deep])
    assert b"APP.Q" in [one[CMQC.MQCA_Q_NAME].strip() for one in found]
    assert all(one[CMQC.MQIA_CURRENT_Q_DEPTH] > 0 for one in found)
    like = pymqi.CFSF(Parameter=CMQC.MQCA_Q_DESC, Operator=pymqi.CMQCFC.MQCFOP_LIKE, FilterValue=b"line*")
    found = pcf.MQCMD_INQUIRE_Q(wanted, [like])
    assert [one[CMQC.MQCA_Q_NAME].strip() for one in found] == [b"DESCRIBED.Q"]
    assert found[0][CMQC.MQCA_Q_DESC].strip() == b"line seven"
    pcf.MQCMD_DELETE_Q({CMQC.MQCA_Q_NAME: b"DESCRIBED.Q"})
    pcf.disconnect()


def lists_of_names(qmgr, queue):
    """None, one and three; as objects and as the older dictionaries, of bytes and of text."""
    pcf = pymqi.PCFExecute(qmgr)
    name, replace = b"MADE.NAMES", pymqi.CMQCFC.MQIACF_REPLACE
    for names in ([], [b"One"], [b"One", b"Two", b"Three"]):
        pcf.MQCMD_CREATE_NAMELIST([
            pymqi.CFST(Parameter=CMQC.MQCA_NAMELIST_NAME, String=name),
            pymqi.CFSL(Parameter=CMQC.MQCA_NAMES, Strings=names),
            pymqi.CFIN(Parameter=replace, Value=pymqi.CMQCFC.MQRP_YES),
        ])  # fmt: skip
        asked = [
            pymqi.CFST(Parameter=CMQC.MQCA_NAMELIST_NAME, String=name),
            pymqi.CFIL(Parameter=pymqi.CMQCFC.MQIACF_NAMELIST_ATTRS, Values=[CMQC.MQCA_NAMES, CMQC.MQIA_NAME_COUNT]),
        ]
        [found] = pcf.MQCMD_INQUIRE_NAMELIST(asked)
        assert found[CMQC.MQIA_NAME_COUNT] == len(names), found
        given = found[CMQC.MQCA_NAMES] if names else []
        assert sorted(one.strip() for one in given) == sorted(names)
    for names in (["test1"], ["test1", b"test2"]):
        pcf.MQCMD_CREATE_NAMELIST(
            {CMQC.MQCA_NAMELIST_NAME: name, CMQC.MQCA_NAMES: names, replace: pymqi.CMQCFC.MQRP_YES}
        )
    pcf.MQCMD_DELETE_NAMELIST({CMQC.MQCA_NAMELIST_NAME: name})
    try:
        pcf.MQCMD_INQUIRE_NAMELIST({CMQC.MQCA_NAMELIST_NAME: name})
    except pymqi.MQMIError as error:
        assert error.reason == CMQC.MQRC_UNKNOWN_OBJECT_NAME, error
    else:
        raise AssertionError("a list that was deleted is found")
    pcf.disconnect()


def own_pcf_messages(qmgr, queue):
    """Lists, groups and 64-bit numbers in a message of its own, byte for byte and unpacked."""
    head = pymqi.CFH(Version=pymqi.CMQCFC.MQCFH_VERSION_1, Type=pymqi.CMQCFC.MQCFT_USER, ParameterCount=4).pack()
    parts = [head, pymqi.CFST(Parameter=CMQC.MQCA_Q_MGR_NAME, String=b"QM1").pack()]
    for name, depth, times in ((b"ONE.Q", 10, [1, 2, 3]), (b"TWO.Q.", 1 << 40, [111])):
        parts += [
            pymqi.CFGR(Parameter=pymqi.CMQCFC.MQGACF_Q_STATISTICS_DATA, ParameterCount=3).pack(),
            pymqi.CFST(Parameter=CMQC.MQCA_Q_NAME, String=name).pack(),
            pymqi.CFIN64(Parameter=pymqi.CMQCFC.MQIAMO_Q_MIN_DEPTH, Value=depth).pack(),
            pymqi.CFIL64(Parameter=pymqi.CMQCFC.MQIAMO64_AVG_Q_TIME, Values=times).pack(),
        ]
    parts.append(pymqi.CFIL(Parameter=1, Values=[1, 2, 3]).pack())
    message = b"".join(parts)
    for options in (CMQC.MQGMO_NO_SYNCPOINT, CMQC.MQGMO_NO_SYNCPOINT | CMQC.MQGMO_CONVERT):
        queue.put(message, pymqi.MD(Format=CMQC.MQFMT_PCF))
        got = queue.get(None, pymqi.MD(), pymqi.GMO(Options=options))
        assert got == message
        values, header = pymqi.PCFExecute.unpack(got)
        assert header.Type == pymqi.CMQCFC.MQCFT_USER
        groups = values[pymqi.CMQCFC.MQGACF_Q_STATISTICS_DATA]
        assert [one[pymqi.CMQCFC.MQIAMO_Q_MIN_DEPTH] for one in groups] == [10, 1 << 40]
        assert [one[pymqi.CMQCFC.MQIAMO64_AVG_Q_TIME] for one in groups] == [[1, 2, 3], [111]]
        assert values[1] == [1, 2, 3]
    converted = queue_converted(queue, message)
    assert pymqi.PCFExecute.unpack(queue_converted(queue, converted, CMQC.MQENC_NATIVE, swapped=True))[0] == values


def queue_converted(queue, message, encoding=273, *, swapped=False):
    """The message in another byte order, as MQGMO_CONVERT makes it."""
    sent = pymqi.MD(Format=CMQC.MQFMT_PCF, Encoding=273 if swapped else CMQC.MQENC_NATIVE)
    queue.put(message, sent)
    asked = pymqi.MD(Encoding=encoding, CodedCharSetId=819 if not swapped else 1208)
    return queue.get(None, asked, pymqi.GMO(Options=CMQC.MQGMO_CONVERT))


def rules_and_formatting_headers(qmgr, queue):
    """One MQRFH2 and two, with folders of their own, put and got as pymqi packs them."""
    folders = (b"<psc><Command>RegSub</Command></psc>", b"<testFolder><testVar>testValue</testVar></testFolder>")
    for chain in ([folders], [folders[:1], folders[1:]]):
        headers = []
        for number, texts in enumerate(chain):
            header = pymqi.RFH2(StrucId=CMQC.MQRFH_STRUC_ID, Version=CMQC.MQRFH_VERSION_2, NameValueCCSID=1208)
            last = number == len(chain) - 1
            header["CodedCharSetId"], header["Encoding"] = 1208, CMQC.MQENC_NATIVE
            header["Format"] = CMQC.MQFMT_STRING if last else CMQC.MQFMT_RF_HEADER_2
            for text in texts:
                header.add_folder(text)
            headers.append(header)
        md = pymqi.MD(Format=CMQC.MQFMT_RF_HEADER_2, CodedCharSetId=1208, Encoding=CMQC.MQENC_NATIVE)
        queue.put_rfh2(b"the body", md, pymqi.PMO(), headers)
        received, got = [], pymqi.MD()
        assert queue.get_rfh2(None, got, pymqi.GMO(), received) == b"the body"
        assert [one.get() for one in received] == [one.get() for one in headers], received
        assert got.Format == CMQC.MQFMT_RF_HEADER_2


def a_short_value_is_a_reason(qmgr, queue):
    handle = pymqi.MessageHandle(qmgr, pymqi.CMHO())
    handle.properties.set(b"long", "value" * 10)
    put = pymqi.PMO(Version=CMQC.MQPMO_VERSION_3)
    put.OriginalMsgHandle = handle.msg_handle
    queue.put(b"", pymqi.MD(), put)
    received = pymqi.MessageHandle(qmgr, pymqi.CMHO())
    get = pymqi.GMO(Version=CMQC.MQGMO_VERSION_4, Options=CMQC.MQGMO_PROPERTIES_IN_HANDLE)
    get.MsgHandle = received.msg_handle
    queue.get(None, pymqi.MD(), get)
    short = {"max_value_length": 25}
    fails(CMQC.MQRC_PROPERTY_VALUE_TOO_BIG, lambda: received.properties.get(b"long", **short))
    assert received.properties.get(b"long", max_value_length=50) in (b"value" * 10, "value" * 10)


def connected_as_administrator(password=None):
    """As pymqi's own tests connect, over a channel for administrators."""
    qmgr = pymqi.QueueManager(None)
    credentials = {"user": "app", "password": password} if password else {}
    try:
        qmgr.connect_tcp_client("QM1", pymqi.cd(), "DEV.ADMIN.SVRCONN", "localhost(1414)", **credentials)
        assert qmgr.is_connected
    finally:
        if qmgr.is_connected:
            qmgr.disconnect()
    assert not qmgr.is_connected


def administrators_give_credentials(qmgr, queue):
    """On a thread of its own: this one has a connection, which another MQCONNX would be given again."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(fails, CMQC.MQRC_NOT_AUTHORIZED, connected_as_administrator).result()
        thread.submit(fails, CMQC.MQRC_NOT_AUTHORIZED, connected_as_administrator, "wrong").result()
        thread.submit(connected_as_administrator, "pw").result()


PARTS = [
    administrators_give_credentials,
    connections_by_filter,
    queues_by_filter,
    lists_of_names,
    own_pcf_messages,
    rules_and_formatting_headers,
    a_short_value_is_a_reason,
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
