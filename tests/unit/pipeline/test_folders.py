"""What is no folder is refused when the job is checked, with what to do instead."""

from __future__ import annotations

import pytest

from gateway.config.units import Wrong
from gateway.errors import ConfigurationError
from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.places import plain_folder, warehouse_place

JOB = """version: 1
name: plant
source: {{queue: Q, path: {path}}}
warehouse: {warehouse}
format: {format}
"""


@pytest.mark.parametrize("folder", ["lake", "./lake", "/lake", "~/lake", "C:lake", "with:colon/x"])
def test_a_folder(folder: str) -> None:
    assert plain_folder(folder) == folder


@pytest.mark.parametrize("uri", ["file:///mnt/lake", "file:/mnt/lake", "FILE:///mnt/lake"])
def test_a_file_uri_is_its_path(uri: str) -> None:
    assert plain_folder(uri) == "/mnt/lake"


@pytest.mark.parametrize("uri", ["s3a://b/lake", "hdfs://n:8020/lake", "abfss://c@a.b/lake", "gs://b", "file://host/x"])
def test_others_are_refused(uri: str) -> None:
    with pytest.raises(Wrong, match=r"is not a folder.*: give a path"):
        plain_folder(uri)


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_a_job_says_where(table_format: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_job("job.yaml", JOB.format(path="hdfs:///queue", warehouse="ftp://lake/plant", format=table_format))
    told = [str(finding) for finding in caught.value.findings]
    assert len(told) == 2
    assert told[0].startswith("job.yaml:3:26: 'hdfs:///queue' is not a folder")
    assert told[1].startswith("job.yaml:4:12: 'ftp://lake/plant' is not a folder")
    assert "a warehouse may also be on object storage (s3://, gs://, abfss://)" in told[1]


@pytest.mark.parametrize(("name", "place"), [("path", "s3a://b/x"), ("staging", "ftp://b/x")])
def test_an_option_is_named(name: str, place: str) -> None:
    with pytest.raises(WrongOption, match=f"option '{name}': '{place}' is not a folder"):
        Options.read({"queue": "Q", name: place})


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("s3://b/lake/", "s3://b/lake"), ("s3a://b/lake", "s3://b/lake"), ("S3://b", "s3://b"), ("gs://b/x", "gs://b/x"),
        ("abfs://c@a.b/x", "abfss://c@a.b/x"), ("file:///mnt/lake", "/mnt/lake"), ("./lake", "./lake"),
    ],
)  # fmt: skip
def test_a_warehouse_may_be_on_object_storage(given: str, place: str) -> None:
    assert warehouse_place(given) == place


@pytest.mark.parametrize("place", ["hdfs://names:8020/lake", "HDFS:///lake", "webhdfs://names/lake", "viewfs://all/x"])
def test_hdfs_is_refused_with_three_ways_out(place: str) -> None:
    with pytest.raises(Wrong, match=r"on HDFS is refused.*mount it on all hosts.*s3://.*mqgate pipeline files"):
        warehouse_place(place)


def test_object_storage_has_a_bucket_and_no_checkpoint() -> None:
    with pytest.raises(Wrong, match="names no bucket"):
        warehouse_place("s3://")
    text = JOB.format(path="x", warehouse="s3://b/x", format="parquet") + "checkpoint: ./here\n"
    with pytest.raises(ConfigurationError, match="leave it out: the manifest says where to go on"):
        parse_job("job.yaml", text)
