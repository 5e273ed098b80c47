"""Merging and expiring batches: the same rows before and after, also when it is ended in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.pipeline.jobs import compaction
from gateway.pipeline.jobs.folder_tables import rows_in
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.upkeep import shown_upkeep
from gateway.pipeline.land.landing import MERGED, Landing
from gateway.pipeline.land.manifest import Manifest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")


def seqs(folder: Path) -> list[int]:
    import pyarrow.parquet as pq

    files = folder.glob("bronze/**/*.parquet")
    return sorted(seq for file in files for seq in pq.ParquetFile(file).read().column("seq").to_pylist())


def land(warehouse: Path, number: int, **more: Any) -> None:
    """A batch of ten rows, with these columns beside their numbers."""
    import pyarrow.parquet as pq

    batch = Landing(warehouse, "j", rows_in).begin("q", number, [("s", 10 * number, 10 * number + 10)])
    assert batch is not None
    target = batch.stage("bronze")
    assert target is not None
    target.mkdir(parents=True)
    rows = {"seq": list(range(10 * number, 10 * number + 10))} | {name: [value] * 10 for name, value in more.items()}
    pq.write_table(pa.table(rows), target / "p.parquet")
    batch.land()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Six batches of ten rows."""
    for number in range(6):
        land(tmp_path, number)
    return job_in(tmp_path)


def job_in(tmp_path: Path) -> Job:
    text = f"version: 1\nname: j\nsource: {{queue: Q, path: x}}\nwarehouse: {tmp_path}\n"
    return parse_job("job.yaml", text + "retention: {compact_files: 2, keep: {bronze: 1d}}\n")


def test_the_same_rows_in_fewer_files(job: Job, tmp_path: Path) -> None:
    before = shown_upkeep(job, Manifest(tmp_path))
    assert before["tables"] == [{"table": "bronze", "parts": 6, "small": 4, "due": True}]
    assert "due (bronze)" in before["next_compaction"]
    assert compaction.compact(job) == {"bronze": 4}
    assert seqs(tmp_path) == list(range(60))
    assert len(list(tmp_path.glob("bronze/batch=*"))) == 3
    assert Landing(tmp_path, "j", rows_in).begin("q", 9, [("s", 0, 60)]) is None
    assert seqs(tmp_path) == list(range(60)), "the job takes nothing of it for a left-over"
    assert compaction.compact(job) == {}
    after = shown_upkeep(job, Manifest(tmp_path))
    assert after["tables"] == [{"table": "bronze", "parts": 3, "small": 0, "due": False}]
    assert after["next_compaction"] == "after 2 more small parts"


def test_ended_between_the_moves(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(BaseException):
        pass

    def die(*_: object) -> None:
        raise Ended

    with monkeypatch.context() as patched:
        patched.setattr(compaction, "move_folder", die)
        with pytest.raises(Ended):
            compaction.compact(job)
    assert compaction.finish(tmp_path)
    assert seqs(tmp_path) == list(range(60))
    assert not compaction.finish(tmp_path)


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


def test_old_batches_go(job: Job, tmp_path: Path) -> None:
    assert compaction.expire(job) == {}
    assert compaction.expire(job, now=1e12) == {"bronze": 6}
    assert seqs(tmp_path) == []
    assert Landing(tmp_path, "j", rows_in).begin("q", 9, [("s", 0, 60)]) is None, "what has landed does not land again"
