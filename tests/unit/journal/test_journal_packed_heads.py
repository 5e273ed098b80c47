"""Heads that are alike are packed in a frame: every reader of frames sees them whole, older releases refuse them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import StoreCorrupt
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.journal.inspection import Problem, Salvaged, Verdict, check, dump, salvage
from gateway.queue_manager.journal.layout import PACKED_VERSION, VERSION
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


def versions(folder: Path) -> set[int]:
    frames = [frame for frame in dump(folder) if not isinstance(frame, Problem)]
    return {
        int.from_bytes(frame.path.read_bytes()[frame.offset + 12 : frame.offset + 14], "little") for frame in frames
    }


def test_they_are_whole_again_from_disk_and_few_bytes_on_it(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert put(store) <= 8192 < sum(map(len, HEADS)) // 7
    store.close()
    assert versions(tmp_path) == {VERSION, PACKED_VERSION}, "the closing frame has nothing of version 2"
    store = opened(tmp_path)
    found = store.fetch("A", limit=200)
    assert [(each.head, each.body) for each in found] == list(zip(HEADS, BODIES, strict=True))
    assert store.cache.size > sum(map(len, HEADS)), "they are counted as they lie in memory"
    assert [each.head for each in store.read("A", b"", [found[7].token, found[3].token])] == [HEADS[7], HEADS[3]]
    store.close()


def test_frames_with_few_heads_are_what_they_always_were(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, 0, 3)
    store.close()
    assert versions(tmp_path) == {VERSION}


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
    assert versions(tmp_path) == {VERSION, PACKED_VERSION}


def test_inspection_reads_them(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store)
    store.close()
    (verdict,) = check(tmp_path)
    assert isinstance(verdict, Verdict)
    assert (verdict.messages, verdict.problems) == (120, 0)
    saved = [each.message for each in salvage(tmp_path) if isinstance(each, Salvaged)]
    assert [each.head for each in saved] == HEADS


def test_an_older_release_refuses_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path)
    put(store, 0, 2)
    put(store)
    store.close()
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.segment")}
    with monkeypatch.context() as patched:
        patched.setattr("gateway.queue_manager.journal.decode.VERSIONS", (VERSION,))
        with pytest.raises(StoreCorrupt, match="frame 2 has format 2, this program reads 1 and older: use the release"):
            opened(tmp_path)
        problem, verdict = check(tmp_path)
        assert isinstance(problem, Problem)
        assert problem.what.startswith("frame 2 has format 2")
        assert isinstance(verdict, Verdict)
        assert verdict.problems == 1
        assert any(isinstance(each, Problem) and "format 2" in each.what for each in dump(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.segment")} == before
    store = opened(tmp_path)
    assert store.depth("A") == 122
    store.close()
