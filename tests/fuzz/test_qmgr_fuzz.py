"""Whatever a program sends: the call works or answers a reason code, and the queue manager goes on."""

from __future__ import annotations

from contextlib import suppress

from embedded_rig import MqiRig, md
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.errors import MQError
from gateway.mq import pcf
from gateway.ports.mqi import (
    GetOptions,
    ObjectDescriptor,
    Property,
    PutOptions,
    SubscriptionDescriptor,
)

RIG = MqiRig(
    None,
    "DEFINE QLOCAL(A) MAXDEPTH(50)\nDEFINE QLOCAL(B) PROPCTL(NONE)\n"
    "DEFINE QALIAS(T) TARGTYPE(TOPIC) TARGET(SYSTEM.BASE.TOPIC)",
)

bits = st.integers(0, 31).map(lambda one: 1 << one) | st.sampled_from([2, 4])
options = st.lists(bits, max_size=4).map(lambda some: sum(set(some)) & 0x7FFFFFFF)
identifiers = st.sampled_from([bytes(24), b"x" * 24]) | st.binary(min_size=24, max_size=24)
integers = st.sampled_from([0, 1, -1, 2, 8, 1208]) | st.integers(-(2**31), 2**31 - 1)
descriptors = st.binary(min_size=364, max_size=364) | st.builds(
    md,
    report=integers, type=st.sampled_from([1, 8]), expiry=st.sampled_from([-1, 1, 50]) | integers, encoding=integers,
    ccsid=integers, format=st.sampled_from([b"MQHRF2", b"MQSTR", b"MQDEAD", b"MQHMDE", b""]),
    priority=st.integers(-1, 12),
    persistence=st.integers(0, 2), msg_id=identifiers, correl_id=identifiers, group_id=identifiers,
    reply_to_q=st.sampled_from([b"", b"A", b"NONE", b"\xff\xfe"]), reply_to_qmgr=st.sampled_from([b"", b"QM1", b"QM9"]),
    sequence=st.integers(-1, 5), offset=st.integers(-1, 40), flags=st.integers(0, 40),
)  # fmt: skip
rfh2 = st.builds(
    lambda length, rest: b"RFH " + (2).to_bytes(4, "little") + length.to_bytes(4, "little") + rest,
    st.integers(0, 90),
    st.binary(max_size=80),
)
datas = st.binary(max_size=60) | rfh2
names = st.sampled_from(
    ["A", "B", "T", "NONE", "", "SYSTEM.DEFAULT.MODEL.QUEUE", "SYSTEM.MQTT.TRANSMIT.QUEUE", "a b", "\0"]
)
values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=6)
)
held = st.lists(
    st.builds(
        Property,
        st.sampled_from(["a", "usr.b", "mq_usr.c", "Root.MQMD.Priority", "", "x y"]) | st.text(max_size=8),
        values,
        st.sampled_from([2, 4, 8, 64, 128, 512, 1024, 99]),
    ),
    max_size=3,
)


def healthy() -> None:
    """The queue manager still answers, and no unit of work is left."""
    with suppress(MQError):
        RIG.connection.back()
    for handle in list(RIG.connection.state.handles):
        with suppress(MQError):
            RIG.connection.close(handle)
    RIG.queue_manager.mqsc("CLEAR QLOCAL(A)\nCLEAR QLOCAL(B)\nCLEAR QLOCAL(SYSTEM.DEAD.LETTER.QUEUE)")
    RIG.put("A", b"healthy")
    handle = RIG.open("A")
    assert RIG.get(handle).data == b"healthy"
    RIG.connection.close(handle)


@given(names, descriptors, options, held, datas)
@example("A", md(), 4, [Property("a", float("nan"), 512)], b"")
def test_any_put(name, descriptor, option, properties, data):
    with suppress(MQError):
        RIG.connection.put1(
            ObjectDescriptor(name), descriptor, PutOptions(option, context=1, properties=properties), data
        )
    healthy()


@given(
    st.lists(st.tuples(descriptors, datas), max_size=3),
    options,
    descriptors,
    options,
    st.integers(0, 63),
    st.booleans(),
    st.integers(0, 100),
)
def test_any_get(messages, opened, descriptor, option, match, handle_given, length):
    for put_md, data in messages:
        with suppress(MQError):
            RIG.connection.put1(ObjectDescriptor("A"), put_md, PutOptions(4), data)
    with suppress(MQError):
        handle = RIG.connection.open(ObjectDescriptor("A"), opened | 1 | 8).handle
        for _ in range(3):
            RIG.connection.get(handle, descriptor, GetOptions(option, match=match, handle_given=handle_given), length)
    healthy()


@given(names, options, st.text(max_size=12), st.text(max_size=20), st.integers(0, 12))
def test_any_open_and_subscription(name, option, topic, selection, kind):
    with suppress(MQError):
        RIG.connection.open(ObjectDescriptor(name, object_type=kind, object_string=topic, selection=selection), option)
    with suppress(MQError):
        RIG.connection.subscribe(
            SubscriptionDescriptor(option, topic_object=name, object_string=topic, name=topic, selection=selection)
        )
    healthy()


parameters = st.lists(
    st.builds(pcf.integer, st.sampled_from([20, 15, 3, 1006, 1273, 1016, 99999]), integers)
    | st.builds(
        pcf.string, st.sampled_from([2016, 2092, 3152, 3154, 2094, 2010, 3067, 3014, 3001, 3002]), st.text(max_size=8)
    )
    | st.builds(pcf.integers, st.sampled_from([1002, 1001, 1116]), st.lists(integers, max_size=3))
    | st.builds(pcf.byte_string, st.sampled_from([7016, 7015, 7006]), st.binary(max_size=30))
    | st.builds(pcf.string_filter, st.sampled_from([2013, 2016]), st.integers(0, 30), st.text(max_size=4)),
    max_size=4,
)
commands = st.builds(lambda command, given: pcf.build(pcf.Message(1, command, given)), st.integers(0, 210), parameters)


@given(commands | st.binary(max_size=80) | commands.map(lambda raw: raw[:-3]))
def test_any_command(raw):
    RIG.put("SYSTEM.ADMIN.COMMAND.QUEUE", raw, descriptor=md(type=1, format=b"MQADMIN", reply_to_q=b"B"))
    assert RIG.depth("SYSTEM.ADMIN.COMMAND.QUEUE") == 0
    RIG.queue_manager.mqsc("ALTER QMGR MAXHANDS(256) MAXUMSGS(10000) MAXMSGL(4194304) DEADQ(SYSTEM.DEAD.LETTER.QUEUE)")
    healthy()
