"""What is asked of the pipeline and what was measured: a table for people and JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from typing import NamedTuple

Found = dict[str, tuple[float, float]]
"""Case: rows a second, and microseconds of CPU a row over all processes."""


class Figure(NamedTuple):
    """One line. `wanted` is a least value, or a greatest one when `at_most`."""

    name: str
    wanted: float
    at_most: bool
    unit: str
    value: Callable[[Found], float]


def speed(of: str, than: str) -> Callable[[Found], float]:
    return lambda found: found[of][0] / found[than][0]


def cpu(of: str, than: str) -> Callable[[Found], float]:
    return lambda found: found[of][1] / found[than][1]


def aged(what: str) -> Callable[[Found], float]:
    return cpu(f"{what} after twenty rounds", "parquet after twenty rounds")


FIGURES = (
    Figure("decoded batch read, of spark.read.parquet", 0.85, False, "x", speed("mqqueue decoded", "parquet")),
    Figure("decoded batch read, CPU of spark.read.parquet", 1.6, True, "x", cpu("mqqueue decoded", "parquet")),
    Figure("decoded after twenty rounds, CPU of Parquet", 1.25, True, "x", aged("decoded")),
    Figure("raw after twenty rounds, CPU of Parquet", 1.05, True, "x", aged("raw")),
    Figure("raw columns, of spark.read.parquet", 1.0, False, "x", speed("mqqueue raw", "parquet")),
    Figure("raw columns, CPU of spark.read.parquet", 1.0, True, "x", cpu("mqqueue raw", "parquet")),
    Figure(
        "headers that all differ, CPU of repeated ones", 2.0, True, "x", cpu("mqqueue differing", "mqqueue decoded")
    ),
    Figure("queue to Parquet, of Parquet to Parquet", 0.9, False, "x", speed("queue to parquet", "parquet to parquet")),
    Figure(
        "queue to Parquet, CPU of Parquet to Parquet", 1.1, True, "x", cpu("queue to parquet", "parquet to parquet")
    ),
    Figure(
        "the same through Spark's own writer",
        0.7,
        False,
        "x",
        speed("queue to parquet, Spark's writer", "parquet to parquet"),
    ),
    Figure("Arrow path, of the tuple path (CPU)", 4.0, False, "x", cpu("tuples", "arrow")),
    Figure("HTTP read, of local read", 0.5, False, "x", speed("over http", "local")),
    Figure("stream to noop, best batch of 50,000", 150_000, False, "rows/s", lambda found: found["stream to noop"][0]),
    Figure(
        "stream landed as Parquet, best batch",
        100_000,
        False,
        "rows/s",
        lambda found: found["stream to landed parquet"][0],
    ),
    Figure(
        "stream to Spark's Parquet sink, best batch",
        80_000,
        False,
        "rows/s",
        lambda found: found["stream to parquet"][0],
    ),
    Figure("sink", 150_000, False, "rows/s", lambda found: found["parquet to queue"][0]),
    Figure("gap detection, all in, CPU", 30, True, "us/row", lambda found: found["gap detection"][1]),
    Figure("put to readable at 1,000/s, median", 1.5, True, "s", lambda found: found["put to readable"][0]),
    Figure("put to readable at 1,000/s, 99th percentile", 3.0, True, "s", lambda found: found["put to readable"][1]),
    *(
        Figure(
            f"{table_format} on S3, {what}, of the folder",
            0.7,
            False,
            "x",
            speed(f"{table_format} on S3, {what}", f"{table_format} on folder, {what}"),
        )
        for table_format in ("parquet", "delta")
        for what in ("best batch", "stream")
    ),
    Figure(
        "put to readable on S3, median, of the folder",
        2.0,
        True,
        "x",
        speed("put to readable on S3", "put to readable"),
    ),
    Figure(
        "put to readable on S3, 99th percentile, of the folder",
        2.0,
        True,
        "x",
        cpu("put to readable on S3", "put to readable"),
    ),
    Figure("ingestion beside a stream at full speed", 0.85, False, "x", speed("ingestion beside", "ingestion alone")),
    Figure("share of 50,000/s that piles up beside a stream", 0.02, True, "x", lambda found: found["kept up"][0]),
    Figure("the same, behind at the end", 3.0, True, "s", lambda found: found["kept up"][1]),
)


def evaluated(found: Found) -> list[tuple[Figure, float, bool]]:
    """The figures of the cases that were run, and whether each is met."""
    result = []
    for figure in FIGURES:
        try:
            value = figure.value(found)
        except KeyError:
            continue
        result.append((figure, value, value <= figure.wanted if figure.at_most else value >= figure.wanted))
    return result


def shown(found: Found) -> str:
    """For people."""
    rows = [f"{'figure':52} {'asked':>12} {'measured':>12}"]
    for figure, value, met in evaluated(found):
        asked = f"{'<=' if figure.at_most else '>='} {figure.wanted:,g}"
        rows.append(f"{figure.name:52} {asked:>12} {value:12,.2f} {figure.unit:7} {'' if met else 'missed'}")
    return "\n".join(rows)


def as_json(found: Found, rows: int, load: tuple[float, float, float]) -> str:
    """For programs: figures, and what they were made of."""
    figures = []
    for figure, value, met in evaluated(found):
        asked = {"at_most" if figure.at_most else "at_least": figure.wanted}
        figures.append({"figure": figure.name, "unit": figure.unit, "value": round(value, 4), "met": met} | asked)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "load_at_start": load}
    cases = {name: {"rate": round(rate, 2), "cpu": round(spent, 3)} for name, (rate, spent) in found.items()}
    return json.dumps({"rows": rows, "machine": machine, "figures": figures, "cases": cases}, indent=1)
