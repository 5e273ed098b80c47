"""What dead drivers leave in a folder goes once it is old, and nothing that a record, a log or a reader holds."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from gateway.pipeline.errors import PipelineError
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables import compaction
from gateway.pipeline.jobs.tables.folder_tables import rows_in
from gateway.pipeline.jobs.tables.leftovers import remove_leftovers
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.land import delta
from gateway.pipeline.land.delta import DeltaLog
from gateway.pipeline.land.landing import Landing, MicroBatch
from gateway.pipeline.land.manifest import Manifest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
HOUR = 3600.0


class Lake:
    def __init__(self, folder: Path, table_format: str) -> None:
        self.folder = folder
        text = f"version: 1\nname: j\nsource: {{queue: Q, path: x}}\nwarehouse: {folder}\nformat: {table_format}\n"
        self.job: Job = parse_job("job.yaml", text + "retention: {leftovers: 2h, keep: {bronze: 1d}}\n")
        log = DeltaLog(folder, "j", set()) if table_format == "delta" else None
        self.landing = Landing(folder, "j", rows_in, log)

    def staged(self, number: int) -> MicroBatch:
        import pyarrow.parquet as pq

        batch = self.landing.begin("q", number, [("s", 10 * number, 10 * number + 10)])
        assert batch is not None
        target = batch.stage("bronze")
        assert target is not None
        target.mkdir(parents=True)
        pq.write_table(pa.table({"seq": list(range(10 * number, 10 * number + 10))}), target / "p.parquet")
        return batch

    def seqs(self) -> list[int]:
        return sorted(row["seq"] for row in warehouse_of(self.job).rows("bronze"))


def test_what_dead_drivers_left_goes_when_it_is_old(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "parquet")
    lake.staged(0).land()
    dead = lake.staged(1)
    dead._rename()  # and died before its record
    late = lake.staged(2)
    task = tmp_path / "_staging/tasks/0123.parquet"
    task.parent.mkdir()
    task.write_bytes(b"half")
    assert remove_leftovers(lake.job, time.time() + 1.9 * HOUR) == (0, 3)
    assert remove_leftovers(lake.job, time.time() + 2.1 * HOUR) == (3, 0)
    assert [path.name for path in (tmp_path / "bronze").iterdir()] == [
        f"batch={Lake(tmp_path, 'parquet').landing.manifest.last.id}"
    ]
    assert not task.exists()
    assert lake.seqs() == list(range(10))
    with pytest.raises((PipelineError, FileNotFoundError)):
        late.land()
    with pytest.raises(PipelineError, match="was removed while its batch was on its way"):
        lake.landing.record(dead)
    assert lake.seqs() == list(range(10)), "what was removed is not recorded as landed"


def test_delta_logs_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose record was written and whose log was not stays, and is read; retention is an entry of the log."""
    lake = Lake(tmp_path, "delta")
    lake.staged(0).land()

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(delta, "add_action", die)
        with pytest.raises(KeyboardInterrupt):
            lake.staged(1).land()
    assert remove_leftovers(lake.job, time.time() + 100 * HOUR).removed == 1, "the folder in which it was staged, empty"
    assert lake.seqs() == list(range(10))
    again = Lake(tmp_path, "delta")
    assert again.landing.begin("q", 1, [("s", 10, 20)]) is None, "it is in place"
    assert again.seqs() == list(range(20))
    assert compaction.expire(again.job) == {}
    again.staged(2).land()
    assert compaction.expire(again.job, time.time() + 25 * HOUR) == {"bronze": 3}
    assert again.seqs() == []
    assert compaction.expire(again.job, time.time() + 25 * HOUR) == {}
    assert len(list(tmp_path.glob("bronze/batch=*/*.parquet"))) == 3, "for readers of the version before"
    compaction.compact(again.job)
    assert len(list(tmp_path.glob("bronze/batch=*/*.parquet"))) == 3


def test_records_that_are_folded_while_they_are_looked_up_are_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver folds them between the reading of the summary and that of the records: their batches are no
    left-overs."""
    lake = Lake(tmp_path, "parquet")
    for number in range(3):
        lake.staged(number).land()
    listed, due = Manifest._files, [lake.landing.manifest]

    def folded_meanwhile(manifest: Manifest) -> list[Path]:
        if due and manifest is not lake.landing.manifest:
            due.pop().fold(keep=1)
        return listed(manifest)

    monkeypatch.setattr(Manifest, "_files", folded_meanwhile)
    remove_leftovers(lake.job, time.time() + 30 * HOUR)
    assert due == []
    assert lake.seqs() == list(range(30))


def test_a_record_that_is_folded_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path, "parquet")
    for number in range(3):
        lake.staged(number).land()
    load, due = Manifest._load, [lake.landing.manifest]

    def folded_before(manifest: Manifest, path: Path) -> Any:
        if due and manifest is not lake.landing.manifest:
            due.pop().fold(keep=1)
        return load(manifest, path)

    monkeypatch.setattr(Manifest, "_load", folded_before)
    assert len(Manifest(tmp_path).folders["bronze"]) == 3
