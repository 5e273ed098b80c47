"""`mqgate pipeline replay`: what can be known before Spark starts is told before."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from device_fleet import SMALL, Fleet, put

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

from gateway.pipeline.commands import pipeline
from gateway.pipeline.jobs import replay
from gateway.pipeline.jobs.folder_tables import rows_in
from gateway.pipeline.land.landing import Landing
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


def test_then_spark_is_started(file: Path) -> None:
    done = CliRunner().invoke(pipeline, ["replay", str(file), "--table", "bronze", "--queue", "AGAIN"])
    assert "Started" in done.output


def test_a_replay_with_a_name_does_not_say_that_it_has_put_more() -> None:
    assert replay.put_sentence(1, "AGAIN", "") == "1 message put on AGAIN"
    said = replay.put_sentence(3, "AGAIN", "one")
    assert said == "3 messages put on AGAIN under the name 'one', once however often this is repeated"
