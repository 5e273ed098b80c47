"""Several sources in one job: each lands exactly once in the same tables, whatever the others do and wherever Spark's
checkpoint has gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from device_fleet import Fleet, write_journal

from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.status import job_status, status_lines
from gateway.pipeline.jobs.tables.warehouse import warehouse_of

LONG = bool(os.environ.get("MQGATE_LONG"))
JOB = """
version: 1
name: plants
sources:
  - {{name: north, queue: TELEMETRY.A, path: {work}/north, max_messages: 100, purge_delay: 0s}}
  - {{name: north_b, queue: TELEMETRY.B, path: {work}/north, max_messages: 100, purge_delay: 0s}}
  - {{name: south, queue: "TELEMETRY.*", path: {work}/south, max_messages: 150, purge_delay: 0s}}
warehouse: {work}/lake
trigger: 0s
"""
SILVER = """
silver:
  - table: readings
    key: [source, device]
    event_time: ts
    columns: [{{name: device, required: true}}, {{name: n, type: bigint}}, {{name: ts, type: timestamp, unit: ms}}]
"""
GAPS = "gold: [{{table: gaps, kind: gaps, sequence: n}}]\n"
ICEBERG = "format: iceberg\ncatalog: {{uri: 'sqlite:///{work}/catalog.db'}}\n"


class Plants:
    """Two journals with the same devices and the same numbers, and the job that lands them together."""

    def __init__(self, spark: Any, work: Path, more: str = "") -> None:
        self.spark, self.work = spark, work
        self.job: Job = parse_job("job.yaml", (JOB + more).format(work=work))
        self.fleets = {"north": Fleet(devices=10), "north_b": Fleet(devices=10), "south": Fleet(devices=10)}

    def grow(self, source: str, count: int) -> None:
        queue = "TELEMETRY.B" if source == "north_b" else "TELEMETRY.A"
        folder = self.work / source.removesuffix("_b")
        write_journal(folder, count, self.fleets[source], queue=queue, frame=20)

    def run(self) -> int:
        from gateway.pipeline.jobs.run import JobRun

        return JobRun(self.spark, self.job).run(once=True).rows

    def expect_exact(self) -> None:
        sent = {name: fleet.sent for name, fleet in self.fleets.items() if fleet.sent}
        for table in self.job.growing_tables[:2]:
            rows = warehouse_of(self.job).rows(table)
            seqs = {name: [row["seq"] for row in rows if row["source"] == name] for name in sent}
            assert {name: (len(each), len(set(each))) for name, each in seqs.items()} == {
                name: (count, count) for name, count in sent.items()
            }
        if self.job.gold:
            assert warehouse_of(self.job).rows("gaps") == [], "devices of two plants are not taken for one another"


@pytest.mark.parametrize("more", [SILVER + GAPS, SILVER + ICEBERG] if LONG else [""])
def test_each_source_lands_once(spark: Any, tmp_path: Path, more: str) -> None:
    plants = Plants(spark, tmp_path, more)
    for name, count in (("north", 80), ("north_b", 60), ("south", 160)):
        plants.grow(name, count)
    assert plants.run() == 300, "in two batches; the second is of one source alone"
    if plants.job.format == "parquet":
        shutil.rmtree(plants.job.checkpoint_folder)
    plants.grow("north_b", 30)
    assert plants.run() == 30, "the others have nothing new"
    plants.expect_exact()
    lines = status_lines(job_status(plants.job))
    assert [line for line in lines if "0 behind" in line and "(source south)" in line]
    shutil.rmtree(tmp_path / "north")
    lines = status_lines(job_status(plants.job))
    assert [line for line in lines if "0 behind" in line and "(source south)" in line], (
        "one that is gone hides no other"
    )


def test_a_batch_of_which_parts_have_landed(spark: Any, tmp_path: Path) -> None:
    """As after a deleted checkpoint: of each source only what is missing of its own numbers is taken."""
    from pyspark.sql import functions as f

    from gateway.pipeline.jobs.run import JobRun
    from gateway.pipeline.land.ranges import STREAM

    plants = Plants(spark, tmp_path, SILVER)
    plants.grow("north", 100)
    plants.grow("south", 100)
    run = JobRun(spark, plants.job)
    north, _, south = run.inputs

    def land(number: int, *parts: tuple[Any, int, int]) -> None:
        frames = []
        for each, low, high in parts:
            options = run.source_options(each) | {"startingSeq": str(low), "endingSeq": str(high)}
            files = spark.read.format("mqqueue").options(**options).load()
            frames.append(files.withColumn(STREAM, f.lit(each.stream)))
        files = frames[0] if len(frames) == 1 else frames[0].union(frames[1])
        run.writer.write(files, "q", number, [(each.stream, low, high) for each, low, high in parts])

    land(0, (south, 1, 61))
    land(1, (north, 1, 31), (south, 1, 61))
    land(2, (north, 1, 101), (south, 1, 101))
    plants.expect_exact()
    assert run.landing.manifest.landed.intervals == {north.stream: [(1, 101)], south.stream: [(1, 101)]}
