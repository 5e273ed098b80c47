"""Runs a job: one streaming query, started again after failures, with its progress reported.

The ranges of a batch come from Spark's own offset log in the checkpoint, so they are what Spark will plan again after a
crash. Nothing about a batch depends on the clock or on its number.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

from gateway.config.units import show_duration
from gateway.pipeline.errors import GatewayMissing, GatewayRefuses, LeaseHeld, PipelineError, SparkEnded
from gateway.pipeline.jobs.checkpoint_folder import CheckpointFolder
from gateway.pipeline.jobs.foreign_checkpoint import check_checkpoint, done_in, offsets_in
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.leases import access_to, give_back, journals_of, reader_of
from gateway.pipeline.jobs.micro_batch import MicroBatchWriter, includes_raw
from gateway.pipeline.jobs.progress import WAITING, JobProgress, Watch
from gateway.pipeline.jobs.sources import Input
from gateway.pipeline.jobs.spark.priority import step_back, steps_back_here
from gateway.pipeline.jobs.spark.spark_session import QUIET, has_ended, make_session, was_told_to_end
from gateway.pipeline.jobs.spark.stopping import Stop
from gateway.pipeline.jobs.tables.folder_tables import FolderTables, rows_in
from gateway.pipeline.jobs.tables.followers import by_day, follower_of
from gateway.pipeline.jobs.tables.foreign_warehouse import check_warehouse
from gateway.pipeline.jobs.tables.missing_tables import check_tables
from gateway.pipeline.jobs.tables.object_tables import ObjectTables
from gateway.pipeline.jobs.tables.table_format import check_format
from gateway.pipeline.jobs.tables.upkeep import shown_upkeep
from gateway.pipeline.jobs.tables.warehouse import warehouse_of
from gateway.pipeline.jobs.telling import GatewayReports
from gateway.pipeline.jobs.tries import PROGRESS_FOR, Tries
from gateway.pipeline.journal.groups import is_dead, who_reads
from gateway.pipeline.land.delta import DeltaLog
from gateway.pipeline.land.durable import read_json
from gateway.pipeline.land.landing import TASKS, Landing
from gateway.pipeline.land.manifest import Manifest
from gateway.pipeline.land.object_landing import ObjectLanding
from gateway.pipeline.land.objects import open_store
from gateway.pipeline.land.ranges import STREAM, Ranges
from gateway.pipeline.sentences import MORE_MEMORY, first_cause
from gateway.pipeline.source.running_gateway import in_use, running_gateway

FATAL = ("LeaseLost", "DataLost", "WrongOption", "ConfigurationError", "StoreRefuses", "TableDiffers", "SparkEnded")
"""Errors that a new start does not repair, by their names in Spark's report."""
DOUBLINGS = 30
"""How often a pause is doubled at most; at some time it would be no number any more."""
DISPLACED = ("LeaseHeld", "another driver")
"""What says that another driver runs the job."""
LOOK_AGAIN = 5.0
"""Seconds until it is asked again whether another driver still reads."""
WHY_ENDED = (
    f"Spark's JVM has ended, most often for want of memory: start the job again, and if it happens again {MORE_MEMORY}"
)


class JobRun:
    """One job in one session."""

    def __init__(self, spark: Any, job: Job, watch: Watch = lambda _progress: None) -> None:
        self.spark = spark
        self.job = job
        self.watch = watch
        self.inputs = job.inputs
        self.reports = GatewayReports(job)
        self.warehouse = warehouse_of(job)
        tables = tables_of(spark, job)
        self.landing: Landing | ObjectLanding = tables.landing
        self.landing.reads = {each.stream: each.source.queue for each in self.inputs}
        self.writer = MicroBatchWriter(spark, job, tables)
        self.progress = JobProgress(job.name)
        self.checkpoint = Path(job.checkpoint_folder)
        self._own_checkpoint: CheckpointFolder | None = None
        self._reporting = threading.Lock()
        self._stop = Stop()
        self._displaced = False
        """Whether another driver has the lease: the status in the warehouse is then that one's."""
        self._listener: Any = None

    def start(self, *, once: bool) -> Any:
        """Start the query; returns it."""
        self.check_turn()
        if self._displaced:
            self._displaced, self.progress.error = False, ""
        self._listen()
        done = [] if self.job.on_objects else done_in(self.checkpoint, len(self.inputs))
        self.landing.restart()
        self.landing.journals = journals_of(self.inputs)
        check_warehouse(self.job, self.landing.manifest, self.landing.journals)
        if isinstance(self.landing, Landing):
            check_tables(self.job, self.landing.manifest)
            check_checkpoint(self.checkpoint, self.inputs, self.landing.manifest, done)
        if self.job.on_objects:
            self._forget_checkpoint()
            self._own_checkpoint = CheckpointFolder(self.job.name)
            self.checkpoint = self._own_checkpoint.path
        writer = reduce(lambda one, other: one.union(other), map(self._frame, self.inputs))
        writer = writer.writeStream.foreachBatch(self._land)
        writer = writer.option("checkpointLocation", self._checkpoint_address()).queryName(self.job.name)
        trigger = {"availableNow": True} if once else {"processingTime": f"{max(self.job.trigger, 0.001):g} seconds"}
        return writer.trigger(**trigger).start()

    def _checkpoint_address(self) -> str:
        return f"file://{self.checkpoint}" if self.job.on_objects else str(self.checkpoint)

    def _forget_checkpoint(self) -> None:
        """Remove this run's own checkpoint. With object storage the manifest says where to go on, so each start has a
        checkpoint of its own: one that was left on another host, or is older than the manifest, is never read."""
        if self._own_checkpoint is not None:
            self._own_checkpoint.remove()
            self._own_checkpoint = None

    def _listen(self) -> None:
        """Receive Spark's figures for the query from now on."""
        from gateway.pipeline.jobs.spark.listener import ProgressListener

        if self._listener is None:
            self._listener = ProgressListener(self.job.name, self.progress, self._report)
            self.spark.streams.addListener(self._listener)

    def close(self) -> None:
        """Remove the listener and the checkpoint of this run."""
        if self._listener is not None and not has_ended(self.spark):
            self.spark.streams.removeListener(self._listener)
        self._listener = None
        self._forget_checkpoint()

    def _frame(self, each: Input) -> Any:
        """The files of one source, each marked with its stream if there are several sources."""
        from pyspark.sql import functions as f

        files = self.spark.readStream.format("mqqueue").options(**self.source_options(each)).load()
        return files.withColumn(STREAM, f.lit(each.stream)) if each.name else files

    def source_options(self, each: Input) -> dict[str, str]:
        """A source as options of the data source."""
        source = each.source
        options: dict[str, str] = {}
        options |= {"path": source.path} if source.path else {}
        options |= {"url": source.url, "tokenFile": source.token_file, "caFile": source.ca_file} if source.url else {}
        options |= {
            "queue": source.queue,
            "consumerGroup": each.group,
            "consume": str(source.consume).lower(),
            "maxMessagesPerTrigger": str(source.max_messages),
            "maxBytesPerTrigger": str(source.max_bytes),
            "partitions": str(source.partitions),
            "purgeDelay": str(source.purge_delay),
            "failOnDataLoss": str(source.fail_on_data_loss).lower(),
            "includeRaw": str(includes_raw(self.job)).lower(),
            "staging": f"{self.job.warehouse}/{TASKS}",
        }
        options |= {"sourceName": each.name} if each.name else {}
        if self.job.on_objects:  # tasks put the files where they stay
            options["staging"] = f"{self.job.place}/{self.job.bronze_table}"
            options["storage"] = self.job.storage.settings.as_text()
        landed = self.landing.manifest.landed.next(each.stream)
        return options | ({"startingSeq": str(landed)} if landed else {})

    def _land(self, messages: Any, number: int) -> None:
        self._stop.check()
        try:
            record = self.writer.write(messages, self.query_id(), number, self.pieces(number))
        except Exception:
            # What follows an interruption is so long that Spark, which looks through it with a recursive pattern, ends
            # with a StackOverflowError and 1,024 lines of it.
            if self._stop.is_done():
                self._stop.check()
            raise
        if record is not None:
            self.progress.add(record)
        self.progress.state = "running"
        self._report(keep=not self.job.on_objects)  # Spark's figures of the batch follow at once, and each is a request

    def query_id(self) -> str:
        """Spark's identifier of the checkpoint."""
        return str((read_json(self.checkpoint / "metadata") or {}).get("id", ""))

    def pieces(self, number: int) -> Ranges:
        """The ranges of a batch, from Spark's offset log: those of the sources that have messages in it."""
        ends = offsets_in(self.checkpoint, number, len(self.inputs))
        if ends is None:
            raise PipelineError(f"{self.checkpoint}/offsets/{number} is missing: is the checkpoint on a shared folder?")
        starts = (offsets_in(self.checkpoint, number - 1, len(self.inputs)) if number else None) or [None] * len(ends)
        found = []
        for each, start, end in zip(self.inputs, starts, ends, strict=True):
            if end is not None:
                low = start["next"] if start else self.landing.manifest.landed.next(each.stream)
                found.append((each.stream, min(low, end["next"]), end["next"]))
        return [piece for piece in found if piece[1] < piece[2] or len(self.inputs) == 1]

    def _report(self, *, keep: bool = True) -> None:
        with self._reporting:  # Spark's listener has a thread of its own
            if keep and not self._displaced:
                self.warehouse.write_status({name: getattr(self.progress, name) for name in JobProgress.__slots__})
            if not self._displaced:
                self.reports.tell(self.progress, lambda: shown_upkeep(self.job, self.landing.manifest.now()))
            self.watch(self.progress)

    # ---- other drivers

    def check_turn(self) -> None:
        """Raise LeaseHeld if another driver reads as a group of this job."""
        if group := reader_of(self.inputs):
            raise LeaseHeld(self._driver() + who_reads(group["name"], group["owner"], group["left"]))

    def _driver(self) -> str:
        """Which process runs the job, as far as it has told. The owner of a lease is a process that Spark has started
        for it."""
        status = self.warehouse.read_status() or {}
        host, process = status.get("host"), status.get("process")
        mine = (host, process) == (self.progress.host, self.progress.process)
        if not process or mine or is_dead(f"{host}:{process}", self.progress.host):
            return ""
        since = datetime.fromtimestamp(status["started"], UTC)
        return f"job {self.job.name!r} is run by process {process} of {host} since {since:%Y-%m-%d %H:%M:%S} UTC; "

    def await_turn(self, stop: Stop, *, once: bool) -> None:
        """Wait while another driver reads, without Spark and without a word in the warehouse: with `once` not for
        ever."""
        tries, told = Tries(), ""
        while not stop.is_asked():
            try:
                self.check_turn()
            except LeaseHeld as held:
                now = time.time()
                if once and tries.over(held, now, now):
                    raise
                if (reader := str(held).partition(" for ")[0]) != told:
                    told = reader
                    self.watch(JobProgress(self.job.name, WAITING, error=str(held)))
            except (PipelineError, OSError, ValueError):
                return  # the query finds out, and says so
            else:
                return
            stop.wait(LOOK_AGAIN)

    # ---- from start to end

    def refuse(self, *, once: bool) -> None:
        """Raise what would refuse this job at every start, without Spark, which takes seconds to start. What cannot be
        asked now, because a gateway is not there yet, is asked when the query starts."""
        hopeless = (GatewayRefuses, GatewayMissing) if once else GatewayRefuses
        try:
            check_format(self.job)
            manifest = self.warehouse.manifest()
            check_warehouse(self.job, manifest, {})
            if isinstance(manifest, Manifest):
                check_tables(self.job, manifest)
            check_warehouse(self.job, manifest, journals_of(self.inputs))
        except Exception as error:
            if is_fatal(error) or isinstance(error, hopeless):
                self._failed(error)
                raise

    def run(self, *, once: bool, stop: Stop | None = None) -> JobProgress:
        """Run until the queue is empty (`once`), or until a stop is asked for; returns the progress. After failures the
        query starts again, with growing pauses."""
        self._stop = stop or self._stop
        try:
            return self._run(once, self._stop)
        finally:
            self.close()
            give_back(self.inputs)

    def _run(self, once: bool, stop: Stop) -> JobProgress:
        failures, tries, allowed = 0, Tries(), Tries(self.job.restart.times + 1, waits=True)
        while not stop.is_asked():
            began = time.time()
            try:
                query = self.start(once=once)
                with stop.ends(query):
                    query.awaitTermination()
                return self._over("stopped" if stop.is_asked() or not once else "done")
            except Exception as error:
                ended = has_ended(self.spark)
                if stop.is_asked() and self._is_orderly(error, ended=ended):
                    break
                if ended:
                    self._failed(told := SparkEnded(WHY_ENDED))
                    raise told from error
                now = time.time()
                failures = 1 if now - began > PROGRESS_FOR else failures + 1
                over = is_fatal(error) or stop.is_asked() or (once and tries.over(error, began, now))
                over = over or (self._may_give_up(error) and allowed.over(error, began, now))
                pause = min(self.job.restart.longest, self.job.restart.first * 2 ** min(failures - 1, DOUBLINGS))
                self._failed(error, again=None if over else pause)
                if over:
                    raise
                stop.wait(pause)
        return self._over("stopped")

    def _is_orderly(self, error: Exception, *, ended: bool) -> bool:
        """Whether a query that was to end has ended for that, and not because its last batch has failed: its JVM was
        told to end too, a batch was refused or cut, or it waited for another driver."""
        return was_told_to_end(self.spark) if ended else self._stop.is_done() or "LeaseHeld" in named(error)

    def _over(self, state: str) -> JobProgress:
        self.progress.state = state
        if state == "done":  # what went wrong before has been made up for
            self.progress.error = ""
        self._report()
        return self.progress

    def _may_give_up(self, error: Exception) -> bool:
        """Whether the job is to end after some failures, and this is one. Waiting for another driver is not a
        failure."""
        return self.job.restart.times > 0 and "LeaseHeld" not in named(error)

    def _failed(self, error: Exception, again: float | None = None) -> None:
        """Report a failure, and in how many seconds the query begins again, if it does."""
        self._displaced = any(said in named(error) for said in DISPLACED)
        self.progress.restarts += not self._displaced
        self.progress.state = "failed" if again is None else "restarting"
        self.progress.error = first_cause(str(error))
        if again is not None:
            self.progress.error += f" (begins again in {show_duration(again)})"
        self._report()


def tables_of(spark: Any, job: Job) -> FolderTables | ObjectTables:
    """The tables of a job's batches, where its warehouse is."""
    if job.on_objects:
        store = open_store(job.place, job.storage.settings)
        return ObjectTables(spark, ObjectLanding(store, job.name, follower_of(job, store)), by_day=by_day(job))
    folder = Path(job.warehouse)
    log = DeltaLog(folder, job.name, job.replaced_tables) if job.format == "delta" else None
    return FolderTables(spark, Landing(folder, job.name, rows_in, log))


def is_fatal(error: Exception) -> bool:
    """Whether a new start cannot help."""
    return any(name in named(error) for name in FATAL)


def named(error: Exception) -> str:
    """An error's name and text: where Spark reports it the name is in the text."""
    return f"{type(error).__name__}: {error}"


def check_sources(job: Job) -> None:
    """Raise QueueUnreachable if cursors would have to be kept in a store that a gateway has open."""
    for each in job.inputs:
        if each.source.path and not each.source.url and running_gateway(Path(each.source.path)):
            raise in_use(Path(each.source.path))


def check_journals(job: Job) -> None:
    """Raise QueueUnreachable if there is no journal, and no gateway that may still make one."""
    for each in job.inputs:
        if not each.source.url:
            access_to(each).journal(each.source.queue)


def run_job(job: Job, *, once: bool, watch: Watch = lambda _progress: None) -> JobProgress:
    """Run a job in a session of its own, which takes seconds to start: a warehouse that refuses, or a store that a
    gateway has open, is found out before that. SIGINT and SIGTERM end it in order."""
    check_sources(job)
    check_journals(job)
    warehouse_of(job).check(lambda why: watch(JobProgress(job.name, WAITING, error=why)), once=once)
    before = JobRun(None, job, watch)
    before.refuse(once=once)
    if steps_back_here(job.spark):
        step_back(job.nice)
    stop = Stop()
    stop.install()
    try:
        before.await_turn(stop, once=once)
        with stop.unheard(quiet=job.spark.get("spark.log.level") == QUIET):
            return _in_session(job, stop, watch, once=once)
    finally:
        stop.restore()


def _in_session(job: Job, stop: Stop, watch: Watch, *, once: bool) -> JobProgress:
    if stop.is_asked():
        watch(stopped := JobProgress(job.name, "stopped"))
        return stopped
    watch(JobProgress(job.name))
    try:
        spark = make_session(job.name, job.spark)
    except Exception:
        if not stop.is_asked():
            raise
        watch(stopped := JobProgress(job.name, "stopped"))  # its JVM was ended while it started
        return stopped
    stop.install()  # a session takes SIGINT for itself
    try:
        return JobRun(spark, job, watch).run(once=once, stop=stop)
    finally:
        if not has_ended(spark):
            spark.stop()
