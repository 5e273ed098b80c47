"""Frames: what is encoded is decoded, whole and byte for byte; anything else is not a frame."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from gateway.errors import StoreCorrupt
from gateway.queue_manager.journal.decode import (
    Links,
    LostLanes,
    expand_heads,
    expanded_length,
    frame_at,
    links_of,
    numbers_in,
    rows_of,
    sections_of,
)
from gateway.queue_manager.journal.encode import (
    Columns,
    LaneNumbers,
    encode_frame,
    encode_links,
    encode_rows,
    frame_length,
)
from gateway.queue_manager.journal.layout import FRAME_LENGTH, Kind, padded
from gateway.queue_manager.journal.recovery import changes_of
from gateway.queue_manager.store import rows as rows_in_c
from gateway.queue_manager.store.index import MoveRun, TokenRun
from gateway.queue_manager.store.packed_heads import new_packing

IDS = st.binary(min_size=24, max_size=24)
U64 = st.integers(0, 2**64 - 1)
LANE = st.tuples(st.text(max_size=20), st.binary(max_size=40), st.integers(0, 9))
U32 = st.integers(0, 2**32 - 1)
LINKS = st.builds(
    Links,
    st.lists(st.tuples(LANE, U32), max_size=4),
    st.lists(st.builds(TokenRun, LANE, U64, U32), max_size=4),
    st.lists(st.builds(MoveRun, LANE, LANE, U64, U64, U32), max_size=4),
    st.lists(st.tuples(LANE, U64, U32), max_size=4),
    st.dictionaries(st.binary(max_size=30), st.none() | st.binary(max_size=60), max_size=4),
)


@st.composite
def columns(draw: st.DrawFn) -> Columns:
    rows = draw(st.integers(1, 300) if draw(st.booleans()) else st.integers(1, 5))
    heads = draw(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
    if draw(st.booleans()):  # heads of one rule, which are packed
        heads = [b"MD  " * 30 + b"<Top>%s</Top>" % head + bytes(40) for head in [*heads, b"1", b"22", b"333"]]
    bodies = draw(st.lists(st.binary(max_size=30), min_size=1, max_size=5))

    def column(values: st.SearchStrategy) -> st.SearchStrategy:
        return st.none() | st.lists(values, min_size=rows, max_size=rows) | values.map(lambda value: [value] * rows)

    few = rows <= 5
    return Columns(
        [heads[i % len(heads)] if i % 7 else b"%d" % i for i in range(rows)],
        [bodies[i % len(bodies)] for i in range(rows)],
        draw(column(IDS)) if few else None,
        draw(column(IDS)) if few else None,
        draw(column(U64)) if few else None,
        draw(column(U64)) if few else None,
        draw(column(U64)) if few else None,
        shared=draw(st.booleans()),
    )


def encoded(rows: Columns | None, links: Links, lanes: LaneNumbers, salt: int = 7, sequence: int = 3) -> bytes:
    columns, _packed = encode_rows(rows, new_packing()) if rows else ([], 0)
    sections = columns + encode_links(links, lanes)
    length = frame_length(sections)
    buffer = bytearray(b"\xff" * padded(length))
    count = len(rows.heads) if rows else 0
    encode_frame(memoryview(buffer), sections, length, 0, salt, sequence, 11, 13, count)
    return bytes(buffer)


@given(columns() | st.none(), LINKS, LINKS)
def test_round_trip(rows: Columns | None, links: Links, later: Links) -> None:
    dictionary = LaneNumbers()
    data = memoryview(encoded(rows, links, dictionary))
    header = frame_at(data, 0, 7, 3)
    assert header is not None
    assert (header.time, header.first_number, header.rows) == (11, 13, len(rows.heads) if rows else 0)
    assert not any(data[header.length :]), "padding is zeros"
    sections = sections_of(data, 0, header)
    lanes: list = []
    assert links_of(sections, lanes, 3) == links
    second = memoryview(encoded(None, later, dictionary))
    header_2 = frame_at(second, 0, 7)
    assert header_2 is not None
    assert links_of(sections_of(second, 0, header_2), lanes, 4) == later
    if rows is not None:
        found = rows_of(header, sections)
        assert (list(found.heads), list(found.bodies)) == (list(rows.heads), list(rows.bodies))
        for name in ("msg_ids", "correl_ids", "expiries", "put_times"):
            column, expected = getattr(found, name), getattr(rows, name)
            assert (None if column is None else list(column)) == expected
        numbers = numbers_in(sections, Kind.NUMBERS, header.rows)
        assert (None if numbers is None else list(numbers)) == rows.numbers


@given(columns(), LINKS, st.data())
def test_any_other_bit_salt_or_sequence_is_no_frame(rows: Columns, links: Links, data: st.DataObject) -> None:
    frame = bytearray(encoded(rows, links, LaneNumbers()))
    header = frame_at(memoryview(frame), 0, 7, 3)
    assert header is not None
    assert frame_at(memoryview(frame), 0, 8, 3) is None
    assert frame_at(memoryview(frame), 0, 7, 4) is None
    assert frame_at(memoryview(frame)[: header.length - 1], 0, 7, 3) is None
    place = data.draw(st.integers(0, FRAME_LENGTH - 1) | st.integers(0, header.length - 1))
    frame[place] ^= 1 << data.draw(st.integers(0, 7))
    assert frame_at(memoryview(frame), 0, 7, 3) is None


@given(st.lists(st.lists(LANE, max_size=6), max_size=6))
def test_a_dictionary_forgets_without_misleading_a_reader(frames: list[list[tuple[str, bytes, int]]]) -> None:
    dictionary = LaneNumbers()
    dictionary.REMEMBERED = 3
    lanes: list = []
    for number, names in enumerate(frames):
        links = Links([(name, 1) for name in names], [], [], [], {})
        data = memoryview(encoded(None, links, dictionary))
        if number % 3 == 1:
            dictionary.take_back()
            continue
        header = frame_at(data, 0, 7)
        assert header is not None
        assert links_of(sections_of(data, 0, header), lanes, 1) == links


def test_lost_definitions_read_as_unknown_lanes() -> None:
    dictionary = LaneNumbers()
    links = [Links([((name, b"", 0), 1)], [], [], [], {}) for name in ("A", "B", "A")]
    frames = [memoryview(encoded(None, each, dictionary)) for each in links]
    lanes = LostLanes()
    for data, expected in zip(frames[1:], ["B", "?"], strict=True):
        header = frame_at(data, 0, 7)
        assert header is not None
        assert links_of(sections_of(data, 0, header), lanes, 1).groups[0][0][0] == expected


def test_the_bytes_are_those_of_the_reference() -> None:
    """Every section spelled out as docs/reference/journal-format.md has it: version 1 must stay readable for good."""
    rows = Columns(
        [b"head one", b"head two", b"head one"],
        [b"body", b"", b"third body"],
        [b"m" * 24, bytes(24), bytes(24)],
        [b"c" * 24] * 3,
        [0, 5, 5],
        [9, 9, 9],
        [1, 2, 9],
    )
    lane, other = ("Q.ONE", b"key", 5), ("\N{LATIN CAPITAL LETTER U WITH DIAERESIS}", b"", 9)
    links = Links(
        [(lane, 2), (other, 1)],
        [TokenRun(lane, 17, 2)],
        [MoveRun(lane, other, 3, 99, 1)],
        [(other, 98, 4)],
        {b"cursor": b"42", b"gone": None},
    )
    sections = [
        (3, 4, pack("<3i", 0, 8, 16)),
        (4, 0, b"head onehead two"),
        (5, 1, bytes([0, 1, 0])),
        (6, 4, pack("<4i", 0, 4, 4, 14)),
        (7, 0, b"bodythird body"),
        (9, 0, b"m" * 24 + bytes(48)),
        (10, 0, b"c" * 72),
        (11, 0, pack("<3Q", 0, 5, 5)),
        (12, 1, pack("<Q", 9)),
        (13, 0, pack("<3Q", 1, 2, 9)),
        (2, 0, pack("<4I", 0, 2, 1, 1)),
        (20, 0, pack("<IIQ", 0, 2, 17)),
        (21, 0, pack("<IIQQII", 0, 1, 3, 99, 1, 0)),
        (22, 0, pack("<IIQ", 1, 4, 98)),
        (23, 0, pack("<HHI", 6, 0, 2) + b"cursor42" + pack("<HHI", 4, 0, 2**32 - 1) + b"gone"),
        (1, 0, pack("<II", 0, 2) + pack("<BBH", 4, 5, 3) + b"Q.ONEkey" + pack("<BBH", 0, 2, 0) + b"\xc3\x9c"),
    ]
    body = b"".join(pack("<HHI", kind, form, len(content)) for kind, form, content in sections)
    for _kind, _form, content in sections:
        body += content + bytes(-len(content) % 8)
    salt, sequence = 0x1122334455667788, 0x0102030405
    checked = pack("<4sHHQQQQIIH6x", b"MQJF", 1, 0, salt, sequence, 11, 13, 3, 64 + len(body), len(sections)) + body
    expected = pack("<Q", xxh3_64_intdigest(checked, seed=salt)) + checked
    assert encoded(rows, links, LaneNumbers(), salt, sequence) == expected.ljust(4096, b"\0")


HEADS = [b"MD  <Top>a/%s/temperature</Top>" % level for level in (b"1", b"22", b"333", b"4")]


def packed_frame(salt: int = 7, version: int = 1) -> bytes:
    """What is read whether or not there is a compiler: a frame with packed heads, byte by byte."""
    heads = pack("<II", 4, 123) + b"".join(
        [
            b"\1\x1eMD  <Top>a/1/temperature</Top>",
            b"\0\0\2" + b"\0\x0b" + b"\1\x12",
            b"\3\0\x0222\0",
            b"\3\0\x03333\0",
            b"\3\0\x014\0",
        ]
    )
    sections = [
        (4, 1, heads),
        (5, 1, bytes([0, 1, 2, 3, 0])),
        (6, 4, pack("<6i", 0, 1, 2, 3, 4, 5)),
        (7, 0, b"abcde"),
        (2, 0, pack("<II", 0, 5)),
        (1, 0, pack("<II", 0, 1) + pack("<BBH", 4, 1, 0) + b"Q"),
    ]
    body = b"".join(pack("<HHI", kind, form, len(content)) for kind, form, content in sections)
    for _kind, _form, content in sections:
        body += content + bytes(-len(content) % 8)
    checked = pack("<4sHHQQQQIIH6x", b"MQJF", version, 0, salt, 3, 11, 13, 5, 64 + len(body), len(sections)) + body
    return (pack("<Q", xxh3_64_intdigest(checked, seed=salt)) + checked).ljust(4096, b"\0")


def test_packed_heads_are_those_of_the_reference() -> None:
    data = memoryview(packed_frame())
    header = frame_at(data, 0, 7, 3)
    assert header is not None
    sections = sections_of(data, 0, header)
    assert expanded_length(header, sections) == header.length + 123
    found = rows_of(header, sections)
    assert list(found.heads) == [*HEADS, HEADS[0]]
    assert list(found.bodies) == [b"a", b"b", b"c", b"d", b"e"]
    assert found.size == header.length + 123, "what is kept in memory is counted as it is in memory"
    expand_heads(sections, 3)
    assert (bytes(sections[3][1]), bytes(sections[4][1])) == (pack("<5i", 0, 30, 61, 93, 123), b"".join(HEADS))


@pytest.mark.skipif(not rows_in_c.compiled(), reason="heads are packed where there was a compiler")
def test_packed_heads_are_written_byte_for_byte() -> None:
    rows = Columns([*HEADS, HEADS[0]], [b"a", b"b", b"c", b"d", b"e"])
    links = Links([(("Q", b"", 5), 5)], [], [], [], {})
    assert encoded(rows, links, LaneNumbers()) == packed_frame()


def test_a_frame_of_a_later_release_is_refused_by_its_version() -> None:
    """It is whole, so it is neither damage nor a torn tail."""
    with pytest.raises(StoreCorrupt, match="frame 3 has format version 2, this program reads 1: use the release"):
        frame_at(memoryview(packed_frame(version=2)), 0, 7, 3)


def test_packed_heads_that_are_none_are_one_error() -> None:
    data = memoryview(bytearray(packed_frame()))
    at = bytes(data).index(pack("<II", 4, 123))
    for count, total, what in (4, 122, "longer than they say"), (4, 2**32 - 1, "too long together"), (3, 123, ""):
        data[at : at + 8] = pack("<II", count, total)
        length = int.from_bytes(data[52:56], "little")
        data[0:8] = pack("<Q", xxh3_64_intdigest(data[8:length], seed=7))
        header = frame_at(data, 0, 7)
        assert header is not None
        sections = sections_of(data, 0, header)
        assert expanded_length(header, sections) <= header.length + (16 << 20)
        with pytest.raises(StoreCorrupt, match=f"frame 3: .*{what}"):
            rows_of(header, sections)


@given(columns(), LINKS, st.data())
def test_nonsense_with_a_right_checksum_is_one_error(rows: Columns, links: Links, data: st.DataObject) -> None:
    """Whatever a defect of ours might write: reading it fails as damage does, in memory like the frame's."""
    frame = bytearray(encoded(rows, links, LaneNumbers()))
    length = int.from_bytes(frame[52:56], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(48, 64 + 8 * 16) | st.integers(48, length - 1))
        frame[place % length] = data.draw(st.integers(0, 255))
    changed = int.from_bytes(frame[52:56], "little")
    if 64 <= changed <= len(frame):
        frame[0:8] = pack("<Q", xxh3_64_intdigest(frame[8:changed], seed=7))
    try:
        header = frame_at(memoryview(frame), 0, 7)
        if header is not None:
            sections = sections_of(memoryview(frame), 0, header)
            links_of(sections, [], header.sequence)
            changes_of(5, header, sections, [])
            if header.rows:
                found = rows_of(header, sections)
                for row in range(min(header.rows, 400)):
                    found.message(row, 1, 0)
    except StoreCorrupt:
        pass


@given(
    st.integers(0, 9),
    st.integers(1, 40),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 45), st.integers(0, 45)), min_size=1, max_size=6),
)
def test_columns_of_values_of_one_length_are_cut_as_any_other(
    width: int, rows: int, last_is_longer: bool, cuts: list[tuple[int, int]]
) -> None:
    bodies = [(b"%09d" % at)[9 - width :] for at in range(rows)]
    if last_is_longer:
        bodies[-1] += b"+"
    data = memoryview(encoded(Columns([b"head"] * rows, bodies), Links([], [], [], [], {}), LaneNumbers()))
    header = frame_at(data, 0, 7)
    assert header is not None
    found = rows_of(header, sections_of(data, 0, header)).bodies
    for begin, end in cuts:
        assert found[begin:end] == bodies[begin:end]
    assert [found[at] for at in range(rows)] == bodies
