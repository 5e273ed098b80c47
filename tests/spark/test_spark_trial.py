"""Conditions and patterns, as Spark and its Java judge them for `mqgate pipeline check`."""

from __future__ import annotations

from typing import Any

from gateway.config.source import read_yaml
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.spark.trial import has_trials, refused

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
