"""Damaged descriptors, headers and payloads through a whole job: no task fails, and each message is one row of each
table, ok or in quarantine.
"""

from __future__ import annotations

import json
import os
import random
import struct
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from device_fleet import SMALL, Fleet, put, reading

from gateway.pipeline.jobs.job import parse_job
from gateway.queue_manager.journal.store import Store

MESSAGES = 40_000 if os.environ.get("MQGATE_LONG") else 1_000
MQMD_LENGTH = 364
COLUMNS = """columns:
      - {name: device, type: string, required: true}
      - {name: n, type: bigint, min: 0}
      - {name: ts, type: timestamp, unit: ms}
      - {name: temperature, type: double, max: 100}
      - {name: site, from: properties.site}"""
JOB = """
version: 1
name: fuzz
source: {{queue: "TELEMETRY.*", path: {path}, purge_delay: 0s}}
warehouse: {lake}
trigger: 0s
bronze: {{include_raw: true}}
silver:
{silver}
"""
SILVER = "  - table: {name}\n    decode: {decoder}\n    event_time: ts\n    {columns}\n"
DECODERS = {"readings": "json", "packed": "cbor", "sparks": "sparkplug_b"}
ODD = (
    b"", b"\0", b"null", b"[]", b'"x"', b"1e999", b"NaN", b"{}", b'{"device": {"a": 1}}', b"[" * 3000, b"\xff\xfe\xfd",
    b'{"device": "\\ud800", "n": 1}', b'{"n": 99999999999999999999}', b'{"ts": 1e300}', b'{"device": null}',
    b"\x9f" * 400, b"\xa1\x61a\xfb\x7f\xf8\0\0\0\0\0\0", b"\xc2\x5f", b"\x0a\xff\xff\xff\xff\x0f",
    b'{"device":"a","device":"b"}',
)  # fmt: skip
"""Payloads that are odd on purpose: too deep, not text, numbers out of range, endless maps, lengths that lie."""


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Some bytes set, cut out, doubled, or made of chance alone."""
    how, value = chance.randrange(5), bytearray(data)
    if not value or how == 0:
        return chance.randbytes(chance.randrange(300))
    at = chance.randrange(len(value))
    if how == 1:
        return bytes(value[:at])
    if how == 2:
        return bytes(value[:at] + value[at // 2 :])
    for _ in range(chance.randint(1, 6)):
        value[chance.randrange(len(value))] = chance.choice((0, 0x20, 0x3C, 0x7F, 0xFF, chance.randrange(256)))
    return bytes(value)


def message(chance: random.Random, head: bytes, body: bytes, n: int) -> tuple[bytes, bytes]:
    """A message of which one part is damaged, now and then two; every fourth is whole."""
    kind = n % 8
    if kind == 1:  # the descriptor, of which the store needs its length only
        md = damaged(chance, head[:MQMD_LENGTH])
        head = (md + bytes(MQMD_LENGTH))[:MQMD_LENGTH] + head[MQMD_LENGTH:]
    if kind in (2, 3):  # the headers behind it
        head = head[:MQMD_LENGTH] + damaged(chance, head[MQMD_LENGTH:])
    if kind == 4:  # a length of a header that lies
        at = MQMD_LENGTH + 8
        head = head[:at] + struct.pack("<i", chance.choice((-1, 0, 35, 36, 37, 2**31 - 1))) + head[at + 4 :]
    if kind in (3, 5):
        body = damaged(chance, body)
    if kind == 6:
        body = body[:20] + chance.choice(ODD)
    return head, body


def failed_tasks(spark: Any) -> int:
    """Of all stages that Spark still knows: a task that is tried again and succeeds has failed too."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage)


@pytest.mark.parametrize("seed", [1])
def test_every_message_is_a_row_of_every_table(spark: Any, tmp_path: Path, seed: int) -> None:
    pytest.importorskip("cbor2", reason="cbor2 is not installed: pip install '.[spark]'")
    from gateway.pipeline.jobs.run import JobRun

    chance, fleet = random.Random(seed), Fleet(devices=40, payload=reading)
    heads, bodies = fleet.batch(MESSAGES)
    pairs = [message(chance, head, body, n) for n, (head, body) in enumerate(zip(heads, bodies, strict=True))]
    store = Store.open(tmp_path / "j", clock=time.time, options=SMALL)
    for begin in range(0, MESSAGES, 200):
        some = pairs[begin : begin + 200]
        put(store, "TELEMETRY.A", [head for head, _ in some], [body for _, body in some])
    store.close()
    silver = "".join(
        SILVER.format(name=name, decoder=decoder, columns=COLUMNS)
        for name, decoder in DECODERS.items()
    )  # fmt: skip
    before = failed_tasks(spark)
    JobRun(spark, parse_job("job.yaml", JOB.format(path=tmp_path / "j", lake=tmp_path / "lake", silver=silver))).run(
        once=True
    )
    assert failed_tasks(spark) == before
    bronze = spark.read.parquet(str(tmp_path / "lake/bronze")).orderBy("seq").collect()
    assert [bytes(row.headers) + bytes(row.payload) for row in bronze] == [
        head[MQMD_LENGTH:] + body for head, body in pairs
    ]
    assert MESSAGES // 8 < sum(row.header_error is not None for row in bronze) < MESSAGES
    for name in DECODERS:
        rows = spark.read.parquet(str(tmp_path / "lake" / name)).select("seq", "status", "error", "payload").collect()
        assert Counter(row.seq for row in rows) == Counter(row.seq for row in bronze), name
        assert {row.status for row in rows} <= {"ok", "quarantine"}
        kept = {row.seq: bytes(row.payload) for row in bronze}
        assert all(row.error and bytes(row.payload) == kept[row.seq] for row in rows if row.status == "quarantine")
    whole = {row.seq for n, row in enumerate(bronze) if n % 8 in (0, 7)}
    readings = (
        spark.read.parquet(str(tmp_path / "lake/readings")).where("status = 'ok'").select("seq", "device").collect()
    )
    assert whole <= {row.seq for row in readings}
    assert json.loads(bodies[0][bodies[0].index(b"{") :])["device"] == min(readings).device
