"""What the pipeline costs beside Spark's own Parquet reader: `python tests/bench/pipeline.py [--rows N] [--json FILE]
[CASE...]`.

Ratios in one session; at the end a table of what is asked and what was measured. Rows a second are wall time; CPU is
that of every process of the session (JVM, workers, driver), which moves less than wall time on a machine that others
use. Best of `--times` interleaved runs.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from device_fleet import Fleet, write_journal
from pipeline_figures import Found, as_json, shown
from pipeline_landing import Landed, Server, landed, landed_by
from pipeline_live import Ingesting, Serving
from s3_server import BUCKET

from gateway.pipeline.decode.columns import COLUMNS
from gateway.pipeline.decode.row_decoder import RowDecoder
from gateway.pipeline.jobs.spark.spark_session import UNCHECKED_ARROW, make_session
from gateway.pipeline.journal.chunks import read_stream, stream_bytes
from gateway.pipeline.source.queue_access import JournalAccess

TICKS = os.sysconf("SC_CLK_TCK")
Case = Callable[[], object]
LATENCY_SECONDS = 45.0
AGED_ROUNDS = 8
COMPILERS_STAY = "-XX:-UseDynamicNumberOfCompilerThreads"
"""Otherwise Java ends compilers that idle, and what they have used can no longer be told from the rest."""
STEADY_RATE, STEADY_SECONDS = 50_000, 60.0
TABLE_FORMATS = ("parquet", *(["delta"] if find_spec("deltalake") else []))
ON_S3 = ("objects", "latency")
"""Cases that need an S3 server."""


def cpu_seconds() -> dict[int, float]:
    """User and system time of this process and everything below it, by process."""
    found: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / TICKS
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in mine} - mine:
        mine |= more
    return {pid: found[pid][1] for pid in mine if pid in found}


class Spent(NamedTuple):
    """Processor time below this process, by whose it is."""

    java: float
    """Without its compilers."""
    compilers: float
    python: float
    """And everything else, with what has ended."""


def spent_by_now() -> Spent:
    """Of all processes below this one, so far."""
    java = compilers = python = 0.0
    for pid in cpu_seconds():
        name, own, ended = of_process_or_thread(Path(f"/proc/{pid}"))
        if name == "java":
            threads = [of_process_or_thread(each) for each in Path(f"/proc/{pid}/task").glob("*")]
            compiling = sum(used for thread, used, _ in threads if "CompilerThre" in thread)
            java, compilers = java + own - compiling, compilers + compiling
        else:
            python += own + ended
    return Spent(java, compilers, python)


def of_process_or_thread(folder: Path) -> tuple[str, float, float]:
    """Its name, the seconds that it has used, and those of its children that have ended; nothing when it has ended."""
    try:
        before, _, after = (folder / "stat").read_text().rpartition(")")
    except OSError:
        return "", 0.0, 0.0
    fields = after.split()
    return before.partition("(")[2], sum(map(int, fields[11:13])) / TICKS, sum(map(int, fields[13:15])) / TICKS


def spent_between(before: dict[int, float], after: dict[int, float]) -> float:
    """Infinite when a process has ended meanwhile and taken its time with it: Spark ends workers that idle."""
    return sum(after.values()) - sum(before.values()) if before.keys() <= after.keys() else float("inf")


def measure(cases: dict[str, Case], rows: int, times: int) -> Found:
    """Rows a second and microseconds of CPU a row, the best of each."""
    best = {name: (0.0, float("inf")) for name in cases}
    for turn in range(times + 1):
        for name, case in cases.items():
            cpu, begin = cpu_seconds(), time.perf_counter()
            case()
            rate = rows / (time.perf_counter() - begin)
            spent = spent_between(cpu, cpu_seconds()) / rows * 1e6
            if turn:  # the first is for the compilers
                best[name] = max(best[name][0], rate), min(best[name][1], spent)
    return best


def show(title: str, found: Found, base: str) -> None:
    print(f"\n{title}")
    for name, (rate, cpu) in found.items():
        ratio = f"{rate / found[base][0]:.2f} x, CPU {cpu / found[base][1]:.2f} x"
        print(f"  {name:34} {rate:12,.0f} rows/s  {cpu:6.2f} us/row  {ratio}")
    sys.stdout.flush()


class Bench:
    """A journal, the same rows as Parquet, and a session."""

    def __init__(self, given: Any, work: Path, server: Server | None) -> None:
        self.rows, self.times, self.core, self.nice = given.rows, given.times, given.core, given.nice
        self.work, self.server = work, server
        self.found: Found = {}
        write_journal(work / "j", self.rows, Fleet(devices=1000), frame=200)
        write_journal(work / "v", self.rows, Fleet(devices=1000, varying=True), frame=200)
        self.spark = make_session("bench", {"spark.driver.extraJavaOptions": f"{UNCHECKED_ARROW} {COMPILERS_STAY}"})
        self.load().write.mode("overwrite").parquet(str(work / "parquet"))

    def keep(self, title: str, found: Found, base: str) -> None:
        self.found |= found
        show(title, found, base)

    def load(self, folder: str = "j", **options: str) -> Any:
        path = str(self.work / folder)
        return self.spark.read.format("mqqueue").options(path=path, queue="TELEMETRY.*", **options).load()

    def parquet(self) -> Any:
        return self.spark.read.parquet(str(self.work / "parquet"))

    @staticmethod
    def noop(frame: Any) -> Case:
        return lambda: frame.write.format("noop").mode("overwrite").save()

    def to_parquet(self, frame: Any) -> Case:
        return lambda: frame.write.mode("overwrite").parquet(str(self.work / "out"))

    def read(self) -> None:
        raw = "queue,seq,priority,mqmd,headers,payload"
        names = [*raw.split(",")[:3], "payload"]
        cases = {
            "parquet": self.noop(self.parquet()),
            "mqqueue decoded": self.noop(self.load()),
            "mqqueue raw": self.noop(self.load(columns=raw)),
            "mqqueue seq, payload": self.noop(self.load(columns="seq,payload")),
            "parquet, the same four columns": self.noop(self.parquet().select(*names)),
            "mqqueue differing": self.noop(self.load("v")),
        }
        self.keep("Batch read", measure(cases, self.rows, self.times), "parquet")

    def aged(self) -> None:
        """Processor time in a session that has read everything twenty times, by whose it is. Java's compilers are told
        apart: they are at work for minutes, on whatever was read before."""
        frames = {
            "parquet": self.parquet(),
            "decoded": self.load(),
            "decoded, notNull": self.load(notNull="true"),
            "raw": self.load(columns="queue,seq,priority,mqmd,headers,payload"),
        }
        spent: dict[str, list[Spent]] = {name: [] for name in frames}
        for _ in range(20 + AGED_ROUNDS):
            for name, frame in frames.items():
                before = spent_by_now()
                self.noop(frame)()
                spent[name].append(Spent(*(now - then for now, then in zip(spent_by_now(), before, strict=True))))
        print(f"\n{'us of processor a row':24} {'JVM':>6} {'Python':>7} {'of Parquet':>11} {'compilers beside':>17}")
        for name, rounds in spent.items():
            java, compilers, python = (median(each) / self.rows * 1e6 for each in zip(*rounds[20:], strict=True))
            self.found[f"{name} after twenty rounds"] = 0.0, java + python
            share = (java + python) / self.found["parquet after twenty rounds"][1]
            print(f"{name:24} {java:6.2f} {python:7.2f} {share:11.2f} {compilers:17.2f}")

    def tuples(self) -> None:
        cases = {"tuples": self.noop(self.load(transfer="rows")), "arrow": self.noop(self.load())}
        self.keep("Transfer", measure(cases, self.rows, 1), "tuples")

    def copy(self) -> None:
        def landed() -> None:
            shutil.rmtree(self.work / "landed", ignore_errors=True)
            files = self.load(staging=str(self.work / "landed")).collect()
            assert sum(row.rows for row in files) == self.rows

        cases = {
            "parquet to parquet": self.to_parquet(self.parquet()),
            "queue to parquet": landed,
            "queue to parquet, Spark's writer": self.to_parquet(self.load()),
        }
        self.keep("To Parquet", measure(cases, self.rows, self.times), "parquet to parquet")

    def stream(self) -> None:
        """Spark's own sinks, and a job that lands bronze exactly once. The first round is for the compilers."""
        for _ in range(2):
            self._sinks()
            self._jobs()

    def _told(self, sink: str, done: Landed) -> None:
        self.found[f"stream to {sink}"] = max(done.rates), 0.0
        print(
            f"\nStream to {sink}: best batch {max(done.rates):,.0f} rows/s, all {[round(rate) for rate in done.rates]}"
        )

    def _jobs(self) -> None:
        for format_ in TABLE_FORMATS:
            self._told(f"landed {format_}", landed(self.spark, self.work / "j", self.work / "s", format_))

    def objects(self) -> None:
        """The same jobs onto S3 and onto the folder in turns. The first round is for the compilers."""
        for format_ in TABLE_FORMATS:
            places = {"folder": self.work / "s", "S3": f"s3://{BUCKET}/{format_}"}
            best = dict.fromkeys(places, (0.0, 0.0))
            served = 0.0
            for turn in range(self.times + 1):
                for name, lake in places.items():
                    began = self.server.cpu
                    done = landed(self.spark, self.work / "j", f"{lake}/{turn}" if name == "S3" else lake, format_)
                    best[name] = (max(best[name][0], *done.rates), max(best[name][1], done.rate)) if turn else (0, 0)
                    served = (self.server.cpu - began) / self.rows * 1e6
                    print(
                        f"  {format_} {name}: {done.rate:,.0f} rows/s, batches {[round(each) for each in done.rates]}"
                    )
            for name, (batch, stream) in best.items():
                self.found[f"{format_} on {name}, best batch"] = batch, 0.0
                self.found[f"{format_} on {name}, stream"] = stream, 0.0
                print(f"{format_} on {name}: best batch {batch:,.0f} rows/s, best stream {stream:,.0f} rows/s")
            print(f"the S3 server itself: {served:.2f} us of processor a row in the last round")

    def _sinks(self) -> None:
        for sink in ("noop", "parquet"):
            shutil.rmtree(self.work / "s", ignore_errors=True)
            options = {"path": str(self.work / "j"), "queue": "TELEMETRY.*", "purgeDelay": "1h"}
            options |= {"consumerGroup": f"{sink}{time.time_ns()}"}
            frame = self.spark.readStream.format("mqqueue").options(**options).load()
            writer = frame.writeStream.format(sink).option("checkpointLocation", str(self.work / "s/c"))
            writer = writer.option("path", str(self.work / "s/out")) if sink == "parquet" else writer
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            self._told(sink, landed_by(query))

    def sink(self) -> None:
        rows = self.parquet().select("payload")
        options = {"path": str(self.work / "k"), "queue": "OUT"}
        write_journal(self.work / "k", 1)
        case = rows.write.format("mqqueue").options(**options).mode("append").save
        self.keep("Sink", measure({"parquet to queue": case}, self.rows, self.times), "parquet to queue")

    def python(self) -> None:
        def local(folder: str) -> Case:
            def run() -> None:
                decoder = RowDecoder("MQGATE", COLUMNS)
                for chunk in self.chunks(folder):
                    decoder.batch(chunk)

            return run

        sent = b"".join(stream_bytes(self.chunks("j")))

        def received() -> None:
            decoder = RowDecoder("MQGATE", COLUMNS)
            for chunk in read_stream(io.BytesIO(sent)):
                decoder.batch(chunk)

        cases = {
            "chunks alone": lambda: [None for _ in self.chunks("j")],
            "decoded": local("j"),
            "decoded, headers differ": local("v"),
            "served as a stream": lambda: [None for _ in stream_bytes(self.chunks("j"))],
            "decoded from a stream": received,
        }
        show("Without Spark, one core", measure(cases, self.rows, self.times), "decoded")

    def chunks(self, folder: str) -> Any:
        access = JournalAccess(self.work / folder)
        end = access.extent("TELEMETRY.*", 0, None)
        for piece in access.pieces("TELEMETRY.*", 0, end.next, 1):
            yield from piece.chunks(20_000)

    def gaps(self) -> None:
        from pyspark.sql import functions as f

        from gateway.pipeline.jobs.gold import gap_step

        rows = self.load(columns="seq,client_id,put_ts,payload")
        rows = rows.withColumn("n", f.get_json_object(f.col("payload").cast("string"), "$.n").cast("bigint"))
        step = gap_step(rows, None, by=["client_id"], sequence="n", at="put_ts", wraps_at=0)
        cases = {"gap detection": self.noop(step.rows), "rows alone": self.noop(rows)}
        self.keep("Gaps", measure(cases, self.rows, self.times), "rows alone")

    def http(self) -> None:
        """The same rows from the files and from a server that has them open, both decoded."""
        with Serving(self.work / "j") as there:
            far = self.spark.read.format("mqqueue").options(**there.options, queue="TELEMETRY.*").load()
            cases = {"local": self.noop(self.load()), "over http": self.noop(far)}
            self.keep("HTTP", measure(cases, self.rows, self.times), "local")

    def latency(self) -> None:
        """A job that lands bronze while 1,000 messages a second are put, in a folder and on S3."""
        for name, lake in (("readable", str(self.work / "lake")), ("readable on S3", f"s3://{BUCKET}/live")):
            with Serving(self.work / name) as there:
                waits = there.landed(self.spark, lake, LATENCY_SECONDS)
            middle, late = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
            self.found[f"put to {name}"] = middle, late
            print(f"\nPut to {name} at 1,000/s: median {middle:.2f} s, 99 of 100 {late:.2f} s, {len(waits):,} rows")

    def ingestion(self) -> None:
        """Acknowledged publications a second with and without a stream that reads what comes and steps back."""
        self._step_back()
        with Ingesting(self.work / "gateway", self.core) as gateway:
            alone, beside = gateway.rates(self.spark, self.work / "i")
        self.found |= {"ingestion alone": (alone, 0.0), "ingestion beside": (beside, 0.0)}
        print(f"\nIngestion: alone {alone:,.0f}/s, beside a stream {beside:,.0f}/s ({beside / alone:.2f})")

    def steady(self) -> None:
        """A job that steps back and lands what publishers put at a steady rate: it must not fall behind."""
        self._step_back()
        with Ingesting(self.work / "steady", self.core) as gateway:
            kept = gateway.kept_up(self.spark, self.work / "kept", STEADY_RATE, STEADY_SECONDS)
        middle, late = kept.waits[len(kept.waits) // 2], kept.waits[int(len(kept.waits) * 0.99)]
        self.found["kept up"] = kept.piled_up, kept.behind[-1][1] / kept.rate
        lags = [lag for _, lag in kept.behind]
        print(f"\nBeside publishers at {kept.rate:,.0f}/s, messages behind every half second: {lags}")
        print(f"put to readable: median {middle:.2f} s, 99 of 100 {late:.2f} s, {len(kept.waits):,} rows")

    def _step_back(self) -> None:
        """Spark's processes, as if they had been started by a job with this nice value."""
        for pid in cpu_seconds().keys() - {os.getpid()}:
            for thread in Path(f"/proc/{pid}/task").glob("*"):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), self.nice)


def main() -> None:
    names = (
        "python",
        "read",
        "tuples",
        "copy",
        "http",
        "stream",
        "objects",
        "sink",
        "gaps",
        "latency",
        "ingestion",
        "steady",
    )
    load = os.getloadavg()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--core", type=int, help="the core that case `ingestion` gives the gateway; keep Spark off it")
    parser.add_argument("--nice", type=int, default=10, help="Spark's nice value in case `ingestion`, as a job has it")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(names))
    given = parser.parse_args()
    cases = given.cases or names
    with tempfile.TemporaryDirectory(dir=os.environ.get("MQGATE_BENCH_DIR")) as work, ExitStack() as started:
        server = started.enter_context(Server()) if set(cases) & set(ON_S3) else None
        bench = Bench(given, Path(work), server)
        for name in cases:
            getattr(bench, name)()
            sys.stdout.flush()
        print(f"\nLoad of the machine at the start: {load[0]:.1f}\n\n{shown(bench.found)}")
        if given.json:
            given.json.write_text(as_json(bench.found, given.rows, load))


if __name__ == "__main__":
    main()
