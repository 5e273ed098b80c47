"""Records of the buffer with packed heads: what was stored comes back, whichever packer wrote and read it; a damaged
one is refused or is another record, and never costs more than it may."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack, pack_into

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.backends.buffer import record as records
from gateway.backends.buffer.record import PACKED_VERSION, VERSION, Record, decode, encode, front_of, unpacked_length
from gateway.backends.embedded.store import alike
from gateway.errors import StoreCorrupt
from gateway.ports.batch import Puts, Unit

WORD = st.text("abc0123456789", max_size=12).map(str.encode)
MADE = st.builds(
    lambda *words: b"MD  " + bytes(300) + b"<mqps><Top>plant/%s/line/%s</Top></mqps><mqtt>%s</mqtt>" % words,
    WORD,
    WORD,
    WORD,
)
HEADS = MADE | st.binary(max_size=64)
UNPACK = [alike.unpack_in_python, alike.unpack]
FRONT = 25


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


def packed() -> bytes:
    """A record of five heads that are alike, as every installation writes it."""
    heads = [b"M" * 300 + b"<Top>plant/line/%d/temperature</Top>" % line + bytes(200) for line in range(5)]
    data = encode(numbered(1, Unit([Puts("APP.Q", heads=heads, bodies=[b"21.5"] * 5)])), alike.PackingInPython())
    assert data[4] == PACKED_VERSION
    return data


@given(units())
def test_each_comes_back_by_itself_and_both_packers_write_the_same(made: list[Unit]) -> None:
    python, compiled = alike.PackingInPython(), alike.new_packing()
    for number, unit in enumerate(made):
        record = numbered(number, unit)
        data = encode(record, python)
        assert decode(data) == record
        assert front_of(data)[0] == number
        heads = {head for puts in unit.puts for head in puts.heads}
        assert unpacked_length(data) - len(data) == (sum(map(len, heads)) if data[4] == PACKED_VERSION else 0)
        if alike.new_packing is not alike.NoPacking:
            assert encode(record, compiled) == data


@given(units())
def test_none_is_longer_than_without_a_packer(made: list[Unit]) -> None:
    """But for four bytes, the length of what is packed."""
    packing = alike.PackingInPython()
    for number, unit in enumerate(made):
        record = numbered(number, unit)
        plain = encode(record, alike.NoPacking())
        assert plain[4] == VERSION
        assert len(encode(record, packing)) <= len(plain) + 4


@pytest.mark.parametrize("unpack", UNPACK)
@given(st.data())
def test_a_damaged_one_is_refused_or_another(unpack: Callable[..., tuple[bytes, bytes]], data: st.DataObject) -> None:
    damaged = bytearray(packed())
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(5, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(records, "unpack", unpack)
        try:
            found = decode(bytes(damaged))
        except StoreCorrupt:
            return
    heads = {id(head): len(head) for puts in found.unit.puts for head in puts.heads}
    assert sum(heads.values()) <= alike.MOST_TOGETHER


@pytest.mark.parametrize("unpack", UNPACK)
def test_both_refuse_the_same_damage(
    unpack: Callable[..., tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "unpack", unpack)
    whole = packed()
    assert len(decode(whole).unit.puts[0].heads) == 5
    section = FRONT + 4
    for at, value in ((section, 6), (section, 1 << 31), (section + 4, alike.MOST_TOGETHER + 1), (section + 4, 9)):
        damaged = bytearray(whole)
        pack_into("<I", damaged, at, value)
        with pytest.raises(StoreCorrupt, match="a record of the buffer"):
            decode(bytes(damaged))
    for end in range(section, len(whole)):
        with pytest.raises(StoreCorrupt, match="a record of the buffer"):
            decode(whole[:end])


def test_a_head_that_is_not_there_is_refused() -> None:
    whole = packed()
    places = whole.index(bytes([1, 0, 1, 2, 3, 4])) + 1
    with pytest.raises(StoreCorrupt, match="a record of the buffer"):
        decode(whole[:places] + bytes([5]) + whole[places + 1 :])
    with pytest.raises(StoreCorrupt, match="numbers of 1, 2 or 4 bytes"):
        decode(whole[: places - 1] + bytes([3]) + whole[places:])


@given(st.integers(0, 255), st.binary(max_size=60))
def test_other_versions_are_refused_by_name(version: int, rest: bytes) -> None:
    assume(version not in records.VERSIONS)
    data = b"MQGB" + bytes([version]) + pack("<QdI", 1, 2.0, 3) + rest
    says = f"has format {version}, this program reads 2 and older: use the release" if version else "and a version"
    with pytest.raises(StoreCorrupt, match=says):
        front_of(data)
    with pytest.raises(StoreCorrupt, match=says):
        decode(data)
