"""Landing: a batch is there whole or not at all, once, whatever number Spark gives it. Without Spark or pyarrow."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.pipeline.errors import LeaseLost
from gateway.pipeline.land import durable
from gateway.pipeline.land.landing import Landing, MicroBatch
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.land.ranges import Ranges


def rows(file: Path) -> int:
    return len(file.read_text().split())


def landing(folder: Path) -> Landing:
    return Landing(folder, "job", rows)


def write(batch: MicroBatch | None, table: str = "bronze") -> None:
    assert batch is not None
    target = batch.stage(table)
    if target is not None:
        target.mkdir(parents=True)
        numbers = [str(n) for _, low, high in batch.pieces for n in range(low, high)]
        (target / "part-0.parquet").write_text(" ".join(numbers))


def visible(folder: Path) -> list[int]:
    return sorted(int(n) for file in folder.glob("bronze/batch=*/*.parquet") for n in file.read_text().split())


def piece(low: int, high: int) -> Ranges:
    return [("job:Q", low, high)]


def land(where: Landing, number: int, low: int, high: int) -> None:
    batch = where.begin("query", number, piece(low, high))
    if batch is not None:
        write(batch)
        batch.land()


def test_batches_land_once_under_any_number(tmp_path: Path) -> None:
    land(landing(tmp_path), 0, 0, 10)
    land(landing(tmp_path), 7, 0, 10)
    land(landing(tmp_path), 8, 5, 15)  # cut differently after a lost checkpoint: only the rest lands
    assert visible(tmp_path) == list(range(15))
    manifest = Manifest(tmp_path)
    assert manifest.landed.next("job:Q") == 15
    assert [record.tables["bronze"].rows for record in manifest.records()] == [10, 5]


def test_staged_and_not_renamed_is_nothing(tmp_path: Path) -> None:
    write(landing(tmp_path).begin("query", 0, piece(0, 10)))
    assert visible(tmp_path) == []
    land(landing(tmp_path), 0, 0, 10)
    assert visible(tmp_path) == list(range(10))


def test_renamed_and_not_recorded_is_kept_for_the_same_batch(tmp_path: Path) -> None:
    batch = landing(tmp_path).begin("query", 0, piece(0, 10))
    write(batch)
    assert batch is not None
    batch._rename()
    again = landing(tmp_path).begin("query", 0, piece(0, 10))
    assert again is not None
    assert again.stage("bronze") is None
    again.land()
    assert visible(tmp_path) == list(range(10))


def test_renamed_and_not_recorded_goes_when_the_next_batch_is_another(tmp_path: Path) -> None:
    batch = landing(tmp_path).begin("query", 0, piece(0, 10))
    write(batch)
    assert batch is not None
    batch._rename()
    land(landing(tmp_path), 0, 0, 25)
    assert visible(tmp_path) == list(range(25))


def test_state_is_that_of_the_last_batch(tmp_path: Path) -> None:
    where = landing(tmp_path)
    where.replaced = {"devices"}
    for number in range(3):
        batch = where.begin("query", number, piece(10 * number, 10 * number + 10))
        assert batch is not None
        for table in ("bronze", "_state/windows", "devices"):
            write(batch, table)
        batch.land()
        assert where.latest("_state/windows") == batch.final("_state/windows")
    assert len(list(tmp_path.glob("_state/windows/batch=*"))) == 1
    assert len(list(tmp_path.glob("devices/batch=*"))) == 1
    assert len(list(tmp_path.glob("bronze/batch=*"))) == 3


def test_folded_records_are_remembered(tmp_path: Path) -> None:
    where = landing(tmp_path)
    for number in range(10):
        land(where, number, 10 * number, 10 * number + 10)
    assert where.manifest.fold(keep=2) == 8
    again = Manifest(tmp_path)
    assert (again.landed.next("job:Q"), again.next_number, len(again.records())) == (100, 11, 2)
    assert len(again.folders["bronze"]) == 10
    land(landing(tmp_path), 10, 95, 110)
    assert visible(tmp_path) == list(range(110))


def test_a_driver_that_waited_for_the_lease_sees_what_the_other_has_landed(tmp_path: Path) -> None:
    """It knew nothing of those batches when it was made: it neither removes them nor lands them again."""
    waiting = landing(tmp_path)
    for number in range(3):
        land(landing(tmp_path), number, 10 * number, 10 * number + 10)
    waiting.restart()
    land(landing(tmp_path), 3, 30, 40)
    land(waiting, 3, 30, 40)
    land(waiting, 4, 35, 50)
    assert visible(tmp_path) == list(range(50))


def test_a_driver_that_was_thought_dead_lands_nothing(tmp_path: Path) -> None:
    slow = landing(tmp_path)
    batch = slow.begin("query", 0, piece(0, 10))
    write(batch)
    assert batch is not None
    land(landing(tmp_path), 0, 0, 10)
    land(landing(tmp_path), 1, 10, 20)
    with pytest.raises(LeaseLost, match="another driver has landed"):
        batch.land()
    assert visible(tmp_path) == list(range(20))


def test_a_driver_that_wakes_leaves_what_its_successor_has_staged(tmp_path: Path) -> None:
    asleep, successor = landing(tmp_path), landing(tmp_path)
    land(asleep, 0, 0, 10)
    land(successor, 1, 10, 20)
    batch = successor.begin("query", 2, piece(20, 30))
    write(batch)
    with pytest.raises(LeaseLost, match="another driver has landed"):
        asleep.begin("query", 1, piece(10, 15))
    assert batch is not None
    batch.land()
    assert visible(tmp_path) == list(range(30))


def test_records_are_folded_when_there_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pipeline.land.manifest.FOLD_AT", 8)
    monkeypatch.setattr("gateway.pipeline.land.manifest.FOLD_KEEPS", 4)
    monkeypatch.setattr(Manifest.fold, "__defaults__", (4,))
    where = landing(tmp_path)
    for number in range(30):
        land(where, number, 10 * number, 10 * number + 10)
    assert len(Manifest(tmp_path).records()) <= 12
    assert Manifest(tmp_path).landed.next("job:Q") == 300


def test_compaction_beside_a_running_job_is_not_forgotten(tmp_path: Path) -> None:
    where = landing(tmp_path)
    for number in range(4):
        land(where, number, 10 * number, 10 * number + 10)
    beside = Manifest(tmp_path)
    old = set(sorted(beside.folders["bronze"])[:2])
    beside.replace_folders("bronze", old, "bronze/batch=merged-1")
    land(where, 4, 40, 50)
    where.manifest.fold(keep=1)
    found = Manifest(tmp_path).folders["bronze"]
    assert "bronze/batch=merged-1" in found
    assert len(found) == 4
    assert not found & old


def test_the_name_of_each_new_folder_is_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power loss a table, or the manifest, would be gone with its folder."""
    synchronised: list[Path] = []
    sync = durable.sync_file

    def watched(path: Path) -> None:
        synchronised.append(path)
        sync(path)

    monkeypatch.setattr(durable, "sync_file", watched)
    (tmp_path / "staged").mkdir()
    durable.move_folder(tmp_path / "staged", tmp_path / "lake/_state/gaps/batch=1")
    durable.write_json(tmp_path / "lake/_manifest/1.json", {})
    above = [tmp_path, tmp_path / "lake", tmp_path / "lake/_state", tmp_path / "lake/_state/gaps"]
    assert synchronised == [*above, tmp_path / "lake", tmp_path / "lake/_manifest"]
