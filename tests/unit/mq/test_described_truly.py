"""What is left of a message when headers are removed, added or merged describes itself correctly: byte order, character
set, format."""

from __future__ import annotations

import struct

import pytest

from gateway.errors import HeaderError, MQError
from gateway.mq import conversion, mqmd, pcf, propctl, properties, situations
from gateway.mq.headers import chain, mde, rfh2, xqh
from gateway.mq.headers.header import build as build_header

PAYLOAD = b"payload"
STRING = b"MQSTR   "


def message(*headers, last=STRING, payload=PAYLOAD, ccsid=1208, encoding=546):
    """Returns a descriptor that announces an MQRFH2, and the headers with the payload."""
    return mqmd.with_described(mqmd.DEFAULT, encoding, ccsid, rfh2.FORMAT), b"".join(headers) + payload


def header(folder, follows=STRING, *, order="<", ccsid=1208, encoding=546):
    return rfh2.build([folder], order=order, format_name=follows, coded_char_set_id=ccsid, encoding=encoding)


def in_ebcdic(raw):
    """Returns an MQRFH2 whose characters are those of CCSID 500."""
    return b"RFH ".decode().encode("cp500") + raw[4:20] + raw[20:28].decode().encode("cp500") + raw[28:]


USR = "<usr><a>1</a></usr>"
OWN = "<own><a>1</a></own>"
"""No folder of properties."""


# -- the descriptor inside an MQXQH --


@pytest.mark.parametrize("inside", [b"MX  " + bytes(320), bytes(324)])
def test_other_bytes_in_the_place_of_the_embedded_descriptor_are_refused(inside):
    raw = build_header("MQXQH", {"RemoteQName": "Q", "RemoteQMgrName": "QM2", "MsgDesc": inside})
    md = mqmd.with_described(mqmd.DEFAULT, 546, 1208, xqh.FORMAT)
    with pytest.raises(HeaderError, match="holds no descriptor") as refused:
        situations.from_transmission(md, raw + PAYLOAD)
    assert (refused.value.structure, refused.value.field, refused.value.offset) == ("MQXQH", "MsgDesc.StrucId", 104)


def test_one_in_ebcdic_is_read_all_the_same():
    md, data = chain.prepend(mqmd.with_described(mqmd.DEFAULT, 785, 500, STRING), PAYLOAD, "MQXQH", {})
    arrived = situations.from_transmission(md, data)
    assert chain.described_by(arrived.md) == (785, 500, STRING)
    assert arrived.data == PAYLOAD


# -- an MQRFH2 that is removed --


def test_a_character_set_that_was_inherited_is_that_of_the_header_that_went():
    md, data = message(header(USR, ccsid=-2), ccsid=819)
    seen = propctl.without_properties(md, data)
    assert chain.described_by(seen[0]) == (546, 819, STRING)
    assert conversion.convert(*seen, ccsid=1208).reason == 0


def test_a_format_in_ebcdic_is_ascii_in_the_descriptor():
    raw = in_ebcdic(header(USR, order=">", ccsid=500, encoding=785))
    md, data = message(raw, ccsid=500, encoding=785, payload=PAYLOAD.decode().encode("cp500"))
    seen = propctl.without_properties(md, data)
    assert chain.described_by(seen[0]) == (785, 500, STRING)
    assert conversion.convert(*seen, ccsid=1208).data == PAYLOAD


def test_a_kept_header_describes_in_its_own_byte_order_what_followed_the_other():
    second = header(USR, order=">", ccsid=1208, encoding=273)
    md, data = message(header(OWN, rfh2.FORMAT, encoding=273), second)
    left = chain.walk(*propctl.without_properties(md, data))
    assert [one.name for one in left] == ["MQRFH2"]
    assert left.body == (273, 1208, STRING)
    assert left.payload == PAYLOAD


# -- which headers hold properties --


def test_a_second_header_in_ebcdic_is_read():
    second = in_ebcdic(header("<usr><b>2</b></usr>", order=">", ccsid=500, encoding=785))
    md, data = message(header(USR, rfh2.FORMAT, ccsid=500, encoding=785), second)
    assert [one.name for one in properties.properties_of(md, data)] == ["a", "b"]


def test_a_second_one_that_is_none_is_data():
    md, data = message(header(USR, rfh2.FORMAT), b"XXX " + header("<usr><b>2</b></usr>")[4:])
    assert [one.name for one in properties.properties_of(md, data)] == ["a"]


# -- an MQMDE that is merged --


def test_a_descriptor_inherits_from_nothing():
    extension = struct.pack("<4siiii8si24siiii", b"MDE ", 2, 72, 546, -2, STRING, 0, b"G" * 24, 2, 0, 8, -1)
    md = mqmd.with_described(mqmd.DEFAULT, 546, 819, mde.FORMAT)
    merged, data = situations.absorb_extension(md, extension + PAYLOAD)
    assert chain.described_by(merged) == (546, 819, STRING)
    assert merged[mqmd.GROUP_ID] == b"G" * 24
    assert data == PAYLOAD


# -- headers that are put in front --


@pytest.mark.parametrize(("ccsid", "encoding"), [(1208, 546), (500, 785), (819, 273)])
def test_an_mqxqh_in_front_holds_the_descriptor_of_what_follows(ccsid, encoding):
    md = mqmd.with_described(mqmd.build(user_identifier="ana", persistence=1), encoding, ccsid, STRING)
    put, data = chain.prepend(md, PAYLOAD, "MQXQH", {"RemoteQName": "Q", "RemoteQMgrName": "QM2"})
    walked = chain.walk(put, data)
    assert walked.body == (encoding, ccsid, STRING)
    arrived = situations.from_transmission(put, data)
    assert (arrived.remote_q_name, arrived.data) == ("Q", PAYLOAD)
    assert mqmd.text(arrived.md, mqmd.USER_IDENTIFIER) == "ana"


def test_a_descriptor_that_is_given_is_made_to_describe_what_follows():
    md, data = message(header(USR))
    inner = mqmd.version_1(mqmd.build(priority=7))
    put, added = chain.prepend(md, data, "MQXQH", {"MsgDesc": inner})
    assert [one.name for one in chain.walk(put, added)] == ["MQXQH", "MQRFH2"]
    assert situations.from_transmission(put, added).md[mqmd.FORMAT] == rfh2.FORMAT


@pytest.mark.parametrize("name", ["MQCFH", "MQTM"])
def test_nothing_can_stand_behind_these(name):
    md = mqmd.with_described(mqmd.DEFAULT, 546, 1208, STRING)
    with pytest.raises(HeaderError, match="nothing can follow"):
        chain.prepend(md, PAYLOAD, name)


@pytest.mark.parametrize(
    ("name", "values", "field"),
    [
        ("MQDLH", {"DestQName": "\u4e2d" * 10}, "DestQName"),
        ("MQDLH", {"Reason": 1 << 40}, "Reason"),
        ("MQDLH", {"DestQName": "X" * 60}, "DestQName"),
        ("MQRMH", {"DataLogicalOffset": -(1 << 40)}, "DataLogicalOffset"),
    ],
)
def test_what_does_not_fit_is_said_with_its_field(name, values, field):
    md = mqmd.with_described(mqmd.DEFAULT, 546, 819, STRING)
    with pytest.raises(HeaderError) as refused:
        chain.prepend(md, PAYLOAD, name, values)
    assert refused.value.field == field


# -- conversion ends in a reason --


def test_a_segment_that_grows_beyond_what_its_length_can_say():
    segment = (40_000).to_bytes(2, "little") + bytes(2) + b"\xe4" * 39_996
    md = mqmd.with_described(mqmd.DEFAULT, 546, 819, b"MQIMSVS ")
    made = conversion.convert(md, segment, ccsid=1208)
    assert made.reason == 2190
    assert made.data == segment


@pytest.mark.parametrize(("kind", "size"), [(4, 16), (14, 16), (14, 20), (15, 16)])
def test_a_parameter_shorter_than_its_fixed_part_is_no_parameter(kind, size):
    raw = struct.pack("<9i", 1, 36, 1, 1, 1, 1, 0, 0, 1) + struct.pack("<3i", kind, size, 2016) + bytes(size - 12)
    with pytest.raises(HeaderError, match="is less than the"):
        pcf.parse(raw)
    md = mqmd.with_described(mqmd.DEFAULT, 546, 819, b"MQADMIN ")
    made = conversion.convert(md, raw, encoding=273, ccsid=500)
    assert made.reason
    assert made.data == raw


@pytest.mark.parametrize("order", ["<", ">"])
def test_text_in_utf_16_follows_the_byte_order_of_the_message(order):
    given = pcf.Message(parameters=[pcf.string(2016, "A\u00e4", ccsid=1200), pcf.strings(3, ["x", "yz"], ccsid=1200)])
    raw = pcf.build(given, order=order)
    assert "A\u00e4".encode("utf-16-le" if order == "<" else "utf-16-be") in raw
    read = pcf.parse(raw, order=order)
    assert read.parameters[0].text() == "A\u00e4"
    assert read.parameters[1].texts() == ["x", "yz"]
    md = mqmd.with_described(mqmd.DEFAULT, 546 if order == "<" else 273, 819, b"MQADMIN ")
    other = ">" if order == "<" else "<"
    made = conversion.convert(md, raw, encoding=273 if other == ">" else 546, ccsid=819)
    assert made.reason == 0
    assert pcf.parse(made.data, order=other).parameters[0].text(819) == "A\u00e4"


def test_conversion_of_an_unknown_character_set_is_a_reason_and_no_exception():
    md = mqmd.with_described(mqmd.DEFAULT, 546, 99_999, STRING)
    made = conversion.convert(md, PAYLOAD, ccsid=500)
    assert made.reason == 2111
    with pytest.raises(MQError):
        conversion.charsets.target_codec(99_999, 546)
