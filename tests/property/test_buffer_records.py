"""Records of the buffer with packed heads: what was stored comes back, whichever packer wrote and read it; a damaged
one is refused or is another record, and never costs more than it may."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from struct import pack, pack_into

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.backends.buffer import heads as heads_of_records
from gateway.backends.buffer.record import PACKED, VERSION, Record, decode, decode_and_measure, encode, front_of
from gateway.errors import StoreCorrupt
from gateway.ports.batch import Puts, Unit
from gateway.queue_manager.store import packed_heads

WORD = st.text("abc0123456789", max_size=12).map(str.encode)
MADE = st.builds(
    lambda *words: b"MD  " + bytes(300) + b"<mqps><Top>plant/%s/line/%s</Top></mqps><mqtt>%s</mqtt>" % words,
    WORD,
    WORD,
    WORD,
)
HEADS = MADE | st.binary(max_size=64)
IN_EACH_FORM = pytest.mark.usefixtures("_form")
UNPACK = [packed_heads.unpack_in_python, packed_heads.unpack]
FRONT = 26
FLAGS = 5


@st.composite
def units(draw: st.DrawFn) -> list[Unit]:
    """Of one gateway: the same heads come again, in runs for several queues."""
    known = draw(st.lists(HEADS, min_size=1, max_size=12))
    row = st.tuples(st.sampled_from(known), st.binary(max_size=300))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        unit = Unit()
        for _ in range(draw(st.integers(0, 3))):
            rows = draw(st.lists(row, max_size=20))
            unit.puts.append(Puts("APP.Q", heads=[head for head, _ in rows], bodies=[body for _, body in rows]))
        found.append(unit)
    return found


def numbered(number: int, unit: Unit) -> Record:
    return Record(number, 2.5, unit, [f"rule {place}" for place in range(len(unit.puts))])


@pytest.fixture(params=[0, heads_of_records.FEW_ROWS], ids=["packed", "deflated"])
def _form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As heads of many messages are written, and of few."""
    monkeypatch.setattr(heads_of_records, "FEW_ROWS", request.param)
    few: int = request.param
    return few


def packed() -> bytes:
    """A record of five heads that are alike."""
    heads = [b"M" * 300 + b"<Top>plant/line/%d/temperature</Top>" % line + bytes(200) for line in range(5)]
    data = encode(numbered(1, Unit([Puts("APP.Q", heads=heads, bodies=[b"21.5"] * 5)])), packed_heads.PackingInPython())
    assert (data[4], data[FLAGS]) == (VERSION, PACKED)
    return data


@IN_EACH_FORM
@given(made=units())
def test_each_comes_back_by_itself_and_both_packers_write_the_same(made: list[Unit]) -> None:
    python, compiled = packed_heads.PackingInPython(), packed_heads.new_packing()
    for number, unit in enumerate(made):
        record = numbered(number, unit)
        data = encode(record, python)
        heads = {head for puts in unit.puts for head in puts.heads}
        found, length = decode_and_measure(data)
        assert found == decode(data) == record
        assert front_of(data)[0] == number
        assert length >= sum(map(len, heads)) if not data[FLAGS] else length == sum(map(len, heads))
        if packed_heads.new_packing is not packed_heads.NoPacking:
            assert encode(record, compiled) == data


@IN_EACH_FORM
@given(made=units())
def test_none_is_longer_than_without_a_packer(made: list[Unit]) -> None:
    """But for what is said about a packed one: its form, and its length."""
    packing = packed_heads.PackingInPython()
    for number, unit in enumerate(made):
        record = numbered(number, unit)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(heads_of_records, "FEW_ROWS", -1)
            plain = encode(record, packed_heads.NoPacking())
        assert (plain[4], plain[FLAGS]) == (VERSION, 0)
        assert len(encode(record, packing)) <= len(plain) + 5


@IN_EACH_FORM
@pytest.mark.parametrize("unpack", UNPACK)
@given(data=st.data())
def test_a_damaged_one_is_refused_or_another(unpack: Callable[..., tuple[bytes, bytes]], data: st.DataObject) -> None:
    damaged = bytearray(packed())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(5, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(heads_of_records, "unpack", unpack)
        try:
            found = decode(bytes(damaged))
        except StoreCorrupt:
            return
    heads = {id(head): len(head) for puts in found.unit.puts for head in puts.heads}
    assert sum(heads.values()) <= packed_heads.MOST_TOGETHER


@pytest.mark.parametrize("unpack", UNPACK)
def test_both_refuse_the_same_damage(
    unpack: Callable[..., tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_of_records, "unpack", unpack)
    monkeypatch.setattr(heads_of_records, "FEW_ROWS", 0)
    whole = packed()
    assert len(decode(whole).unit.puts[0].heads) == 5
    section = FRONT + 4 + 1
    for at, value in (
        (section, 6),
        (section, 1 << 31),
        (section + 4, packed_heads.MOST_TOGETHER + 1),
        (section + 4, 9),
    ):
        damaged = bytearray(whole)
        pack_into("<I", damaged, at, value)
        with pytest.raises(StoreCorrupt, match="a record of the buffer"):
            decode(bytes(damaged))
    for end in range(section, len(whole)):
        with pytest.raises(StoreCorrupt, match="a record of the buffer"):
            decode(whole[:end])


def with_heads(section: bytes) -> bytes:
    """A record with this for its heads, and no messages."""
    return pack("<4sBBQdI", b"MQGB", VERSION, PACKED, 1, 2.0, 0) + pack("<I", len(section)) + section + bytes(12)


def deflated(content: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, -12, 8, zlib.Z_DEFAULT_STRATEGY, heads_of_records.DICTIONARY)
    return stream.compress(content) + stream.flush()


def test_what_is_inflated_has_a_limit() -> None:
    most = heads_of_records.MOST_DEFLATED
    fits = pack("<II", 1, most - 8) + bytes(most - 8)
    assert not decode(with_heads(b"\2" + deflated(fits))).unit
    for wrong in (
        b"\2" + deflated(pack("<II", 1, 1 << 24) + bytes(1 << 24)),
        b"\2" + deflated(fits) + b"x",
        b"\2" + deflated(fits)[:-1],
        b"\2" + deflated(pack("<I", 1 << 31)),
        b"\2" + deflated(pack("<II", 1, 5) + b"four"),
        b"\2" + deflated(b""),
        b"\3" + deflated(pack("<II", 1, packed_heads.MOST_TOGETHER + 1) + bytes(40)),
        b"\2nothing",
        b"\0" + fits,
        b"\4" + fits,
        b"",
    ):
        with pytest.raises(StoreCorrupt, match="a record of the buffer"):
            decode(with_heads(wrong))


def test_a_head_that_is_not_there_is_refused() -> None:
    whole = packed()
    places = whole.index(bytes([1, 0, 1, 2, 3, 4])) + 1
    with pytest.raises(StoreCorrupt, match="a record of the buffer"):
        decode(whole[:places] + bytes([5]) + whole[places + 1 :])
    with pytest.raises(StoreCorrupt, match="numbers of 1, 2 or 4 bytes"):
        decode(whole[: places - 1] + bytes([3]) + whole[places:])


@given(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=60))
def test_other_formats_are_refused_by_name(version: int, flags: int, rest: bytes) -> None:
    assume(version != VERSION or flags & ~PACKED)
    data = b"MQGB" + bytes([version, flags]) + pack("<QdI", 1, 2.0, 3) + rest
    says = f"has format {version}, flags {flags};.* use the release" if version else "and a version"
    for read in (front_of, decode):
        with pytest.raises(StoreCorrupt, match=says):
            read(data)
