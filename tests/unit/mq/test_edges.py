"""What is refused and what is tolerated, structure by structure."""

import mq_builders
import pytest

from gateway.errors import HeaderError, MQError
from gateway.mq import layout, mqmd, pcf, pcf_span, properties
from gateway.mq.character_sets import ccsid
from gateway.mq.conversion import convert
from gateway.mq.headers import chain, dh, dlh, header, mde, rfh, rfh2, xqh

RFH2_MD = mqmd.build(format="MQHRF2", coded_char_set_id=1208)


@pytest.mark.parametrize(
    ("parse", "raw"),
    [
        (dlh.parse, bytes(171)), (dlh.parse, bytes(172)), (xqh.parse, bytes(427)), (mde.parse, bytes(71)),
        (mde.parse, bytes(72)), (mde.parse, header.build("MQMDE", {"StrucLength": 70})), (dh.parse, bytes(47)),
        (dh.parse, bytes(48)), (rfh.parse, bytes(31)), (rfh.parse, bytes(32)), (rfh2.parse, bytes(35)),
        (pcf.parse, bytes(35)), (pcf.parse, bytes(36)),
    ],
)  # fmt: skip
def test_cut_or_empty_structures(parse, raw):
    with pytest.raises(HeaderError):
        parse(raw)


@pytest.mark.parametrize(
    "build",
    [
        lambda: dlh.build(1, "Q" * 49, "M", mqmd.build()),
        lambda: xqh.build("Q", "M" * 49, mqmd.build()),
        lambda: dh.build([dh.Destination("Q" * 49, "")], encoding=1, coded_char_set_id=1, format_name=b""),
        lambda: rfh2.build([], name_value_ccsid=37),
        lambda: rfh2.build([rfh2.folder("usr", {"a": "\ud800"})]),
        lambda: pcf.string(1, "x", ccsid=60000),
        lambda: pcf.build(pcf.Message(parameters=[pcf.integer(1, 1 << 40)])),
        lambda: pcf.build(pcf.Message(parameters=[pcf.Parameter(99, 1, 1)])),
        lambda: layout.pack("MQSCO", {"EncryptionPolicySuiteB": (1, 2)}),
        lambda: layout.pack("MQMD", {"Report": b"x"}),
    ],
)
def test_values_that_do_not_fit(build):
    with pytest.raises(HeaderError):
        build()


def test_a_structure_knows_its_fields():
    assert layout.STRUCTURES["MQMD"]["Format"] == 32
    with pytest.raises(KeyError, match="MQMD has no field Nothing"):
        layout.STRUCTURES["MQMD"]["Nothing"]
    assert [layout.STRUCTURES[name].struc_id for name in ("MQMD", "MQCFH", "MQOR")] == [b"MD  ", b"", b""]


def test_parameters_nested_too_deep():
    inner = pcf.integer(1, 1)
    for _ in range(20):
        inner = pcf.group(2, [inner])
    with pytest.raises(HeaderError, match="nested more than 16"):
        pcf.parse(pcf.build(pcf.Message(parameters=[inner])))


@pytest.mark.parametrize(
    "raw",
    [
        "14000000 10000000 01000000 05000000",  # a group of five members that are not there
        "14000000 14000000 01000000 00000000 00000000",  # a group of another length
        "03000000 08000000 01000000 00000000",  # shorter than any parameter
        "06000000 18000000 01000000 00000000 ffffffff 00000000",  # a list of -1 strings
        "06000000 18000000 01000000 00000000 ffff0000 00000000",  # 65535 empty strings
        "04000000 14000000 01000000 00000000 09000000",  # a string longer than its parameter
        "05000000 10000000 01000000 07000000",  # seven numbers that are not there
    ],
)
def test_broken_parameters(raw):
    head = bytes.fromhex("01000000 24000000 03000000 00000000 01000000 01000000 00000000 00000000 01000000")
    with pytest.raises(HeaderError):
        pcf.parse(head + bytes.fromhex(raw))


def test_parameters_that_end_early():
    with pytest.raises(HeaderError, match="are missing"):
        pcf_span.parameters_end(pcf.build_parameter(pcf.string(1, "x" * 28)), 0, 2, "<", "MQCFH", 0)


def test_folders_in_another_character_set():
    raw = rfh2.build(["<usr><a>1</a></usr>"])
    with pytest.raises(HeaderError, match="not in CCSID 1208"):
        rfh2.parse(raw[:41] + b"\xff" + raw[42:]).texts()
    zero = raw[:32] + bytes(4) + raw[36:]
    assert rfh2.parse(zero).texts() == ("<usr><a>1</a></usr>",)
    with pytest.raises(MQError):
        properties.properties_of(RFH2_MD, raw[:41] + b"\xff" + raw[42:])


def test_properties_of_a_cut_header():
    for call in (properties.properties_of, properties.leading_folders):
        with pytest.raises(MQError):
            call(RFH2_MD, rfh2.build([])[:20])
    with pytest.raises(MQError):
        properties.leading_folders(RFH2_MD, rfh2.build(["<a>"]))


def test_values_and_empty_folders_nobody_understands_are_passed_over():
    data = rfh2.build(["<usr><a dt='i4'>x</a><b>2</b></usr>", "    "])
    assert [each.name for each in properties.properties_of(RFH2_MD, data)] == ["b"]


def test_no_properties_to_put():
    assert properties.with_properties(RFH2_MD, b"x", []) == (RFH2_MD, b"x")


def test_support_options_of_the_mq_folder():
    given = properties.new("mq.x", 1, support=1024)
    md, data = properties.with_properties(mqmd.build(), b"", [given])
    assert properties.properties_of(md, data) == [given]


def test_descriptor_properties_of_a_wrong_type():
    with pytest.raises(MQError) as refused:
        properties.with_descriptor_property(mqmd.build(), "Root.MQMD.Priority", "high")
    assert refused.value.reason == 2473


def test_words_for_damaged_things():
    data = rfh2.build(["<usr><a dt='i4'>x</a><g><b>1</b></g></usr>", "<usr>"], format_name=b"MQSTR   ") + b"x" * 50
    words = chain.describe(RFH2_MD, data, body_limit=10)
    folders = words["headers"][0]["folders"]
    assert folders[0]["elements"][0]["text"] == "x"
    assert folders[0]["elements"][1]["elements"] == [{"name": "b", "value": "1"}]
    assert "not a folder" in folders[1]["problem"]
    assert words["body"]["shown"] == 10
    broken = mq_builders.rfh([("a", "b")])[:32] + b"odd "
    assert "has no value" in chain.describe(mqmd.build(format="MQHRF"), broken)["headers"][0]["problem"]
    marked = rfh2.build(["<x content='properties'/>"])
    assert chain.describe(RFH2_MD, marked)["headers"][0]["folders"][0]["attributes"] == {"content": "properties"}


def test_words_for_numbers():
    md = mqmd.build(encoding=785, expiry=15, report=1 | 1 << 20, feedback=258, msg_type=70000)
    words = chain.describe(md, b"\xff")["descriptor"]
    assert words["Encoding"] == "integers big-endian, decimals big-endian, floats S/390 (785)"
    assert (words["Expiry"], words["Feedback"], words["MsgType"]) == ("1.5 s", "MQFB_EXPIRATION (258)", 70000)
    assert words["Report"] == "MQRO_PAN 0x100000"


@pytest.mark.parametrize("ways", [(0, b"\1\0\0\0"), (0, b"\0\0\0\1")])
def test_formats_with_nuls(ways):
    raw = bytearray(dlh.build(1, "Q", "M", mqmd.build(format="MQSTR")))
    raw[116:124] = b"MQSTR\0\0\0"
    assert chain.walk(mqmd.build(format="MQDEAD"), bytes(raw)).body.format == b"MQSTR   "


def test_a_header_cut_in_its_first_bytes():
    with pytest.raises(HeaderError, match="the message was cut or its Format is wrong"):
        chain.walk(mqmd.build(format="MQXMIT"), b"XQH ")
    with pytest.raises(HeaderError, match=r"MQDLH.Version.*the data ends after 100"):
        chain.walk(mqmd.build(format="MQDEAD"), dlh.build(1, "Q", "M", mqmd.build())[:100])
    with pytest.raises(HeaderError, match=r"MQCIH.StrucLength.*is less than the 164"):
        chain.walk(mqmd.build(format="MQCICS"), header.build("MQCIH", {"StrucLength": 100}))


def test_distribution_records_may_carry_correlation_and_accounting():
    one = dh.Destination("Q", "", correl_id=b"c" * 24, feedback=7, accounting_token=b"t" * 32)
    raw = dh.build([one], encoding=546, coded_char_set_id=1208, format_name=b"", put_msg_rec_fields=2 | 8 | 16)
    [made] = dh.parse(raw).destinations
    assert (made.correl_id, made.feedback, made.accounting_token) == (b"c" * 24, 7, b"t" * 32)


@pytest.mark.parametrize(
    "parameter",
    [
        bytes.fromhex("63000000 10000000 01000000 00000000"),  # an unknown type
        bytes.fromhex("03000000 14000000 01000000 07000000 aabbccdd"),  # bytes behind its value
    ],
)
def test_parameters_that_cannot_be_converted(parameter):
    head = layout.pack("MQCFH", {"ParameterCount": 1})
    made = convert(mqmd.build(format="MQPCF", coded_char_set_id=1208), head + parameter, encoding=273, ccsid=37)
    assert (made.data, made.reason) == (head + parameter, 2119)


def test_padding_of_parameters_is_not_kept_in_conversion():
    head = layout.pack("MQCFH", {"ParameterCount": 1})
    string = bytes.fromhex("04000000 18000000 01000000 00000000 01000000 41424344")
    made = convert(mqmd.build(format="MQPCF", coded_char_set_id=1208), head + string, encoding=273, ccsid=37)
    assert made.data.endswith(b"\xc1\0\0\0")


def test_reference_names_that_grow():
    from gateway.mq.headers import rmh

    raw = mq_builders.rmh(rmh.Names(b"", "\xe4".encode("latin-1"), b"", b""), {})
    md = mqmd.build(format="MQHREF", coded_char_set_id=819)
    assert convert(md, raw, ccsid=1208).reason == 2190


def test_unknown_codec_names_are_not_ours():
    for name in ("ebcdic_999999", "ebcdic_x", "ebcdic_37"):
        with pytest.raises(LookupError):
            "A".encode(name)
    assert ccsid.is_ebcdic(b"\xd4\xc4\x40\x40")
    assert not ccsid.is_ebcdic(b"MD  ")


def test_a_64_bit_integer_without_the_reserved_number():
    head = layout.pack("MQCFH", {"ParameterCount": 1})
    raw = bytes.fromhex("17000000 14000000 05000000 00000000 01000000")
    found = pcf.parse(head + raw)
    assert found.parameters[0].value == 1 << 32
    assert pcf.build(found._replace(version=1)) == head + raw
    made = convert(mqmd.build(format="MQPCF", coded_char_set_id=1208), head + raw, encoding=273, ccsid=37)
    assert pcf.parse(made.data, order=">").parameters == [pcf.integer64(5, 1 << 32)]
