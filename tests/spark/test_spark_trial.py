"""Conditions and patterns, as Spark and its Java judge them for `mqgate pipeline check`, and the types it knows."""

from __future__ import annotations

from typing import Any

from gateway.config.source import read_yaml
from gateway.pipeline.decode.columns import COLUMNS, spark_schema
from gateway.pipeline.jobs.job import CARRIED, Silver, parse_job
from gateway.pipeline.jobs.silver import silver_rows
from gateway.pipeline.jobs.spark.trial import has_trials, refused
from gateway.pipeline.jobs.tables.column_types import arrow_of

JOB = r"""
version: 1
name: plant
source: {queue: "TELEMETRY.*", path: data}
warehouse: lake
silver:
  - {table: a, when: "queue = 'A' AND properties['x'] > 3", columns: [{name: s, pattern: '^\p{L}+$'}]}
  - {table: b, when: nosuch = 1, columns: [{name: t}, {name: s, pattern: 'a{,3}'}]}
  - {table: c, when: queue =, columns: [{name: s, pattern: ^a}]}
  - {table: d, when: nofunc(queue), columns: [{name: s}]}
  - {table: e, when: queue, columns: [{name: s}]}
"""


def test_what_is_refused_is_told_at_its_place(spark: Any) -> None:
    job = parse_job("job.yaml", JOB)
    assert has_trials(job)
    told = [str(one) for one in refused(spark, job, read_yaml("job.yaml", JOB))]
    assert [one.split(": ")[0] for one in told] == [
        "job.yaml:8:22", "job.yaml:8:74", "job.yaml:9:22", "job.yaml:10:22", "job.yaml:11:22"
    ]  # fmt: skip
    assert "name `nosuch` cannot be resolved" in told[0]
    assert "Illegal repetition near index 2" in told[1]
    assert "Syntax error" in told[2]
    assert "`nofunc`" in told[3]
    assert "is not a boolean" in told[4]
    assert not any("SQLSTATE" in one or "\n" in one for one in told)


def test_types_that_check_knows_without_spark_are_those_of_a_run(spark: Any) -> None:
    """`check` compares them with the tables that have landed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    kinds = ("string", "boolean", "int", "bigint", "float", "double", "timestamp", "date", "binary")
    columns = [{"name": f"c_{kind}", "type": kind} for kind in kinds]
    columns += [{"name": "rank", "from": "priority", "type": "int"}]
    silver = Silver.model_validate({"table": "readings", "columns": columns})
    rows = silver_rows(spark.createDataFrame([], spark_schema(COLUMNS)), silver)
    found = {field.name: field.type for field in to_arrow_schema(rows.schema, timezone="UTC")}
    assert {column.name: arrow_of(column.type) for column in silver.columns}.items() <= found.items()
    assert {name: arrow_of(silver.type_of(name)) for name in CARRIED}.items() <= found.items()
