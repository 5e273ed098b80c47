"""`mqgate pipeline replay`: what can be known before Spark starts is told before."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from device_fleet import SMALL, Fleet, put
from schedulers import ManualScheduler

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

from gateway.pipeline.commands import pipeline
from gateway.pipeline.errors import QueueRefuses
from gateway.pipeline.jobs import replay
from gateway.pipeline.jobs.tables.folder_tables import rows_in
from gateway.pipeline.journal.owner import opened
from gateway.pipeline.journal.puts import PutColumns, PutTarget
from gateway.pipeline.land.landing import Landing
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal.store import Store

JOB = """
version: 1
name: plant
source: {queue: Q, path: journal}
warehouse: lake
silver: [{table: readings, columns: [{name: device}]}]
"""


class Started(Exception):
    """Spark would have been started."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job whose bronze has rows, and whose quarantine has none. Spark is not to be started."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def start(*_: object) -> None:
        raise Started

    monkeypatch.setattr(replay, "make_session", start)
    store = Store.open(tmp_path / "journal", clock=time.time, options=SMALL)
    put(store, "Q", *Fleet().batch(3))
    store.close()
    batch = Landing(tmp_path / "lake", "plant", rows_in).begin("q", 1, [("s", 0, 3)])
    assert batch is not None
    for table, part in (("bronze", ""), ("readings", "status=ok")):
        target = batch.stage(table)
        assert target is not None
        (target / part).mkdir(parents=True)
        pq.write_table(pa.table({"seq": [1]}), target / part / "p.parquet")
    batch.land()
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path / "job.yaml"


def said(file: Path, *words: str) -> str:
    done = CliRunner().invoke(pipeline, ["replay", str(file), *words])
    assert not isinstance(done.exception, Started)
    assert done.exit_code in (1, 3), done.output
    assert done.output.count("\n") == 1
    return done.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--table raedings --queue AGAIN", "no table 'raedings' to replay from: name one of bronze, readings"),
        ("--table readings --queue AGAIN", "nothing of 'readings' is in quarantine"),
        ("--table bronze --queue AGAIN.*", "rows are written to one queue, whose name is"),
        ("--table bronze --queue AGAIN --source lima", "say which source with --source"),
    ],
)
def test_an_argument_that_is_wrong(file: Path, words: str, says: str) -> None:
    assert says in said(file, *words.split())


def test_a_gateway_that_has_the_store_open(file: Path) -> None:
    about = {"admin": "http://127.0.0.1:1", "token_file": "admin.token", "pid": os.getpid()}
    (file.parent / "journal" / "gateway.json").write_text(json.dumps(about))
    assert "a gateway is running on" in said(file, "--table", "bronze", "--queue", "AGAIN")


def test_a_gateway_that_does_not_answer(file: Path) -> None:
    file.write_text(JOB.replace("path: journal", 'url: "http://127.0.0.1:1", token_file: token'))
    (file.parent / "token").write_text("any")
    assert "127.0.0.1:1" in said(file, "--table", "bronze", "--queue", "AGAIN")


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ("", "AGAIN is not a local queue here: define it"),
        ("DEFINE QLOCAL(AGAIN) PUT(DISABLED)", "AGAIN takes no messages: ALTER QLOCAL(AGAIN) PUT(ENABLED)"),
        ("DEFINE QLOCAL(AGAIN) STREAMQ(COPIES)", "put to AGAIN has a copy on its STREAMQ(COPIES)"),
        ("DEFINE QLOCAL(AGAIN) MAXDEPTH(0)", "AGAIN holds 0 messages and takes 0: none more fits; raise its MAXDEPTH"),
    ],
)
def test_a_queue_of_a_stopped_gateway(file: Path, definition: str, says: str) -> None:
    define(file, definition)
    assert says in said(file, "--table", "bronze", "--queue", "AGAIN")


def test_a_queue_that_takes_some(file: Path) -> None:
    """A batch that does not fit is not put at all."""
    define(file, "DEFINE QLOCAL(AGAIN) MAXDEPTH(3) MAXMSGL(10)")
    target = PutTarget("AGAIN", 0, -1, persistent=True)
    with opened(file.parent / "journal") as owner:
        assert owner.put(target, PutColumns([bytes(364)] * 2, [b"0123456789"] * 2), "", 0) == 2
        with pytest.raises(QueueRefuses, match="AGAIN holds 2 messages and takes 3: 2 more do not fit"):
            owner.put(target, PutColumns([bytes(364)] * 2, [b""] * 2), "", 0)
        with pytest.raises(QueueRefuses, match="AGAIN takes messages of 10 bytes, and one has 12: raise its MAXMSGL"):
            owner.put(target, PutColumns([bytes(366)], [b"0123456789"]), "", 0)
        assert owner.put(target, PutColumns([bytes(364)], [b""]), "", 0) == 1
        assert owner.journal.index.queues["AGAIN"].depth == 3


def define(file: Path, definition: str) -> None:
    queue_manager = EmbeddedQueueManager.open(file.parent / "journal", "QM", ManualScheduler(), definition)
    queue_manager.close()


def test_then_spark_is_started(file: Path) -> None:
    done = CliRunner().invoke(pipeline, ["replay", str(file), "--table", "bronze", "--queue", "AGAIN"])
    assert "Started" in done.output


def test_a_replay_with_a_name_does_not_say_that_it_has_put_more() -> None:
    assert replay.put_sentence(1, "AGAIN", "") == "1 message put on AGAIN"
    said = replay.put_sentence(3, "AGAIN", "one")
    assert said == "3 messages put on AGAIN under the name 'one', once however often this is repeated"
