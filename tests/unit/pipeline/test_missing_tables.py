"""Tables of a folder that were removed by hand: told, with what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.pipeline.errors import StoreRefuses
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables.missing_tables import check_tables
from gateway.pipeline.land.landing import Landing
from gateway.pipeline.land.manifest import Manifest

JOB = """
version: 1
name: plant
source: {{queue: A, path: x}}
warehouse: {warehouse}
silver: [{{table: readings, key: [device], columns: [{{name: device}}, {{name: n, type: bigint}}]}}]
gold: [{{table: {last}, kind: last}}, {{table: gaps, kind: gaps, sequence: n}}]
"""
TABLES = ("bronze", "readings", "devices", "gaps", "_state/gaps")


def job_in(warehouse: Path, last: str = "devices") -> Job:
    return parse_job("job.yaml", JOB.format(warehouse=warehouse, last=last))


def land(warehouse: Path, low: int) -> Landing:
    landing = Landing(warehouse, "plant", lambda file: 1)
    landing.replaced = {"devices"}
    batch = landing.begin("query", low, [("plant:A", low, low + 10)])
    assert batch is not None
    for table in TABLES:
        target = batch.stage(table)
        assert target is not None
        target.mkdir(parents=True)
        (target / "p.parquet").write_bytes(b"")
    batch.land()
    return landing


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    check_tables(job_in(tmp_path), Manifest(tmp_path))
    for low in (0, 10):
        land(tmp_path, low)
    check_tables(job_in(tmp_path), Manifest(tmp_path))
    return tmp_path


def test_a_table_that_grows(lake: Path) -> None:
    shutil.rmtree(lake / "readings")
    with pytest.raises(StoreRefuses, match=r"/readings is gone.*restore it from a backup, or make the folder"):
        check_tables(job_in(lake), Manifest(lake))
    (lake / "readings").mkdir()
    check_tables(job_in(lake), Manifest(lake))


@pytest.mark.parametrize(("folder", "table"), [("devices", "devices"), ("_state", "gaps")])
def test_what_a_gold_table_goes_on_from(lake: Path, folder: str, table: str) -> None:
    shutil.rmtree(lake / folder)
    with pytest.raises(StoreRefuses, match=f"is gone.*give gold table '{table}' another name, under which it begins"):
        check_tables(job_in(lake), Manifest(lake))


def test_one_that_the_job_has_no_more(lake: Path) -> None:
    shutil.rmtree(lake / "devices")
    check_tables(job_in(lake, "anew"), Manifest(lake))


def test_what_another_driver_has_replaced_meanwhile(lake: Path) -> None:
    seen = Manifest(lake)
    land(lake, 20)
    check_tables(job_in(lake), seen)
