"""Gold tables as functions on DataFrames: (rows of a batch, state before) to (rows to append, state after).

State is a table that lands with the batch it belongs to, so a repeated batch finds the state it found before and gives
the same rows: no state store, no timers, and exact across crashes. All times are event times; no clock is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Frame = Any
"""A Spark DataFrame."""
WIDER = "decimal(20,0)"
"""For differences of 64-bit numbers: whatever two devices' counters say, one that overflows would end the query."""
LARGEST = 2**63 - 1
NUMBERS = frozenset({"tinyint", "int", "bigint", "float", "double"})


OWN_COLUMNS = {
    "window": ("window_start", "window_end", "late"),
    "gaps": ("kind", "previous", "next", "missing", "seq", "n"),
    "silence": ("silent_from", "returned_at", "at", "told", "previous"),
    "latency": ("window_start", "messages", "p50_ms", "p95_ms", "p99_ms", "max_ms"),
}
"""By kind: the columns that a table or its state has in addition to those of `by`."""
OF_A_VALUE = ("min", "max", "mean", "count", "last", "sum", "latest")
"""The suffixes of the columns that windows and their state have for each value."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one batch does to one gold table."""

    rows: Frame | None
    """Rows to append; None when the state is itself the table."""
    state: Frame | None


def own_columns(kind: str, values: Sequence[str], at: str) -> list[str]:
    """The columns that a table of a kind or its state has in addition to those of `by`: Spark writes no column
    twice."""
    of_values = [f"{value}_{one}" for value in values for one in OF_A_VALUE] if kind == "window" else []
    return [*OWN_COLUMNS.get(kind, ()), *of_values, *([at] if kind == "gaps" else [])]


def union(parts: Sequence[Frame | None]) -> Frame:
    """The union of the frames that are not None, by column names."""
    present = [part for part in parts if part is not None]
    result = present[0]
    for part in present[1:]:
        result = result.unionByName(part)
    return result


def fitted(state: Frame | None, to: Frame, keys: Sequence[str]) -> Frame | None:
    """The state with the columns of the rows with which it goes on, as a job may have been changed since. Columns that
    it lacks are NULL, and those that had another type are converted, or NULL where that cannot be. None if it does not
    have all keys: then it is about other things, and the table begins anew."""
    if state is None or not set(keys) <= set(state.columns):
        return None
    before = {field.name: field.dataType.simpleString() for field in state.schema}
    now = {field.name: field.dataType.simpleString() for field in to.schema}
    return state.selectExpr(*[f"{_refitted(name, before.get(name), kind)} AS `{name}`" for name, kind in now.items()])


def _refitted(name: str, before: str | None, kind: str) -> str:
    if before is None:
        return f"CAST(NULL AS {kind})"
    if before == kind:
        return f"`{name}`"
    if {before, kind} <= NUMBERS:
        return f"try_cast(`{name}` AS {kind})"
    return f"try_cast(try_cast(`{name}` AS string) AS {kind})"  # between what else there is Spark knows no cast


# ---- windows


def window_step(
    rows: Frame,
    state: Frame | None,
    *,
    by: Sequence[str],
    values: Sequence[str],
    at: str,
    every: float,
    watermark: float,
    before: float | None,
    seen: float | None,
) -> Step:
    """Downsampling. `before` and `seen`: the latest event time (seconds) before and after this batch.

    A window is appended once, when rows `watermark` later than its end have been seen. Rows for a window that is
    already final make a further row of it with `late` true, so that nothing is dropped silently.
    """
    from pyspark.sql import functions as f

    parts = rows.where(f.col(at).isNotNull()).groupBy(*by, window_start(at, every).alias("window_start"))
    partial = parts.agg(*[each for value in values for each in partials(value, at)])
    final_before = None if before is None else before - watermark
    late = partial.where(ends_by(every, final_before)).withColumn("late", f.lit(True))  # noqa: FBT003
    timely = union([partial.where(~ends_by(every, final_before)), fitted(state, partial, [*by, "window_start"])])
    merged = timely.groupBy(*by, "window_start").agg(*[each for value in values for each in merges(value)])
    final = ends_by(every, None if seen is None else seen - watermark)
    closed = merged.where(final).withColumn("late", f.lit(False))  # noqa: FBT003
    return Step(window_rows(union([closed, late]), by, values, every), merged.where(~final))


def window_start(at: str, every: float) -> Any:
    """The start of the window, from microseconds, so that a window may be shorter than a second."""
    from pyspark.sql import functions as f

    width = round(every * 1_000_000)
    micros = f.unix_micros(f.col(at))
    return f.timestamp_micros(micros - f.pmod(micros, f.lit(width)))


def ends_by(every: float, seconds: float | None) -> Any:
    """Whether a window ended by that time."""
    from pyspark.sql import functions as f

    if seconds is None:
        return f.lit(False)  # noqa: FBT003
    return f.unix_micros("window_start") + round(every * 1_000_000) <= round(seconds * 1_000_000)


def partials(value: str, at: str) -> list[Any]:
    """Aggregates of a column that can be merged with those of other batches."""
    from pyspark.sql import functions as f

    number = f.col(value).cast("double")
    return [
        f.min(number).alias(f"{value}_min"),
        f.max(number).alias(f"{value}_max"),
        f.sum(number).alias(f"{value}_sum"),
        f.count(number).alias(f"{value}_count"),
        f.max(f.when(number.isNotNull(), f.struct(f.col(at).alias("at"), f.col("seq"), number.alias("value")))).alias(
            f"{value}_latest"
        ),
    ]


def merges(value: str) -> list[Any]:
    """Aggregates of the same window merged."""
    from pyspark.sql import functions as f

    return [
        f.min(f"{value}_min").alias(f"{value}_min"),
        f.max(f"{value}_max").alias(f"{value}_max"),
        f.sum(f"{value}_sum").alias(f"{value}_sum"),
        f.sum(f"{value}_count").alias(f"{value}_count"),
        f.max(f"{value}_latest").alias(f"{value}_latest"),
    ]


def window_rows(merged: Frame, by: Sequence[str], values: Sequence[str], every: float) -> Frame:
    """The table's columns: min, max, mean, count, last."""
    from pyspark.sql import functions as f

    end = f.timestamp_micros(f.unix_micros("window_start") + round(every * 1_000_000))
    columns = [*by, "window_start", end.alias("window_end")]
    for value in values:
        columns += [
            f.col(f"{value}_min"),
            f.col(f"{value}_max"),
            (f.col(f"{value}_sum") / f.col(f"{value}_count")).alias(f"{value}_mean"),
            f.col(f"{value}_count"),
            f.col(f"{value}_latest.value").alias(f"{value}_last"),
        ]
    return merged.select(*columns, "late")


# ---- last values


def last_step(rows: Frame, state: Frame | None, *, by: Sequence[str], values: Sequence[str], at: str) -> Step:
    """The last row of each device, by event time, then by message number. The state is the table."""
    from pyspark.sql import functions as f

    names = [name for name in dict.fromkeys([at, "seq", *values]) if name not in by]
    new = rows.select(*by, *names)
    both = union([new, fitted(state, new, [*by, "seq"])])
    newest = f.max(f.struct(*[f.col(name) for name in names]))
    latest = both.where(f.col(at).isNotNull()).groupBy(*by).agg(newest.alias("_row"))
    return Step(None, latest.select(*by, *[f.col("_row")[name].alias(name) for name in names]))


# ---- missing sequence numbers


def gap_step(rows: Frame, state: Frame | None, *, by: Sequence[str], sequence: str, at: str, wraps_at: int) -> Step:
    """Events where a device's counter does not go on by one: `gap` with how many are missing, `repeat`, `restart`."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    counted = rows.where(f.col(sequence).isNotNull()).select(*by, "seq", f.col(sequence).cast("bigint").alias("n"), at)
    known = fitted(state, counted, [*by, "seq", "n"])
    order = Window.partitionBy(*by).orderBy("seq")
    both = union([counted.withColumn("_new", f.lit(True)), marked_old(known)])  # noqa: FBT003
    stepped = both.withColumn("previous", f.lag("n").over(order))
    step = f.col("n").cast(WIDER) - f.col("previous").cast(WIDER)
    missing = f.pmod(step - 1, f.lit(wraps_at)) if wraps_at else step - 1
    missing = f.greatest(f.least(missing, f.lit(LARGEST)), f.lit(-LARGEST)).cast("bigint")
    found = stepped.where(f.col("_new") & f.col("previous").isNotNull()).withColumn("missing", missing)
    kind = f.when(step == 0, f.lit("repeat")).when(missing < 0, f.lit("restart")).otherwise(f.lit("gap"))
    events = found.where(f.col("missing") != 0).select(
        *by,
        kind.alias("kind"),
        "previous",
        f.col("n").alias("next"),
        f.when(kind == "gap", f.col("missing")).otherwise(f.lit(0)).alias("missing"),
        at,
        "seq",
    )
    newest = both.groupBy(*by).agg(f.max(f.struct("seq", "n", at)).alias("_row"))
    return Step(events, newest.select(*by, "_row.seq", "_row.n", f.col(f"_row.{at}").alias(at)))


def marked_old(state: Frame | None) -> Frame | None:
    """The state, marked as rows of an earlier batch."""
    from pyspark.sql import functions as f

    return None if state is None else state.withColumn("_new", f.lit(False))  # noqa: FBT003


# ---- silence


def silence_step(
    rows: Frame, state: Frame | None, *, by: Sequence[str], at: str, after: float, seen: float | None
) -> Step:
    """Events of devices that sent nothing for `after` seconds while others did: one when the silence is noticed
    (`returned_at` empty) and one when the device returns."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    spoken = rows.where(f.col(at).isNotNull()).select(*by, f.col(at).alias("at"))
    known = fitted(state, spoken, [*by, "at", "told"])
    order = Window.partitionBy(*by).orderBy("at")
    both = union([spoken, known]).withColumn("previous", f.lag("at").over(order))
    micros = round(after * 1_000_000)
    returned = both.where(f.unix_micros("at") - f.unix_micros("previous") > micros)
    events = returned.select(*by, f.col("previous").alias("silent_from"), f.col("at").alias("returned_at"))
    last = both.groupBy(*by).agg(f.max("at").alias("at"))
    told = state.select(*by, "told") if state is not None and known is not None else None
    now = f.lit(None if seen is None else round(seen * 1_000_000)).cast("bigint")
    quiet = f.coalesce(now - f.unix_micros("at") > micros, f.lit(False))  # noqa: FBT003
    current = last.join(told, list(by), "left") if told is not None else last.withColumn("told", f.lit(None))
    current = current.withColumn("told", f.col("told").cast("timestamp")).withColumn("_quiet", quiet)
    fresh = current.where(f.col("_quiet") & ~f.col("at").eqNullSafe(f.col("told")))
    noticed = fresh.select(*by, f.col("at").alias("silent_from"), f.lit(None).cast("timestamp").alias("returned_at"))
    state_after = current.select(*by, "at", f.when(f.col("_quiet"), f.col("at")).otherwise(f.col("told")).alias("told"))
    return Step(union([events, noticed]), state_after)


# ---- dead letters and latency


def dead_letter_step(bronze: Frame, state: Frame | None) -> Step:
    """Dead letters by reason, destination and hour. The state is the table."""
    from pyspark.sql import functions as f

    keys = ["reason", "queue", "queue_manager", "hour"]
    batch = bronze.where(f.col("dlq_reason").isNotNull()).select(
        f.col("dlq_reason").alias("reason"),
        f.col("dlq_dest_q").alias("queue"),
        f.col("dlq_dest_qmgr").alias("queue_manager"),
        f.date_trunc("hour", "put_ts").alias("hour"),
        f.lit(1).cast("bigint").alias("messages"),
    )
    return Step(None, union([batch, state]).groupBy(*keys).agg(f.sum("messages").alias("messages")))


def latency_step(rows: Frame, *, by: Sequence[str], start: str, every: float) -> Step:
    """The time messages took from `start` to the queue: percentiles of each window's rows in this batch."""
    from pyspark.sql import functions as f

    millis = (f.unix_micros("put_ts") - f.unix_micros(f.col(start))) / 1000
    timed = rows.where(f.col(start).isNotNull()).withColumn("_ms", millis)
    points = f.percentile_approx("_ms", [0.5, 0.95, 0.99])
    grouped = timed.groupBy(*by, window_start("put_ts", every).alias("window_start")).agg(
        f.count("_ms").alias("messages"), points.alias("_p"), f.max("_ms").alias("max_ms")
    )
    named = [f.col("_p")[at].alias(name) for at, name in enumerate(("p50_ms", "p95_ms", "p99_ms"))]
    return Step(grouped.select(*by, "window_start", "messages", *named, "max_ms"), None)
