"""What a run that fails leaves for `mqgate pipeline status`: whether it tries again."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import threading
import traceback
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from click.testing import CliRunner
from device_fleet import write_journal
from small_disks import tmpfs

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.config.units import show_duration
from gateway.pipeline.commands import pipeline
from gateway.pipeline.errors import (
    GatewayMissing,
    GatewayRefuses,
    LeaseHeld,
    PipelineError,
    QueueUnreachable,
    SparkEnded,
    StoreRefuses,
    WrongOption,
)
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.leases import journals_of
from gateway.pipeline.jobs.progress import JobProgress
from gateway.pipeline.jobs.run import JobRun, run_job
from gateway.pipeline.jobs.spark.stopping import Stop
from gateway.pipeline.jobs.status import job_status, status_lines
from gateway.pipeline.jobs.tables.folder_tables import rows_in
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.jobs.tries import PASSING
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.segments import Segments
from gateway.pipeline.land.landing import Landing
from gateway.pipeline.source.queue_access import JournalAccess
from gateway.pipeline.source.source import MqQueueDataSource

JOB = """
version: 1
name: plant
source: {{queue: Q, path: {folder}/journal}}
warehouse: {folder}/lake
restart: {{from: 1ms, times: {times}}}
nice: 0
"""


@pytest.mark.parametrize(
    ("error", "times", "once", "states"),
    [
        (RuntimeError("a file is not there"), 2, False, ["restarting", "restarting", "failed"]),
        (RuntimeError("a file is not there"), 0, True, ["restarting", "restarting", "failed"]),
        (WrongOption("no such option"), 0, False, ["failed"]),
    ],
)
def test_one_that_gives_up_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int, once: bool, states: list[str]
) -> None:
    write_journal(tmp_path / "journal", 1)
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=times))
    seen: list[str] = []
    run = JobRun(None, job, lambda progress: seen.append(progress.state))

    def start(*, once: bool) -> None:
        raise error

    monkeypatch.setattr(run, "start", start)
    with pytest.raises(type(error)):
        run.run(once=once)
    assert seen == states
    assert status_lines(job_status(job))[0] == "job plant: failed"


def test_what_a_source_says_of_its_batches_is_what_the_reader_is_told(tmp_path: Path) -> None:
    text = JOB.format(folder=tmp_path, times=0).replace("queue: Q,", "queue: Q, partitions: 9, max_messages: 70_000,")
    run = JobRun(None, parse_job("job.yaml", text))
    told = MqQueueDataSource(run.source_options(run.inputs[0])).parsed
    assert (told.partitions, told.max_messages) == (9, 70_000)


def test_one_whose_jvm_has_ended_does_not_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot: what restarts the process can. Nothing is asked of the JVM any more."""
    write_journal(tmp_path / "journal", 1)
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=0))
    run = JobRun(SimpleNamespace(_sc=SimpleNamespace(_jsc=GoneJvm()), streams=GoneJvm()), job)
    monkeypatch.setattr(run, "_listener", object())

    def start(*, once: bool) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(run, "start", start)
    with pytest.raises(SparkEnded, match=r"has ended, most often for want of memory: start the job again"):
        run.run(once=False)
    assert status_lines(job_status(job))[0] == "job plant: failed"


@pytest.mark.parametrize(
    ("ends", "says"),
    [("kill -TERM $$", "stopped"), ("exit 143", "stopped"), ("exit 52", "failed"), ("kill -KILL $$", "failed")],
)
def test_one_whose_jvm_ends_in_the_last_batch_says_so_unless_both_were_told_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, says: str
) -> None:
    """A batch for which there was not enough memory was `stopped`, and nobody knew what to set. 52 is how Spark's JVM
    ends then; a supervisor may signal all processes of a job."""
    write_journal(tmp_path / "journal", 1)
    job, stop = parse_job("job.yaml", JOB.format(folder=tmp_path, times=0)), Stop()
    with subprocess.Popen(["sh", "-c", ends]) as jvm:
        context = SimpleNamespace(_jsc=GoneJvm(), _gateway=SimpleNamespace(proc=jvm))
        run = JobRun(SimpleNamespace(_sc=context, streams=GoneJvm()), job)

        def start(*, once: bool) -> None:
            stop.ask()
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

        monkeypatch.setattr(run, "start", start)
        with pytest.raises(SparkEnded, match="for want of memory") if says == "failed" else nullcontext():
            run.run(once=False, stop=stop)
    assert status_lines(job_status(job))[0] == f"job plant: {says}"


def test_a_batch_that_is_cut_says_little_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark looked for the interruption in the error's text, with a pattern for which its stack was too small."""
    run = JobRun(None, parse_job("job.yaml", JOB.format(folder=tmp_path, times=0)))
    monkeypatch.setattr(run, "pieces", lambda number: [])

    def write(*_: object) -> None:
        query = RunningQuery()
        with run._stop.ends(query):
            run._stop.ask()
            assert query.ended.wait(30)
        raise RuntimeError(
            "py4j.protocol.Py4JJavaError: An error occurred while calling o1.parquet.\n" + "at x\n" * 999
        )

    monkeypatch.setattr(run.writer, "write", write)
    with pytest.raises(PipelineError, match="asked to stop") as raised:
        run._land(None, 0)
    assert len("".join(traceback.format_exception(raised.value))) < 2000


class RunningQuery:
    """A query that waits for messages until it is stopped."""

    status: ClassVar[dict[str, bool]] = {"isTriggerActive": False}

    def __init__(self) -> None:
        self.ended = threading.Event()

    @property
    def isActive(self) -> bool:
        return not self.ended.is_set()

    def stop(self) -> None:
        self.ended.set()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError("a file is not there"), "failed"),
        (OSError(errno.ENOSPC, "No space left on device"), "failed"),
        (RuntimeError("gateway.pipeline.errors.LeaseHeld: another driver has it"), "stopped"),
    ],
)
@pytest.mark.parametrize("once", [True, False])
def test_a_batch_that_fails_after_the_end_was_asked_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str, once: bool
) -> None:
    """It was `stopped`, with exit code 0, and nobody knew that the last batch had not landed. Waiting for another
    driver is no failure."""
    write_journal(tmp_path / "journal", 1)
    job, stop = parse_job("job.yaml", JOB.format(folder=tmp_path, times=0)), Stop()
    seen: list[str] = []
    run = JobRun(None, job, lambda progress: seen.append(progress.state))

    def start(*, once: bool) -> None:
        stop.ask()
        raise error

    monkeypatch.setattr(run, "start", start)
    with pytest.raises(type(error)) if says == "failed" else nullcontext():
        run.run(once=once, stop=stop)
    assert seen == [says]
    status = job_status(job)
    assert status_lines(status)[0] == f"job plant: {says}"
    assert "begins again" not in status["run"]["error"]


def test_what_fails_in_a_batch_after_the_end_was_asked_for_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = JobRun(None, parse_job("job.yaml", JOB.format(folder=tmp_path, times=0)))
    monkeypatch.setattr(run, "pieces", lambda number: [])

    def write(*_: object) -> None:
        run._stop.ask()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run.writer, "write", write)
    with pytest.raises(OSError, match="No space left"):
        run._land(None, 0)
    with pytest.raises(PipelineError, match="asked to stop"):
        run._land(None, 1)


class GoneJvm:
    """What py4j does once there is nobody at the other end."""

    def __getattr__(self, name: str) -> None:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


@pytest.mark.parametrize("refused", ["another job", "another journal", "a table that is gone", ""])
def test_what_refuses_a_job_is_found_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    class Started(Exception):
        """Spark would have been started."""

    def start(*_: object) -> None:
        raise Started

    monkeypatch.setattr("gateway.pipeline.jobs.run.make_session", start)
    write_journal(tmp_path / "journal", 1)
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=1))
    name = "other" if refused == "another job" else job.name
    landing = Landing(tmp_path / "lake", name, rows_in)
    landing.reads = {each.stream: each.source.queue for each in job.inputs}
    landing.journals = (
        {each.stream: "another" for each in job.inputs} if refused == "another journal" else journals_of(job.inputs)
    )
    batch = landing.begin("query", 0, [(job.inputs[0].stream, 0, 1)])
    target = batch.stage("bronze")
    target.mkdir(parents=True)
    pq.write_table(pa.table({"seq": [1]}), target / "p.parquet")
    batch.land()
    if refused == "a table that is gone":
        shutil.rmtree(tmp_path / "lake/bronze")
    said: list[str] = []
    with pytest.raises((WrongOption, StoreRefuses) if refused else Started):
        run_job(job, once=True, watch=lambda progress: said.append(progress.state))
    assert said == (["failed"] if refused else ["starting"])
    if refused:
        assert job_status(job)["run"]["state"] == "failed"


def beside_another(folder: Path, owner: str) -> Job:
    """A job that another driver runs: it has the lease, and has written the status."""
    write_journal(folder / "journal", 1)
    job = parse_job("job.yaml", JOB.format(folder=folder, times=0))
    other = JobProgress(job.name, "running", host="elsewhere", process=77, started=0.0)
    warehouse_of(job).write_status({name: getattr(other, name) for name in JobProgress.__slots__})
    JournalAccess(folder / "journal").acquire(ConsumerGroup("spark", "Q"), owner, 60.0)
    return job


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session is made: whoever gets as far has found that no other driver reads."""

    def start(*_: object) -> None:
        raise SparkEnded("Spark would have been started")

    monkeypatch.setattr("gateway.pipeline.jobs.run.make_session", start)
    monkeypatch.setattr("gateway.pipeline.jobs.run.LOOK_AGAIN", 0.01)


@pytest.mark.usefixtures("without_spark")
def test_a_run_that_ends_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It began its query several times meanwhile, and its status stood for that of the driver that lands everything."""
    monkeypatch.setitem(PASSING, "LeaseHeld", 0.05)
    job = beside_another(tmp_path, "elsewhere:78")
    said: list[str] = []

    who = (
        r"^job 'plant' is run by process 77 of elsewhere since 1970-01-01 00:00:00 UTC; consumer group 'spark' is read"
    )
    with pytest.raises(LeaseHeld, match=who):
        run_job(job, once=True, watch=lambda now: said.append(f"{now.state}: {now.error}"))
    (line,) = said
    assert re.match(
        r"waiting: job 'plant' is run by process 77 of .* is read by elsewhere:78 for 60 more seconds", line
    )
    assert job_status(job)["run"]["process"] == 77


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize("ends", ["given back", "its process has ended"])
def test_a_driver_that_ends_is_waited_for(tmp_path: Path, ends: str) -> None:
    ended = subprocess.Popen(["sleep", "600"])
    job = beside_another(tmp_path, f"{socket.gethostname()}:{ended.pid}")
    seen: list[str] = []

    def end(progress: JobProgress) -> None:
        seen.append(progress.state)
        if ends == "given back" and progress.state == "waiting":
            JournalAccess(tmp_path / "journal").release("spark", 1)
        else:
            ended.kill()
            ended.wait()

    with pytest.raises(SparkEnded, match="would have been started"):
        run_job(job, once=True, watch=end)
    ended.kill()
    ended.wait()
    assert seen == ["waiting", "starting"]


def test_what_a_displaced_driver_tells_is_not_the_status_of_the_job(tmp_path: Path) -> None:
    job, stop = beside_another(tmp_path, "elsewhere:78"), Stop()
    said: list[str] = []

    def end(progress: JobProgress) -> None:
        said.append(progress.error)
        stop.ask()

    assert JobRun(None, job, end).run(once=False, stop=stop).state == "stopped"
    assert "is read by elsewhere:78 for 60 more seconds" in said[0]
    assert (job_status(job)["run"]["process"], job_status(job)["run"]["state"]) == (77, "running")


def test_a_folder_without_a_journal_gets_none(tmp_path: Path) -> None:
    """A mistyped `path`: the job found nothing to land, and left a journal of its own there."""
    (tmp_path / "journal").mkdir()
    with pytest.raises(QueueUnreachable, match=r"journal has no journal in it: give the data folder"):
        run_job(parse_job("job.yaml", JOB.format(folder=tmp_path, times=1)), once=True)
    source = MqQueueDataSource({"path": str(tmp_path / "journal"), "queue": "Q"})
    with pytest.raises(QueueUnreachable, match="has no journal in it"):
        source.streamReader(source.schema()).initialOffset()
    assert list((tmp_path / "journal").iterdir()) == []
    assert not (tmp_path / "lake").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_a_folder_of_another_user_is_not_one_without_a_journal(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", 1)
    (tmp_path / "journal").chmod(0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(
            QueueUnreachable, match=r"journal cannot be read \(Permission denied\): run this as the user"
        ):
            Segments(tmp_path / "journal").headers()
    finally:
        os.seteuid(0)


def test_a_gateway_that_is_not_there_yet_is_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journal").write_text("token")
    job = parse_job(
        "job.yaml", JOB.format(folder=tmp_path, times=1).replace("path:", "url: 'http://127.0.0.1:1', token_file:")
    )
    JobRun(None, job).refuse(once=True)


@pytest.mark.parametrize("once", [True, False])
def test_a_gateway_that_is_not_reached_like_this_refuses(tmp_path: Path, once: bool) -> None:
    """Before Spark starts; a query that runs tries again, as somebody may put it right."""
    (tmp_path / "journal").mkdir()
    job = parse_job(
        "job.yaml", JOB.format(folder=tmp_path, times=1).replace("path:", "url: 'http://127.0.0.1:1', token_file:")
    )
    said: list[str] = []
    with pytest.raises(GatewayRefuses, match=r"the token file .* cannot be read"):
        run_job(job, once=once, watch=lambda progress: said.append(progress.state))
    assert said == ["failed"]


@pytest.mark.parametrize(
    ("url", "says"), [("http://127.0.0.1:1", "the token file"), ("http://gateway.invalid:1", "there is no host")]
)
def test_a_service_waits_for_what_comes_with_a_gateway(tmp_path: Path, url: str, says: str) -> None:
    """Its name, where the two are containers that start together, and the token that its first start writes."""
    if says == "there is no host":
        (tmp_path / "journal").write_text("token")
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=1).replace("path:", f"url: '{url}', token_file:"))
    JobRun(None, job).refuse(once=False)
    with pytest.raises(GatewayMissing, match=says):
        JobRun(None, job).refuse(once=True)


def test_how_long_it_is_until_it_begins_again_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=0))
    said: list[str] = []
    run = JobRun(None, job, lambda progress: said.append(progress.error))

    def start(*, once: bool) -> None:
        raise RuntimeError("the gateway does not answer")

    monkeypatch.setattr(run, "start", start)
    with pytest.raises(RuntimeError):
        run.run(once=True)
    again = [f"the gateway does not answer (begins again in {show_duration(job.restart.first * n)})" for n in (1, 2)]
    assert said == [*again, "the gateway does not answer"]


def test_one_that_cannot_begin_for_days_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause after the 1,025th failure in a row, some 17 hours after the first, was no number any more, and ended
    the job."""
    text = JOB.format(folder=tmp_path, times=0).replace("from: 1ms", "from: 1ms, to: 1ms")
    job, stop, failures = parse_job("job.yaml", text), Stop(), count(1)
    run = JobRun(None, job)

    def start(*, once: bool) -> None:
        if next(failures) == 1100:
            stop.ask()
        raise LeaseHeld("another one reads") if stop.is_asked() else RuntimeError("the gateway does not answer")

    monkeypatch.setattr(run, "start", start)
    assert run.run(once=False, stop=stop).state == "stopped"
    assert run.progress.restarts == 1099


def test_one_that_waits_for_another_does_not_give_up(tmp_path: Path) -> None:
    """Nor is it told as a failure afterwards, when it runs."""
    job, said = beside_another(tmp_path, "elsewhere:78"), list[str]()
    job = job.model_copy(update={"restart": job.restart.model_copy(update={"times": 1})})

    def look(progress: JobProgress) -> None:
        said.append(progress.error)
        if len(said) == 4:
            JournalAccess(tmp_path / "journal").release("spark", 1)

    run = JobRun(None, job, look)
    with pytest.raises(AttributeError):  # there is no Spark
        run.run(once=False)
    assert [text.partition("; ")[0] for text in said[:4]] == [said[0].partition("; ")[0]] * 4
    assert "is read by" in said[3]
    assert "NoneType" in said[4]
    assert job_status(job)["run"]["restarts"] == len(said) - 4


def test_a_status_that_finds_no_room_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure that it would tell is the full disk: the run is to begin again, until there is room."""
    write_journal(tmp_path / "journal", 1)
    seen: list[str] = []
    with tmpfs(tmp_path / "lake", "64k") as disk:
        job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=0))
        run = JobRun(None, job, lambda progress: seen.append(progress.state))
        with suppress(OSError), (disk / "filler").open("wb") as filler:
            filler.write(bytes(1 << 20))

        def start(*, once: bool) -> EndedQuery:
            if not seen:
                raise OSError(errno.ENOSPC, "No space left on device")
            return EndedQuery()

        monkeypatch.setattr(run, "start", start)
        assert run.run(once=True).state == "done"
    assert seen == ["restarting", "done"]


class EndedQuery:
    """A query that has landed everything."""

    isActive = False

    def awaitTermination(self) -> None:
        pass


def test_a_busy_machine_is_no_failure_that_a_job_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes by itself is waited for, as `--once` does."""
    write_journal(tmp_path / "journal", 1)
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=1))
    late = RuntimeError("Query ended: Python worker failed to connect back.")
    run, tries = JobRun(None, job), iter([late, late, late, RuntimeError("a file is not there"), late, None])

    def start(*, once: bool) -> EndedQuery:
        if error := next(tries):
            raise error
        return EndedQuery()

    monkeypatch.setattr(run, "start", start)
    assert run.run(once=True).restarts == 5


def test_one_that_is_done_has_made_up_for_its_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_journal(tmp_path / "journal", 1)
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=0))
    run, tries = JobRun(None, job), iter([RuntimeError("the gateway does not answer"), None])

    def start(*, once: bool) -> EndedQuery:
        if error := next(tries):
            raise error
        return EndedQuery()

    monkeypatch.setattr(run, "start", start)
    assert run.run(once=True).restarts == 1
    lines = status_lines(job_status(job))
    assert lines[:2] == ["job plant: done", "  restarts: 1"]


def test_an_error_at_the_start_is_told_once(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", 1)
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(folder=tmp_path, times=1).replace("path:", "url: 'http://127.0.0.1:1', token_file:"))
    done = CliRunner().invoke(pipeline, ["run", str(job), "--once"])
    assert done.exit_code == 3
    assert done.output.count("cannot be read") == 1, done.output
