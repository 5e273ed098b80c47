"""Files that reading tasks write: the same rows, nothing left of a task that failed, and no others are taken."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from device_fleet import SMALL, Fleet, put, write_journal

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.mq import mqmd
from gateway.pipeline.decode.columns import COLUMNS, RAW_COLUMNS
from gateway.pipeline.decode.row_decoder import RowDecoder
from gateway.pipeline.errors import PipelineError, WrongOption
from gateway.pipeline.jobs.tables.folder_tables import take_files
from gateway.pipeline.source import tasks as task_files
from gateway.pipeline.source.queue_access import JournalAccess
from gateway.pipeline.source.tasks import days_of, without_nulls, write_rows
from gateway.queue_manager.journal.store import Store


def batches(journal: Path, rows: int = 200) -> list[Any]:
    access, decoder = JournalAccess(journal), RowDecoder("QM1", (*COLUMNS, *RAW_COLUMNS))
    pieces = access.pieces("*", 0, access.extent("*", 0, None).next, 1)
    return [decoder.batch(chunk) for piece in pieces for chunk in piece.chunks(rows)]


@pytest.mark.parametrize("varying", [False, True])
def test_a_file_has_the_rows_with_their_types(tmp_path: Path, varying: bool) -> None:
    write_journal(tmp_path / "j", 500, Fleet(devices=20, varying=varying))
    made = batches(tmp_path / "j")
    (told,) = write_rows(tmp_path / "s", iter(made))
    (row,) = told.to_pylist()
    file = tmp_path / "s" / row["file"]
    assert (row["rows"], row["bytes"]) == (500, file.stat().st_size)
    found = pq.ParquetFile(file).read()
    assert found.to_pylist() == pa.Table.from_batches(made).to_pylist()
    assert found.schema.equals(made[0].schema)
    assert pq.read_metadata(file).num_row_groups == 1
    ends = pq.read_metadata(file).row_group(0)
    seq = next(ends.column(at) for at in range(ends.num_columns) if ends.column(at).path_in_schema == "seq")
    assert (seq.statistics.min, seq.statistics.max) == (1, 500)


@pytest.mark.parametrize(
    ("form", "ccsid", "foreign"),
    [("MQSTR", 1208, False), ("MQSTR", 0, False), ("MQSTR", 500, True), ("", 500, False), ("MQSTR", 60000, True)],
)
def test_the_driver_is_told_of_text_in_another_character_set(
    tmp_path: Path, form: str, ccsid: int, foreign: bool
) -> None:
    store = Store.open(tmp_path / "j", clock=time.time, options=SMALL)
    put(store, "Q", [mqmd.build(format=form, coded_char_set_id=ccsid)], [b"1"])
    store.close()
    made = batches(tmp_path / "j")
    assert [told.to_pylist()[0]["foreign_text"] for told in write_rows(tmp_path / "s", iter(made))] == [foreign]
    some = iter([batch.select(["payload", "ccsid"]) for batch in made])
    assert [told.to_pylist()[0]["foreign_text"] for told in write_rows(tmp_path / "s", some)] == [True], "nobody knows"


def test_a_task_holds_so_many_bytes_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_journal(tmp_path / "j", 500)
    made = batches(tmp_path / "j", 100)
    monkeypatch.setattr(task_files, "GROUP_BYTES", made[0].nbytes)
    (told,) = write_rows(tmp_path / "s", iter(made))
    found = pq.ParquetFile(tmp_path / "s" / told.to_pylist()[0]["file"])
    assert found.metadata.num_row_groups > 1
    assert found.read().to_pylist() == pa.Table.from_batches(made).to_pylist()


def test_columns_that_are_declared_never_null(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", 100)
    (batch,) = batches(tmp_path / "j")
    made = without_nulls(batch, ["seq", "payload"])
    assert [field.name for field in made.schema if not field.nullable] == ["seq", "payload"]
    assert made.to_pylist() == batch.to_pylist()
    with pytest.raises(WrongOption, match="'dlq_reason' is null in some messages"):
        without_nulls(batch, ["seq", "dlq_reason"])


def test_nothing_to_read_is_no_file(tmp_path: Path) -> None:
    assert list(write_rows(tmp_path / "s", iter([]))) == []
    assert not (tmp_path / "s").exists()


def test_a_task_that_fails_leaves_nothing(tmp_path: Path) -> None:
    write_journal(tmp_path / "j", 300)
    made = batches(tmp_path / "j")

    def failing() -> Iterator[Any]:
        yield made[0]
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        list(write_rows(tmp_path / "s", failing()))
    assert list((tmp_path / "s").iterdir()) == []


def test_only_files_that_were_told_of_are_taken(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    for name in ("b.parquet", "a.parquet", "of-a-killed-task.parquet"):
        (tasks / name).write_text(name)
    take_files([tasks / "b.parquet", tasks / "a.parquet"], tmp_path / "table")
    assert [file.read_text() for file in sorted((tmp_path / "table").iterdir())] == ["b.parquet", "a.parquet"]
    with pytest.raises(PipelineError, match="share the warehouse"):
        take_files([tasks / "elsewhere.parquet"], tmp_path / "other")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/New_York", "+05:30"])
def test_days_are_those_of_utc(zone: str) -> None:
    """Spark hands over times in the zone of its session; partitions of Iceberg are days of UTC."""
    moments = [datetime(2026, 11, day, hour, 30, tzinfo=UTC) for day, hour in ((28, 23), (29, 0), (29, 4), (29, 23))]
    batch = pa.record_batch({"put_ts": pa.array([*moments, None], pa.timestamp("us", zone))})
    found = {day: rows.num_rows for day, rows in days_of(batch, "put_ts")}
    assert found == {"2026-11-28/": 1, "2026-11-29/": 3, "no-day/": 1}
