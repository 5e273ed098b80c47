"""Batches on an S3 server: committed once whatever happens to the requests; left-overs removed, never what is named."""

from __future__ import annotations

import io
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from long_form import in_long_form
from s3_server import BUCKET, CREDENTIALS, MANIFEST, Fault, Proxy, lead_to, s3_server

from gateway.pipeline.commands import pipeline
from gateway.pipeline.errors import Overtaken, PipelineError, StoreRefuses, StoreUnreachable, TableDiffers
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables import warehouse as warehouse_module
from gateway.pipeline.jobs.tables.compaction import compact, expire
from gateway.pipeline.jobs.tables.object_compaction import remove_leftovers
from gateway.pipeline.jobs.tables.upkeep import shown_upkeep
from gateway.pipeline.jobs.tables.warehouse import ObjectWarehouse
from gateway.pipeline.land.object_delta import ObjectDelta, delta_options
from gateway.pipeline.land.object_landing import ObjectBatch, ObjectLanding, WrittenFile
from gateway.pipeline.land.object_manifest import STATE_EVERY, LakeState, ObjectManifest
from gateway.pipeline.land.objects import ObjectStore, StoreSettings

pytest.importorskip("obstore", reason="obstore is not installed: pip install '.[lake]'")
pytest.importorskip("moto", reason="moto is not installed: pip install '.[test]'")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(300)]
JOB = """
version: 1
name: plant
source: {{queue: Q, path: x}}
warehouse: s3://{bucket}/{prefix}
storage: {{timeout: 10s, patience: 2s}}
retention: {{compact_files: 2, leftovers: {leftovers}, keep: {{bronze: 30d}}}}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    with s3_server() as proxy:
        yield proxy


@pytest.fixture
def proxy(server: Proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    lead_to(server, monkeypatch)
    server.faults.clear()
    yield server
    assert server.unspent() == [], "a fault that met no request"


@pytest.fixture
def job(proxy: Proxy, request: pytest.FixtureRequest) -> Job:
    return make_job(request.node.name)


def make_job(name: str, leftovers: str = "1d") -> Job:
    prefix = "".join(letter if letter.isalnum() else "-" for letter in name)
    return parse_job("job.yaml", JOB.format(bucket=BUCKET, prefix=prefix, leftovers=leftovers))


def store_of(job: Job) -> ObjectStore:
    return ObjectStore(job.warehouse, job.storage.settings)


def landing_of(job: Job) -> ObjectLanding:
    return ObjectLanding(store_of(job), job.name)


def parquet(seqs: list[int], **more: Any) -> bytes:
    import pyarrow.parquet as pq

    target = io.BytesIO()
    pq.write_table(pa.table({"seq": seqs} | {name: [value] * len(seqs) for name, value in more.items()}), target)
    return target.getvalue()


def staged(landing: ObjectLanding, number: int, name: str = "", **more: Any) -> ObjectBatch:
    """A batch of ten rows whose file is there, with these columns beside their numbers; nothing is committed."""
    batch = landing.begin("q", number, [("s", 10 * number, 10 * number + 10)])
    assert batch is not None
    data = parquet(list(range(10 * number, 10 * number + 10)), **more)
    file = f"{name or number}.parquet"
    landing.store.put(f"bronze/{file}", data)
    batch.add("bronze", [WrittenFile(file, 10, len(data))])
    return batch


def seqs(job: Job) -> list[int]:
    return sorted(row["seq"] for row in ObjectWarehouse(job).rows("bronze"))


def test_batches_once(job: Job) -> None:
    landing = landing_of(job)
    for number in range(3):
        staged(landing, number).land()
    assert seqs(job) == list(range(30))
    again = landing_of(job)
    assert again.begin("q", 0, [("s", 0, 30)]) is None
    rest = again.begin("q", 1, [("s", 20, 45)])
    assert rest is not None
    assert (rest.pieces, rest.trimmed) == ([("s", 30, 45)], True)


@pytest.mark.parametrize("does", ["lost", "answer lost", "503", "412", *in_long_form("500")])
def test_a_commit_whose_request_fails(proxy: Proxy, job: Job, does: str) -> None:
    landing = landing_of(job)
    staged(landing, 0).land()
    proxy.faults.append(Fault("PUT", MANIFEST, does))
    staged(landing, 1).land()
    assert seqs(job) == list(range(20))
    assert ObjectManifest(store_of(job)).state.number == 2


def test_a_commit_that_is_not_answered(proxy: Proxy, job: Job) -> None:
    """The entry is there; the client hears nothing until its time is over, and recognises it."""
    landing = ObjectLanding(ObjectStore(job.warehouse, replace(job.storage.settings, timeout=0.5)), job.name)
    batch = staged(landing, 0)
    proxy.faults.append(Fault("PUT", MANIFEST, "no answer"))
    batch.land()
    assert seqs(job) == list(range(10))
    assert ObjectManifest(store_of(job)).state.number == 1


def test_a_commit_that_arrives_though_its_driver_gave_up(proxy: Proxy, job: Job) -> None:
    """All answers are lost: the driver cannot know, says so, and begins again from what it then finds."""
    landing = landing_of(job)
    batch = staged(landing, 0)
    proxy.faults += [Fault("PUT", MANIFEST, "answer lost", times=1), Fault("PUT", MANIFEST, "lost", times=10_000)]
    with pytest.raises(StoreUnreachable, match="cannot put _manifest/log"):
        batch.land()
    proxy.faults.clear()
    landing.restart()
    assert landing.begin("q", 0, [("s", 0, 10)]) is None, "it had landed"
    staged(landing, 1).land()
    assert seqs(job) == list(range(20))


def test_a_put_that_arrives_after_its_driver_has_gone_on(job: Job) -> None:
    """The entry of the first try becomes visible when the second is on its way: the second begins again."""
    first, second = landing_of(job), landing_of(job)
    late, next_try = staged(first, 0, "a"), staged(second, 0, "b")
    late.land()
    with pytest.raises(Overtaken, match="begins again"):
        next_try.land()
    second.restart()
    assert second.begin("q", 0, [("s", 0, 10)]) is None
    assert seqs(job) == list(range(10))


def test_a_batch_is_two_requests_of_the_driver(proxy: Proxy, job: Job) -> None:
    """Beside those of its tasks: a look at the log, and the entry."""
    landing = landing_of(job)
    staged(landing, 0).land()
    before = len(proxy.seen)
    staged(landing, 1).land()
    asked = [(method, path.partition("?")[0].rpartition("/")[2]) for method, path in proxy.seen[before:]]
    assert [one for one in asked if not one[1].endswith(".parquet")] == [("GET", BUCKET), ("PUT", "000000000002.json")]


def test_listings_that_begin_too_early(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of Azure's emulator do: the name to begin after is not looked at."""
    import obstore

    listed = obstore.list
    monkeypatch.setattr(obstore, "list", lambda store, prefix, **how: listed(store, prefix, **how | {"offset": None}))
    landing = landing_of(job)
    for number in range(4):
        staged(landing, number).land()
    assert landing_of(job).begin("q", 4, [("s", 0, 40)]) is None
    assert seqs(job) == list(range(40))


def test_what_a_delta_log_costs_a_batch_does_not_grow_with_it(proxy: Proxy, job: Job) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    store = store_of(job)
    landing, costs = ObjectLanding(store, job.name, ObjectDelta(store, job.name, set())), []
    for number in range(8):
        before = len(proxy.seen)
        staged(landing, number).land()
        costs.append(len(proxy.seen) - before)
    assert costs[3] == costs[7] <= 12
    found = deltalake.DeltaTable(f"{job.warehouse}/bronze", storage_options=delta_options(job.storage.settings))
    assert sorted(found.to_pyarrow_table()["seq"].to_pylist()) == list(range(80))


def test_a_delta_table_that_gets_nothing_costs_a_batch_nothing(proxy: Proxy, job: Job) -> None:
    """Such as gaps where none are: its log has come to an entry that is ever longer ago."""
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    store = store_of(job)
    landing, costs = ObjectLanding(store, job.name, ObjectDelta(store, job.name, set())), []
    for number in range(16):
        batch = staged(landing, number)
        if number < 2:
            batch.add("gaps", [WrittenFile(f"{number}.parquet", 10, len(parquet([number])))])
            store.put(f"gaps/{number}.parquet", parquet([number]))
        before = len(proxy.seen)
        batch.land()
        costs.append(len(proxy.seen) - before)
    assert costs[4] == costs[15]


def test_a_status_whose_figures_alone_are_new_is_put_now_and_then(
    proxy: Proxy, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, found = ObjectWarehouse(job), []
    for number, (when, state) in enumerate([(100.0, "running"), (101.0, "running"), (101.5, "done"), (103.5, "done")]):
        monkeypatch.setattr(warehouse_module.time, "monotonic", lambda when=when: when)
        warehouse.write_status({"state": state, "batch": number})
        found.append((warehouse.read_status() or {})["batch"])
    assert found == [0, 0, 2, 3]


def test_two_drivers_cannot_both_win(proxy: Proxy, job: Job) -> None:
    """The other's entry is put between this one's look at the log and its put."""
    one, other = landing_of(job), landing_of(job)
    mine, theirs = staged(one, 0, "mine"), staged(other, 0, "theirs")
    create = one.store.create

    def after_theirs(name: str, data: bytes) -> bool:
        one.store.create = create  # type: ignore[method-assign]
        theirs.land()
        return create(name, data)

    one.store.create = after_theirs  # type: ignore[method-assign]
    with pytest.raises(Overtaken):
        mine.land()
    assert ObjectWarehouse(job).files("bronze") == [f"{job.warehouse}/bronze/theirs.parquet"]


def test_what_a_replaced_table_held_is_given_up(job: Job) -> None:
    landing = landing_of(job)
    landing.replaced.add("devices")
    for number in range(2):
        batch = staged(landing, number)
        for table in ("devices", "_state/gaps"):
            landing.store.put(f"{table}/{number}.parquet", parquet([number]))
            batch.add(table, [WrittenFile(f"{number}.parquet", 1, 1)])
        batch.land()
    manifest = ObjectManifest(store_of(job))
    assert manifest.files("devices") == ["devices/1.parquet"]
    assert manifest.files("_state/gaps") == ["_state/gaps/1.parquet"]
    assert sorted(manifest.state.retired) == ["_state/gaps/0.parquet", "devices/0.parquet"]


def test_a_start_reads_few_entries(proxy: Proxy, job: Job) -> None:
    landing = landing_of(job)
    for number in range(STATE_EVERY + 3):
        staged(landing, number).land()
    proxy.seen.clear()
    again = ObjectManifest(store_of(job))
    gets = [path for method, path in proxy.seen if method == "GET" and "/_manifest/log/" in path and "?" not in path]
    assert len(gets) == 3
    assert again.state.landed == landing.manifest.state.landed
    assert again.state.files == landing.manifest.state.files
    assert (again.last, again.state.number) == (landing.manifest.last, STATE_EVERY + 3)


def test_a_damaged_entry_is_named(job: Job) -> None:
    landing = landing_of(job)
    staged(landing, 0).land()
    landing.store.put("_manifest/log/000000000001.json", b"{")
    with pytest.raises(PipelineError, match=r"log/000000000001.json is damaged"):
        ObjectManifest(store_of(job))


def test_a_missing_entry_is_named(job: Job) -> None:
    landing = landing_of(job)
    for number in range(3):
        staged(landing, number).land()
    landing.store.delete(["_manifest/log/000000000002.json"])
    with pytest.raises(PipelineError, match=r"log/000000000002.json is missing"):
        ObjectManifest(store_of(job))


@pytest.mark.parametrize("does", ["answer lost", "lost", "412"])
def test_a_delta_log_follows_the_manifest(proxy: Proxy, job: Job, does: str) -> None:
    """Also when the answers to its commits are lost, and when a driver died between the two commits."""
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    from deltalake import DeltaTable

    store = store_of(job)
    follows = ObjectDelta(store, job.name, set())
    with_log = ObjectLanding(store, job.name, follows)
    staged(with_log, 0).land()
    proxy.faults.append(Fault("PUT", "_delta_log/", does, times=2))
    staged(with_log, 1).land()
    staged(landing_of(job), 2).land()  # a driver that died before it came to the log
    with_log.restart()
    staged(with_log, 3).land()
    table = DeltaTable(f"{job.warehouse}/bronze", storage_options=delta_options(store.settings))
    assert sorted(table.to_pyarrow_table()["seq"].to_pylist()) == list(range(40))
    assert table.transaction_version("mqgate/plant") == 4


@pytest.mark.parametrize("number", [1, 2])
def test_the_columns_of_a_delta_table_follow_the_job(job: Job, number: int) -> None:
    """A driver of each job, of the same name or another; one of them dies before it comes to the log."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    store = store_of(job)
    columns: list[dict[str, Any]] = [{"old": "x"}, {"old": "y", "new": 1.5}, {"new": 2.5}, {"new": 3.5, "third": True}]
    for at, more in enumerate(columns):
        landing = ObjectLanding(store, f"job{at}", ObjectDelta(store, f"job{at}", set()))
        batch = staged(landing, at, **more)
        if at == number:
            landing.after_commit = None
        batch.land()
    landing = ObjectLanding(store, job.name, ObjectDelta(store, job.name, set()))
    with pytest.raises(TableDiffers, match="bronze: 'new' is double there, and string now: give the column"):
        staged(landing, 4, new="text").land()
    table = deltalake.DeltaTable(f"{job.warehouse}/bronze", storage_options=delta_options(store.settings))
    rows = table.to_pyarrow_table().sort_by("seq")
    assert rows["seq"].to_pylist() == list(range(40))
    assert rows["old"].to_pylist() == ["x"] * 10 + ["y"] * 10 + [None] * 20
    assert rows["new"].to_pylist() == [None] * 10 + [1.5] * 10 + [2.5] * 10 + [3.5] * 10
    assert rows["third"].to_pylist() == [None] * 30 + [True] * 10


# ---- compaction


def test_the_same_rows_in_one_file_while_batches_land(job: Job) -> None:
    landing = landing_of(job)
    for number in range(4):
        staged(landing, number).land()
    on_its_way = staged(landing, 4)
    assert compact(job) == {"bronze": 4}
    on_its_way.land()
    assert seqs(job) == list(range(50))
    assert len(ObjectWarehouse(job).files("bronze")) == 2
    kept = [one.name for one in landing.store.names("bronze")]
    assert len(kept) == 6, "a reader may hold the names of the small ones"
    assert remove_leftovers(job).removed == 0


def test_one_command_merges_all_that_is_small(job: Job) -> None:
    landing = landing_of(job)
    for number in range(12):
        staged(landing, number, text=random.Random(number).randbytes(1000).hex()).land()
    retention = job.retention.model_copy(update={"compact_bytes": 40_000})
    job = job.model_copy(update={"retention": retention})
    assert compact(job) == {"bronze": 12}
    assert seqs(job) == list(range(120))
    assert len(ObjectWarehouse(job).files("bronze")) <= 4
    assert not shown_upkeep(job, ObjectManifest(landing.store))["tables"][0]["due"]


def test_files_that_landed_far_apart_do_not_become_one(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a merged file go when the last of them may: a table that has few would keep them for ever."""
    landing, day = landing_of(job), 86_400.0
    began = time.time()
    for number in range(6):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", partial(float, began + number // 2 * 10 * day))
            staged(landing, number).land()
    assert compact(job) == {"bronze": 6}
    assert len(ObjectWarehouse(job).files("bronze")) == 3
    assert expire(job, now=began + 30 * day + 60) == {"bronze": 1}
    assert seqs(job) == list(range(20, 60))


def test_a_merge_keeps_columns_that_the_job_has_no_more(job: Job) -> None:
    landing = landing_of(job)
    for number, columns in enumerate([{"n": "1"}, {"n": 1, "old": 1.0}, {"n": 1}, {"n": 1, "new": "x"}, {}]):
        staged(landing, number, **columns).land()
    assert compact(job) == {"bronze": 4}, "a file in which a column has another type stays as it is"
    rows = {row["seq"]: row for row in ObjectWarehouse(job).rows("bronze")}
    assert rows[0] == {"seq": 0, "n": "1"}
    assert rows[10] == {"seq": 10, "n": 1, "old": 1.0, "new": None}
    assert rows[30] == {"seq": 30, "n": 1, "old": None, "new": "x"}
    assert rows[40] == {"seq": 40, "n": None, "old": None, "new": None}


def test_what_a_merge_leaves_out_is_not_due_for_ever(job: Job) -> None:
    landing = landing_of(job)
    for number, value in enumerate([1, 1, "1", "1"]):
        staged(landing, number, n=value).land()
    assert compact(job) == {"bronze": 2}
    manifest = ObjectManifest(landing.store)
    assert LakeState.from_json(json.loads(json.dumps(manifest.state.as_json()))).left_out == manifest.state.left_out
    shown = shown_upkeep(job, manifest)
    assert shown["tables"] == [{"table": "bronze", "parts": 3, "small": 1, "left_out": 2, "due": False}]
    assert "2 left out" in shown["next_compaction"]
    assert compact(job) == {}
    assert ObjectManifest(landing.store).state.number == manifest.state.number, "nothing is written again"
    assert expire(job, now=1e12) == {"bronze": 3}
    assert ObjectManifest(landing.store).state.left_out == set()


def test_a_merge_has_one_small_file_at_a_time_on_this_host(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = landing_of(job)
    for number in range(4):
        staged(landing, number).land()
    found: list[int] = []
    download = ObjectStore.download

    def watched(store: ObjectStore, name: str, target: Path) -> None:
        download(store, name, target)
        found.append(len([one for one in target.parent.iterdir() if one.name != "merged.parquet"]))

    monkeypatch.setattr(ObjectStore, "download", watched)
    assert compact(job) == {"bronze": 4}
    assert found == [1] * 4


def test_left_overs_go_and_nothing_else(job: Job, request: pytest.FixtureRequest) -> None:
    landing = landing_of(job)
    for number in range(4):
        staged(landing, number).land()
    staged(landing, 4, "dead-driver")
    compact(job)
    assert remove_leftovers(job) == (0, 5)
    assert remove_leftovers(make_job(request.node.name, leftovers="0s")).removed == 5
    assert seqs(job) == list(range(40))
    assert len(list(landing.store.names("bronze"))) == 1
    assert remove_leftovers(make_job(request.node.name, leftovers="0s")).removed == 0


def test_a_removed_file_can_not_be_landed_any_more(job: Job, request: pytest.FixtureRequest) -> None:
    """A driver that slept longer than left-overs are kept."""
    landing = landing_of(job)
    asleep = staged(landing, 0, "old")
    assert remove_leftovers(make_job(request.node.name, leftovers="0s")).removed == 1
    with pytest.raises(Overtaken, match=r"old.parquet was removed"):
        asleep.land()
    landing.restart()
    staged(landing, 0, "new").land()
    assert seqs(job) == list(range(10))


def test_a_driver_forgets_what_was_removed_before_its_batch(job: Job, request: pytest.FixtureRequest) -> None:
    """It runs for years, and each batch replaces files of the state."""
    landing = landing_of(job)
    staged(landing, 0, name="never landed")
    staged(landing, 1).land()
    assert remove_leftovers(make_job(request.node.name, leftovers="0s")).removed == 1
    staged(landing, 2).land()
    staged(landing, 3).land()
    assert landing.manifest.state.removed == {}
    assert seqs(job) == list(range(10, 40))


def test_a_batch_that_lands_before_the_removal_keeps_its_files(
    job: Job, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = landing_of(job)
    slow = staged(landing, 0)
    commit = ObjectManifest.commit

    def landed_first(self: ObjectManifest, kind: str, *rest: object) -> int:
        if kind == "remove":
            slow.land()
        return commit(self, kind, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(ObjectManifest, "commit", landed_first)
    with pytest.raises(Overtaken, match="run this command again"):
        remove_leftovers(make_job(request.node.name, leftovers="0s"))
    assert seqs(job) == list(range(10))


@pytest.mark.parametrize("command", ["check", "compact"])
def test_a_retention_that_is_not_held_is_told(
    proxy: Proxy, request: pytest.FixtureRequest, tmp_path: Path, command: str
) -> None:
    """Of Delta tables, whose rows and versions are still there; Parquet's are given up."""
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    prefix = make_job(request.node.name).warehouse.rpartition("/")[2]
    text = JOB.format(bucket=BUCKET, prefix=prefix, leftovers="1d")
    file = tmp_path / "job.yaml"
    for said, written in (("deletes nothing from Delta tables", text + "format: delta\n"), ("", text)):
        file.write_text(written)
        done = CliRunner().invoke(pipeline, [command, str(file)])
        assert done.exit_code == 0, done.output
        assert ("bronze: `retention.keep`" in done.stderr) == bool(said)
        assert said in done.stderr
    options = delta_options(make_job("x").storage.settings)
    root = f"{make_job(request.node.name).warehouse}/told"
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 9)]
    deltalake.write_deltalake(
        root, pa.table({"put_ts": pa.array(days, pa.timestamp("us", tz="UTC"))}), storage_options=options
    )
    found = deltalake.DeltaTable(root, storage_options=options)
    found.delete("put_ts < '2026-01-05T00:00:00Z'")
    assert found.to_pyarrow_table()["put_ts"].to_pylist() == days[1:], "as the command says that rows are deleted"


def test_old_files_are_given_up(job: Job) -> None:
    landing = landing_of(job)
    staged(landing, 0).land()
    assert expire(job) == {}
    assert expire(job, now=2**32) == {"bronze": 1}
    assert seqs(job) == []
    assert landing_of(job).begin("q", 0, [("s", 0, 10)]) is None, "what has landed does not land again"


# ---- what a store can do


def test_a_store_that_honours_the_condition(job: Job) -> None:
    ObjectWarehouse(job).check()
    assert [one.name for one in store_of(job).names("_manifest")] == []


def test_a_store_that_ignores_the_condition(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(job)
    put = store._put
    monkeypatch.setattr(store, "_put", lambda name, data, **_how: put(name, data))
    with pytest.raises(StoreRefuses, match="does not honour conditional puts"):
        store.check()


def test_no_such_bucket(proxy: Proxy) -> None:
    with pytest.raises(StoreRefuses, match="there is no such bucket: make it"):
        ObjectStore("s3://nobody/x", StoreSettings(patience=2)).check()
    with pytest.raises(StoreRefuses, match="there is no such bucket: make it"):
        ObjectManifest(ObjectStore("s3://nobody/x", StoreSettings(patience=2))).refresh()


def test_credentials_that_are_refused(proxy: Proxy, job: Job) -> None:
    proxy.faults.append(Fault("PUT", "/_manifest/probe/", "403"))
    with pytest.raises(StoreRefuses, match=r"refuses to put .*check the credentials"):
        store_of(job).check()


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ("400 ExpiredToken", StoreRefuses, "the credentials in the environment have expired"),
        ("400 InvalidToken", StoreRefuses, "AWS_SESSION_TOKEN is not theirs: set new ones"),
        ("403 RequestTimeTooSkewed", StoreUnreachable, "set the clock of this machine"),
        ("503 SlowDown", StoreUnreachable, "the store is busy"),
        ("507 XMinioStorageFull", StoreUnreachable, "the store has no room"),
    ],
)
def test_a_store_that_answers_says_what_to_do(
    proxy: Proxy, job: Job, answer: str, kind: type[Exception], says: str
) -> None:
    """The endpoint and the region are right."""
    proxy.faults.append(Fault("PUT", "/_manifest/probe/", answer, times=1000))
    with pytest.raises(kind, match=says) as caught:
        store_of(job).check()
    assert "AWS_REGION" not in str(caught.value)
    proxy.faults.clear()


def test_a_store_that_is_busy_for_a_while(proxy: Proxy) -> None:
    """For longer than the library repeats a request."""
    proxy.faults.append(Fault("PUT", "/x/y", "503 SlowDown", times=12))
    store = ObjectStore(f"s3://{BUCKET}/x", StoreSettings(patience=60))
    store.put("y", b"z")
    assert store.get("y") == b"z"


def test_nobody_at_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    settings = StoreSettings("http://127.0.0.1:9", "us-east-1", timeout=1, patience=1)
    with pytest.raises(StoreUnreachable, match="is the endpoint right"):
        ObjectStore("s3://lake/x", settings).get("y")


def test_no_credentials_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    settings = StoreSettings("http://127.0.0.1:9", "us-east-1", timeout=1, patience=1)
    with pytest.raises(StoreUnreachable, match="there are no credentials in the environment"):
        ObjectStore("s3://lake/x", settings).get("y")


def test_entries_are_readable(job: Job) -> None:
    """Somebody else's program can follow the log: this is its format."""
    landing = landing_of(job)
    staged(landing, 0).land()
    entry = json.loads(landing.store.get("_manifest/log/000000000001.json") or b"")
    assert (entry["number"], entry["kind"], entry["replaces"]) == (1, "batch", [])
    assert entry["record"]["tables"]["bronze"]["files"][0][0] == "0.parquet"


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "minio:9000", "http://", "http:///bucket", "ftp://minio"])
def test_an_endpoint_that_is_none(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    says = f"the endpoint '{endpoint}' is no address of a server: write https://host:port"
    with pytest.raises(StoreRefuses, match=says):
        ObjectStore("s3://bucket/prefix", StoreSettings(endpoint))
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(StoreRefuses, match=says):
        ObjectStore("s3://bucket/prefix", StoreSettings())
