"""The layout table against the published offsets and lengths, and its codecs against themselves."""

from pathlib import Path

import pytest

from gateway.errors import HeaderError
from gateway.mq import layout

GOLDEN = Path(__file__).parents[2] / "golden" / "mq" / "layouts.txt"
ROWS = [line.split(" ") for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]


def _pairs(words):
    return {name: int(number) for name, _, number in (word.partition(":") for word in words)}


@pytest.mark.parametrize(("name", "kind", "words"), [(r[0], r[1], r[2:]) for r in ROWS], ids=lambda v: str(v)[:20])
def test_published_layout(name, kind, words):
    structure = layout.STRUCTURES[name]
    if kind == "lengths":
        assert {str(version): length for version, length in structure.lengths.items()} == _pairs(words)
    else:
        assert {field.name: field.offset for field in structure.fields} == _pairs(words)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("name", sorted(layout.STRUCTURES))
def test_defaults_pack_and_come_back(name, order):
    structure = layout.STRUCTURES[name]
    for version in structure.versions:
        raw = layout.pack(name, {}, version=version, order=order)
        assert len(raw) == structure.length(version)
        values = layout.unpack(name, raw, version=version, order=order)
        assert layout.pack(name, values, version=version, order=order) == raw


def test_a_newer_version_is_read_as_the_newest_known():
    assert layout.STRUCTURES["MQCIH"].length(9) == 180
    assert layout.STRUCTURES["MQCIH"].at(1) == 1


def test_a_value_too_long_names_the_field():
    with pytest.raises(HeaderError, match=r"MQOD.ObjectName at offset 12"):
        layout.pack("MQOD", {"ObjectName": b"x" * 49})


def test_a_field_of_a_later_version_is_refused():
    with pytest.raises(HeaderError, match=r"MQMD.GroupId.*version 1 has no such field"):
        layout.pack("MQMD", {"GroupId": b""}, version=1)


def test_a_number_out_of_range_names_the_field():
    with pytest.raises(HeaderError, match=r"MQMD.Expiry"):
        layout.pack("MQMD", {"Expiry": 1 << 31})


def test_cut_data_names_the_first_missing_field():
    with pytest.raises(HeaderError, match=r"MQDLH.DestQName at offset 0"):
        layout.unpack("MQDLH", b"DLH \0\0\0\1\0\0\0\0abc", order=">")
