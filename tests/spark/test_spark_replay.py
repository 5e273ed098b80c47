"""Rows in quarantine are put back as the messages they were: with their device and their properties."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from device_fleet import SMALL, Fleet, put
from long_form import LONG

from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.replay import files_of, messages_of, put_all, selected, stored
from gateway.pipeline.jobs.tables.conditions import can_have
from gateway.pipeline.jobs.tables.footers import footers_of
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.queue_manager.journal.store import Store

JOB = """
version: 1
name: plant
source: {{queue: "TELEMETRY.*", path: {folder}/journal, group: plant}}
warehouse: {folder}/lake
{more}
silver:
  - table: readings
    event_time: ts
    key: [device]
    columns:
      - {{name: device, from: client_id, required: true}}
      - {{name: site, from: properties.site, required: true}}
      - {{name: ts, type: timestamp, unit: ms}}
      - {{name: temperature, type: double, max: 20}}
"""
RAW = "bronze: {include_raw: true}"
HEADS = ("client_id", "topic", "qos", "content_type", "properties", "payload")


def landed(spark: Any, folder: Path, more: str, columns: str = "") -> Job:
    from gateway.pipeline.jobs.run import JobRun

    job = parse_job("job.yaml", JOB.format(folder=folder, more=more) + columns)
    assert JobRun(spark, job).run(once=True).state == "done"
    return job


def put_readings(folder: Path, fleet: Fleet) -> None:
    """Three of each of four devices."""
    store = Store.open(folder, clock=time.time, options=SMALL)
    put(store, "TELEMETRY.A", *fleet.batch(12))
    store.close()


def messages(spark: Any, folder: Path, queue: str) -> list[Any]:
    source = spark.read.format("mqqueue").options(path=str(folder / "journal"), queue=queue, includeRaw="true").load()
    found: list[Any] = source.orderBy("seq").collect()
    return found


def too_warm(spark: Any, folder: Path) -> list[Any]:
    found = messages(spark, folder, "TELEMETRY.A")
    return [row for row in found if json.loads(bytes(row.payload))["temperature"] > 20]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(devices=4)


def put_back(spark: Any, job: Job, folder: Path) -> list[Any]:
    warehouse = warehouse_of(job)
    rows = selected(spark, job, warehouse, "readings", files_of(job, warehouse, "readings"))
    found = messages_of(spark, job, warehouse, "readings", rows.where("error LIKE 'above_max:%'"))
    found.write.format("mqqueue").options(path=str(folder / "journal"), queue="RETRY").mode("append").save()
    return messages(spark, folder, "RETRY")


def said(row: Any) -> tuple[Any, ...]:
    return tuple(row[name] for name in HEADS)


def test_a_row_in_quarantine_is_put_back_with_its_device_and_properties(
    spark: Any, tmp_path: Path, fleet: Fleet
) -> None:
    put_readings(tmp_path / "journal", fleet)
    sent = too_warm(spark, tmp_path)
    back = put_back(spark, landed(spark, tmp_path, ""), tmp_path)
    assert [said(row) for row in back] == [said(row) for row in sent]
    assert [row.client_id for row in back] == [f"dev000{at % 4}" for at in range(8)]


def test_its_bytes_are_put_back_where_bronze_has_them(spark: Any, tmp_path: Path, fleet: Fleet) -> None:
    """A job that keeps them since some day has them of the rows of that day on."""
    put_readings(tmp_path / "journal", fleet)
    landed(spark, tmp_path, "")
    put_readings(tmp_path / "journal", fleet)
    back = put_back(spark, landed(spark, tmp_path, RAW), tmp_path)
    sent = too_warm(spark, tmp_path)
    assert [said(row) for row in back] == [said(row) for row in sent]
    whole = [bytes(row.headers) == bytes(other.headers) for row, other in zip(back, sent, strict=True)]
    assert whole == [False] * 8 + [True] * 12


def test_without_bronze_what_the_table_carries_is_put_back(spark: Any, tmp_path: Path, fleet: Fleet) -> None:
    put_readings(tmp_path / "journal", fleet)
    back = put_back(spark, landed(spark, tmp_path, "bronze: null"), tmp_path)
    assert [(row.client_id, row.topic, row.properties) for row in back] == [
        (f"dev000{at % 4}", f"plant/site{at % 4}/dev000{at % 4}/telemetry", {}) for at in range(8)
    ]


def test_conditions_on_columns_that_came_later(spark: Any, tmp_path: Path, fleet: Fleet) -> None:
    """And on one that went, and one whose type has changed."""
    put_readings(tmp_path / "journal", fleet)
    landed(spark, tmp_path, "", "      - {name: sun, type: double}\n      - {name: kind, type: int}\n")
    put_readings(tmp_path / "journal", fleet)
    job = landed(spark, tmp_path, "", "      - {name: humidity, type: double}\n      - {name: kind}\n")
    warehouse = warehouse_of(job)
    rows = selected(spark, job, warehouse, "readings", files_of(job, warehouse, "readings"))
    of_all = ("temperature > 20", "sun IS NULL AND humidity IS NULL", "kind IS NULL OR kind = 'cold'")
    assert [rows.where(condition).count() for condition in of_all] == [20] * 3
    assert {row.status for row in rows.collect()} == {"quarantine"}


def test_bronze_is_read_where_it_can_have_the_rows(spark: Any, tmp_path: Path, fleet: Fleet) -> None:
    for _ in range(3):
        put_readings(tmp_path / "journal", fleet)
        job = landed(spark, tmp_path, "")
    warehouse = warehouse_of(job)
    rows = selected(spark, job, warehouse, "readings", files_of(job, warehouse, "readings"))
    last = messages_of(spark, job, warehouse, "readings", rows.where("seq > 24"))
    assert len(files_of(job, warehouse, "bronze")) == 3
    assert len(last.inputFiles()) == 1
    assert selected(spark, job, warehouse, "bronze", files_of(job, warehouse, "bronze")).count() == 0


def test_files_that_cannot_have_the_rows_are_not_read(spark: Any, tmp_path: Path, fleet: Fleet) -> None:
    """Each condition with the rows that meet it, and the files that are read for them."""
    for _ in range(3):
        put_readings(tmp_path / "journal", fleet)
        job = landed(spark, tmp_path, "", "      - {name: n, from: seq, type: bigint, max: 0}\n")
    warehouse = warehouse_of(job)
    files = files_of(job, warehouse, "readings")
    every = selected(spark, job, warehouse, "readings", files)
    footers = footers_of(*stored(job, warehouse, files))
    first = every.where("seq = 12").first().put_ts.astimezone(UTC)
    expected = {
        "seq > 0": (36, 3), "seq > 24": (12, 1), "SEQ > 24 AND error LIKE 'a%'": (12, 1), "seq < 1": (0, 0),
        "seq IN (1, 13)": (2, 2), "seq > 24 OR n = 1": (13, 3), f"put_ts > '{first.isoformat()}'": (24, 2),
        "client_id = 'dev0001' AND seq BETWEEN 10 AND 20": (3, 2),
    }  # fmt: skip
    if LONG:
        expected |= {
            "24 < seq": (12, 1), "n IS NULL": (0, 3), "topic = 'plant'": (0, 0), "topic >= 'plant'": (36, 3),
            "temperature > 20": (32, 3), "status = 'quarantine' AND n >= 25": (12, 1),
        }  # fmt: skip
    found = {
        condition: (
            selected(spark, job, warehouse, "readings", files, condition).count(),
            sum(can_have(footers, every.where(condition))),
        )
        for condition in expected
    }
    assert found == expected


def test_messages_are_counted_as_they_are_put(spark: Any, tmp_path: Path, fleet: Fleet) -> None:
    put_readings(tmp_path / "journal", fleet)
    there = {"path": str(tmp_path / "journal"), "queue": "RETRY"}
    rows = spark.read.format("mqqueue").options(path=there["path"], queue="TELEMETRY.A").load()
    assert put_all(rows, there) == 12
    assert put_all(rows.where("seq < 0"), there) == 0
    assert len(messages(spark, tmp_path, "RETRY")) == 12


def test_many_files_are_few_tasks(spark: Any, tmp_path: Path, fleet: Fleet) -> None:
    """Spark would look at each in a task of its own, and each was read in one: hours for a year of small batches."""
    put_readings(tmp_path / "journal", fleet)
    job = landed(spark, tmp_path, RAW)
    warehouse = warehouse_of(job)
    for table in ("bronze", "readings"):
        known = Path(files_of(job, warehouse, table)[0])
        for number in range(60):
            shutil.copy(known, known.with_name(f"{number}.parquet"))
    context = spark.sparkContext
    context.setJobGroup("many files", "")
    rows = selected(spark, job, warehouse, "readings", files_of(job, warehouse, "readings"))
    assert messages_of(spark, job, warehouse, "readings", rows).count() > 61
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(one) for one in tracker.getJobIdsForGroup("many files")]
    assert jobs
    assert max(tracker.getStageInfo(stage).numTasks for one in jobs for stage in one.stageIds) <= 32
