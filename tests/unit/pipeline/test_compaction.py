"""Merging and expiring batches: the same rows before and after, also when it is ended in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.pipeline.jobs import compaction
from gateway.pipeline.jobs.folder_tables import rows_in
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.upkeep import shown_upkeep
from gateway.pipeline.land.landing import Landing
from gateway.pipeline.land.manifest import Manifest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")


def seqs(folder: Path) -> list[int]:
    import pyarrow.parquet as pq

    files = folder.glob("bronze/**/*.parquet")
    return sorted(seq for file in files for seq in pq.ParquetFile(file).read().column("seq").to_pylist())


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Six batches of ten rows."""
    import pyarrow.parquet as pq

    for number in range(6):
        batch = Landing(tmp_path, "j", rows_in).begin("q", number, [("s", 10 * number, 10 * number + 10)])
        assert batch is not None
        target = batch.stage("bronze")
        assert target is not None
        target.mkdir(parents=True)
        pq.write_table(pa.table({"seq": list(range(10 * number, 10 * number + 10))}), target / "p.parquet")
        batch.land()
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


def test_old_batches_go(job: Job, tmp_path: Path) -> None:
    assert compaction.expire(job) == {}
    assert compaction.expire(job, now=1e12) == {"bronze": 6}
    assert seqs(tmp_path) == []
    assert Landing(tmp_path, "j", rows_in).begin("q", 9, [("s", 0, 60)]) is None, "what has landed does not land again"
