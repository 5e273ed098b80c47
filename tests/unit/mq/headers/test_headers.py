"""Every header structure built, walked and described, in both byte orders and in EBCDIC; editing chains."""

import json
import tracemalloc

import mq_builders
import pytest

from gateway.errors import HeaderError
from gateway.mq import constants, layout, mqmd, pcf
from gateway.mq.headers import chain, dh, header, rfh, rfh2, rmh, xqh
from gateway.mq.headers.header import FORMAT_OF_STRUCTURE, Described

SIMPLE = ["MQCIH", "MQDLH", "MQIIH", "MQMDE", "MQWIH", "MQRFH", "MQRFH2"]
PLACES = [("<", 546, 1208, "utf-8"), (">", 273, 819, "latin-1"), (">", 785, 500, "cp500"), ("<", 0x112, 37, "cp037")]


def _md(name, encoding, ccsid):
    return mqmd.build(format=FORMAT_OF_STRUCTURE[name], encoding=encoding, coded_char_set_id=ccsid)


@pytest.mark.parametrize(("order", "encoding", "ccsid", "codec"), PLACES)
@pytest.mark.parametrize("name", SIMPLE)
def test_header_is_found_and_kept(name, order, encoding, ccsid, codec):
    values = {"Encoding": 273, "CodedCharSetId": 1208, "Format": "MQSTR"}
    raw = header.build(name, values, order=order, charset=codec)
    found = chain.walk(_md(name, encoding, ccsid), raw + b"body")
    assert [each.name for each in found] == [name]
    assert found.headers[0].raw == raw
    assert found.body == Described(273, 1208, b"MQSTR   ")
    assert found.payload == b"body"
    assert header.redescribed(found.headers[0], found.body) == raw


@pytest.mark.parametrize("version", [1, 2])
def test_cics_header_of_both_versions(version):
    raw = header.build("MQCIH", {"TransactionId": "ABCD"}, version=version)
    found = chain.walk(_md("MQCIH", 546, 1208), raw)
    assert len(raw) == {1: 164, 2: 180}[version]
    assert found.headers[0].text("TransactionId") == "ABCD"
    assert ("ErrorOffset" in found.headers[0].values) is (version == 2)


def test_version_2_that_says_it_is_as_long_as_version_1():
    raw = layout.pack("MQCIH", {"StrucLength": 164}, version=2)[:164]
    found = chain.walk(_md("MQCIH", 546, 1208), raw + b"x" * 16)
    assert found.headers[0].raw == raw
    assert found.payload == b"x" * 16


DESTINATIONS = (
    dh.Destination("Q1", "QM1", msg_id=b"1" * 24, feedback=5, accounting_token=b"t" * 32),
    dh.Destination("Q2", "", msg_id=b"2" * 24, feedback=0, accounting_token=bytes(32)),
)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("fields", [0, 1, 8, 1 | 8 | 16, 31])
def test_distribution_header(order, fields):
    raw = dh.build(
        DESTINATIONS, encoding=546, coded_char_set_id=1208, format_name=b"MQSTR", put_msg_rec_fields=fields, order=order
    )
    found = dh.parse(b"xxxx" + raw + b"data", 4, order=order)
    assert found.length == len(raw)
    assert [each[:2] for each in found.destinations] == [("Q1", "QM1"), ("Q2", "")]
    assert found.destinations[0].msg_id == (b"1" * 24 if fields & 1 else None)
    assert found.destinations[0].feedback == (5 if fields & 8 else None)
    assert found.destinations[0].group_id == (bytes(24) if fields & 4 else None)
    said = {"encoding": 546, "coded_char_set_id": 1208, "format_name": b"MQSTR"}
    assert dh.build(found.destinations, **said, put_msg_rec_fields=fields, order=order) == raw


@pytest.mark.parametrize(
    ("name", "value"), [("RecsPresent", 3), ("RecsPresent", -1), ("ObjectRecOffset", 0), ("PutMsgRecOffset", 250)]
)
def test_distribution_records_outside(name, value):
    raw = bytearray(dh.build(DESTINATIONS, encoding=546, coded_char_set_id=0, format_name=b"", put_msg_rec_fields=1))
    at = layout.STRUCTURES["MQDH"][name]
    raw[at : at + 4] = value.to_bytes(4, "little", signed=True)
    with pytest.raises(HeaderError, match="lie outside StrucLength"):
        dh.parse(bytes(raw))


@pytest.mark.parametrize(("order", "encoding", "ccsid", "codec"), PLACES)
def test_rules_and_formatting_header(order, encoding, ccsid, codec):
    pairs = (("MQPSCommand", "Publish"), ("MQPSTopic", 'a "quoted" topic'), ("Empty", ""))
    raw = mq_builders.rfh(pairs, order=order, codec=codec, format_name=b"MQHRF2")
    assert rfh.parse(raw, order=order, codec=codec).pairs == pairs
    folders = rfh2.build([rfh2.folder("psc", {"Command": "Publish"})], format_name=b"MQSTR")
    assert len(raw) % 4 == 0
    found = chain.walk(_md("MQRFH", encoding, ccsid), raw + folders + b"x")
    assert [each.name for each in found] == ["MQRFH", "MQRFH2"]


def test_a_name_without_a_value():
    with pytest.raises(HeaderError, match="has no value"):
        rfh.parse_pairs("a b c")


def test_an_error_repeats_no_more_than_the_beginning_of_a_word():
    with pytest.raises(HeaderError, match=r"'x{40}'\.\.\. \(100000 characters\) has no value") as refused:
        rfh.parse_pairs(f'"{"x" * 100_000}"')
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("value", ["x" * 500_000, '"' * 500_000, 'x"' * 250_000])
def test_a_quoted_value_costs_a_few_bytes_for_each_of_its_own(value):
    doubled = value.replace('"', '""')
    text = f'a "{doubled}"'
    tracemalloc.start()
    try:
        pairs = rfh.parse_pairs(text)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(value)
    finally:
        tracemalloc.stop()
    assert pairs == (("a", value),)


def test_the_version_tells_the_two_formatting_headers_apart():
    raw = rfh2.build([], format_name=b"MQSTR")
    assert chain.walk(mqmd.build(format="MQHRF"), raw).headers[0].name == "MQRFH2"


def test_reference_header():
    names = rmh.Names(b"SRC", b"/tmp/file", b"", b"target")
    raw = mq_builders.rmh(names, {"ObjectType": "FLATFILE", "DataLogicalLength": 10}, order=">")
    found = chain.walk(_md("MQRMH", 273, 819), raw).headers[0]
    assert rmh.parse(found.raw, found.values) == names
    assert len(raw) % 4 == 0
    found.values["SrcNameOffset"] = 500
    with pytest.raises(HeaderError, match="lie outside the header"):
        rmh.parse(found.raw, found.values)


PARAMETERS = (
    pcf.integer(1009, -5),
    pcf.integer64(1010, 1 << 40),
    pcf.string(2016, "QUEUE", size=48),
    pcf.string(2017, "größe", ccsid=819),
    pcf.integers(1002, [1, -2, 3]),
    pcf.integers64(1003, [1 << 40, -1]),
    pcf.strings(2020, ["one", "three"]),
    pcf.strings(2021, []),
    pcf.byte_string(7016, b"\1\2\3"),
    pcf.integer_filter(3, 4, 100),
    pcf.string_filter(2016, 18, "ABC*"),
    pcf.byte_string_filter(7006, 2, b"\xff" * 5),
    pcf.group(8001, [pcf.integer(1, 2), pcf.group(8002, [pcf.string(3, "deep")]), pcf.integer(4, 5)]),
)


@pytest.mark.parametrize("order", ["<", ">"])
def test_every_parameter_type(order):
    message = pcf.Message(16, 13, PARAMETERS, version=3, control=0, comp_code=2, reason=3008)
    raw = pcf.build(message, order=order)
    back = pcf.parse(raw, order=order)
    assert back._replace(parameters=()) == message._replace(parameters=())
    assert list(back.parameters) == list(PARAMETERS)
    assert pcf.build(back, order=order) == raw
    encoding = 546 if order == "<" else 273
    assert chain.walk(mqmd.build(format="MQADMIN", encoding=encoding), raw + b"tail").payload == b"tail"


def test_texts_of_parameters():
    assert PARAMETERS[2].text() == "QUEUE"
    assert PARAMETERS[3].text() == "größe"
    assert PARAMETERS[6].texts() == ["one", "three"]
    assert pcf.Message(parameters=PARAMETERS).find(1002) is PARAMETERS[4]


@pytest.mark.parametrize(
    "raw",
    [
        bytes.fromhex("99000000 14000000 01000000 00000000 ffffffff"),  # a type nobody knows
        bytes.fromhex("04000000 18000000 01000000 b8040000 01000000 41424344"),  # padding that is not NUL
        bytes.fromhex("03000000 14000000 01000000 07000000 aabbccdd"),  # longer than its type
    ],
)
def test_unusual_parameters_keep_their_bytes(raw):
    head = bytes.fromhex("01000000 24000000 03000000 00000000 01000000 01000000 00000000 00000000 01000000")
    assert pcf.build(pcf.parse(head + raw)) == head + raw


@pytest.mark.parametrize("count", [-1, 2, 1 << 30])
def test_parameters_missing(count):
    raw = bytearray(pcf.build(pcf.Message(parameters=[pcf.integer(1, 1)])))
    raw[32:36] = count.to_bytes(4, "little", signed=True)
    with pytest.raises(HeaderError):
        pcf.parse(bytes(raw))


def test_embedded_pcf():
    inner = [pcf.integer(1, 2), pcf.string(3, "x")]
    tail = b"".join(map(pcf.build_parameter, inner))
    cfh = layout.pack("MQCFH", {"Type": 7, "ParameterCount": 2, "Version": 3})
    raw = header.build("MQEPH", {"PCFHeader": cfh, "Format": "MQSTR", "Flags": 1}, tail=tail)
    found = chain.walk(_md("MQEPH", 546, 1208), raw + b"text")
    assert found.payload == b"text"
    words = chain.describe(_md("MQEPH", 546, 1208), raw)["headers"][0]
    assert words["PCFHeader"]["ParameterCount"] == 2
    assert [each["value"] for each in words["parameters"]] == [2, "x"]


def test_trigger_message():
    raw = layout.pack("MQTM", {"QName": "Q", "ApplId": "run"})
    words = chain.describe(_md("MQTM", 546, 1208), raw)
    assert words["headers"][0]["QName"] == "Q"
    assert len(layout.pack("MQTMC2", {}, version=2)) == 732


def test_variable_parts_in_words():
    raws = {
        "MQRFH": mq_builders.rfh([("a", "b c")]),
        "MQDH": dh.build(DESTINATIONS, encoding=546, coded_char_set_id=1208, format_name=b"", put_msg_rec_fields=1),
        "MQRMH": mq_builders.rmh(rmh.Names(b"env", b"name", b"", b""), {}),
        "MQCFH": pcf.build(pcf.Message(parameters=PARAMETERS)),
        "MQCIH": header.build("MQCIH", {}, tail=b"\1\2"),
    }
    words = {name: chain.describe(_md(name, 546, 1208), raw)["headers"][0] for name, raw in raws.items()}
    assert words["MQRFH"]["pairs"] == [["a", "b c"]]
    assert words["MQDH"]["destinations"][1] == {"object_name": "Q2", "object_q_mgr_name": "", "msg_id": "32" * 24}
    assert words["MQRMH"]["src_name"] == "name"
    assert words["MQCFH"]["parameters"][0] == {"parameter": "MQIACF_ALL", "type": "MQCFIN", "value": -5}
    assert words["MQCFH"]["parameters"][10]["operator"] == "MQCFOP_LIKE"
    assert words["MQCIH"]["data"] == "0102"
    json.dumps(words)


def _two_headers():
    md = mqmd.build(format="MQDEAD", coded_char_set_id=1208)
    data = header.build("MQDLH", {"Format": "MQHRF2", "Encoding": 273, "CodedCharSetId": 819})
    return md, data + rfh2.build([], order=">", format_name=b"MQSTR   ", encoding=785, coded_char_set_id=500) + b"body"


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("name", ["MQWIH", "MQRFH", "MQIIH"])
def test_insert_then_remove_is_nothing(index, name):
    md, data = _two_headers()
    longer = chain.insert(md, data, index, name)
    found = chain.walk(*longer)
    names = ["MQDLH", "MQRFH2"]
    names.insert(index, name)
    assert [each.name for each in found] == names
    assert found.payload == b"body"
    assert found.body == chain.walk(md, data).body
    assert chain.remove(*longer, index) == (md, data)


def test_remove_all():
    md, data = _two_headers()
    md, data = chain.remove(*chain.remove(md, data, 1), 0)
    assert data == b"body"
    assert chain.described_by(md) == Described(785, 500, b"MQSTR   ")


def test_replace_with_another_structure():
    md, data = _two_headers()
    other = header.build("MQWIH", {"Format": "MQSTR", "Encoding": 785, "CodedCharSetId": 500}, order=">")
    found = chain.walk(*chain.replace(md, data, 1, other, b"MQHWIH"))
    assert [each.name for each in found] == ["MQDLH", "MQWIH"]
    assert found.payload == b"body"


def test_a_header_in_front_of_utf_16_text_is_not_utf_16():
    md, data = chain.prepend(mqmd.build(format="MQSTR", coded_char_set_id=1200), "ñ".encode("utf-16-be"), "MQWIH")
    assert chain.described_by(md) == Described(546, 1208, b"MQHWIH  ")
    assert chain.walk(md, data).body == Described(546, 1200, b"MQSTR   ")


def test_editing_a_transmission_header_changes_the_embedded_descriptor():
    inner = mqmd.build(format="MQSTR", coded_char_set_id=1208)
    md, data = mqmd.build(format="MQXMIT", coded_char_set_id=1208), xqh.build("Q", "M", inner) + b"x"
    md, data = chain.insert(md, data, 1, "MQRFH2")
    assert [each.name for each in chain.walk(md, data)] == ["MQXQH", "MQRFH2"]
    assert mq_builders.unwrap_xqh(data)[1] == mqmd.with_format(inner, b"MQHRF2  ")


@pytest.mark.parametrize(
    "call", [lambda m: chain.remove(*m, 5), lambda m: chain.insert(*m, 5, "MQWIH"), lambda m: chain.replace(*m, 5, b"")]
)
def test_no_such_place(call):
    with pytest.raises(HeaderError, match="the message has 2 headers"):
        call(_two_headers())


def test_nothing_can_follow_pcf():
    raw = pcf.build(pcf.Message())
    with pytest.raises(HeaderError, match="nothing can follow"):
        chain.insert(mqmd.build(format="MQPCF"), raw, 1, "MQWIH")


def test_undefined_encoding_is_told_by_the_version():
    raw = header.build("MQDLH", {"Reason": 7}, order=">")
    assert chain.walk(mqmd.build(format="MQDEAD", encoding=0), raw).headers[0].number("Reason") == 7


def test_an_event_in_words():
    values = [pcf.string(constants.MQCA_Q_MGR_NAME, "QM1", size=48), pcf.integer(constants.MQIACF_REASON_QUALIFIER, 2)]
    event = pcf.build(pcf.Message(7, 44, values, reason=2035, comp_code=1))
    words = chain.describe(mqmd.build(format="MQEVENT"), event)["headers"][0]
    assert (words["Type"], words["Command"]) == ("MQCFT_EVENT (7)", "MQCMD_Q_MGR_EVENT (44)")
    assert (words["Reason"], words["CompCode"]) == ("MQRC_NOT_AUTHORIZED (2035)", "MQCC_WARNING (1)")
    found = [(each["parameter"], each["value"]) for each in words["parameters"]]
    assert found == [("MQCA_Q_MGR_NAME", "QM1"), ("MQIACF_REASON_QUALIFIER", 2)]
