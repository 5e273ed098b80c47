"""MQRFH2: bytes, typed values, templates, and what is refused."""

import math

import pytest

from gateway.errors import HeaderError
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import Typed, element, escape, parse_folder, read_value, unescape


def test_bytes_of_a_header():
    raw = rfh2.build([rfh2.folder("usr", {"a": "b"})], format_name=b"MQSTR   ")
    assert raw == (
        b"RFH \2\0\0\0\x3c\0\0\0\x22\2\0\0\xb8\4\0\0MQSTR   \0\0\0\0\xb8\4\0\0" + b"\x14\0\0\0<usr><a>b</a></usr> "
    ).replace(b"\x3c\0\0\0\x22", bytes([36 + 4 + 20]) + b"\0\0\0\x22")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("ccsid", rfh2.UNICODE_CCSIDS)
def test_folders_come_back(order, ccsid):
    texts = (rfh2.folder("usr", {"größe": "ñ€"}), rfh2.folder("mcd", {}))
    found = rfh2.parse(b"xx" + rfh2.build(texts, name_value_ccsid=ccsid, order=order), 2, order=order)
    assert found.texts() == texts
    assert all(len(raw) % 4 == 0 for raw in found.folders)
    assert found.length % 4 == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "<x dt='i4'>5</x>"), (1 << 31, "<x dt='i8'>2147483648</x>"), (True, "<x dt='boolean'>1</x>"),
        (1.5, "<x dt='r8'>1.5</x>"), (b"\xab", "<x dt='bin.hex'>AB</x>"), ("<&>", "<x>&lt;&amp;&gt;</x>"),
        (None, "<x xsi:nil='true'></x>"), (Typed("i1", -128), "<x dt='i1'>-128</x>"), ("", "<x></x>"),
        (math.inf, "<x dt='r8'>INF</x>"), (Typed("r4", 3), "<x dt='r4'>3.0</x>"),
    ],
)  # fmt: skip
def test_typed_elements(value, text):
    assert element("x", value) == text
    back = parse_folder(f"<f>{text}</f>").children[0].value
    assert back == (value.value if isinstance(value, Typed) else value)


@pytest.mark.parametrize("bad", [Typed("i1", 128), Typed("i8", 1 << 63), Typed("i4", "x"), Typed("bin.hex", 5)])
def test_values_that_do_not_fit_their_type(bad):
    with pytest.raises(HeaderError):
        element("x", bad)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a<b", "a'"])
def test_names_that_cannot_be_elements(name):
    with pytest.raises(HeaderError, match="cannot be an element name"):
        rfh2.folder("usr", {name: 1})


@pytest.mark.parametrize(
    ("dt", "text", "value"),
    [
        ("int", " 7 ", 7),
        ("boolean", "true", True),
        ("r8", "1e3", 1000.0),
        ("bin.hex", "0aFF", b"\x0a\xff"),
        ("?", "x", "x"),
    ],
)
def test_foreign_spellings(dt, text, value):
    assert read_value(dt, text) == value


@pytest.mark.parametrize(("dt", "text"), [("i4", "x"), ("i1", "200"), ("boolean", "2"), ("bin.hex", "abc"), ("r8", "")])
def test_text_that_is_not_of_its_type(dt, text):
    with pytest.raises(HeaderError):
        read_value(dt, text)


def test_folder_with_groups_attributes_and_either_quote():
    root = parse_folder("""<mq_usr content="properties"><g><a dt="i4">1</a><b/></g> <c x='&gt;'>t</c></mq_usr>  """)
    assert root.attributes == {"content": "properties"}
    assert [child.name for child in root.children] == ["g", "c"]
    assert [child.name for child in root.children[0].children] == ["a", "b"]
    assert root.children[1].attributes == {"x": ">"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "<a>",
        "<a></b>",
        "<a></a>x",
        "<a><b></a></b>",
        "</a>",
        "<a",
        "<a b=1></a>",
        "<a>" * 40 + "</a>" * 40,
        "x<a></a>",
    ],
)
def test_what_is_not_a_folder(text):
    with pytest.raises(HeaderError, match="not a folder"):
        parse_folder(text)


def test_escaping_is_undone():
    text = "<a & 'b' \"c\">"
    assert unescape(escape(text)) == text
    assert unescape("&#65;&#x42;&nope;&#xD800;&") == "AB&nope;&#xD800;&"


def test_template_varies_one_number_in_a_fixed_length():
    made = rfh2.build_template(
        [rfh2.folder("usr", {"a": 1})], "mqtt", {"clientId": "c", "qos": 1}, "msgId", format_name=b"MQSTR   "
    )
    for number in (0, 9, 65535):
        found = rfh2.parse(made.head + made.tails[number])
        assert found.length == made.length
        assert found.format == b"MQSTR   "
        assert (
            found.texts()[1]
            == f"<mqtt><clientId>c</clientId><qos dt='i4'>1</qos><msgId dt='i4'>{number}</msgId></mqtt>"
        )
    with pytest.raises(HeaderError, match="more digits"):
        made.tails[10**9]


@pytest.mark.parametrize("length", [0, 35, 37, 1000, -1])
def test_wrong_lengths(length):
    raw = bytearray(rfh2.build([]))
    raw[8:12] = length.to_bytes(4, "little", signed=True)
    with pytest.raises(HeaderError, match="MQRFH2"):
        rfh2.parse(bytes(raw))


@pytest.mark.parametrize("length", [-1, 1000, 0x7FFFFFFF])
def test_wrong_folder_lengths(length):
    raw = bytearray(rfh2.build(["<a></a>"]))
    raw[36:40] = length.to_bytes(4, "little", signed=True)
    with pytest.raises(HeaderError, match=r"NameValueLength at offset 36"):
        rfh2.parse(bytes(raw))


def test_folder_name_without_parsing():
    assert rfh2.folder_name(b"<usr content='properties'>") == "usr"
    assert rfh2.folder_name("?") == ""
