"""Chains whose headers and payload are each in a character set and encoding of their own: PROPCTL, MQMDE, conversion.

The oracle is the same everywhere: the payload is untouched, or the same text, and every header describes what follows.
"""

from __future__ import annotations

import struct

from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.mq import conversion, mqmd, propctl, properties, situations
from gateway.mq.character_sets.ccsid import codec_of
from gateway.mq.headers import chain, rfh2
from gateway.mq.headers.header import FORMAT_OF_STRUCTURE, INHERIT, build
from gateway.mq.situations import Putter

QMGR = Putter("mqm", "QM1", 7, "20260102", "03040506")
ENCODINGS = st.sampled_from([546, 273, 785, 530, 289])
"""Integers of both orders, with decimals and floating point of either kind."""
HEADERS_IN = [
    37, 273, 277, 278, 280, 284, 285, 297, 424, 500, 871, 924, 1026, 1047, *range(1140, 1150), 437, 819, 850, 858, 923,
    932, 936, 943, 949, 950, 970, 1051, 1208, 1250, 1252, 1386, 5488,
]  # fmt: skip
CCSIDS = st.sampled_from(HEADERS_IN)
TEXT_IN = st.sampled_from([*HEADERS_IN, 1200, 1201, 1202, 13488, 17584])
WORDS = st.text("abcXYZ 019,.=", max_size=30)
FOLDERS = [
    "<usr><a>1</a><n dt='i4'>7</n></usr>", "<mcd><Msd>jms_text</Msd></mcd>", "<mqps><Top>a/b</Top></mqps>",
    "<own><x>y</x></own>", "<o2 content='properties'><z>é€</z></o2>", "<other><z/></other>",
]  # fmt: skip
NAMES = ["MQRFH2", "MQRFH2", "MQRFH2", "MQDLH", "MQWIH", "MQMDE", "MQRFH", "MQCIH", "MQIIH", "MQRMH"]
STRING, NONE, IMS = b"MQSTR   ", b" " * 8, b"MQIMSVS "
GROUP = bytes(range(24))


def order_of(encoding):
    return ">" if encoding & 15 == 1 else "<"


@st.composite
def payloads(draw):
    """Format, encoding, character set and bytes; text that can be read again, or bytes that must stay."""
    encoding, kind = draw(ENCODINGS), draw(st.sampled_from([STRING, STRING, NONE, IMS]))
    if kind == NONE:
        return kind, encoding, draw(CCSIDS), draw(st.binary(max_size=40))
    words, ccsid = draw(st.lists(WORDS, min_size=1, max_size=3)), draw(TEXT_IN if kind == STRING else CCSIDS)
    codec = codec_of(ccsid, encoding)
    if kind == STRING:
        return kind, encoding, ccsid, words[0].encode(codec)
    parts = [word.encode(codec) for word in words]
    number = struct.Struct(order_of(encoding) + "h")
    return kind, encoding, ccsid, b"".join(number.pack(len(part) + 4) + b"\1\2" + part for part in parts)


def in_front(md, data, name, encoding, ccsid, folders, inherits):
    """The message with a header before it, in this encoding and character set."""
    follows, order, codec = chain.described_by(md), order_of(encoding), codec_of(ccsid)
    said = INHERIT if inherits and follows.ccsid == ccsid and name != "MQDLH" else follows.ccsid
    described = {"Encoding": follows.encoding, "CodedCharSetId": said, "Format": follows.format.decode()}
    tail = b""
    if name == "MQRFH2":
        raw = rfh2.build(folders, order=order, encoding=follows.encoding, coded_char_set_id=said)
        raw = "RFH ".encode(codec) + raw[4:20] + follows.format.decode().encode(codec) + raw[28:]
        return mqmd.with_described(md, encoding, ccsid, FORMAT_OF_STRUCTURE[name]), raw + data
    if name == "MQRFH":
        tail = "name 'a value' x 1".ljust(20).encode(codec)
    if name == "MQMDE":
        described |= {"GroupId": GROUP, "MsgSeqNumber": 3, "MsgFlags": 8}
    raw = build(name, described, tail=tail, order=order, charset=codec)
    return mqmd.with_described(md, encoding, ccsid, FORMAT_OF_STRUCTURE[name]), raw + data


@st.composite
def messages(draw, *, least=0):
    form, encoding, ccsid, data = draw(payloads())
    md = mqmd.with_described(mqmd.build(persistence=1, reply_to_q="R"), encoding, ccsid, form)
    count = draw(st.integers(least, 4))
    for _ in range(count):
        folders = draw(st.lists(st.sampled_from(FOLDERS), max_size=3, unique=True))
        header = draw(st.sampled_from(NAMES)), draw(ENCODINGS), draw(CCSIDS), folders, draw(st.booleans())
        md, data = in_front(md, data, *header)
    return md, data


def told(walked):
    """The payload as its reader has it: words, or bytes."""
    form, raw = walked.body.format, walked.payload
    if form == NONE:
        return raw
    codec = codec_of(walked.body.ccsid, walked.body.encoding)
    if form == STRING:
        return raw.decode(codec)
    found, number, at = [], struct.Struct(order_of(walked.body.encoding) + "h"), 0
    while at < len(raw):
        [length] = number.unpack_from(raw, at)
        found.append((raw[at + 2 : at + 4], raw[at + 4 : at + length].decode(codec)))
        at += length
    return found


def names(walked, *, without=""):
    return [one.name for one in walked if one.name != without]


@given(messages())
def test_a_message_says_what_it_is(message):
    told(chain.walk(*message))


@given(
    messages(), st.sampled_from([0, 1, 2, 3]), st.sampled_from([0, 0x2000000, 0x4000000, 0x8000000, 0x10000000]),
    st.booleans(),
)  # fmt: skip
def test_as_a_getter_gets_it(message, control, option, handle):
    """Every PROPCTL with every option of MQGET: properties come and go, nothing else does."""
    assume(handle or option != 0x8000000)
    before = chain.walk(*message)
    seen = propctl.as_got(*message, propctl=control, options=option, handle=handle)
    after = chain.walk(seen.md, seen.data)
    assert (after.payload, after.body) == (before.payload, before.body)
    assert names(after, without="MQRFH2") == names(before, without="MQRFH2")
    if seen.data == message[1]:
        assert seen.md == message[0]
    if seen.properties:
        assert seen.properties == properties.properties_of(*message)
        assert properties.properties_of(seen.md, seen.data) == []


@given(messages())
def test_properties_taken_off_and_put_on_again(message):
    held = properties.properties_of(*message)
    bare = propctl.without_properties(*message)
    assert properties.properties_of(*bare) == []
    again = chain.walk(*properties.with_properties(*bare, held))
    before = chain.walk(*message)
    assert (again.payload, again.body) == (before.payload, before.body)
    found = {one.name: one.value for one in properties.properties_of(*properties.with_properties(*bare, held))}
    assert found == {one.name: one.value for one in held}


@given(messages())
def test_another_property(message):
    before = chain.walk(*message)
    md, data = properties.with_properties(*message, [properties.new("added", 7)])
    after = chain.walk(md, data)
    assert (after.payload, after.body) == (before.payload, before.body)
    assert names(after, without="MQRFH2") == names(before, without="MQRFH2")
    assert "added" in {one.name for one in properties.properties_of(md, data)}


@given(messages(), ENCODINGS, CCSIDS, st.booleans())
def test_an_extension_becomes_part_of_the_descriptor(message, encoding, ccsid, inherits):
    """As messages arrive: what the MQMDE described the descriptor describes, a character set that was inherited too."""
    md, data = in_front(*message, "MQMDE", encoding, ccsid, [], inherits)
    before = chain.walk(*message)
    merged, rest = situations.absorb_extension(md, data, arrived=True)
    after = chain.walk(merged, rest)
    assert rest == message[1]
    assert names(after) == names(before)
    assert (after.payload, after.body) == (before.payload, before.body)
    found = mqmd.unpack(merged)
    assert (found.group_id, found.msg_seq_number, found.msg_flags) == (GROUP, 3, 8)
    assert found.coded_char_set_id > 0


@given(messages(), st.booleans())
def test_through_a_transmission_queue(message, grouped):
    md = mqmd.patch(message[0], group_id=GROUP, msg_flags=8) if grouped else message[0]
    assume(grouped or not (message[1][:4] == b"MDE " and mqmd.number(md, mqmd.AT_ENCODING) & 15 == 2))
    sent = situations.to_transmission(md, message[1], "Q", "QM2", msg_id=b"n" * 24, putter=QMGR)
    whole, before = chain.walk(*sent), chain.walk(md, message[1])
    assert names(whole) == ["MQXQH", *(["MQMDE"] if grouped else []), *names(before)]
    assert (whole.payload, whole.body) == (before.payload, before.body)
    arrived = situations.from_transmission(*sent)
    after = chain.walk(arrived.md, arrived.data)
    assert (after.payload, after.body) == (before.payload, before.body)


@given(messages(), ENCODINGS, TEXT_IN)
def test_converted(message, encoding, ccsid):
    """Whatever the reason is, the message says what it is."""
    made = conversion.convert(*message, encoding=encoding, ccsid=ccsid)
    before, after = chain.walk(*message), chain.walk(made.md, made.data)
    assert names(after) == names(before)
    assert told(after) == told(before)
    if before.body.format == NONE:
        assert after.body == before.body
    same = chain.described_by(message[0])[:2] == (encoding, ccsid)
    if not made.reason and not same and before.body.format != NONE and message[1] and before.payload:
        assert after.body[:2] == (encoding, ccsid)
    assert made.substituted == 0


@given(messages(), ENCODINGS, CCSIDS, ENCODINGS, CCSIDS)
def test_converted_twice(message, first_encoding, first_ccsid, encoding, ccsid):
    """By a channel and by a getter: the same as at once."""
    once = conversion.convert(*message, encoding=first_encoding, ccsid=first_ccsid)
    made = conversion.convert(once.md, once.data, encoding=encoding, ccsid=ccsid)
    after = chain.walk(made.md, made.data)
    assert told(after) == told(chain.walk(*message))
    assert names(after) == names(chain.walk(*message))


@given(messages(least=1), st.binary(min_size=1, max_size=6), st.integers(0, 400), ENCODINGS, CCSIDS)
def test_damaged_anywhere_it_is_converted_or_a_reason_is_given(message, damage, at, encoding, ccsid):
    md, data = message
    at %= len(data)
    hurt = data[:at] + damage + data[at + len(damage) :]
    made = conversion.convert(md, hurt, encoding=encoding, ccsid=ccsid)
    assert made.reason in {0, 2110, 2111, 2115, 2119, 2120, 2190}
    propctl.as_got(md, hurt)
    situations.absorb_extension(md, hurt, arrived=True)
