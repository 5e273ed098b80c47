"""Chains of headers: what is found, what is refused, what people are shown."""

import json

import mq_builders
import pytest

from gateway.errors import HeaderError
from gateway.mq import constants, layout, mqmd
from gateway.mq.headers import chain, dlh, mde, rfh2, xqh
from gateway.mq.headers.rfh2_folder import Typed

USR = rfh2.folder(
    "usr", {"site": "lima & <co>", "line": 7, "raw": b"\1\2", "on": True, "x": Typed("r4", 1.5), "no": None}
)


def _message():
    original = mqmd.build(
        format="MQHRF2", coded_char_set_id=1208, group_id=b"g" * 24, msg_flags=8, reply_to_q="REPLIES"
    )
    data = rfh2.build([rfh2.folder("mcd", {"Msd": "jms_text"}), USR], format_name=b"MQSTR   ") + b"hola"
    return original, data


def test_dead_letter_transmission_extension_folders():
    original, data = _message()
    xmit = mqmd.build(format="MQXMIT", coded_char_set_id=1208)
    dead = dlh.build(2053, "Q", "QM", xmit, put_date="20260102", put_time="03040506")
    whole = dead + xqh.build("REMOTE.Q", "QM2", original) + data
    found = chain.walk(mqmd.with_format(xmit, dlh.FORMAT), whole)
    assert [header.name for header in found] == ["MQDLH", "MQXQH", "MQMDE", "MQRFH2"]
    assert [header.offset for header in found] == [0, 172, 600, 672]
    assert found.payload == b"hola"
    assert found.body == (546, 1208, b"MQSTR   ")
    assert b"".join(header.raw for header in found) + found.payload == whole


def test_unwrap_gives_back_the_original():
    original, data = _message()
    wrapped = xqh.build("REMOTE.Q", "QM2", original) + data
    header, md, at = mq_builders.unwrap_xqh(wrapped)
    assert (header.remote_q_name, header.remote_q_mgr_name) == ("REMOTE.Q", "QM2")
    assert md == original
    assert wrapped[at:] == data


def test_no_extension_when_version_1_says_it_all():
    assert len(xqh.build("Q", "M", mqmd.build())) == 428
    assert not mde.is_needed(mqmd.build())


@pytest.mark.parametrize("order", ["<", ">"])
def test_big_endian_ebcdic_chain(order):
    encoding = 546 if order == "<" else 273
    values = {"DestQName": "ZIEL", "Format": "MQSTR", "Encoding": 273, "CodedCharSetId": 500}
    raw = layout.pack("MQDLH", values, order=order, charset="cp500")
    md = mqmd.build(format="MQDEAD", encoding=encoding, coded_char_set_id=500)
    found = chain.walk(md, raw + "äöü".encode("cp500"))
    assert found.headers[0].text("DestQName") == "ZIEL"
    assert found.body == (273, 500, b"MQSTR   ")
    assert chain.describe(md, found.data)["body"]["text"] == "äöü"


def test_wrong_encoding_says_so():
    md = mqmd.build(format="MQDEAD", encoding=273, coded_char_set_id=1208)
    with pytest.raises(HeaderError, match=r"MQDLH.Version at offset 4.*Encoding before it is wrong"):
        chain.walk(md, dlh.build(1, "Q", "M", md))


def test_wrong_format_says_so():
    with pytest.raises(HeaderError, match=r"MQXQH.StrucId at offset 0.*promises a MQXQH"):
        chain.walk(mqmd.build(format="MQXMIT"), bytes(500))


def test_headers_of_a_newer_version_are_kept():
    raw = layout.pack("MQCIH", {"StrucLength": 200}, version=2) + b"new part of twenty b"
    raw = raw[:4] + b"\3\0\0\0" + raw[8:]
    found = chain.walk(mqmd.build(format="MQCICS", coded_char_set_id=1208), raw + b"body")
    assert found.headers[0].tail == b"new part of twenty b"
    assert found.payload == b"body"
    assert "newer" in chain.describe(mqmd.build(format="MQCICS"), raw)["headers"][0]["note"]


def test_described_message_is_json_in_words():
    original, data = _message()
    original = mqmd.patch(original, report=constants.MQRO_COA, persistence=1)
    words = json.loads(json.dumps(chain.describe(original, data)))
    assert words["descriptor"]["Persistence"] == "MQPER_PERSISTENT (1)"
    assert "MQRO_COA" in words["descriptor"]["Report"]
    folders = words["headers"][0]["folders"]
    assert folders[0] == {"folder": "mcd", "elements": [{"name": "Msd", "value": "jms_text"}]}
    assert folders[1]["elements"][:3] == [
        {"name": "site", "value": "lima & <co>"},
        {"name": "line", "type": "i4", "value": 7},
        {"name": "raw", "type": "bin.hex", "value": "0102"},
    ]
    assert words["body"]["text"] == "hola"


def test_a_damaged_chain_is_described_as_far_as_it_goes():
    original, data = _message()
    words = chain.describe(original, data[:60])
    assert words["headers"] == []
    assert "MQRFH2.StrucLength" in words["problem"]
    assert words["body"]["length"] == 60


def test_an_endless_chain_is_refused():
    one = rfh2.build([], format_name=b"MQHRF2  ")
    with pytest.raises(HeaderError, match="more than 64 headers"):
        chain.walk(mqmd.build(format="MQHRF2"), one * 70)


def test_names_of_reasons():
    assert constants.name_of_reason(2053) == "MQRC_Q_FULL"
    assert constants.name_of_reason(9999) == "MQRC 9999"
    assert constants.name_of("MQMT_", 8) == "MQMT_DATAGRAM"
