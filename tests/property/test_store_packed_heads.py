"""Packed byte strings: what was packed comes back, C and Python write the same bytes, and nothing else is believed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import accumulate, pairwise
from struct import pack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.queue_manager.store import packed_heads, rows

HEAD = b"MD  " + bytes(300) + b"<mqps><Top>plant/%s/line/%s</Top></mqps>" + bytes(4) + b"<mqtt><clientId>%s</clientId>"
WORD = st.text("abc0123456789", max_size=12).map(str.encode)
FUNCTIONS = [packed_heads.unpack_in_python, packed_heads.unpack]


@st.composite
def values(draw: st.DrawFn) -> list[bytes]:
    """Heads of a few rules, and values that were changed in places, and any."""
    bases = draw(
        st.lists(st.binary(max_size=200) | st.builds(bytes.join, WORD, st.lists(WORD, max_size=40)), min_size=1)
    )
    found = []
    for _ in range(draw(st.integers(1, 24))):
        kind = draw(st.integers(0, 2))
        if kind == 0:
            found.append(HEAD % (draw(WORD), draw(WORD), draw(WORD)))
            continue
        value = draw(st.sampled_from(bases))
        for _ in range(draw(st.integers(0, 3)) if kind == 1 else 0):
            at = draw(st.integers(0, len(value)))
            value = value[:at] + draw(WORD) + value[at + draw(st.integers(0, 8)) :]
        found.append(value)
    return found


@st.composite
def columns(draw: st.DrawFn) -> list[list[bytes]]:
    """Columns of one journal: the same objects come again, in any order and with others in between."""
    known = draw(values())
    found = []
    for _ in range(draw(st.integers(1, 6))):
        known += draw(values()) if draw(st.booleans()) else []
        found.append(draw(st.lists(st.sampled_from(known), max_size=40)))
    return found


def packed_in_python(values: list[bytes]) -> bytes | None:
    return packed_heads.PackingInPython().pack(values)


def bounds_of(values: list[bytes]) -> bytes:
    return b"".join(end.to_bytes(4, "little") for end in accumulate(map(len, values), initial=0))


@given(columns())
@example([[b"abcd", b"xxabcdyy", b"abcd", b""]])
@example([[b"x" * 70_000, b"x" * 70_000]])
def test_what_was_packed_comes_back(columns: list[list[bytes]]) -> None:
    packings = [packed_heads.PackingInPython(), packed_heads.new_packing()]
    for values in columns:
        packed = packings[0].pack(values)
        if rows.compiled():
            assert packings[1].pack(values) == packed
        if packed is None:
            continue
        assert len(packed) < sum(map(len, values)) == packed_heads.total_of(packed)
        for unpack in FUNCTIONS:
            assert unpack(packed, packed_heads.MOST_TOGETHER) == (bounds_of(values), b"".join(values))
            assert unpack(memoryview(b"1" + packed)[1:], len(b"".join(values))) == (bounds_of(values), b"".join(values))
            with pytest.raises(ValueError, match="too long"):
                unpack(packed, len(b"".join(values)) - 1)


@given(values(), st.data())
def test_nonsense_is_refused_by_both_or_read_alike(values: list[bytes], data: st.DataObject) -> None:
    packed = bytearray(packed_in_python(values) or b"\1\0\0\0\4\0\0\0\1\4abcd")
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 4) | st.integers(0, 255))
    cut = bytes(packed[: data.draw(st.integers(0, len(packed)) | st.just(len(packed)))])
    found = []
    for unpack in FUNCTIONS:
        try:
            found.append(unpack(cut, 1 << 16))
        except ValueError:
            found.append(None)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "packed",
    [
        b"", b"\0" * 7, pack("<II", 1, 0), pack("<II", 2, 0) + b"\2\0", pack("<II", 0, 0) + b"\2\0",
        pack("<II", 1, 1) + b"\2\0", pack("<II", 1, 0) + b"\2\1", pack("<II", 1, 1) + b"\2\x81\x80\x80\x80\0a",
        pack("<II", 1, 4) + b"\3\0\4abcd", pack("<II", 2, 8) + b"\1\4abcd\4\0\0",
        pack("<II", 2, 8) + b"\1\4abcd" + b"\0\0\1\1\4" + b"\3\0\0", pack("<II", 2, 8) + b"\1\4abcd" + b"\0\1\0\3\0",
        pack("<II", 2, 8) + b"\1\4abcd" + b"\0\0\x21" + b"\0\0" * 33 + b"\3" + b"\0" * 34,
        pack("<II", 9, 36) + b"\1\4abcd" * 9, pack("<II", 2**32 - 1, 2**32 - 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("unpack", FUNCTIONS)
def test_what_cannot_be_is_refused(unpack, packed: bytes) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError):  # noqa: PT011 -- the journal words the error
        unpack(packed, 1 << 20)


def test_heads_of_one_rule_take_a_tenth() -> None:
    heads = [HEAD % (b"site%d" % (n % 7), b"%d" % n, b"dev%04d" % n) for n in range(1000)]
    packed = packed_in_python(heads)
    assert packed is not None
    assert len(packed) < sum(map(len, heads)) // 10


def test_heads_of_several_rules_do_not_disturb_each_other() -> None:
    rule = [bytes([65 + n]) * 120 + b"<Top>%s</Top>" + bytes([97 + n]) * 90 for n in range(6)]
    heads = [rule[n % 6] % (b"%d" % n) for n in range(600)]
    packed = packed_in_python(heads)
    assert packed is not None
    assert len(packed) < 6 * 400 + 600 * 8


def test_what_has_nothing_in_common_is_not_packed() -> None:
    assert packed_in_python([bytes([n]) * 40 for n in range(200)]) is None
    assert packed_in_python([]) is None


def test_more_than_may_be_unpacked_is_not_packed() -> None:
    half = b"x" * (packed_heads.MOST_TOGETHER // 2)
    for packing in (packed_heads.new_packing(), packed_heads.PackingInPython()):
        assert packing.pack([half, half, b"x"]) is None


@pytest.mark.skipif(not rows.compiled(), reason="no compiler where the gateway was installed")
@pytest.mark.parametrize(
    "call",
    [
        lambda: packed_heads.new_packing().pack((b"",)),  # type: ignore[arg-type]
        lambda: packed_heads.new_packing().pack(["text"]),  # type: ignore[list-item]
        lambda: packed_heads.unpack("text", 1),  # type: ignore[arg-type]
        lambda: packed_heads.unpack(b"", None),  # type: ignore[arg-type]
        lambda: packed_heads.unpack(b""),  # type: ignore[call-arg]
    ],
)
def test_what_is_no_column_is_refused(call: object) -> None:
    with pytest.raises(TypeError):
        call()  # type: ignore[operator]


def test_offsets_are_arrow_s() -> None:
    values = [HEAD % (b"a", b"b", b"%d" % n) for n in range(8)]
    packed = packed_in_python(values)
    assert packed is not None
    bounds, text = packed_heads.unpack(packed, 1 << 20)
    ends = [int.from_bytes(bounds[at : at + 4], "little") for at in range(0, len(bounds), 4)]
    assert [text[begin:end] for begin, end in pairwise(ends)] == values
    assert rows.offsets(values) == bounds


@pytest.mark.parametrize("new", [packed_heads.PackingInPython, packed_heads.new_packing])
def test_what_was_learnt_of_one_column_serves_for_the_next(new: Callable[[], packed_heads.Packing]) -> None:
    if new is not packed_heads.PackingInPython and not rows.compiled():
        pytest.skip("no compiler where the gateway was installed")
    packing = new()
    heads = [HEAD % (b"site%d" % (n % 7), b"%d" % n, b"dev%04d" % n) for n in range(100)]
    sizes = [len(packing.pack(heads) or b"") for _ in range(3)]
    assert sizes[0] > sizes[1] == sizes[2], "patterns are learnt once"
    for few in ([heads[7], heads[8], heads[9], heads[7]], [heads[99], *heads[:3]]):
        packed = packing.pack(few)
        assert packed is not None
        assert packed_heads.unpack(packed, 1 << 20) == (bounds_of(few), b"".join(few)), "and it can be read by itself"


@pytest.mark.skipif(not rows.compiled(), reason="no compiler where the gateway was installed")
def test_in_time_everything_is_forgotten_and_let_go() -> None:
    heads = [HEAD % (b"site%d" % (n % 7), b"%d" % n, b"dev%04d" % n) for n in range(50)]
    others = [b"O" * 90 + b"<Top>%d</Top>" % n for n in range(8)]
    packings = [packed_heads.PackingInPython(), packed_heads.new_packing()]
    first = packings[1].pack(heads)
    assert packings[0].pack(heads) == first
    held = sys.getrefcount(heads[40])
    for _ in range(packed_heads.MOST_COLUMNS - 1):
        assert packings[0].pack(others) == packings[1].pack(others)
    again = packings[1].pack(heads)
    assert packings[0].pack(heads) == again == first
    for _ in range(2 * packed_heads.MOST_COLUMNS + 2):
        packings[1].pack(others)
    left = sys.getrefcount(heads[40])
    assert left == held - 1, "nobody asked for it for two rounds"
    held = sys.getrefcount(others[5])
    del packings[1]
    left = sys.getrefcount(others[5])
    assert left == held - 1


@pytest.mark.skipif(not rows.compiled(), reason="no compiler where the gateway was installed")
def test_more_values_than_are_remembered_are_packed_all_the_same() -> None:
    packing, twin = packed_heads.new_packing(), packed_heads.PackingInPython()
    begin = [b"H" * 40 + b"<%d>" % n + b"T" * 30 for n in range(3)]
    for n in range(60):
        fresh = [b"H" * 40 + b"<%d.%d>" % (n, m) + b"T" * 30 for m in range(500)]
        packed = packing.pack(begin + fresh)
        assert packed is not None
        if n % 20 == 19:
            assert b"".join(begin + fresh) == packed_heads.unpack(packed, 1 << 20)[1]
    del twin
