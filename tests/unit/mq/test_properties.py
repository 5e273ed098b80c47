"""Message properties: names, types, folders, the descriptor's fields, PROPCTL."""

import pytest

from gateway.errors import MQError
from gateway.mq import constants, mqmd, propctl, properties, property_names
from gateway.mq.headers import chain, rfh2
from gateway.mq.headers.rfh2_folder import Typed
from gateway.mq.properties import Property, new, properties_of, with_properties

MD = mqmd.build(format="MQSTR", coded_char_set_id=819)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("a", "a"), ("usr.a", "a"), ("mq_usr.a.b", "mq_usr.a.b"), ("mine.x", "mine.x"), ("größe", "größe"),
        ("JMSReplyTo", "jms.Rto"), ("MQTopicString", "mqps.Top"), ("JMSXUserID", "Root.MQMD.UserIdentifier"),
        ("Root.MQMD.Priority", "Root.MQMD.Priority"), ("_a$1", "_a$1"), ("x" * 4095, "x" * 4095),
    ],
)  # fmt: skip
def test_names(name, kept):
    assert property_names.resolve(name) == kept


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", 2442), ("1a", 2442), ("a b", 2442), ("a..b", 2442), ("a.", 2442), (".a", 2442), ("a:b", 2442),
        ("JMSFoo", 2442), ("usr.JMSFoo", 2442), ("null", 2442), ("Like", 2442), ("mq.a.b", 2442), ("a<b", 2442),
        ("usr.a.b", 2442), ("Root.Other", 2442), ("Body.a", 2442), ("x" * 4096, 2513),
    ],
)  # fmt: skip
def test_names_refused(name, reason):
    with pytest.raises(MQError) as refused:
        property_names.resolve(name)
    assert refused.value.reason == reason


ALL_TYPES = [
    new("text", "a<b>&'\""), new("empty", ""), new("yes", True), new("no", False), new("raw", b"\0\xff"),
    new("b1", Typed("i1", -128)), new("b2", Typed("i2", 32767)), new("b4", 5), new("b8", 1 << 40),
    new("f4", Typed("r4", 1.5)), new("f8", -2.5e-300), new("nil", None),
    new("mq_usr.group.deep.x", "in a group"), new("mq_usr.group.y", 2), new("own.folder", 3),
    new("ctx", "u", context=1), new("cop", "c", copy=8 | 16), new("none", "c", copy=0), new("all", "c", copy=1),
    new("mq.needed", 1, support=0x100000),
]  # fmt: skip


def test_every_type_comes_back():
    md, data = with_properties(MD, b"body", ALL_TYPES)
    found = {each.name: each for each in properties_of(md, data)}
    assert found == {each.name: each for each in ALL_TYPES}
    assert [each.mqtype for each in ALL_TYPES[:12]] == [1024, 1024, 4, 4, 8, 16, 32, 64, 128, 256, 512, 2]
    whole = chain.walk(md, data)
    assert whole.payload == b"body"
    assert whole.body == (546, 819, b"MQSTR   ")


def test_a_value_that_does_not_fit_its_type():
    with pytest.raises(MQError) as refused:
        new("x", Typed("i1", 300))
    assert refused.value.reason == 2473


def test_properties_are_merged_into_the_header_that_is_there():
    own = "<mine ><a>1</a></mine>"
    header = rfh2.build([own, rfh2.folder("usr", {"a": 1, "b": 2})], format_name=b"MQSTR   ", order=">")
    md = mqmd.build(format="MQHRF2", encoding=273, coded_char_set_id=819)
    md2, data = with_properties(md, header + b"body", [new("b", "new"), new("c", 3), new("mqext.d", 4)])
    assert md2 == md
    texts = rfh2.parse(data, order=">").texts()
    expected = "<usr><a dt='i4'>1</a><b>new</b><c dt='i4'>3</c></usr>", "<mqext><d dt='i4'>4</d></mqext>"
    assert texts == (own, *expected)
    assert chain.walk(md2, data).payload == b"body"


def test_what_cannot_be_reached_is_kept():
    odd = "<usr><g><deep>1</deep></g><null>2</null><ok>3</ok></usr>"
    md, data = mqmd.build(format="MQHRF2"), rfh2.build([odd])
    assert [each.name for each in properties_of(md, data)] == ["ok"]
    _, data = with_properties(md, data, [new("more", 1)])
    assert rfh2.parse(data).texts() == (odd.replace("</usr>", "<more dt='i4'>1</more></usr>"),)


def test_folders_that_are_no_properties_are_not_read():
    md = mqmd.build(format="MQHRF2")
    data = rfh2.build(["<mine><a>1</a></mine>", "<other content='properties'><b>2</b></other>"])
    assert [each.name for each in properties_of(md, data)] == ["other.b"]


def test_the_first_of_a_repeated_name_counts():
    md = mqmd.build(format="MQHRF2")
    assert properties_of(md, rfh2.build(["<usr><a>1</a><a>2</a></usr>"])) == [Property("a", "1")]


def test_broken_folders_have_their_reason():
    with pytest.raises(MQError) as refused:
        properties_of(mqmd.build(format="MQHRF2"), rfh2.build(["<usr><a></usr>"]))
    assert refused.value.reason == constants.MQRC_RFH_FORMAT_ERROR


def test_too_many_bytes_of_properties():
    with pytest.raises(MQError) as refused:
        with_properties(MD, b"", [new("a", "x" * 100)], maximum=100)
    assert refused.value.reason == 2478


def test_a_group_is_not_a_property():
    md, data = with_properties(MD, b"", [new("mq_usr.a", 1)])
    with pytest.raises(MQError, match="is a property, not a group"):
        with_properties(md, data, [new("mq_usr.a.b", 1)])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Priority", 4),
        ("ReplyToQ", "Q"),
        ("MsgId", b"i" * 24),
        ("GroupId", b"g" * 24),
        ("MsgSeqNumber", 9),
        ("Format", "X"),
    ],
)
def test_descriptor_fields_as_properties(name, value):
    md = properties.with_descriptor_property(MD, f"Root.MQMD.{name}", value)
    found = properties.descriptor_property(md, f"Root.MQMD.{name}")
    assert found.value == value
    assert found.dt == {int: "i4", str: "string", bytes: "bin.hex"}[type(value)]


@pytest.mark.parametrize("name", ["Root.MQMD.Version", "Root.MQMD.StrucId", "Root.MQMD.Nothing", "Priority"])
def test_what_is_no_field(name):
    with pytest.raises(MQError) as refused:
        properties.descriptor_property(MD, name)
    assert refused.value.reason == 2471


def test_a_field_of_another_type():
    with pytest.raises(MQError) as refused:
        properties.with_descriptor_property(MD, "Root.MQMD.Priority", None)
    assert refused.value.reason == 2473


NONE, ALL, FORCE, COMPAT = constants.MQPROP_NONE, constants.MQPROP_ALL, constants.MQPROP_FORCE_MQRFH2, 0
IN_HANDLE, NO, FORCE_RFH2, COMPATIBILITY = 0x8000000, 0x4000000, 0x2000000, 0x10000000
USR = with_properties(MD, b"body", [new("a", 1), new("mqtt.b", 2)])
MQTT = with_properties(MD, b"body", [new("mqtt.b", 2)])
PLAIN = (MD, b"body")


@pytest.mark.parametrize("message", [USR, MQTT], ids=["usr", "mqtt"])
@pytest.mark.parametrize(
    ("queue", "options", "handle", "usr", "mqtt"),
    [
        (ALL, IN_HANDLE, True, "handle", "handle"), (FORCE, IN_HANDLE, True, "handle", "handle"),
        (ALL, NO, False, "nothing", "nothing"), (ALL, NO, True, "nothing", "nothing"),
        (NONE, FORCE_RFH2, False, "rfh2", "rfh2"), (NONE, FORCE_RFH2, True, "rfh2", "rfh2"),
        (ALL, COMPATIBILITY, False, "rfh2", "nothing"), (COMPAT, 0, False, "rfh2", "nothing"),
        (ALL, 0, False, "rfh2", "rfh2"), (FORCE, 0, False, "rfh2", "rfh2"), (NONE, 0, False, "nothing", "nothing"),
        (ALL, 0, True, "handle", "handle"), (NONE, 0, True, "handle", "handle"), (COMPAT, 0, True, "handle", "handle"),
        (FORCE, 0, True, "rfh2", "rfh2"),
    ],
)  # fmt: skip
def test_what_a_getter_sees(message, queue, options, handle, usr, mqtt):
    expected = usr if message is USR else mqtt
    seen = propctl.as_got(*message, propctl=queue, options=options | constants.MQGMO_WAIT, handle=handle)
    assert (seen.md, seen.data) == (message if expected == "rfh2" else PLAIN)
    assert seen.properties == (properties_of(*message) if expected == "handle" else [])


def test_a_message_without_properties_is_left_alone():
    for message in (PLAIN, (mqmd.build(format="MQHRF2"), rfh2.build(["<mine><a>1</a></mine>"]) + b"x")):
        assert propctl.as_got(*message, options=NO)[:2] == message


def test_mixed_headers_keep_what_is_no_property():
    own = "<mine><a>1</a></mine>"
    data = rfh2.build([own, "<usr><b>2</b></usr>"], format_name=b"MQSTR   ") + b"body"
    md = mqmd.build(format="MQHRF2")
    expected = rfh2.build([own], format_name=b"MQSTR   ") + b"body"
    assert propctl.without_properties(md, data) == (md, expected)


def test_headers_in_series():
    first = rfh2.build(["<mine><a>1</a></mine>"], format_name=b"MQHRF2  ", coded_char_set_id=819)
    second = rfh2.build(["<usr><b>2</b></usr>"], format_name=b"MQSTR   ", encoding=273, coded_char_set_id=37)
    md = mqmd.build(format="MQHRF2")
    assert [each.name for each in properties_of(md, first + second)] == ["b"]
    left = propctl.without_properties(md, first + second + b"body")
    assert chain.walk(*left).body == (273, 37, b"MQSTR   ")
    assert len(left[1]) == len(first) + 4


def test_version_6_sees_the_properties_as_data():
    assert propctl.for_version_6(*USR) == USR
    assert propctl.for_version_6(*MQTT) == PLAIN
    assert propctl.for_version_6(*MQTT, propctl=ALL) == MQTT
    assert propctl.for_version_6(*USR, propctl=NONE) == PLAIN


def test_folders_nobody_can_read_are_delivered_as_data():
    broken = mqmd.build(format="MQHRF2"), rfh2.build(["<usr><a></usr>"]) + b"body"
    for options in (NO, IN_HANDLE, 0):
        assert propctl.as_got(*broken, options=options, handle=True) == (*broken, [])


@pytest.mark.parametrize("ccsid", [1208, 1200])
@pytest.mark.parametrize(
    ("text", "seen"), [("<usr><a>1</a></usr>", True), ("<usr></usr>", False), ("<mqtt><a>1</a></mqtt>", False)]
)
def test_compatible_folders_have_a_property(text, seen, ccsid):
    assert propctl.is_compatible(mqmd.build(format="MQHRF2"), rfh2.build([text], name_value_ccsid=ccsid)) is seen


@pytest.mark.parametrize(("into", "names"), [("reply", "ab"), ("report", "bc"), ("forward", "bcd"), ("publish", "bd")])
def test_copy_options(into, names):
    found = [
        new("a", 1, copy=8),
        new("b", 1, copy=1),
        new("c", 1, copy=2 | 16),
        new("d", 1, copy=2 | 4),
        new("e", 1, copy=0),
    ]
    assert "".join(each.name for each in properties.copied(found, into)) == names
