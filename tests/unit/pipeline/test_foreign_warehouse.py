"""Warehouses of other jobs, and sources that have got other queues: told, before a message is lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables.foreign_warehouse import check_warehouse
from gateway.pipeline.land.landing import Landing
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.land.object_landing import ObjectLanding, WrittenFile
from gateway.pipeline.land.object_manifest import ObjectManifest
from gateway.pipeline.land.objects import ObjectStore, StoreSettings, open_store
from gateway.pipeline.source.places import FOLDER

ONE = "version: 1\nname: {name}\nsource: {{queue: '{queue}', path: x, group: {group}}}\nwarehouse: lake\n"
SEVERAL = "version: 1\nname: plant\nwarehouse: lake\nsources:\n"


def one(queue: str = "A", name: str = "plant", group: str = "plant") -> Job:
    return parse_job("job.yaml", ONE.format(name=name, queue=queue, group=group))


def several(**queues: str) -> Job:
    listed = "".join(f"  - {{name: {name}, queue: '{queue}', path: x}}\n" for name, queue in queues.items())
    return parse_job("job.yaml", SEVERAL + listed)


class Lake:
    """A warehouse, in a folder or as objects, into which jobs land one after the other."""

    def __init__(self, folder: Path, *, objects: bool) -> None:
        self.folder, self.objects, self.low = folder, objects, 0

    def land(self, job: Job, **journals: str) -> None:
        landing: Any = (
            ObjectLanding(self.store(), job.name) if self.objects else Landing(self.folder, job.name, lambda file: 1)
        )
        landing.reads = {each.stream: each.source.queue for each in job.inputs}
        landing.journals = {f"plant:{name}": journal for name, journal in journals.items()}
        batch = landing.begin("query", 0, [(each.stream, self.low, self.low + 10) for each in job.inputs])
        self.low += 10
        if self.objects:
            batch.add("bronze", [WrittenFile(f"{self.low}.parquet", 1, 1)])
        else:
            target = batch.stage("bronze")
            target.mkdir(parents=True)
            (target / "p.parquet").write_bytes(b"")
        batch.land()

    def check(self, job: Job, **journals: str) -> None:
        manifest = ObjectManifest(self.store()) if self.objects else self.manifest()
        check_warehouse(job, manifest, {f"plant:{name}": journal for name, journal in journals.items()})

    def store(self) -> ObjectStore:
        return open_store(f"{FOLDER}{self.folder}", StoreSettings())

    def manifest(self) -> Manifest:
        return Manifest(self.folder)


@pytest.fixture(params=[False, True], ids=["folder", "objects"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake", objects=request.param)


def test_one_of_another_job(lake: Lake) -> None:
    lake.check(one())
    lake.land(one())
    lake.check(one(group="another"))  # the manifest says where to go on
    with pytest.raises(WrongOption, match=r"are those of job 'plant'.*a warehouse of its own, or write `name: plant`"):
        lake.check(one(name="other", group="other"))


def test_one_source_that_has_got_other_queues(lake: Lake) -> None:
    lake.land(one())
    with pytest.raises(WrongOption, match=r"has landed A so far, and now reads A,B: .* then write `sources`"):
        lake.check(one("A,B", group="another"))
    lake.check(several(old="A", new="B"))  # as the message says
    lake.land(several(old="A", new="B"))
    lake.check(one())
    with pytest.raises(WrongOption, match=r"has landed A, new, old so far"):
        lake.check(one("B"))


def test_a_named_source_that_has_got_other_queues(lake: Lake) -> None:
    lake.land(several(lima="A", quito="B"))
    lake.land(several(lima="A"))
    with pytest.raises(WrongOption, match=r"source 'quito' has landed B so far, and now reads C"):
        lake.check(several(lima="A", quito="C"))
    lake.check(several(lima="A", quito="B", cusco="C"))


def test_a_queue_manager_that_was_made_anew(lake: Lake) -> None:
    lake.land(one("A"))  # by an earlier release, which did not ask
    lake.check(one("A"), A="first")
    lake.land(one("A"), A="first")
    lake.check(one("A"), A="first")
    lake.check(one("A"))  # a gateway of an earlier release does not say
    with pytest.raises(WrongOption, match=r"x is not the queue manager whose messages have landed as plant:A.*anew"):
        lake.check(one("A"), A="second")
    lake.land(several(anew="A"), anew="second")  # as the message says
    lake.check(several(anew="A"), anew="second")
    with pytest.raises(WrongOption, match="made anew"):
        lake.check(one("A"), A="second")


def test_a_record_of_a_later_release(lake: Lake) -> None:
    lake.land(one("A"))
    for record in lake.folder.rglob("0*.json"):
        record.write_text(record.read_text().replace('"reads"', '"later":{"a":1},"reads"'))
    lake.check(one("A"))
    lake.land(one("A"))
    lake.check(one("A"))


def test_records_of_earlier_releases_do_not_say_what_was_read(tmp_path: Path) -> None:
    lake = Lake(tmp_path, objects=False)
    lake.land(several(lima="A"))
    record = next((tmp_path / "_manifest").glob("0*.json"))
    record.write_text(record.read_text().replace('"reads"', '"figures"'))
    assert lake.manifest().last is not None
    lake.check(several(lima="B"))
