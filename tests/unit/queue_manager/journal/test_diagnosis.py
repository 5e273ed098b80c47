"""`mqgate journal check, dump, salvage` as functions: whole journals are whole, damage is named, the rest is read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from gateway.errors import StoreCorrupt, StoreInUse, StoreUnavailable
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.journal.diagnosis import (
    FrameRecord,
    Problem,
    Salvaged,
    SalvagedState,
    Verdict,
    check,
    dump,
    salvage,
)
from gateway.queue_manager.journal.layout import BLOCK, FrameFlag
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
OPTIONS = StoreOptions(segment_bytes=64 * 1024, spare_segments=1, direct=False, background=False)


def commit(store: Store, unit: StoreUnit) -> None:
    prepared = store.prepare(unit, 2.0)
    store.write(prepared)
    store.apply(prepared)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """30 frames with one message on each of two queues, the first message taken, one state record."""
    store = Store.open(tmp_path, clock=lambda: 2.0, options=OPTIONS)
    for i in range(30):
        body = b"%d" % i * 500
        puts = [LanePuts(queue, b"key", 4, True, [HEAD], [body]) for queue in ("A", "B")]
        commit(store, StoreUnit(puts=puts))
        if not i:
            commit(store, StoreUnit(takes=[LaneTakes("A", b"key", puts[0].tokens)], state={b"cursor": b"5"}))
    store.close()
    return tmp_path


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_a_whole_journal(journal: Path) -> None:
    steps: list[tuple[int, int]] = []
    (verdict,) = check(journal, lambda done, total: steps.append((done, total)))
    assert isinstance(verdict, Verdict)
    assert (verdict.messages, verdict.frames, verdict.state_records, verdict.problems) == (59, 32, 1, 0)
    assert verdict.closed
    assert steps[-1] == (verdict.segments, verdict.segments)
    frames = list(dump(journal))
    assert all(isinstance(frame, FrameRecord) for frame in frames)
    assert [frame.sequence for frame in frames] == list(range(1, 33))  # type: ignore[union-attr]
    first, second, last = frames[0], frames[1], frames[-1]
    assert isinstance(first, FrameRecord)
    assert isinstance(second, FrameRecord)
    assert isinstance(last, FrameRecord)
    assert (first.rows, first.links.groups) == (2, [(("A", b"key", 5), 1), (("B", b"key", 5), 1)])
    assert (second.links.takes[0].first, second.links.state) == (1, {b"cursor": b"5"})
    assert last.flags is FrameFlag.CLOSE
    found = list(salvage(journal))
    assert sum(isinstance(each, Salvaged) for each in found) == 59
    assert found[-1] == SalvagedState(b"cursor", b"5")


def test_damage_in_the_middle(journal: Path) -> None:
    frames = [frame for frame in dump(journal) if isinstance(frame, FrameRecord)]
    hit = frames[9]
    flip(hit.path, hit.offset + 200)
    *problems, verdict = check(journal)
    assert [(problem.path, problem.offset) for problem in problems if isinstance(problem, Problem)] == [
        (hit.path, hit.offset)
    ]
    assert isinstance(verdict, Verdict)
    assert (verdict.problems, verdict.messages) == (1, 57)
    assert [each for each in dump(journal) if isinstance(each, Problem)] == [
        Problem(hit.path, hit.offset, f"no whole frame to byte {hit.offset + BLOCK}")
    ]
    found = [each for each in salvage(journal) if isinstance(each, Salvaged)]
    assert len(found) == 57
    assert {each.message.head for each in found} == {HEAD}


def test_lost_lane_definitions_leave_the_messages(journal: Path) -> None:
    first = next(frame for frame in dump(journal) if isinstance(frame, FrameRecord))
    flip(first.path, first.offset + 100)
    found = [each for each in salvage(journal) if isinstance(each, Salvaged)]
    assert len(found) == 58
    lost = [each for each in found if each.queue == "?"]
    assert lost
    assert {each.queue for each in found} == {"?", "A", "B"}


def test_a_lost_header(journal: Path) -> None:
    oldest = next(frame for frame in dump(journal) if isinstance(frame, FrameRecord)).path
    data = bytearray(oldest.read_bytes())
    data[:20] = data[4096:4116] = b"?" * 20
    oldest.write_bytes(data)
    *problems, verdict = check(journal)
    assert isinstance(verdict, Verdict)
    assert verdict.problems == len(problems) >= 2
    assert sum(isinstance(each, Salvaged) for each in salvage(journal)) == 59


def test_only_journals_that_nobody_has_open(journal: Path, tmp_path: Path) -> None:
    store = Store.open(journal, clock=lambda: 2.0, options=OPTIONS)
    for look in (check, salvage):
        with pytest.raises(StoreInUse):
            list(look(journal))
    assert list(dump(journal))
    store.close()
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreUnavailable, match="no journal here"):
        list(check(tmp_path / "empty"))


def youngest(journal: Path) -> Path:
    return [frame for frame in dump(journal) if isinstance(frame, FrameRecord)][-1].path


def told(journal: Path) -> tuple[list[str], list[str]]:
    """What `check` and `salvage` say is wrong."""
    found = [each.what for each in check(journal) if isinstance(each, Problem)]
    return found, [each.what for each in salvage(journal) if isinstance(each, Problem)]


def opened(journal: Path) -> None:
    Store.open(journal, clock=lambda: 2.0, options=OPTIONS).close()


def test_a_youngest_file_that_was_cut_off(journal: Path) -> None:
    """Nothing lists it yet, but its header says how long it was."""
    path = youngest(journal)
    whole = path.read_bytes()
    for length in (len(whole) - BLOCK, 3 * BLOCK):
        path.write_bytes(whole[:length])
        text = f"cut off: it has {length} bytes of {len(whole)}"
        assert told(journal) == ([text], [text])
        with pytest.raises(StoreCorrupt, match=text):
            opened(journal)


def test_a_youngest_file_without_its_header(journal: Path) -> None:
    path = youngest(journal)
    before = len([each for each in salvage(journal) if isinstance(each, Salvaged)])
    path.write_bytes(bytes(2 * BLOCK) + path.read_bytes()[2 * BLOCK :])
    assert "both copies of the segment's header are damaged" in told(journal)[0]
    assert len([each for each in salvage(journal) if isinstance(each, Salvaged)]) == before
    with pytest.raises(StoreCorrupt, match="both copies of its header are damaged"):
        opened(journal)


def test_files_that_are_of_no_journal_or_of_two(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nobody can tell which of them counts, and none is used again before somebody has."""
    path, stranger = youngest(journal), tmp_path_factory.mktemp("other")
    commit(store := Store.open(stranger, clock=lambda: 2.0, options=OPTIONS),
           StoreUnit(puts=[LanePuts("A", b"", 4, True, [HEAD], [b""])]))  # fmt: skip
    store.close()
    for name, content, text in (
        ("00000099.segment", path.read_bytes(), "are copies of the same segment: move one of them away"),
        ("00000099.segment", youngest(stranger).read_bytes(), "are of different journals: move the files of one of"),
        ("99999999.segment", path.read_bytes(), "no segment has a number above 8388607: move this file away"),
    ):
        more = journal / name
        more.write_bytes(content)
        with pytest.raises(StoreCorrupt, match=text):
            opened(journal)
        with pytest.raises(StoreCorrupt, match=text):
            list(salvage(journal))
        more.unlink()
    assert told(journal) == ([], [])


@pytest.mark.parametrize("kind", ["directory", "pipe", "link to nothing"])
def test_what_is_no_file_is_named(journal: Path, kind: str) -> None:
    path = journal / "00000099.segment"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nothing")
    for examined in (check, salvage, dump):
        with pytest.raises(StoreUnavailable, match=f"{path}: .*: move it away, or put the file back"):
            list(examined(journal))
    with pytest.raises(StoreUnavailable, match=str(path)):
        opened(journal)


def test_blocks_that_the_disk_does_not_give_cost_what_they_hold(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping would end the process where the disk fails."""
    frames = [frame for frame in dump(journal) if isinstance(frame, FrameRecord)]
    hit, pread = frames[9], os.pread
    bad = range(0)

    def failing(descriptor: int, length: int, at: int) -> bytes:
        if Path(f"/proc/self/fd/{descriptor}").readlink() == hit.path and at < bad.stop and bad.start < at + length:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(descriptor, length, at)

    monkeypatch.setattr(os, "pread", failing)
    bad = range(hit.offset, hit.offset + 1)
    text = f"damaged to byte {hit.offset + BLOCK}: whole frames follow"
    assert told(journal) == ([text], [text])
    assert len([each for each in salvage(journal) if isinstance(each, Salvaged)]) == 57
    bad = range(2 * BLOCK)
    assert "both copies of the segment's header are damaged" in told(journal)[0]
    assert len([each for each in salvage(journal) if isinstance(each, Salvaged)]) == 59
    bad = range(hit.path.stat().st_size)
    assert told(journal)[1], "what could not be read is said"
    with pytest.raises(StoreUnavailable, match=f"{hit.path}: Input/output error"):
        opened(journal)
