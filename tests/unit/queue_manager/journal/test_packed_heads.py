"""Heads that are alike are packed in a frame: every reader of frames sees them whole, older releases refuse them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import StoreCorrupt
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.journal.decode import frame_at, sections_of
from gateway.queue_manager.journal.diagnosis import Problem, Salvaged, Verdict, check, dump, salvage
from gateway.queue_manager.journal.layout import BLOCK, PACKED, VERSION, Kind, header_area
from gateway.queue_manager.journal.segment import read_header
from gateway.queue_manager.store import rows
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

OPTIONS = StoreOptions(segment_bytes=64 * 1024, spare_segments=1, direct=False, background=False)
HEADS = [b"M" * 300 + b"<Top>plant/lima/line/%d/temperature</Top>" % line + bytes(200) for line in range(120)]
BODIES = [b"body %d" % number for number in range(120)]

pytestmark = pytest.mark.skipif(not rows.compiled(), reason="heads are packed where there was a compiler")


def opened(folder: Path) -> Store:
    return Store.open(folder, clock=lambda: 2.0, options=OPTIONS)


def commit(store: Store, unit: StoreUnit) -> int:
    """The bytes of its frame."""
    prepared = store.prepare(unit, 2.0)
    store.write(prepared)
    store.apply(prepared)
    return len(prepared.frame or b"")


def put(store: Store, begin: int = 0, end: int = 120) -> int:
    return commit(store, StoreUnit(puts=[LanePuts("A", b"", 4, True, HEADS[begin:end], BODIES[begin:end])]))


def packed(folder: Path) -> list[bool]:
    """Of each frame with messages: whether its heads are packed."""
    found = []
    for path in sorted(folder.glob("*.segment")):
        data = memoryview(path.read_bytes())
        header, _ = read_header(data, len(data))
        if header is None:
            continue
        for offset in range(2 * header_area(len(data)), len(data), BLOCK):
            frame = frame_at(data, offset, header.salt)
            sections = sections_of(data, offset, frame) if frame is not None else {}
            if Kind.HEADS in sections:
                found.append(sections[Kind.HEADS][0] == PACKED)
    return found


def test_they_are_whole_again_from_disk_and_few_bytes_on_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store) <= 8192 < sum(map(len, HEADS)) // 7
    store.close()
    assert packed(tmp_path) == [True]
    store = opened(tmp_path)
    found = store.fetch("A", limit=200)
    assert [(each.head, each.body) for each in found] == list(zip(HEADS, BODIES, strict=True))
    assert store.reader.cache.size > sum(map(len, HEADS)), "they are counted as they lie in memory"
    assert [each.head for each in store.reader.read_all("A", b"", [found[7].token, found[3].token])] == [
        HEADS[7],
        HEADS[3],
    ]
    store.close()


def test_a_frame_with_few_heads_has_them_as_they_are(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, 0, 3)
    store.close()
    assert packed(tmp_path) == [False]


def test_survivors_are_carried_forward_whole(tmp_path: Path) -> None:
    store = opened(tmp_path)
    kept = []
    for _ in range(60):
        put(store)
        tokens = [each.token for each in store.fetch("A", limit=999)][len(kept) :]
        kept += tokens[::40]
        commit(store, StoreUnit(takes=[LaneTakes("A", b"", [each for each in tokens if each not in kept])]))
        while (step := store.maintain(2.0)) is not None:
            store.write(step)
            store.apply(step)
    expected = [(HEADS[at], BODIES[at]) for _ in range(60) for at in (0, 40, 80)]
    assert [(each.head, each.body) for each in store.fetch("A", limit=999)] == expected
    store.close()
    store = opened(tmp_path)
    assert [(each.head, each.body) for each in store.fetch("A", limit=999)] == expected
    store.close()
    assert True in packed(tmp_path)


def test_inspection_reads_them(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    store.close()
    (verdict,) = check(tmp_path)
    assert isinstance(verdict, Verdict)
    assert (verdict.messages, verdict.problems) == (120, 0)
    saved = [each.message for each in salvage(tmp_path) if isinstance(each, Salvaged)]
    assert [each.head for each in saved] == HEADS


def test_a_frame_of_a_later_release_is_refused_and_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(tmp_path)
    put(store, 0, 2)
    monkeypatch.setattr("gateway.queue_manager.journal.encode.VERSION", VERSION + 1)
    put(store)
    monkeypatch.undo()
    store.close()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.segment")}
    with pytest.raises(StoreCorrupt, match="frame 2 has format version 2, this program reads 1: use the release"):
        opened(tmp_path)
    problem, verdict = check(tmp_path)
    assert isinstance(problem, Problem)
    assert problem.what.startswith("frame 2 has format version 2")
    assert isinstance(verdict, Verdict)
    assert verdict.problems == 1
    assert any(isinstance(each, Problem) and "format version 2" in each.what for each in dump(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.segment")} == before
