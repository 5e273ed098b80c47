"""Merging and expiring batches: the same rows before and after, also when it is ended in the middle."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.pipeline.errors import PipelineError, StoreRefuses
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables import compaction
from gateway.pipeline.jobs.tables.folder_tables import rows_in
from gateway.pipeline.jobs.tables.upkeep import shown_upkeep
from gateway.pipeline.land import merge
from gateway.pipeline.land.durable import read_json, write_json
from gateway.pipeline.land.landing import MERGED, Landing
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.land.merge import MERGING

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")


def seqs(folder: Path) -> list[int]:
    import pyarrow.parquet as pq

    files = folder.glob("bronze/**/*.parquet")
    return sorted(seq for file in files for seq in pq.ParquetFile(file).read().column("seq").to_pylist())


def column(value: Any) -> Any:
    """Ten times this value."""
    return pa.array([value.as_py()] * 10, value.type) if isinstance(value, pa.Scalar) else [value] * 10


def land(warehouse: Path, number: int, **more: Any) -> None:
    """A batch of ten rows, with these columns beside their numbers."""
    import pyarrow.parquet as pq

    batch = Landing(warehouse, "j", rows_in).begin("q", number, [("s", 10 * number, 10 * number + 10)])
    assert batch is not None
    target = batch.stage("bronze")
    assert target is not None
    target.mkdir(parents=True)
    rows = {"seq": list(range(10 * number, 10 * number + 10))} | {name: column(value) for name, value in more.items()}
    pq.write_table(pa.table(rows), target / "p.parquet")
    batch.land()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Six batches of ten rows."""
    for number in range(6):
        land(tmp_path, number)
    return job_in(tmp_path)


def job_in(tmp_path: Path, compact_bytes: int = 128 << 20) -> Job:
    text = f"version: 1\nname: j\nsource: {{queue: Q, path: x}}\nwarehouse: {tmp_path}\n"
    return parse_job(
        "job.yaml", text + f"retention: {{compact_files: 2, compact_bytes: {compact_bytes}, keep: {{bronze: 1d}}}}\n"
    )


def test_the_same_rows_in_fewer_files(job: Job, tmp_path: Path) -> None:
    before = shown_upkeep(job, Manifest(tmp_path))
    assert before["tables"] == [{"table": "bronze", "parts": 6, "small": 4, "left_out": 0, "due": True}]
    assert "due (bronze)" in before["next_compaction"]
    assert compaction.compact(job) == {"bronze": 4}
    assert seqs(tmp_path) == list(range(60))
    assert len(list(tmp_path.glob("bronze/batch=*"))) == 3
    assert Landing(tmp_path, "j", rows_in).begin("q", 9, [("s", 0, 60)]) is None
    assert seqs(tmp_path) == list(range(60)), "the job takes nothing of it for a left-over"
    assert compaction.compact(job) == {}
    after = shown_upkeep(job, Manifest(tmp_path))
    assert after["tables"] == [{"table": "bronze", "parts": 3, "small": 1, "left_out": 0, "due": False}]
    assert after["next_compaction"] == "after 1 more small part"


def test_one_command_merges_all_that_is_small(tmp_path: Path) -> None:
    """Not one file a day of the target size, of a day's batches that are many times as long."""
    for number in range(14):
        land(tmp_path, number, text=random.Random(number).randbytes(1000).hex())
    job = job_in(tmp_path, compact_bytes=40_000)
    assert compaction.compact(job) == {"bronze": 12}
    assert seqs(tmp_path) == list(range(140))
    assert len(list(tmp_path.glob("bronze/batch=*"))) <= 6
    assert not shown_upkeep(job, Manifest(tmp_path))["tables"][0]["due"]


def test_few_that_make_one_of_the_target_size_are_merged(tmp_path: Path) -> None:
    """They were too few for ever, where no more of them have room in one file."""
    for number in range(12):
        land(tmp_path, number, text=random.Random(number).randbytes(9_000 if number < 3 else 10).hex())
    job = job_in(tmp_path, compact_bytes=40_000)
    job = job.model_copy(update={"retention": job.retention.model_copy(update={"compact_files": 6})})
    assert shown_upkeep(job, Manifest(tmp_path))["tables"][0]["due"]
    assert compaction.compact(job) == {"bronze": 10}
    assert seqs(tmp_path) == list(range(120))
    assert len(list(tmp_path.glob("bronze/batch=*"))) == 4
    assert not shown_upkeep(job, Manifest(tmp_path))["tables"][0]["due"]


def test_rows_that_are_merged_again_and_again_go_when_they_are_old(job: Job, tmp_path: Path) -> None:
    """Of a table that has few. Two that landed far apart do not go together."""
    day = 86_400.0
    began = time.time()
    for record in Manifest(tmp_path).records():
        landed = began + ((record.number - 1) // 2) * day / 2
        os.utime(tmp_path / record.tables["bronze"].folder, (landed, landed))
    assert compaction.compact(job) == {"bronze": 4}
    assert len(list(tmp_path.glob("bronze/batch=*"))) == 4
    assert compaction.expire(job, now=began + day + 60) == {"bronze": 1}
    assert seqs(tmp_path) == list(range(20, 60))


def test_a_driver_that_goes_on_tells_the_parts_that_are_there_now(job: Job, tmp_path: Path) -> None:
    driver = Landing(tmp_path, "j", rows_in).manifest
    assert driver.now() is driver
    compaction.compact(job)
    assert shown_upkeep(job, driver)["tables"][0]["parts"] == 6
    assert shown_upkeep(job, driver.now())["tables"][0]["parts"] == 3
    assert driver.fold(keep=1)
    assert driver.now() is driver, "what it has written itself it has not to read"
    assert shown_upkeep(job, driver)["tables"][0]["parts"] == 3


def test_what_is_long_is_no_small_part(tmp_path: Path) -> None:
    """Status says what a merge would do, whatever has been folded, and with a manifest of a release before lengths."""
    for number in range(6):
        land(tmp_path, number, text=random.Random(number).randbytes(30_000).hex() if number < 2 else "x")
    job = job_in(tmp_path, compact_bytes=20_000)
    expected = {"table": "bronze", "parts": 6, "small": 2, "left_out": 0, "due": True}
    assert shown_upkeep(job, Manifest(tmp_path))["tables"] == [expected]
    Manifest(tmp_path).fold(keep=2)
    assert shown_upkeep(job, Manifest(tmp_path))["tables"] == [expected]
    assert compaction.compact(job) == {"bronze": 2}
    after = shown_upkeep(job, Manifest(tmp_path))["tables"]
    assert after == [{"table": "bronze", "parts": 5, "small": 1, "left_out": 0, "due": False}]
    summary = tmp_path / "_manifest" / "summary.json"
    write_json(summary, {name: value for name, value in read_json(summary).items() if name != "sizes"})
    older = shown_upkeep(job, Manifest(tmp_path))["tables"]
    assert older == [{"table": "bronze", "parts": 5, "small": 2, "left_out": 0, "due": True}], "none that was merged"


class Ended(BaseException):
    """The process is killed."""


def die(*_: object) -> None:
    raise Ended


def compact_and_die(job: Job, *at: Any) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*at, die)
        with pytest.raises(Ended):
            compaction.compact(job)


POINTS = [(merge, "finish"), (merge, "move_folder"), (Manifest, "replace_folders"), (Path, "unlink")]
"""Where a compaction is killed: its intent is recorded; old batches have left; the new one is there; it is recorded."""


@pytest.mark.parametrize("at", POINTS, ids=str)
def test_ended_between_the_moves(job: Job, tmp_path: Path, at: Any) -> None:
    compact_and_die(job, *at)
    assert compaction.finish(tmp_path)
    assert seqs(tmp_path) == list(range(60))
    assert not compaction.finish(tmp_path)


@pytest.mark.parametrize("at", POINTS, ids=str)
def test_a_job_completes_what_a_killed_compaction_had_begun(job: Job, tmp_path: Path, at: Any) -> None:
    """It removes folders that no record names, and the merged batch is in none."""
    compact_and_die(job, *at)
    land(tmp_path, 6)
    assert seqs(tmp_path) == list(range(70))
    assert not compaction.finish(tmp_path)
    assert len(Manifest(tmp_path).folders["bronze"]) == 4


@pytest.mark.parametrize("at", [(compaction, "sync_tree"), (compaction, "exchange"), (merge, "finish")], ids=str)
def test_a_batch_that_begins_meanwhile(job: Job, tmp_path: Path, at: Any) -> None:
    """It clears away what batches before it had staged, and nothing of a merge."""
    module, name = at
    goes_on = getattr(module, name)

    def begun(*given: Any) -> Any:
        land(tmp_path, 6)
        return goes_on(*given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, name, begun)
        assert compaction.compact(job) == {"bronze": 4}
    assert seqs(tmp_path) == list(range(70))
    assert len(Manifest(tmp_path).folders["bronze"]) == 4


def test_a_merge_that_was_removed_is_taken_back(job: Job, tmp_path: Path) -> None:
    import shutil

    compact_and_die(job, merge, "move_folder")
    shutil.rmtree(tmp_path / MERGING)
    assert compaction.compact(job) == {"bronze": 4}
    assert seqs(tmp_path) == list(range(60))


def test_one_compaction_at_a_time(job: Job, tmp_path: Path) -> None:
    with merge.alone(tmp_path):
        for again in (compaction.compact, compaction.expire):
            with pytest.raises(PipelineError, match="is being compacted already: let that one end"):
                again(job)
    assert compaction.compact(job) == {"bronze": 4}


def test_columns_that_came_and_went(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    for number, columns in enumerate([{"old": 1.0}, {}, {"new": "x"}, {"new": "y"}, {}, {}]):
        land(tmp_path, number, **columns)
    assert compaction.compact(job_in(tmp_path)) == {"bronze": 4}
    merged = pq.read_table(next(tmp_path.glob(f"bronze/batch={MERGED}*/*.parquet")), partitioning=None)
    assert merged.column_names == ["seq", "old", "new"]
    assert merged["old"].to_pylist() == [1.0] * 10 + [None] * 30
    assert merged["new"].to_pylist() == [None] * 20 + ["x"] * 10 + ["y"] * 10


def test_batches_in_which_a_column_has_another_type_stay(tmp_path: Path) -> None:
    for number, value in enumerate([1, 1, "1", "1", "1", "1"]):
        land(tmp_path, number, n=value)
    job = job_in(tmp_path)
    assert compaction.compact(job) == {"bronze": 2}
    assert compaction.compact(job) == {}
    assert seqs(tmp_path) == list(range(60))
    assert len(list(tmp_path.glob("bronze/batch=*"))) == 5
    after = shown_upkeep(job, Manifest(tmp_path))
    assert after["tables"] == [{"table": "bronze", "parts": 5, "small": 1, "left_out": 2, "due": False}]
    assert after["next_compaction"].startswith("after 1 more small part; 2 left out, in which a column has another")
    assert compaction.expire(job, now=1e12) == {"bronze": 5}
    assert Manifest(tmp_path).left_out == set()


def test_the_only_one_that_fits_waits_for_more(tmp_path: Path) -> None:
    for number, value in enumerate([1, "1", "1", "1"]):
        land(tmp_path, number, n=value)
    job = job_in(tmp_path)
    assert compaction.compact(job) == {}
    assert shown_upkeep(job, Manifest(tmp_path))["next_compaction"].startswith("after 1 more small part;")
    land(tmp_path, 4, n="1")
    assert compaction.compact(job) == {"bronze": 2}


def test_numbers_that_became_longer_are_merged(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    short, long = pa.scalar(7, pa.int32()), pa.scalar(1 << 40, pa.int64())
    single, double = pa.scalar(0.5, pa.float32()), pa.scalar(0.1, pa.float64())
    for number, (n, x) in enumerate([(short, single)] * 2 + [(long, double)] * 4):
        land(tmp_path, number, n=n, x=x)
    assert compaction.compact(job_in(tmp_path)) == {"bronze": 4}
    merged = pq.read_table(next(tmp_path.glob(f"bronze/batch={MERGED}*/*.parquet")), partitioning=None)
    assert (merged.schema.field("n").type, merged.schema.field("x").type) == (pa.int64(), pa.float64())
    assert merged["n"].to_pylist() == [7] * 20 + [1 << 40] * 20
    assert merged["x"].to_pylist() == [0.5] * 20 + [0.1] * 20


@pytest.mark.parametrize(("later", "merged"), [(pa.int32(), 2), (pa.uint64(), 2), (pa.float64(), 2), (pa.int64(), 4)])
def test_nothing_is_widened_with_a_loss(tmp_path: Path, later: Any, merged: int) -> None:
    for number in range(6):
        land(tmp_path, number, n=pa.scalar(1, later if number > 1 else pa.int64()))
    assert compaction.compact(job_in(tmp_path)) == {"bronze": merged}


def test_old_batches_go(job: Job, tmp_path: Path) -> None:
    assert compaction.expire(job) == {}
    assert compaction.expire(job, now=1e12) == {"bronze": 6}
    assert seqs(tmp_path) == []
    assert Landing(tmp_path, "j", rows_in).begin("q", 9, [("s", 0, 60)]) is None, "what has landed does not land again"


def test_a_delta_table_with_nothing_to_merge_is_not_told(tmp_path: Path) -> None:
    delta = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    delta.write_deltalake(str(tmp_path / "bronze"), pa.table({"seq": [1]}))
    job = job_in(tmp_path).model_copy(update={"format": "delta"})
    assert compaction.compact(job) == {}
    delta.write_deltalake(str(tmp_path / "bronze"), pa.table({"seq": [2]}), mode="append")
    assert compaction.compact(job) == {"bronze": 2}
    assert "within a batch alone" in shown_upkeep(job, Manifest(tmp_path))["next_compaction"]


@pytest.mark.parametrize(
    "more", ["", "format: delta", "format: iceberg\ncatalog: {type: sql, uri: 'sqlite:///{lake}.db'}"]
)
def test_a_folder_that_is_gone_is_not_made(tmp_path: Path, more: str) -> None:
    """Of a disk that is not mounted: what landed next would have been hidden behind it."""
    lake = tmp_path / "lake"
    text = f"version: 1\nname: j\nsource: {{queue: Q, path: x}}\nwarehouse: {lake}\n" + more.replace(
        "{lake}", str(lake)
    )
    with pytest.raises(StoreRefuses, match=r"lake is not there: correct `warehouse`, or mount"):
        compaction.compact(parse_job("job.yaml", text))
    assert list(tmp_path.iterdir()) == []
