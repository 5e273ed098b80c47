"""Delta logs of tables in a folder: they follow the manifest whenever a driver dies, and their columns the job."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.pipeline.commands import pipeline
from gateway.pipeline.errors import TableDiffers
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.replay import stored
from gateway.pipeline.jobs.tables.folder_tables import rows_in
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.land import delta
from gateway.pipeline.land.delta import DeltaLog
from gateway.pipeline.land.landing import Landing, MicroBatch
from gateway.pipeline.land.manifest import Manifest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")


class Died(BaseException):
    """The process is killed."""


def die(*_: object, **__: object) -> None:
    raise Died


def staged(folder: Path, low: int, high: int, job: str = "j", *, plain: bool = False, **more: list[Any]) -> MicroBatch:
    """A batch of a driver that has just begun: two tables, one of which is replaced."""
    import pyarrow.parquet as pq

    landing = Landing(folder, job, rows_in, None if plain else DeltaLog(folder, job, {"devices"}))
    landing.replaced |= {"devices"}
    batch = landing.begin("q", low, [("s", low, high)])
    assert batch is not None
    for table in ("bronze", "devices"):
        target = batch.stage(table)
        if target is not None:
            target.mkdir(parents=True)
            pq.write_table(pa.table({"seq": list(range(low, high))} | more), target / "p.parquet")
    return batch


def rows(folder: Path, table: str = "bronze") -> Any:
    from deltalake import DeltaTable

    return DeltaTable(str(folder / table)).to_pyarrow_table().sort_by("seq")


def seqs(folder: Path, table: str = "bronze") -> list[int]:
    return list(rows(folder, table)["seq"].to_pylist())


@pytest.mark.parametrize("at", [(Manifest, "append"), (delta, "add_action"), (Landing, "_drop_state")], ids=str)
@pytest.mark.parametrize("high", [20, 15, 30])
def test_a_driver_that_died_around_the_record(tmp_path: Path, at: Any, high: int) -> None:
    """The next one lands the same batch, or another one: its checkpoint may have been lost."""
    staged(tmp_path, 0, 10).land()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*at, die)
        with pytest.raises(Died):
            staged(tmp_path, 10, 20).land()
    landed = Manifest(tmp_path).landed.next("s")
    if high > landed:
        staged(tmp_path, landed, high).land()
    else:
        assert (
            Landing(tmp_path, "j", rows_in, DeltaLog(tmp_path, "j", {"devices"})).begin("q", 9, [("s", 0, 9)]) is None
        )
    until = max(landed, high)
    assert seqs(tmp_path) == list(range(until))
    assert seqs(tmp_path, "devices") == list(range(landed if high > landed else 10, until))


def test_columns_that_a_job_gains_and_gives_up(tmp_path: Path) -> None:
    staged(tmp_path, 0, 1, old=["x"]).land()
    staged(tmp_path, 1, 2, old=["y"], new=[1.5]).land()
    staged(tmp_path, 2, 3, new=[2.5], third=[True]).land()
    found = rows(tmp_path)
    assert found["old"].to_pylist() == ["x", "y", None]
    assert found["new"].to_pylist() == [None, 1.5, 2.5]
    assert found["third"].to_pylist() == [None, None, True]
    assert rows(tmp_path, "devices").select(["seq", "new", "third"]).to_pylist() == [
        {"seq": 2, "new": 2.5, "third": True}
    ]


def test_a_column_of_another_type_is_refused_before_anything_is_landed(tmp_path: Path) -> None:
    staged(tmp_path, 0, 1, value=[1]).land()
    with pytest.raises(TableDiffers, match="bronze: 'value' is long there, and string now: give the column"):
        staged(tmp_path, 1, 2, value=["1"]).land()
    assert Manifest(tmp_path).landed.next("s") == 1
    assert seqs(tmp_path) == [0]
    staged(tmp_path, 1, 2, value=[1]).land()
    assert seqs(tmp_path) == [0, 1]


def test_a_batch_is_added_although_rows_are_deleted_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention is an entry of the log, too; a commit that meets one is refused."""
    from deltalake import DeltaTable

    first = staged(tmp_path, 0, 1)
    first.land()
    begun = delta.add_columns
    meanwhile = [f"batch = '{first.id}'"]

    def and_deleted(found: Any, schema: Any) -> bool:
        if meanwhile:
            DeltaTable(str(tmp_path / "bronze")).delete(meanwhile.pop())
        return begun(found, schema)

    monkeypatch.setattr(delta, "add_columns", and_deleted)
    staged(tmp_path, 1, 2).land()
    assert meanwhile == []
    assert seqs(tmp_path) == [1]


def test_a_job_that_becomes_delta_has_all_its_rows_there(tmp_path: Path) -> None:
    staged(tmp_path, 0, 1, plain=True).land()
    staged(tmp_path, 1, 2, plain=True, new=["x"]).land()
    staged(tmp_path, 2, 3).land()
    assert rows(tmp_path)["new"].to_pylist() == [None, "x", None]
    assert seqs(tmp_path, "devices") == [2]


def test_a_job_of_another_name_goes_on(tmp_path: Path) -> None:
    staged(tmp_path, 0, 1).land()
    staged(tmp_path, 1, 2, job="other").land()
    staged(tmp_path, 2, 3, job="third").land()
    assert seqs(tmp_path) == [0, 1, 2]
    from deltalake import DeltaTable

    assert DeltaTable(str(tmp_path / "bronze")).version() == 2


def test_a_table_that_gets_nothing_has_no_records_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    landing = Landing(tmp_path, "j", rows_in, DeltaLog(tmp_path, "j", set()))
    load, read = Manifest._load, []

    def watched(manifest: Manifest, path: Path) -> Any:
        read.append(path)
        return load(manifest, path)

    for number in range(6):
        batch = landing.begin("q", number, [("s", number, number + 1)])
        assert batch is not None
        for table in ("bronze", "gaps") if number == 0 else ("bronze",):
            target = batch.stage(table)
            assert target is not None
            target.mkdir(parents=True)
            pq.write_table(pa.table({"seq": [number]}), target / "p.parquet")
        with monkeypatch.context() as patched:
            patched.setattr(Manifest, "_load", watched)
            read.clear()
            batch.land()
    assert len(read) <= 2
    assert seqs(tmp_path) == list(range(6))


def test_files_are_counted_where_files_are_merged(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    for seq in (1, 2):
        one = pa.table({"seq": [seq], "batch": ["0"]})
        write_deltalake(str(tmp_path / "lake/bronze"), one, mode="append", partition_by=["batch"])
    file = tmp_path / "job.yaml"
    file.write_text("version: 1\nname: j\nsource: {queue: Q, path: journal}\nwarehouse: lake\nformat: delta\n")
    assert "bronze: 2 files merged\n" in CliRunner().invoke(pipeline, ["compact", str(file)]).output


def test_a_batch_is_as_old_after_its_files_were_merged(tmp_path: Path) -> None:
    """`retention.keep` goes by when its rows have landed, and not by when `optimize` has merged them."""
    import pyarrow.parquet as pq

    batch = staged(tmp_path / "lake", 0, 1)
    pq.write_table(pa.table({"seq": [7]}), batch.staging("bronze") / "q.parquet")
    batch.land()
    staged(tmp_path / "lake", 1, 2).land()
    long_ago = time.time() - 40 * 86_400
    os.utime(batch.final("bronze"), (long_ago, long_ago))
    file = tmp_path / "job.yaml"
    text = "version: 1\nname: j\nsource: {queue: Q, path: journal}\nwarehouse: lake\nformat: delta\n"
    file.write_text(text + "retention: {keep: {bronze: 30d}}\n")
    said = CliRunner().invoke(pipeline, ["compact", str(file)]).output
    assert "bronze: 2 files merged\nbronze: 1 batch deleted\n" in said
    assert seqs(tmp_path / "lake") == [1]


def test_files_are_named_as_the_warehouse_is(tmp_path: Path) -> None:
    """Not by the folder that a link leads to, and with blanks: `files` and `replay` look for them."""
    (tmp_path / "a disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a disk")
    for name in ("link", "a disk"):
        lake = tmp_path / name / name / "lake"
        lake.parent.mkdir()
        staged(lake, 0, 1).land()
        text = f"version: 1\nname: j\nsource: {{queue: Q, path: journal}}\nwarehouse: '{lake}'\nformat: delta\n"
        job = parse_job("job.yaml", text)
        (found,) = warehouse_of(job).files("bronze")
        assert Path(found).is_file()
        (stored_as,) = stored(job, warehouse_of(job), [found])[1]
        assert lake / stored_as == Path(found)
