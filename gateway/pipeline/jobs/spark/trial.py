"""What Spark and its Java say of the conditions and patterns of a job, asked without a message, so that
`mqgate pipeline check` tells what a run would find out.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.config.source import Document, read_yaml
from gateway.errors import Finding
from gateway.pipeline.decode.columns import COLUMNS, RAW_COLUMNS, SOURCE_COLUMN, MessageColumn
from gateway.pipeline.errors import JavaMissing, SparkMissing
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.spark.java import find_java
from gateway.pipeline.jobs.spark.spark_session import check_spark, make_session

OF_QUERIES = "SQLQueryContextLogger"
"""Where pyspark logs each refusal with all of Spark's frames."""
_NAMED = re.compile(r"\[[A-Z][A-Z0-9_.]+\] (.*)")
_PLACE = re.compile(r"\.? *SQLSTATE: \w+.*")


def has_trials(job: Job) -> bool:
    """Whether the job says anything that only Spark can judge."""
    return any(silver.when or any(column.pattern for column in silver.columns) for silver in job.silver)


def why_not_tried() -> str:
    """What is missing here for it; empty: nothing."""
    try:
        check_spark()
        find_java(os.environ, Path(tempfile.gettempdir()) / f"mqgate-{os.getuid()}")
    except (SparkMissing, JavaMissing) as missing:
        return str(missing)
    return ""


def tried(job: Job, file: Path) -> list[Finding]:
    """Every condition that Spark refuses, and every pattern that Java does, at its place in the file."""
    document = read_yaml(str(file), file.read_text(encoding="utf-8"))
    spark = make_session(f"{job.name}-check", job.spark)
    logging.getLogger(OF_QUERIES).setLevel(logging.CRITICAL)
    try:
        return list(refused(spark, job, document))
    finally:
        spark.stop()


def refused(spark: Any, job: Job, document: Document) -> Iterator[Finding]:
    """The same, by a session that there is."""
    rows = spark.createDataFrame([], ", ".join(map(_ddl, _columns(job))))
    for number, silver in enumerate(job.silver):
        why = _why_no_condition(rows, silver.when) if silver.when else ""
        if why:
            fix = "write an SQL condition on message columns"
            yield document.finding(("silver", number, "when"), f"`when`: {why}", fix)
        for place, column in enumerate(silver.columns):
            why = _why_no_pattern(spark, column.pattern) if column.pattern else ""
            if why:
                at = ("silver", number, "columns", place, "pattern")
                yield document.finding(at, f"pattern is not a regular expression of Java, as Spark has them: {why}")


def _columns(job: Job) -> list[MessageColumn]:
    raw = RAW_COLUMNS if job.bronze is not None and job.bronze.include_raw else ()
    return [*COLUMNS, *raw, *([SOURCE_COLUMN] if job.sources else [])]


def _ddl(column: MessageColumn) -> str:
    return f"`{column.name}` {'map<string, string>' if column.kind == 'map' else column.kind}"


def _why_no_condition(rows: Any, condition: str) -> str:
    from pyspark.errors import AnalysisException

    try:
        rows.where(condition)
    except AnalysisException as error:
        said = _NAMED.search(str(error))
        return _PLACE.sub("", said[1] if said else str(error).strip().split("\n", 1)[0])
    return ""


def _why_no_pattern(spark: Any, pattern: str) -> str:
    from pyspark.errors import IllegalArgumentException

    try:
        spark._jvm.java.util.regex.Pattern.compile(pattern)  # noqa: SLF001 -- there is no other way to its Java
    except IllegalArgumentException as error:
        return str(error).strip().split("\n", 1)[0]
    return ""
