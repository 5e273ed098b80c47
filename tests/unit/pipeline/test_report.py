"""Plots, status and metrics: valid markup, nothing unescaped, figures people and Prometheus can read."""

from __future__ import annotations

import os
import socket
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pipeline.jobs.metrics import metrics_text
from gateway.pipeline.jobs.progress import JobProgress, ProgressDisplay
from gateway.pipeline.jobs.report import bar_plot, line_plot, nice, short
from gateway.pipeline.jobs.status import status_lines
from gateway.pipeline.land.manifest import ManifestRecord

STATUS: dict[str, Any] = {
    "job": "plant",
    "run": {"state": "running", "rows": 10, "quarantined": 1, "batches": 2, "restarts": 3, "error": "DataLost: gone"},
    "last_batch": {"rows": 5, "seconds": 1.5, "landed": 1000.0},
    "groups": [{"name": "g", "queues": "A.*", "owner": "here:1", "expires": 2000.0, "lag": 7}],
}


@given(st.floats(1e-6, 1e12))
def test_axes_end_above_the_highest_value(most: float) -> None:
    assert most <= nice(most) <= most * 25


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e9)), max_size=20), st.text(max_size=20))
def test_lines_are_markup(points: list[tuple[float, float]], name: str) -> None:
    name = "".join(letter for letter in name if letter.isprintable())
    ET.fromstring(line_plot(f"{name} <&>", {name: points, "other": points}, "ms"))


def test_bars_are_markup_and_names_are_escaped() -> None:
    page = bar_plot("Missing", [("<script>", 3), ("a" * 80, 1)])
    ET.fromstring(page)
    assert "<script>" not in page
    assert "nothing to show" in bar_plot("Missing", [])


def test_status_for_people() -> None:
    assert status_lines(STATUS, now=1060.0) == [
        "job plant: running",
        "  last error: DataLost: gone",
        "  restarts: 3",
        "  last batch: 5 rows in 1.5 s, 1m ago",
        "  group g on A.*: 7 behind, read by here:1",
    ]


def test_a_job_whose_lease_has_run_out_is_not_said_to_run() -> None:
    """It was killed, and what it had said of itself last is still there."""
    status = {**STATUS, "reads": ["g"]}
    assert status_lines(status, now=1060.0)[0] == "job plant: running"
    assert status_lines(status, now=2060.0)[0].startswith("job plant: running when it last said so, but nobody reads")

    ended = {**status, "run": {**STATUS["run"], "state": "stopped"}}
    assert status_lines(ended, now=2060.0)[0] == "job plant: stopped"
    assert status_lines({**status, "reads": ["other"]}, now=2060.0)[0] == "job plant: running"


def test_a_job_in_a_batch_that_outlasts_its_lease_runs() -> None:
    group = {**STATUS["groups"][0], "owner": f"{socket.gethostname()}:{os.getpid()}"}
    lines = status_lines({**STATUS, "reads": ["g"], "groups": [group]}, now=2060.0)
    assert lines[0] == "job plant: running"
    assert lines[-1].endswith(f"read by {group['owner']}")


def test_what_spark_tells_of_the_query() -> None:
    told = {"backlog": 1200, "batch": 4, "processed_rate": 5000.0, "input_rate": 10.0, "trigger_seconds": 2.5}
    status = {**STATUS, "run": {**STATUS["run"], **told, "wait_p50": 1.25, "wait_p99": 2.0}}
    lines = status_lines(status, now=1060.0)
    assert "  query: batch 4, 1,200 messages behind, 5,000 rows/s, 2.5 s a trigger" in lines
    assert "  from put to table: 1.2 s, 99 of 100 within 2.0 s" in lines
    text = metrics_text(status)
    assert 'mqgate_pipeline_backlog_messages{job="plant"} 1200\n' in text
    assert 'mqgate_pipeline_wait_seconds{job="plant",quantile="0.99"} 2.0\n' in text


def test_a_query_that_has_had_no_batch_yet() -> None:
    """It was told as `batch None`, with rates of a batch that there was not."""
    run = {**STATUS["run"], "backlog": 0, "batch": None, "processed_rate": 0.0, "trigger_seconds": 0.0}
    lines = status_lines({**STATUS, "run": run}, now=1060.0)
    assert "  query: no batch yet, 0 messages behind" in lines


def test_several_sources_and_one_that_cannot_be_asked() -> None:
    groups = [
        {**STATUS["groups"][0], "source": "lima"},
        {"source": "quito", "name": "g", "queues": "A.*", "trouble": "it does not answer"},
    ]
    tables = [{"table": "bronze", "parts": 1200, "small": 3, "due": False}]
    status = {**STATUS, "groups": groups, "rate": 1500.0, "tables": tables, "next_compaction": "after 29 more"}
    lines = status_lines(status, now=1060.0)
    assert lines[-4:] == [
        "  rate: 1,500 rows/s over the last batches",
        "  parts of tables: bronze 1,200; next compaction after 29 more",
        "  group g on A.* (source lima): 7 behind, read by here:1",
        "  group g on A.* (source quito): not known: it does not answer",
    ]
    text = metrics_text(status)
    assert 'mqgate_pipeline_lag_messages{group="g",source="lima"} 7\n' in text
    assert "quito" not in text


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "0s"), (119.4, "119s"), (521, "9m"), (7100, "118m"), (7300, "2h"), (200_000, "56h")]
)
def test_how_long_ago_the_last_batch_was(seconds: float, shown: str) -> None:
    status = {**STATUS, "last_batch": {"rows": 1, "seconds": 1.0, "landed": 0.0}}
    assert f"  last batch: 1 rows in 1.0 s, {shown} ago" in status_lines(status, now=seconds)


def test_a_job_says_that_it_starts_spark(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay() as shown:
        shown(JobProgress("plant"))
    assert capsys.readouterr().err == "plant: starting Spark, which takes a while\n"


def test_a_line_of_progress_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = JobProgress("plant", state="running")
    with ProgressDisplay() as shown:
        shown(progress)
        progress.trigger_seconds = 2.5
        shown(progress)
        progress.rows = 7
        shown(progress)
    said = capsys.readouterr().err
    assert said.count("plant: running") == 2
    assert said.count("0 rows") == said.count("7 rows") == 1


def test_what_is_left_to_do_is_that_of_the_batch_just_landed(capsys: pytest.CaptureFixture[str]) -> None:
    """Spark counts it a moment later, to the same figure: one line, however long it is."""
    progress = JobProgress("plant" * 20, state="running", backlog=950_000)
    with ProgressDisplay() as shown:
        progress.add(ManifestRecord(1, "", "plant", "", 0, [], {}, 0.0, {"rows": 50_000, "seconds": 1.0}))
        shown(progress)
        progress.backlog = 900_000
        shown(progress)
        progress.state, progress.error = "restarting", "no answer from [/dev/lake]" * 20
        shown(progress)
    line, _, restarting = capsys.readouterr().err.splitlines()
    assert line.endswith("50,000 rows, 50,000/s, 0 quarantined, 900,000 to go")
    assert restarting == f"restarting: {progress.error}"


def test_metrics() -> None:
    text = metrics_text(STATUS)
    assert 'mqgate_pipeline_up{job="plant"} 1\n' in text
    assert 'mqgate_pipeline_lag_messages{group="g"} 7\n' in text
    assert text.count("# TYPE mqgate_pipeline_rows_total counter") == 1


@pytest.mark.parametrize(
    ("value", "shown"), [(0, "0"), (37.5, "37.5"), (9957, "9,957"), (1e10, "10 G"), (2_500_000, "2.5 M")]
)
def test_numbers_are_written_without_exponents(value: float, shown: str) -> None:
    assert short(value) == shown
