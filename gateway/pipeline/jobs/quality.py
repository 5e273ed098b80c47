"""Expectations of columns over time: how many rows of each batch failed which check. Counted from the rows as they were
written, recorded with the batch, and shown in the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from gateway.pipeline.jobs.job import Silver
from gateway.pipeline.jobs.silver import COUNT, WARNINGS, checks
from gateway.pipeline.land.manifest import ManifestRecord

FAILED = "failed"
DECODE = "decode"
"""The code of payloads that could not be decoded, whatever the decoder's error was."""


def counted_failures(rows: Any, quarantined: Any) -> dict[str, float]:
    """The number of rows that failed each check: one number per check, so that the driver's work does not grow with the
    rows. `rows`: all rows, if the table has warnings; `quarantined`: those in quarantine."""
    from pyspark.sql import functions as f

    found: Counter[str] = Counter()
    if quarantined is not None:
        code = f.when(f.col("error").startswith(f"{DECODE}: "), f.lit(DECODE)).otherwise(f.col("error"))
        found.update({row.code: row["count"] for row in quarantined.groupBy(code.alias("code")).count().collect()})
    if rows is not None:
        codes = rows.select(f.explode(f.split(WARNINGS, ", ")).alias("code"))
        found.update({row.code: row["count"] for row in codes.groupBy("code").count().collect()})
    return {code: float(count) for code, count in found.items()}


def figure(table: str, code: str) -> str:
    """The name of a count among a batch's figures."""
    return f"{FAILED}.{table}.{code}"


class Expectation(NamedTuple):
    """One check of a table, with its results."""

    code: str
    counts_only: bool
    failed: int
    rows: int
    last: float | None
    """When the last batch with a row that failed landed."""
    series: list[tuple[float, float]]
    """Seconds since the first batch, with the number of rows that failed."""


def expectations(silver: Silver, records: Sequence[ManifestRecord]) -> list[Expectation]:
    """The checks of a table over some batches, those that failed most first."""
    codes = dict.fromkeys((DECODE, *(code for code, _ in checks(silver))), False)
    codes |= {code: True for code, _ in checks(silver, COUNT)}
    rows = sum(int(record.figures.get(f"rows.{silver.table}", 0)) for record in records)
    found = [_expectation(silver.table, code, counts_only, rows, records) for code, counts_only in codes.items()]
    return sorted(found, key=lambda each: -each.failed)


def _expectation(
    table: str,
    code: str,
    counts_only: bool,
    rows: int,
    records: Sequence[ManifestRecord],
) -> Expectation:
    name = figure(table, code)
    series = [(record.landed - records[0].landed, record.figures.get(name, 0.0)) for record in records]
    last = max((record.landed for record in records if record.figures.get(name)), default=None)
    return Expectation(code, counts_only, int(sum(count for _, count in series)), rows, last, series)
