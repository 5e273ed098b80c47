"""MQGMO_CONVERT: bytes before and after, reason codes, and conversion there and back for every header."""

import mq_builders
import pytest

from gateway.mq import layout, mqmd, pcf, situations
from gateway.mq.conversion import convert
from gateway.mq.headers import chain, dh, dlh, header, rfh2, rmh
from gateway.mq.headers.header import FORMAT_OF_STRUCTURE
from gateway.mq.situations import Putter

PUTTER = Putter("u", "QM", 7, "20260102", "03040506")


def _md(form, encoding=546, ccsid=1208, **more):
    return mqmd.build(format=form, encoding=encoding, coded_char_set_id=ccsid, **more)


def test_a_string():
    made = convert(_md("MQSTR", msg_id=b"m" * 24), "größe".encode(), encoding=785, ccsid=500)
    assert made == (_md("MQSTR", 785, 500, msg_id=b"m" * 24), "größe".encode("cp500"), 0, "", 0)


def test_the_queue_managers_own_character_set():
    assert convert(_md("MQSTR", ccsid=0), b"abc", ccsid=37, default_ccsid=819).data == "abc".encode("cp037")
    assert convert(_md("MQSTR", ccsid=37), "abc".encode("cp037"), default_ccsid=819).data == b"abc"


@pytest.mark.parametrize(("form", "data"), [("MQSTR", b""), ("MQSTR", b"abc"), ("", b"abc")])
def test_nothing_to_convert(form, data):
    assert convert(_md(form), data, encoding=546, ccsid=1208) == (_md(form), data, 0, "", 0)


@pytest.mark.parametrize(
    ("md", "data", "wanted", "reason"),
    [
        (_md(""), b"abc", 37, 2110), (_md("MYFORMAT"), b"abc", 37, 2110), (_md("MQSTR", ccsid=60000), b"abc", 37, 2111),
        (_md("MQSTR"), b"abc", 60000, 2115), (_md("MQSTR"), b"a\xff", 37, 2119), (_md("MQDEAD"), b"abc", 37, 2110),
        (_md("MQDEAD"), dlh.build(1, "Q", "M", _md("")), 1200, 2115),
        (_md("MQDEAD", ccsid=1200), dlh.build(1, "Q", "M", _md("")), 1208, 2111),
        (_md("MQIMSVS"), b"\0\x09\0\0ab", 37, 2110),
    ],
)  # fmt: skip
def test_warnings_leave_the_message_as_it_is(md, data, wanted, reason):
    made = convert(md, data, ccsid=wanted)
    assert (made.md, made.data, made.reason) == (md, data, reason)
    assert made.text


def test_too_big_after_conversion():
    made = convert(_md("MQSTR", ccsid=819), "größe".encode("latin-1"), ccsid=1208, max_length=6)
    assert (made.data, made.reason) == ("größe".encode("latin-1"), 2120)
    assert convert(_md("MQSTR", ccsid=819), "größe".encode("latin-1"), ccsid=1208, max_length=7).reason == 0


def test_a_name_too_long_after_conversion():
    data = header.build("MQDLH", {"DestQName": "ß" * 48, "Format": "MQSTR", "CodedCharSetId": 819}, charset="latin-1")
    made = convert(_md("MQDEAD", ccsid=819), data + b"x", ccsid=1208)
    assert (made.data, made.reason) == (data + b"x", 2190)


def test_substitution_is_counted():
    assert convert(_md("MQSTR"), "1 €, 2 €".encode(), ccsid=819).substituted == 2


def _everything(encoding, ccsid, order, codec):
    """Returns every header in one chain, in one encoding and character set."""
    said = {"Encoding": encoding, "CodedCharSetId": ccsid}
    described = {"encoding": encoding, "coded_char_set_id": ccsid}
    build = lambda name, form, tail=b"", **more: header.build(  # noqa: E731
        name, {**said, "Format": form, **more}, order=order, charset=codec, tail=tail
    )
    text = lambda name: name.encode(codec)  # noqa: E731
    parameters = [pcf.integer(1, 2), pcf.strings(3, ["a", "bc"], ccsid=ccsid), pcf.group(4, [pcf.integers64(5, [6])])]
    cfh = layout.pack("MQCFH", {"Type": 7, "ParameterCount": 3}, order=order)
    objects = dh.build(
        [dh.Destination("A", "B", feedback=7)], format_name=b"x", put_msg_rec_fields=31, order=order, **described
    )
    records = text("A".ljust(48) + "B".ljust(48)) + objects[144:]
    embedded = layout.pack(
        "MQMD", {**said, "Format": "MQHMDE", "ReplyToQ": "R", "Expiry": 7}, version=1, order=order, charset=codec
    )
    names = rmh.Names(text("env"), text("näme"), b"", text("x"))
    parts = [
        build("MQDLH", "MQXMIT", Reason=2053, DestQName="Q", PutDate="20260102"),
        header.build("MQXQH", {"RemoteQName": "RQ", "MsgDesc": embedded}, order=order, charset=codec),
        build("MQMDE", "MQHDIST", GroupId=b"\1" * 24, MsgSeqNumber=3),
        build("MQDH", "MQCICS", records, PutMsgRecFields=31, RecsPresent=1, ObjectRecOffset=48, PutMsgRecOffset=144),
        build("MQCIH", "MQIMS", Facility=b"\2" * 8, Function="ABCD", OutputDataLength=9),
        build("MQIIH", "MQHWIH", TranState="A"),
        build("MQWIH", "MQHREF", ServiceName="S", MsgToken=b"\3" * 16),
        mq_builders.rmh(
            names, {**said, "Format": "MQHEPCF", "ObjectInstanceId": b"\4" * 24}, order=order, charset=codec
        ),
        build("MQEPH", "MQHRF", b"".join(pcf.build_parameter(each, order=order) for each in parameters), PCFHeader=cfh),
        mq_builders.rfh([("n", "ä b")], format_name=b"MQHRF2", order=order, codec=codec, **described),
        rfh2.build(
            [rfh2.folder("usr", {"ñ": "€"})], name_value_ccsid=1200, format_name=b"MQSTR", order=order, **described
        ),
    ]
    parts[-1] = text("RFH ") + parts[-1][4:20] + text("MQSTR   ") + parts[-1][28:]
    return _md("MQDEAD", encoding, ccsid), b"".join(parts) + text("body: äöü")


@pytest.mark.parametrize("target", [(546, 819), (785, 500), (273, 37), (0x112, 1140), (0x221, 858)])
@pytest.mark.parametrize("source", [(546, 819), (785, 1047), (0x222, 273)])
def test_every_header_there_and_back(source, target):
    codecs = {
        37: "cp037",
        273: "ebcdic_273",
        500: "cp500",
        819: "iso8859-1",
        858: "cp858",
        1047: "ebcdic_1047",
        1140: "cp1140",
    }
    form = lambda pair: (*pair, ">" if pair[0] & 15 == 1 else "<", codecs[pair[1]])  # noqa: E731
    md, data = _everything(*form(source))
    made = convert(md, data, encoding=target[0], ccsid=target[1])
    assert (made.reason, made.text, made.substituted) == (0, "", 0)
    assert (made.md, made.data) == _everything(*form(target))
    assert len(chain.walk(made.md, made.data).headers) == 11
    back = convert(made.md, made.data, encoding=source[0], ccsid=source[1])
    assert (back.md, back.data) == (md, data)


def test_pcf_message():
    message = pcf.Message(
        2, 13, [pcf.string(2016, "größe", ccsid=0), pcf.string(2017, "ö", ccsid=819), pcf.byte_string(1, b"\1")]
    )
    raw = pcf.build(message)
    made = convert(_md("MQADMIN"), pcf.build(message), encoding=273, ccsid=500)
    assert chain.described_by(made.md) == (273, 500, b"MQADMIN ")
    found = pcf.parse(made.data, order=">").parameters
    assert [each.ccsid for each in found] == [0, 500, 0]
    assert [found[0].text(500), found[1].text()] == ["größe", "ö"]
    assert raw != made.data


def test_trigger_message():
    data = layout.pack("MQTM", {"QName": "Q", "ApplType": 6})
    made = convert(_md("MQTRIG"), data, encoding=273, ccsid=37)
    assert made.data == layout.pack("MQTM", {"QName": "Q", "ApplType": 6}, order=">", charset="cp037")


def test_ims_segments():
    made = convert(_md("MQIMSVS", 273, 37), b"\0\x06\0\0\x81\x82\0\x05\0\0\x83", encoding=546, ccsid=1208)
    assert made.data == b"\x06\0\0\0ab\x05\0\0\0c"


def test_binary_data_behind_headers_passes():
    data = rfh2.build([rfh2.folder("usr", {"a": 1})], format_name=b"        ") + b"\xff\x00"
    made = convert(_md("MQHRF2"), data, encoding=273, ccsid=819)
    assert made.reason == 0
    walked = chain.walk(made.md, made.data)
    assert walked.payload == b"\xff\x00"
    assert walked.body == (546, 1208, b"        ")


def test_a_user_format_behind_headers_stays_and_is_described():
    md, data = _md("MYFMT", 546, 850), b"\x84"
    dead = situations.to_dead_letter(md, data, 2053, "Q", "M", putter=PUTTER)
    made = convert(dead.md, dead.data, encoding=785, ccsid=500)
    assert made.reason == 2110
    walked = chain.walk(made.md, made.data)
    assert chain.described_by(made.md) == (785, 500, b"MQDEAD  ")
    assert (walked.body, walked.payload) == ((546, 850, b"MYFMT   "), b"\x84")


def test_a_header_that_cannot_be_converted_stays_with_what_follows():
    inner = rfh2.build([rfh2.folder("usr", {"a": 1})], format_name=b"MQSTR   ")
    inner = inner[:32] + b"\x25\0\0\0" + inner[36:] + b"text"
    dead = situations.to_dead_letter(_md("MQHRF2"), inner, 2053, "Q", "M", putter=PUTTER)
    made = convert(dead.md, dead.data, encoding=785, ccsid=500)
    assert made.reason == 2111
    walked = chain.walk(made.md, made.data)
    assert [each.order for each in walked] == [">", "<"]
    assert made.data.endswith(inner)


def test_an_inherited_character_set_stays_inherited():
    data = rfh2.build([], format_name=b"MQSTR   ", coded_char_set_id=-2) + b"abc"
    made = convert(_md("MQHRF2"), data, ccsid=37)
    assert rfh2.parse(made.data).coded_char_set_id == -2
    assert made.data.endswith("abc".encode("cp037"))


def test_what_is_longer_than_known_is_not_guessed():
    data = header.build("MQCIH", {}, tail=b"more")
    assert convert(_md("MQCICS"), data, encoding=273, ccsid=37).reason == 2119


def test_every_format_is_convertible_or_reported():
    for name, form in FORMAT_OF_STRUCTURE.items():
        made = convert(mqmd.build(format=form, coded_char_set_id=1208), b"", ccsid=37)
        assert made.reason == 0, name


def test_headers_alone():
    data = rfh2.build([rfh2.folder("usr", {"a": 1})], format_name=b"MQSTR   ") + b"text"
    made = convert(_md("MQHRF2"), data, encoding=273, ccsid=37, headers_only=True)
    walked = chain.walk(made.md, made.data)
    assert (made.reason, walked.payload, walked.body) == (0, b"text", (546, 1208, b"MQSTR   "))
    assert walked.headers[0].order == ">"
