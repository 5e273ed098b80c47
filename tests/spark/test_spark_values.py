"""Values at their edges through silver and gold: what a table cannot hold is a row in quarantine, never a query that
ends, and ends again at each start."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from gateway.pipeline.decode.columns import select_columns, spark_schema
from gateway.pipeline.jobs.gold import gap_step
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.silver import silver_rows

JOB = """
version: 1
name: edges
source: {queue: Q, path: data}
warehouse: lake
silver:
  - table: readings
    event_time: ts
    columns:
      - {name: ts, type: timestamp, unit: ms}
      - {name: iso, type: timestamp}
      - {name: day, type: date}
      - {name: n, type: bigint}
      - {name: text}
      - {name: inner, from: payload.deep.a, type: int}
      - {name: quoted, from: "payload.a'b", type: int}
      - {name: moist, type: double, on_failure: count}
      - {name: short, type: float}
      - {name: long, type: double}
"""
LONG = 21_000_000
"""Longer than the strings that Spark's parser takes by itself."""
EXPECTED: dict[bytes, str | None] = {
    b'{"n": 9223372036854775807, "text": "}{"}': None,
    b'{"n": -9223372036854775808}': None,
    b'{"n": 9223372036854775807}': None,
    b'{"ts": -62135596800000, "day": "0001-01-01", "iso": "0001-01-01T00:00:00Z"}': None,
    b'{"ts": 253402300799999, "day": "9999-12-31", "iso": " 9999-12-31T23:59:59.999999Z"}': None,
    b'{"unread": NaN, "n": 1}': None,
    b'{"short": 3.4e38, "long": -1.7e308}': None,
    b'{"short": 1e39}': "type:short",
    b'{"long": -1e400}': "type:long",
    b'{"ts": 1e300}': "type:ts",
    b'{"ts": NaN}': "type:ts",
    b'{"ts": Infinity}': "type:ts",
    b'{"ts": 253402300800000}': "type:ts",
    b'{"ts": -62135596800001}': "type:ts",
    b'{"ts": 9223372036854775}': "type:ts",
    b'{"iso": "+294247-01-10T04:00:54.775807Z"}': "type:iso",
    b'{"iso": "12:34"}': "type:iso",
    b'{"iso": "T12:34:56Z"}': "type:iso",
    b'{"day": "+12345-01-01"}': "type:day",
    b'{"day": "-0044-03-15"}': "type:day",
    b'{"n": 99999999999999999999}': "type:n",
    b'{"n": 1.5}': "type:n",
    b'{"n": "9"}': "type:n",
    b'{"n": true, "text": "x"}': "type:n",
    b'{"long": "hot", "n": "x"}': "type:n",
    b'{"text": "x", "deep": 5}': "type:inner",
    b'{"deep": {"a": "x"}}': "type:inner",
    b'{"deep": {"a": 3}, "a\'b": 1}': None,
    b'{"a\'b": "x"}': "not_json",
    b'{"n": "x", "n": 1}': "not_json",
    b'{"n": "x"': "not_json",
    b'{"n": "x"}{"n": 1}': "not_json",
    b'{"n": "x", "unread": NaN}': "not_json",
    b'{"n": "caf\xe9"}': "not_json",
    b'{"n": null, "deep": null}': None,
    b'{"text": {"n": "x"}}': None,
    b'{"moist": "wet", "n": 1, "text": "x"}': None,
    b'{"moist": "wet", "n": "x"}': "type:n",
    b'{"n": 1, "moist": "wet"': "not_json",
    b"[1]": "not_json",
    b"5": "not_json",
    b"null": "not_json",
    b"": "not_json",
    b'{"n": 1}{"n": 2}': "not_json",
    b'{"n": 1}\n{"n": 2}\n': "not_json",
    b'{"n": 1},{"n": 2}': "not_json",
    b'{"n": 1} and more': "not_json",
    b'[{"n": 1}, {"n": 2}]': "not_json",
    b'{"text": "caf\xe9"}': "not_json",
    b'{"text": "\xed\xa0\x80"}': "not_json",
    b'\xef\xbb\xbf{"n": 1}': None,  # a byte order mark
    b'\xef\xbb\xbf\xef\xbb\xbf{"n": 1}': "not_json",
    b"\xef\xbb\xbf": "not_json",
    b'{"n": 1, "unread": "%s"}' % (b"x" * LONG): None,
    b'{"n": 1, "text": "%s"}' % (b"x" * LONG): None,
}


def test_what_a_table_cannot_hold_is_in_quarantine(spark: Any, tmp_path: Path) -> None:
    schema, now = spark_schema(select_columns("")), dt.datetime(2026, 11, 27, tzinfo=dt.UTC)
    given = [{"seq": at, "put_ts": now, "payload": bytearray(payload)} for at, payload in enumerate(EXPECTED)]
    messages = spark.createDataFrame([tuple(map(row.get, schema.names)) for row in given], schema)
    silver_rows(messages, parse_job("job.yaml", JOB).silver[0]).write.parquet(str(tmp_path / "readings"))
    rows = spark.read.parquet(str(tmp_path / "readings"))
    assert dict(zip(EXPECTED, [row.error for row in rows.orderBy("seq").select("error").collect()], strict=True)) == (
        EXPECTED
    )
    kept = rows.where("warnings IS NOT NULL AND error IS NULL").select("warnings", "n", "text", "moist").collect()
    assert list(map(tuple, kept)) == [("type:moist", 1, "x", None)]
    step = gap_step(rows.where("seq < 3"), None, by=["queue"], sequence="n", at="ts", wraps_at=0)
    assert step.rows is not None
    assert [(row.kind, row.missing) for row in step.rows.orderBy("seq").collect()] == [
        ("restart", 0), ("gap", 2**63 - 1),
    ]  # fmt: skip
