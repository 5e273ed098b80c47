"""Landing on object storage beside a folder, and what a driver does for a batch, without Spark: `python
tests/bench/pipeline_objects.py`. Runs take turns; the best of each counts, and shares are of rates measured in turn."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from device_fleet import Fleet, write_journal
from s3_server import BUCKET, environment, s3_server

from gateway.pipeline.decode.columns import COLUMNS
from gateway.pipeline.decode.row_decoder import RowDecoder
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.tables.followers import follower_of
from gateway.pipeline.land.object_landing import ObjectLanding, WrittenFile
from gateway.pipeline.land.objects import open_store
from gateway.pipeline.source.queue_access import JournalAccess
from gateway.pipeline.source.tasks import put_rows, write_rows

ROUNDS = 5
MESSAGES = 20_000
BATCHES = 12
JOB = "version: 1\nname: bench\nsource: {{queue: Q, path: x}}\nwarehouse: {where}\nformat: {format}\n{more}"


def read(journal: Path) -> Iterator[Any]:
    """The rows of the journal, decoded, as a task reads them."""
    access = JournalAccess(journal)
    decoder = RowDecoder("QM1", COLUMNS)
    for piece in access.pieces("*", 0, access.extent("*", 0, None).next, 1):
        for chunk in piece.chunks(20_000):
            yield decoder.batch(chunk)


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def tasks(folder: Path) -> None:
    """What a task does: read, decode, write, synchronise or put."""
    write_journal(folder / "journal", MESSAGES, Fleet(devices=1000), frame=200)
    store = open_store(f"s3://{BUCKET}/tasks/bronze", job_at(folder, f"s3://{BUCKET}/tasks").storage.settings)
    ways: dict[str, Callable[[], object]] = {
        "folder": lambda: list(write_rows(folder / "rows", read(folder / "journal"))),
        "S3": lambda: list(put_rows(store, read(folder / "journal"))),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            best[name] = min(best[name], seconds(way))
    for name, took in best.items():
        print(
            f"a task, read to table, {name}: {MESSAGES / took:,.0f} rows/s, {best['folder'] / took:.2f} of the folder's"
        )


def job_at(folder: Path, where: str, table_format: str = "parquet") -> Job:
    """A job with a warehouse."""
    more = f"catalog: {{uri: 'sqlite:///{folder}/{time.time_ns()}.db'}}\n" if table_format == "iceberg" else ""
    return parse_job("job.yaml", JOB.format(where=where, format=table_format, more=more))


def driver(folder: Path) -> None:
    """What the driver does to commit a batch, by the rows of its file."""
    batches = list(read(folder / "journal"))
    for table_format in ("parquet", "delta", "iceberg"):
        for rows in (200, 2_000, 20_000):
            job = job_at(folder, f"s3://{BUCKET}/{table_format}/{rows}", table_format)
            store = open_store(job.place, job.storage.settings)
            landing = ObjectLanding(store, job.name, follower_of(job, store))
            table = open_store(f"{job.place}/bronze", store.settings)
            best = float("inf")
            for number in range(BATCHES):
                (told,) = put_rows(table, iter([batches[0].slice(0, rows)]))
                (one,) = told.to_pylist()
                batch = landing.begin("q", number, [("s", number, number + 1)])
                assert batch is not None
                batch.add("bronze", [WrittenFile(one["file"], one["rows"], one["bytes"])])
                best = min(best, seconds(batch.land))
            print(f"driver, {table_format}, {rows:,} rows a batch: {1000 * best:.1f} ms a commit")


def main() -> None:
    """Both, against a server on loopback."""
    with tempfile.TemporaryDirectory() as folder, s3_server() as proxy:
        os.environ |= environment(f"http://127.0.0.1:{proxy.behind}")
        tasks(Path(folder))
        driver(Path(folder))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    main()
