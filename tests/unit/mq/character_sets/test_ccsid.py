"""Character sets: every table against an independent one, the list that must be there, substitution."""

from pathlib import Path

import pytest

from gateway.errors import MQError
from gateway.mq.character_sets import ccsid

GOLDEN = Path(__file__).parents[3] / "golden" / "mq" / "ccsid.txt"
TABLES = dict(line.split(" ") for line in GOLDEN.read_text().splitlines() if not line.startswith("#"))
REQUIRED = [
    37, 273, 277, 278, 280, 284, 285, 297, 500, 819, 850, 858, 437, 923, 924, 1047, *range(1140, 1150), 1200, 1202,
    1208, *range(1250, 1259), 13488, 17584, 943, 932, 5488, 936, 950, 949, 970,
]  # fmt: skip


@pytest.mark.parametrize("number", sorted(map(int, TABLES)))
def test_single_byte_table(number):
    units = TABLES[str(number)]
    expected = "".join(chr(int(units[at : at + 4], 16)) for at in range(0, 1024, 4))
    codec = ccsid.codec_of(number)
    assert bytes(range(256)).decode(codec) == expected
    assert expected.encode(codec) == bytes(range(256))


def test_latin_9_ebcdic_has_the_repertoire_of_latin_9():
    """924 has no independent table here; its eleven differences from 1047 are those IBM registered."""
    table, base = (bytes(range(256)).decode(ccsid.codec_of(number)) for number in (924, 1047))
    assert sorted(table) == sorted(bytes(range(256)).decode("iso8859-15"))
    changed = {f"{n:02X}{table[n]}" for n in range(256) if table[n] != base[n]}
    assert changed == {"9F€", "6AŠ", "BBš", "BEŽ", "9Dž", "B7Œ", "B8œ", "B9Ÿ", "4AÝ", "B0¢", "BA¬"}


@pytest.mark.parametrize("number", REQUIRED)
def test_required_character_sets(number):
    assert number in ccsid.known()
    assert "Queue.1 ABC".encode(ccsid.codec_of(number, 546)).decode(ccsid.codec_of(number, 546)) == "Queue.1 ABC"


@pytest.mark.parametrize(
    ("number", "encoding", "raw"), [(1200, 546, b"A\0"), (1200, 273, b"\0A"), (1202, 273, b"A\0"), (13488, 1, b"\0A")]
)
def test_utf_16_follows_the_encoding(number, encoding, raw):
    assert "A".encode(ccsid.codec_of(number, encoding)) == raw


def test_unknown_character_sets():
    for call, reason in ((ccsid.source_codec, 2111), (ccsid.target_codec, 2115)):
        with pytest.raises(MQError) as refused:
            call(60000, 546)
        assert (refused.value.reason, refused.value.comp_code) == (reason, 1)


@pytest.mark.parametrize(
    ("raw", "source", "target", "made"),
    [
        ("€uro".encode(), "utf-8", "cp037", (b"\x3f\xa4\x99\x96", 1)),
        ("€uro".encode(), "utf-8", "ebcdic_1141", (b"\x9f\xa4\x99\x96", 0)),
        ("日本".encode(), "utf-8", "cp932", (b"\x93\xfa\x96\x7b", 0)),
        ("aßñ".encode(), "utf-8", "ascii", (b"a\x1a\x1a", 2)),
        (b"\x81\x15\x82\x25", "cp037", "utf-8", (b"a\nb\n", 0)),
        (b"\x81\x80", "cp1252", "iso8859-1", (b"\x81\x1a", 1)),
        (b"\x81", "iso8859-1", "cp1252", (b"\x81", 0)),
    ],
)
def test_conversion_of_text(raw, source, target, made):
    assert ccsid.converted(raw, source, target) == made


def test_bytes_that_are_no_text():
    with pytest.raises(MQError) as refused:
        ccsid.converted(b"a\xff", "utf-8", "cp037")
    assert refused.value.reason == 2119
