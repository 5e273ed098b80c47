"""Gold tables of a job that has been changed since its last batch: their state has the columns of the job before."""

from __future__ import annotations

import datetime as dt
from typing import Any

from gateway.pipeline.jobs.gold import gap_step, last_step, silence_step, window_step

THEN = dt.datetime(2026, 11, 27, 12, tzinfo=dt.UTC)
BEFORE = "device string, ts timestamp, seq bigint, n bigint, x int, gone string"
NOW = "device string, ts timestamp, seq bigint, n int, x double, new string, text string, flag boolean"
LAST = {"by": ["device"], "at": "ts"}


def before(spark: Any) -> Any:
    return spark.createDataFrame([("a", THEN, 1, 1, 5, "g"), ("b", THEN, 2, 1, 6, "g")], BEFORE)


def now(spark: Any) -> Any:
    later = THEN + dt.timedelta(seconds=1)
    return spark.createDataFrame([("a", later, 3, 3, 1.5, "y", "t", True)], NOW)


def test_last_values_of_columns_that_came_went_and_changed(spark: Any) -> None:
    state = last_step(before(spark), None, values=["n", "x", "gone"], **LAST).state
    step = last_step(now(spark), state, values=["n", "x", "new"], **LAST)
    assert step.state is not None
    found = {row.device: (row.n, row.x, row.new) for row in step.state.collect()}
    assert found == {"a": (3, 1.5, "y"), "b": (1, 6.0, None)}
    assert step.state.columns == ["device", "ts", "seq", "n", "x", "new"]


def test_a_value_that_cannot_be_of_the_new_type_is_null(spark: Any) -> None:
    were = before(spark).selectExpr("device", "ts", "seq", "gone AS n", "n AS text", "ts AS flag")
    values = ["n", "text", "flag"]
    step = last_step(now(spark), last_step(were, None, values=values, **LAST).state, values=values, **LAST)
    assert step.state is not None
    found = {row.device: (row.n, row.text, row.flag) for row in step.state.collect()}
    assert found == {"a": (3, "t", True), "b": (None, "1", None)}


def test_a_key_that_is_another_begins_anew(spark: Any) -> None:
    state = last_step(before(spark), None, values=["x"], **LAST).state
    step = last_step(now(spark), state, values=["x"], by=["new"], at="ts")
    assert step.state is not None
    assert [(row.new, row.x) for row in step.state.collect()] == [("y", 1.5)]


def test_gaps_with_another_event_time(spark: Any) -> None:
    state = gap_step(
        before(spark).withColumnRenamed("ts", "old"), None, by=["device"], sequence="n", at="old", wraps_at=0
    )
    step = gap_step(now(spark), state.state, by=["device"], sequence="n", at="ts", wraps_at=0)
    assert step.rows is not None
    assert [(row.device, row.previous, row.next, row.missing) for row in step.rows.collect()] == [("a", 1, 3, 1)]


def test_a_table_that_was_of_another_kind_begins_anew(spark: Any) -> None:
    state = gap_step(before(spark), None, by=["device"], sequence="n", at="ts", wraps_at=0).state
    step = silence_step(now(spark), state, by=["device"], at="ts", after=60, seen=None)
    assert step.state is not None
    assert [row.device for row in step.state.collect()] == ["a"]


def test_windows_of_other_values(spark: Any) -> None:
    window: dict[str, Any] = {"by": ["device"], "at": "ts", "every": 60, "watermark": 60, "before": None}
    state = window_step(before(spark), None, values=["n"], seen=THEN.timestamp(), **window).state
    step = window_step(now(spark), state, values=["x"], seen=THEN.timestamp() + 600, **window)
    assert step.rows is not None
    found = {row.device: (row.x_min, row.x_count) for row in step.rows.collect()}
    assert found == {"a": (1.5, 1), "b": (None, None)}
