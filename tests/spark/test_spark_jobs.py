"""Whole jobs in one session: silver and its quarantine, every gold table, against what was sent."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from device_fleet import EPOCH_MS, SMALL, Fleet, descriptor, put, reading, write_journal
from spark_queries import ended

from gateway.bridge.segments import segments
from gateway.mq import mqmd
from gateway.mq.headers import dlh
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.journal.owner import Owner, StoreJournal
from gateway.pipeline.journal.service import PipelineService
from gateway.queue_manager.journal.store import Store

JOB = """
version: 1
name: plant
source: {{queue: "TELEMETRY.*", path: {path}, max_messages: 2500, purge_delay: 0s}}
warehouse: {lake}
trigger: 0s
silver:
  - table: readings
    decode: json
    event_time: ts
    key: [device]
    columns:
      - {{name: device, required: true}}
      - {{name: n, type: bigint}}
      - {{name: ts, type: timestamp, unit: ms}}
      - {{name: temperature, type: double, max: 100}}
      - {{name: site, from: properties.site}}
      - {{name: warm, type: double, from: payload.temperature, max: 20, on_failure: count}}
gold:
  - {{table: tens, kind: window, every: 10s, values: [temperature], watermark: 5s}}
  - {{table: devices, kind: last, values: [n, temperature]}}
  - {{table: gaps, kind: gaps, sequence: n}}
  - {{table: silent, kind: silence, after: 15s}}
  - {{table: dead, kind: dead_letters}}
  - {{table: late, kind: latency, every: 1h}}
"""


def sent(device: int, n: int) -> bytes:
    """What the devices send: 5 is broken now and then, 6 too hot once."""
    if device == 5 and n % 10 == 3:
        return b'{"device": "dev0005", '
    if device == 6 and n == 7:
        return json.dumps({"device": "dev0006", "n": n, "ts": EPOCH_MS + n * 1000, "temperature": 1000.5}).encode()
    return reading(device, n)


def table(spark: Any, lake: Path, name: str) -> list[Any]:
    return spark.read.parquet(str(lake / name)).collect()


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 readings of 100 devices in two batches; 7 misses three, 8 is silent for 20 seconds; two dead letters."""
    from gateway.pipeline.jobs.run import JobRun

    work = tmp_path_factory.mktemp("job")
    fleet = Fleet(payload=sent)
    heads, bodies = fleet.batch(4000)
    missing = {100 * n + 7 for n in (11, 12, 30)} | {100 * n + 8 for n in range(10, 30)}
    kept = [at for at in range(4000) if at not in missing]
    store = Store.open(work / "j", clock=time.time, options=SMALL)
    for begin in range(0, len(kept), 100):
        some = kept[begin : begin + 100]
        put(store, "TELEMETRY.A", [heads[at] for at in some], [bodies[at] for at in some])
    letter = dlh.build(2085, "ORDERS", "QM9", descriptor())
    put(store, "TELEMETRY.DLQ", [mqmd.build(format=b"MQDEAD  ")] * 2, [letter + b"RFH broken"] * 2)
    store.close()
    job = parse_job("job.yaml", JOB.format(path=work / "j", lake=work / "lake"))
    progress = JobRun(spark, job).run(once=True)
    assert (progress.state, progress.batches, progress.rows) == ("done", 2, len(kept) + 2)
    assert progress.batch in (0, 1), "Spark's listener has told of a batch"
    assert progress.backlog in (0, len(kept) + 2 - 2500)
    assert progress.trigger_seconds > 0
    assert progress.wait_p50 is not None
    assert 0 <= progress.wait_p50 <= progress.wait_p99 < 3600
    (work / "lake/job.json").write_text(json.dumps(sorted(missing)))
    return work / "lake"


def good(lake: Path) -> list[tuple[int, int]]:
    missing = set(json.loads((lake / "job.json").read_text()))
    pairs = [(at % 100, at // 100) for at in range(4000) if at not in missing]
    return [(device, n) for device, n in pairs if not (device == 5 and n % 10 == 3) and (device, n) != (6, 7)]


def test_bronze_and_silver(spark: Any, lake: Path) -> None:
    assert len(table(spark, lake, "bronze")) == 3979
    rows = table(spark, lake, "readings")
    ok = {(row.device, row.n) for row in rows if row.status == "ok"}
    assert ok == {(f"dev{device:04}", n) for device, n in good(lake)}
    bad = defaultdict(list)
    for row in rows:
        if row.status == "quarantine":
            bad[row.error].append(bytes(row.payload))
    assert sorted(map(len, bad.values())) == [1, 6]
    assert bad["above_max:temperature"] == [sent(6, 7)]
    assert set(bad["not_json"]) >= {sent(5, 3)}
    assert all(row.payload is None and row.site for row in rows if row.status == "ok")


def test_windows(spark: Any, lake: Path) -> None:
    expected: dict[tuple[str, int], list[float]] = defaultdict(list)
    for device, n in good(lake):
        value = json.loads(reading(device, n))
        expected[value["device"], value["ts"] // 10_000].append(value["temperature"])
    rows = table(spark, lake, "tens")
    found = {(row.device, int(row.window_start.timestamp() // 10)): row for row in rows}
    assert len(found) == len(rows)
    latest = EPOCH_MS + 39_099
    assert set(found) == {key for key in expected if (key[1] + 1) * 10_000 + 5_000 <= latest}
    for key, row in found.items():
        values = expected[key]
        assert row.temperature_count == len(values)
        assert (row.temperature_min, row.temperature_max) == (min(values), max(values))
        assert row.temperature_mean == pytest.approx(sum(values) / len(values))
        assert row.temperature_last == values[-1]
        assert not row.late


def test_last_values_and_gaps(spark: Any, lake: Path) -> None:
    devices = table(spark, lake, "devices")
    assert len(devices) == 100
    assert {row.n for row in devices} == {39}
    gaps = {(row.device, row.previous, row.next, row.missing, row.kind) for row in table(spark, lake, "gaps")}
    assert {gap for gap in gaps if gap[0] in ("dev0007", "dev0008")} == {
        ("dev0007", 10, 13, 2, "gap"), ("dev0007", 29, 31, 1, "gap"), ("dev0008", 9, 30, 20, "gap"),
    }  # fmt: skip
    assert {gap[0] for gap in gaps} == {"dev0005", "dev0006", "dev0007", "dev0008"}


def test_silence_dead_letters_and_latency(spark: Any, lake: Path) -> None:
    silent = table(spark, lake, "silent")
    assert {row.device for row in silent} == {"dev0008"}
    back = [row for row in silent if row.returned_at is not None]
    assert [(row.returned_at - row.silent_from).total_seconds() for row in back] == [21.0]
    dead = table(spark, lake, "dead")
    assert [(row.reason, row.queue, row.queue_manager, row.messages) for row in dead] == [(2085, "ORDERS", "QM9", 2)]
    assert sum(row.messages for row in table(spark, lake, "late")) == len(good(lake))


def test_report_status_and_compaction(spark: Any, lake: Path) -> None:
    from gateway.pipeline.jobs.metrics import metrics_text
    from gateway.pipeline.jobs.quality import expectations
    from gateway.pipeline.jobs.report import make_report
    from gateway.pipeline.jobs.status import job_status, status_lines
    from gateway.pipeline.jobs.tables.compaction import compact
    from gateway.pipeline.jobs.tables.warehouse import warehouse_of

    job = parse_job("job.yaml", JOB.format(path=lake.parent / "j", lake=lake))
    page = make_report(job)
    assert page.count("<svg") == 9
    failed = {each.code: each for each in expectations(job.silver[0], warehouse_of(job).records())}
    assert {code: each.failed for code, each in failed.items() if not each.counts_only and each.failed} == {
        "not_json": 6, "above_max:temperature": 1,
    }  # fmt: skip
    warm = sum(json.loads(reading(device, n))["temperature"] > 20 for device, n in good(lake)) + 1
    counted = failed["above_max:warm"]
    assert (counted.failed, counted.rows, len(counted.series)) == (warm, 3979, 2)
    assert sum(row.warnings == "above_max:warm" for row in table(spark, lake, "readings")) == warm
    assert "<td>above_max</td><td>temperature</td><td class='n'>1</td>" in page
    assert "dev0008" in page
    assert "<script" not in page
    status = job_status(job)
    assert status["groups"][0]["lag"] == 0
    assert any("0 behind, nobody reads" in line for line in status_lines(status))
    assert 'mqgate_pipeline_rows_total{job="plant"} 3979' in metrics_text(status)
    before = sorted(row.seq for row in table(spark, lake, "readings"))
    job = job.model_copy(update={"retention": job.retention.model_copy(update={"compact_files": 1})})
    assert compact(job) == {}, "the newest batches are left alone"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gateway.pipeline.jobs.tables.compaction.YOUNGEST_KEPT", 0)
        assert compact(job)["readings"] == 2
    assert sorted(row.seq for row in table(spark, lake, "readings")) == before


def test_a_job_that_is_asked_to_stop_finishes_its_batch_and_gives_its_group_back(spark: Any, tmp_path: Path) -> None:
    """Three batches are on the queue; it is asked while the first is under way, and goes on with the next run."""
    from gateway.pipeline.jobs.run import JobRun
    from gateway.pipeline.jobs.spark.stopping import Stop
    from gateway.pipeline.jobs.status import job_status, status_lines

    text = JOB.format(path=tmp_path / "j", lake=tmp_path / "lake").partition("silver:")[0]
    text = text.replace("max_messages: 2500", "max_messages: 5")
    write_journal(tmp_path / "j", 15, Fleet(devices=1))
    job, stop = parse_job("job.yaml", text), Stop()
    run = JobRun(spark, job)
    write = run.writer.write

    def asked(*arguments: Any) -> Any:
        stop.ask()
        return write(*arguments)

    run.writer.write = asked  # type: ignore[method-assign]
    progress = run.run(once=False, stop=stop)
    assert progress.state == "stopped"
    assert 0 < progress.rows < 15
    status = job_status(job)
    assert status["run"]["state"] == "stopped"
    assert any("nobody reads" in line for line in status_lines(status))
    assert len(table(spark, tmp_path / "lake", "bronze")) == progress.rows
    JobRun(spark, job).run(once=True)
    assert len(table(spark, tmp_path / "lake", "bronze")) == 15


def test_a_last_batch_that_fails_is_told(spark: Any, tmp_path: Path) -> None:
    """What Spark makes of its error is not taken for the end that was asked for."""
    from gateway.pipeline.jobs.run import JobRun
    from gateway.pipeline.jobs.spark.stopping import Stop
    from gateway.pipeline.jobs.status import job_status

    write_journal(tmp_path / "j", 5, Fleet(devices=1))
    text = JOB.format(path=tmp_path / "j", lake=tmp_path / "lake").partition("silver:")[0]
    job, stop = parse_job("job.yaml", text), Stop()
    run = JobRun(spark, job)
    write = run.writer.write

    def failing(*arguments: Any) -> Any:
        stop.ask()
        shutil.rmtree(tmp_path / "lake/_staging", ignore_errors=True)
        (tmp_path / "lake/_staging").touch()
        return write(*arguments)

    run.writer.write = failing  # type: ignore[method-assign]
    with pytest.raises(Exception, match="_staging"):
        run.run(once=False, stop=stop)
    status = job_status(job)["run"]
    assert status["state"] == "failed"
    assert "_staging" in status["error"]
    (tmp_path / "lake/_staging").unlink()
    JobRun(spark, job).run(once=True)
    assert len(table(spark, tmp_path / "lake", "bronze")) == 5


def test_cbor_and_a_late_row(spark: Any, tmp_path: Path) -> None:
    cbor2 = pytest.importorskip("cbor2", reason="cbor2 is not installed: pip install '.[spark]'")
    from gateway.pipeline.jobs.run import JobRun

    def payload(device: int, n: int) -> bytes:
        at = 0 if n == 5 else n * 1000
        return (
            cbor2.dumps({"device": f"d{device}", "n": n, "ts": EPOCH_MS + at, "temperature": 1.5})
            if n != 2
            else b"\xff"
        )

    text = JOB.format(path=tmp_path / "j", lake=tmp_path / "lake").replace("decode: json", "decode: cbor")
    text = text.replace("every: 10s", "every: 1s").replace("watermark: 5s", "watermark: 0s")
    text = text.partition("  - {table: devices")[0].replace("max_messages: 2500", "max_messages: 5")
    write_journal(tmp_path / "j", 6, Fleet(devices=1, payload=payload))
    assert JobRun(spark, parse_job("job.yaml", text)).run(once=True).batches == 2
    rows = table(spark, tmp_path / "lake", "readings")
    assert [row.n for row in rows if row.status == "ok"] == [0, 1, 3, 4, 5]
    assert [row.error[:7] for row in rows if row.status == "quarantine"] == ["decode:"]
    late = [row for row in table(spark, tmp_path / "lake", "tens") if row.late]
    assert [row.temperature_count for row in late] == [1]


def test_a_clock_that_is_far_ahead_makes_nothing_late(spark: Any, tmp_path: Path) -> None:
    from gateway.pipeline.jobs.run import JobRun

    def payload(device: int, n: int) -> bytes:
        at = EPOCH_MS + n * 1000 if n != 1 else 253_402_200_000_000  # the year 9999
        return json.dumps({"device": f"d{device}", "n": n, "ts": at, "temperature": 1.5}).encode()

    text = JOB.format(path=tmp_path / "j", lake=tmp_path / "lake").replace("every: 10s", "every: 1s")
    text = text.replace("watermark: 5s", "watermark: 0s").replace("max_messages: 2500", "max_messages: 5")
    write_journal(tmp_path / "j", 10, Fleet(devices=1, payload=payload))
    assert JobRun(spark, parse_job("job.yaml", text)).run(once=True).batches == 2
    closed = sorted(
        (row.window_start.timestamp() - EPOCH_MS / 1000, row.late) for row in table(spark, tmp_path / "lake", "tens")
    )
    assert closed == [(n, False) for n in (0, 2, 3, 4, 5, 6, 7, 8)]
    silent = [row for row in table(spark, tmp_path / "lake", "silent") if row.returned_at is None]
    assert not silent


class Served:
    """The service behind a small HTTP server, as a gateway's administration port would serve it."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder, clock=time.time, options=SMALL)
        service = PipelineService(Owner(StoreJournal(self.store)), folder)

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                split = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Authorization") != "Bearer secret":
                    self.send_error(401)
                    return
                path = split.path.removeprefix("/api/pipeline/")
                reply = service.handle(self.command, path, dict(parse_qsl(split.query)), body)
                self.send_response(reply.status)
                self.send_header("Content-Type", reply.content_type)
                self.end_headers()
                for part in reply.body:
                    self.wfile.write(part)

            do_GET = do_POST = answer

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.store.close()


def test_a_running_gateway_over_http(spark: Any, tmp_path: Path) -> None:
    fleet = write_journal(tmp_path / "j", 1000)
    served = Served(tmp_path / "j")
    try:
        there = {"url": served.url, "token": "secret", "queue": "TELEMETRY.*"}
        rows = spark.read.format("mqqueue").options(**there).load().collect()
        assert len({row.seq for row in rows}) == 1000
        assert bytes(rows[0].payload) == reading(0, 0)
        reader = spark.readStream.format("mqqueue").options(**there, consumerGroup="far", purgeDelay="0")
        stream = reader.options(maxMessagesPerTrigger="600").load()
        for _ in range(2):
            writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
            ended(writer.start)
            put(served.store, "TELEMETRY.B", *fleet.batch(50))
        assert spark.read.parquet(str(tmp_path / "out")).selectExpr("count(*)", "count(DISTINCT seq)").first() == (
            1050,
            1050,
        )
        back = spark.read.parquet(str(tmp_path / "out")).limit(10)
        back.write.format("mqqueue").options(url=served.url, token="secret", queue="BACK").mode("append").save()
        assert served.store.depth("BACK") == 10
        with pytest.raises(Exception, match="refuses the token"):
            spark.read.format("mqqueue").options(url=served.url, queue="A").load().count()
        local = {"path": str(tmp_path / "j"), "url": served.url, "token": "secret", "queue": "TELEMETRY.B"}
        assert (
            spark.read.format("mqqueue").options(**local).load().count() == 50
        )  # the others have landed and are purged
    finally:
        served.close()


def test_a_batch_of_which_a_part_has_landed(spark: Any, tmp_path: Path) -> None:
    """As after a deleted checkpoint: the tasks write all of it, and only what is missing becomes part of the table."""
    from gateway.pipeline.jobs.run import JobRun

    write_journal(tmp_path / "j", 500)
    text = (
        f"version: 1\nname: j\nsource: {{queue: 'TELEMETRY.*', path: {tmp_path / 'j'}}}\nwarehouse: {tmp_path / 'w'}\n"
    )
    run = JobRun(spark, parse_job("job.yaml", text))

    def land(number: int, low: int, high: int) -> None:
        options = run.source_options(run.inputs[0]) | {"startingSeq": str(low), "endingSeq": str(high)}
        files = spark.read.format("mqqueue").options(**options).load()
        run.writer.write(files, "q", number, [(run.inputs[0].stream, low, high)])

    land(0, 1, 301)
    land(1, 200, 401)
    land(0, 1, 501)
    rows = spark.read.parquet(str(tmp_path / "w/bronze")).selectExpr("count(*)", "count(DISTINCT seq)", "max(seq)")
    assert rows.first() == (500, 500, 500)
    assert run.landing.manifest.landed.intervals == {run.inputs[0].stream: [(1, 501)]}


def test_the_notebook_and_the_dashboard_of_the_docs(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install '.[test]'")
    folder = Path(__file__).parents[2] / "docs/howto/lake"
    monkeypatch.setenv("LAKE", str(lake))
    names: dict[str, Any] = {}
    for cell in json.loads((folder / "readings.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert int(names["devices"]["readings"].sum()) == len(good(lake))
    windows = {(EPOCH_MS + n * 1000 + device) // 10_000 for device, n in good(lake)}
    assert len(names["course"]) == len(windows)
    assert names["quarantined"] == 7
    assert dict(names["missing"].itertuples(index=False, name=None))["dev0008"] == 20
    page = tmp_path / "lake.html"
    subprocess.run([sys.executable, str(folder / "dashboard.py"), str(lake), str(page)], check=True, timeout=120)
    assert "<td>not_json</td><td>6</td>" in page.read_text()
    assert page.read_text().count("<tr>") == 20 + len(windows) + 2


def test_segments_are_put_together_as_the_docs_have_it(spark: Any, tmp_path: Path) -> None:
    """Those of a rule, whose headers are in the first one alone; not where one is missing."""
    fleet = Fleet(devices=3, payload=lambda device, _: b"%d" % device * 2000)
    cut = [segments(*fleet.message(), 512, unique=b"%d" % number) for number in range(3)]
    store = Store.open(tmp_path / "journal", clock=time.time, options=SMALL)
    rows = [*cut[0], *reversed(cut[1]), *cut[2][1:], (descriptor(), b"short")]
    put(store, "Q", [head for head, _ in rows], [body for _, body in rows])
    store.close()
    read = spark.read.format("mqqueue").options(path=str(tmp_path / "journal"), queue="Q", includeRaw="true")
    read.load().write.parquet(str(tmp_path / "lake/bronze/batch=1"))
    page = (Path(__file__).parents[2] / "docs/howto/pipeline.md").read_text()
    code = page.partition("## Messages in segments")[2].partition("```python\n")[2].partition("```")[0]
    names = {"spark": spark}
    exec(code.replace("lake/bronze", f"{tmp_path}/lake/bronze"), names)
    assert [bytes(row.payload) for row in names["whole"].orderBy("seq").collect()] == [b"0" * 2000, b"1" * 2000]
