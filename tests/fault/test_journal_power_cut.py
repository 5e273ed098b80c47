"""Power cuts simulated on the bytes: the last frame torn in every way ends the journal before it; damage elsewhere is
reported.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from open_files import open_files

from gateway.errors import StoreCorrupt
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.journal.layout import BLOCK, header_area
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
SECTOR = 512
OPTIONS = StoreOptions(segment_bytes=128 * 1024, spare_segments=1, direct=False, background=False, cache_bytes=0)


@dataclass
class Journal:
    """A journal left behind by a killed process, and what it must still say."""

    path: Path
    newest: Path
    offset: int
    """Of the last frame in the newest segment."""
    end: int
    before: list[bytes]
    """The queue before the last frame."""
    after: list[bytes]


def opened(path: Path) -> Store:
    return Store.open(path, clock=lambda: 1.0, options=OPTIONS)


def listed(store: Store) -> list[bytes]:
    return [message.body for message in store.fetch("Q", limit=10_000)]


def commit(store: Store, unit: StoreUnit) -> None:
    prepared = store.prepare(unit, 1.0)
    store.write(prepared)
    store.apply(prepared)


def crash(store: Store) -> None:
    store.ring.close()
    assert store._lock is not None
    store._lock.release()


def stale_frames_behind(store: Store) -> bool:
    current = store.ring.current
    return current is not None and b"MQJF" in current.path.read_bytes()[current.end + 16 * 1024 :]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    """Segments were recycled, so that whole frames of an earlier use lie behind the last one."""
    path = tmp_path_factory.mktemp("journal")
    store = opened(path)
    dice = random.Random(3)
    for _ in range(16):
        commit(
            store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD] * 5, bodies=[dice.randbytes(1500) for _ in range(5)])])
        )
    for _ in range(1000):
        puts = LanePuts("Q", heads=[HEAD] * 5, bodies=[dice.randbytes(1500) for _ in range(5)])
        commit(store, StoreUnit(puts=[puts]))
        commit(store, StoreUnit(takes=[LaneTakes("Q", tokens=puts.tokens)]))
        step = store.maintain(1.0)
        if step is not None:
            store.write(step)
            store.apply(step)
        if stale_frames_behind(store):
            break
    for _ in range(2):
        commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD] * 2, bodies=[b"near", b"the end"])]))
    before = listed(store)
    commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD, HEAD[:-1] + b"x"], bodies=[b"last" * 900, b"one" * 700])]))
    current = store.ring.current
    assert current is not None
    prepared_end = current.end
    offset = prepared_end - 2 * BLOCK
    after = listed(store)
    crash(store)
    assert current.path.read_bytes()[offset + 8 : offset + 12] == b"MQJF"
    stale = current.path.read_bytes()[prepared_end:]
    assert b"MQJF" in stale
    return Journal(path, current.path, offset, prepared_end, before, after)


Damage = Callable[[bytearray], None]


def reopened(journal: Journal, tmp_path: Path, damage: Damage, name: str | None = None) -> list[bytes]:
    """What a copy of the journal says after the damage to its newest (or a named) segment; it is also written to and
    reopened.
    """
    copy = tmp_path / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(journal.path, copy)
    target = copy / (name or journal.newest.name)
    data = bytearray(target.read_bytes())
    damage(data)
    target.write_bytes(data)
    store = opened(copy)
    found = listed(store)
    commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"goes on"])]))
    crash(store)
    store = opened(copy)
    assert listed(store) == [*found, b"goes on"]
    store.close()
    return found


def test_untouched_it_is_whole(journal: Journal, tmp_path: Path) -> None:
    assert reopened(journal, tmp_path, lambda data: None) == journal.after


@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"?"])
def test_a_tail_lost_from_any_sector_on_ends_at_the_frame_before(
    journal: Journal, tmp_path: Path, filling: bytes
) -> None:
    dice = random.Random(1)
    exact = int.from_bytes(journal.newest.read_bytes()[journal.offset + 52 : journal.offset + 56], "little")
    for at in range(journal.offset, journal.offset + exact, SECTOR):

        def damage(data: bytearray, at: int = at) -> None:
            length = journal.end - at
            data[at : journal.end] = dice.randbytes(length) if filling == b"?" else filling * length

        assert reopened(journal, tmp_path, damage) == journal.before


def test_sectors_written_out_of_order(journal: Journal, tmp_path: Path) -> None:
    """Any sectors but all of them reached the disk; the others still hold what lay there before."""
    dice = random.Random(2)
    used = range(journal.offset, journal.end, SECTOR)
    exact = int.from_bytes(journal.newest.read_bytes()[journal.offset + 52 : journal.offset + 56], "little")
    needed = [at for at in used if at < journal.offset + exact]
    for _ in range(25):
        lost = dice.sample(needed, dice.randint(1, len(needed)))

        def damage(data: bytearray, lost: list[int] = lost) -> None:
            for at in lost:
                data[at : at + SECTOR] = dice.choice([bytes(SECTOR), dice.randbytes(SECTOR)])

        assert reopened(journal, tmp_path, damage) == journal.before


def test_any_bit_of_the_last_frame(journal: Journal, tmp_path: Path) -> None:
    dice = random.Random(4)
    exact = int.from_bytes(journal.newest.read_bytes()[journal.offset + 52 : journal.offset + 56], "little")
    places = [*range(64), *[dice.randrange(64, exact) for _ in range(60)]]
    for place in places:

        def damage(data: bytearray, place: int = place) -> None:
            data[journal.offset + place] ^= 1 << dice.randrange(8)

        assert reopened(journal, tmp_path, damage) == journal.before


def test_damage_before_the_end_is_reported(journal: Journal, tmp_path: Path) -> None:
    """In the newest segment, with whole frames behind it, and in a sealed one."""
    dice = random.Random(5)
    store = opened(shutil.copytree(journal.path, tmp_path / "look"))
    used = sorted(store.ring.used.values(), key=lambda segment: segment.serial)
    ends = {segment.path.name: (segment.begin, segment.end) for segment in used if segment.end > segment.begin}
    crash(store)
    begin = 2 * header_area(OPTIONS.segment_bytes)
    for name in [each for each in ends if each != journal.newest.name][:1] * 20 + [journal.newest.name] * 20:
        first, end = ends.get(name, (begin, journal.offset))
        end = min(end, journal.offset) if name == journal.newest.name else end
        whole = (journal.path / name).read_bytes()
        frames = [at for at in range(first, end, BLOCK) if whole[at + 8 : at + 12] == b"MQJF"]
        at = dice.choice(frames)
        length = int.from_bytes(whole[at + 52 : at + 56], "little")
        place = at + dice.randrange(length)

        def damage(data: bytearray, place: int = place) -> None:
            data[place] ^= 1 << dice.randrange(8)

        with pytest.raises(StoreCorrupt, match=r"damaged at byte|format"):
            reopened(journal, tmp_path, damage, name)


def test_one_header_copy_is_enough_and_none_is_reported(journal: Journal, tmp_path: Path) -> None:
    area = header_area(OPTIONS.segment_bytes)

    def flip(*places: int) -> Damage:
        def damage(data: bytearray) -> None:
            for place in places:
                data[place] ^= 4

        return damage

    for place in (0, 9, 30, area + 3, area + 60):
        assert reopened(journal, tmp_path, flip(place)) == journal.after
    with pytest.raises(StoreCorrupt, match="both copies"):
        reopened(journal, tmp_path, flip(20, area + 20))


def test_a_missing_or_shortened_segment_is_reported(journal: Journal, tmp_path: Path) -> None:
    store = opened(shutil.copytree(journal.path, tmp_path / "look"))
    oldest = min(store.ring.used.values(), key=lambda segment: segment.serial).path.name
    crash(store)
    copy = shutil.copytree(journal.path, tmp_path / "missing")
    (copy / oldest).unlink()
    with pytest.raises(StoreCorrupt, match="missing or of another time"):
        opened(copy)
    copy = shutil.copytree(journal.path, tmp_path / "shortened")
    (copy / oldest).write_bytes((copy / oldest).read_bytes()[:-65536])
    with pytest.raises(StoreCorrupt):
        opened(copy)


def test_a_clean_end_makes_even_the_last_frame_checkable(tmp_path: Path) -> None:
    store = opened(tmp_path / "data")
    commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"one"])]))
    commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"two"])]))
    current = store.ring.current
    assert current is not None
    last = current.end - BLOCK
    store.close()
    data = bytearray(current.path.read_bytes())
    data[last + 100] ^= 1
    current.path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match="damaged at byte"):
        opened(tmp_path / "data")


def test_a_frame_a_user_wrote_is_not_taken_for_one(tmp_path: Path) -> None:
    store = opened(tmp_path / "data")
    commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"one"])]))
    current = store.ring.current
    assert current is not None
    forged = current.path.read_bytes()[current.begin : current.begin + BLOCK]
    bodies = [bytes(offset) + forged * 2 for offset in (3000, 3100, 3456, 3500)]
    commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD] * 4, bodies=bodies)]))
    expected = listed(store)
    crash(store)
    store = opened(tmp_path / "data")
    assert listed(store) == expected
    store.close()


def test_neither_failing_nor_closing_leaves_files_open(journal: Journal, tmp_path: Path) -> None:
    copy = shutil.copytree(journal.path, tmp_path / "damaged")
    data = bytearray((copy / journal.newest.name).read_bytes())
    data[0] = data[header_area(OPTIONS.segment_bytes)] = 1
    (copy / journal.newest.name).write_bytes(data)
    for _ in range(3):
        with pytest.raises(StoreCorrupt):
            opened(copy)
    whole = shutil.copytree(journal.path, tmp_path / "whole")
    (whole / "notes.segment").write_text("not ours: left alone")
    (whole / "00000099.segment").write_bytes(bytes(4096))
    store = opened(whole)
    commit(store, StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[b"x" * 100_000])]))
    store.close()
    assert open_files(tmp_path) == 0
    assert (whole / "notes.segment").exists()
