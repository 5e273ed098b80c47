"""Checkpoints of other jobs and warehouses, and a warehouse whose manifest is gone: told, instead of believed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gateway.pipeline.errors import StoreRefuses, WrongOption
from gateway.pipeline.jobs.foreign_checkpoint import check_checkpoint, done_in
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.land.landing import Landing
from gateway.pipeline.land.manifest import Manifest

JOB = "version: 1\nname: {name}\nsource: {{queue: Q, path: x}}\nwarehouse: {warehouse}\n"


def job_in(warehouse: Path, name: str = "plant") -> Job:
    return parse_job("job.yaml", JOB.format(name=name, warehouse=warehouse))


def checkpoint_of(folder: Path, query: str, ends: list[int], offset: str = '{"messages": 0, "next": %d}') -> Path:
    """As Spark leaves it: each batch but the last one is done."""
    (folder / "metadata").parent.mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    for number, end in enumerate(ends):
        for log, text in (("offsets", "v1\n{}\n" + (offset % end if "%" in offset else offset)), ("commits", "v1\n{}")):
            (folder / log).mkdir(exist_ok=True)
            if log == "offsets" or number < len(ends) - 1:
                (folder / log / str(number)).write_text(text)
    return folder


def land(warehouse: Path, job: Job, query: str, low: int, high: int) -> None:
    landing = Landing(warehouse, job.name, lambda file: 1)
    batch = landing.begin(query, 0, [(job.inputs[0].stream, low, high)])
    assert batch is not None
    target = batch.stage("bronze")
    assert target is not None
    target.mkdir(parents=True)
    (target / "p.parquet").write_bytes(b"")
    batch.land()


def check(job: Job, checkpoint: Path) -> None:
    done = done_in(checkpoint, len(job.inputs))
    check_checkpoint(checkpoint, job.inputs, Manifest(Path(job.warehouse)), done)


def test_one_of_another_job_or_of_a_warehouse_that_is_gone(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path / "c", "first", [10, 20, 30])
    job = job_in(tmp_path / "lake")
    with pytest.raises(WrongOption, match=r"all messages up to number 20 are done.*Remove it, or name another one"):
        check(job, checkpoint)
    land(tmp_path / "lake", job, "second", 0, 10)
    with pytest.raises(WrongOption, match="the checkpoint of another job"):
        check(job, checkpoint)


def test_its_own(tmp_path: Path) -> None:
    job = job_in(tmp_path / "lake")
    land(tmp_path / "lake", job, "first", 0, 10)
    check(job, checkpoint_of(tmp_path / "begun", "first", [10]))
    check(job, checkpoint_of(tmp_path / "ahead", "first", [10, 20, 30]))
    check(job, checkpoint_of(tmp_path / "repeats what has landed", "anew", [10, 20]))
    check(job, tmp_path / "none")


def test_one_of_another_kind_of_query(tmp_path: Path) -> None:
    with pytest.raises(WrongOption, match="is the checkpoint of another query"):
        check(job_in(tmp_path / "lake"), checkpoint_of(tmp_path / "c", "kafka", [1, 2], '{"topic":{"0":%d}}'))
    with pytest.raises(WrongOption, match="is the checkpoint of another query"):
        check(job_in(tmp_path / "lake"), checkpoint_of(tmp_path / "d", "rate", [1, 2], "%d"))


def test_tables_without_their_manifest_are_not_taken_for_left_overs(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    for low in (0, 10, 20):
        land(tmp_path, job, "first", low, low + 10)
    shutil.rmtree(tmp_path / "_manifest")
    with pytest.raises(StoreRefuses, match="bronze has 3 batches, which would be removed as left-overs: restore the"):
        land(tmp_path, job, "first", 30, 40)
    assert len(list(tmp_path.glob("bronze/batch=*"))) == 3
