"""Queues of IBM MQ in a batch read, over the real binding: what is there, in order, and nothing is taken."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mqi_clients
import pytest
from ibm_rig import Rig, served

from gateway.mq import mqmd
from gateway.mq.headers import dlh, rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.ports.batch import Puts, Unit

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

from gateway.pipeline.decode.columns import COLUMNS, spark_schema
from gateway.pipeline.decode.row_decoder import RowDecoder
from gateway.pipeline.drain.ibm_queue import GotMessage
from gateway.pipeline.errors import QueueUnreachable, WrongOption
from gateway.pipeline.source.browse import chunk_of
from gateway.pipeline.source.source import MqQueueDataSource
from gateway.pipeline.source.tasks import without_nulls

pytestmark = [pytest.mark.mqi, pytest.mark.filterwarnings("default")]
HEADER = rfh2.build([folder("usr", {"site": "lima"})], format_name=b"MQSTR   ")


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    mqi_clients.load_bindings()
    (tmp_path / "pw").write_text("pw\n")
    with served(None, tmp_path / "mqi.sock"):
        made = Rig("ibmmq", str(tmp_path / "mqi.sock"))
        yield made
        made.close()
        gc.unfreeze()  # a reader exempts what there is from the collection of cycles


def options(tmp_path: Path, **more: str) -> dict[str, str]:
    there = {"connection": "localhost(1414)", "channel": "APP.SVRCONN", "user": "app", "queueManager": "QM1"}
    return {**there, "passwordFile": str(tmp_path / "pw"), "queue": "APP.Q", **more}


def read(given: dict[str, str]) -> list[dict[str, Any]]:
    source = MqQueueDataSource(given)
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_everything_is_shown_and_nothing_taken(rig: Rig, tmp_path: Path) -> None:
    head = mqmd.build(persistence=1, format=rfh2.FORMAT, encoding=546) + HEADER
    letter = dlh.build(2085, "ORDERS", "QM9", mqmd.build(format=b"MQSTR   "))
    puts = [Puts("APP.Q", heads=[head] * 50, bodies=[b"%d" % at for at in range(50)])]
    puts.append(
        Puts("OTHER.Q", heads=[mqmd.build(format=b"MQDEAD  ", persistence=1)], bodies=[letter + b"x" * 200_000])
    )
    assert not rig.commit(Unit(puts=puts)).failures
    for _ in range(2):
        rows = read(options(tmp_path, queue="APP.Q, OTHER.Q", arrowBatchSize="20"))
        assert [row["payload"] for row in rows[:50]] == [b"%d" % at for at in range(50)]
        assert [row["seq"] for row in rows[:50]] == list(range(50))
        assert {dict(row["properties"])["site"] for row in rows[:50]} == {"lima"}
        assert (rows[50]["dlq_reason"], rows[50]["dlq_dest_q"], len(rows[50]["payload"])) == (2085, "ORDERS", 200_000)
        assert len({row["msg_id"] for row in rows}) == 51
        assert all(row["put_ts"].year > 2000 for row in rows)
    assert rig.queue_manager.depth("APP.Q") == 50
    assert len(read(options(tmp_path, endingSeq="7"))) == 7


def test_a_message_that_does_not_say_when_it_was_put_has_no_time() -> None:
    said = {"put_date": "20261129", "put_time": "10000000"}
    given = ({}, said, said | {"put_date": "19691231"})
    chunk = chunk_of("APP.Q", [GotMessage(mqmd.build(**times), b"x") for times in given], 0)
    batch = RowDecoder("QM1", COLUMNS).batch(chunk)
    never_null = [field.name for field in spark_schema(COLUMNS, not_null=True).fields if not field.nullable]
    times = without_nulls(batch, never_null).column("put_ts").to_pylist()
    assert times == [None, *(datetime(*day, 10, tzinfo=UTC) for day in ((2026, 11, 29), (1969, 12, 31)))]


def test_what_browsing_cannot_do_is_refused(rig: Rig, tmp_path: Path) -> None:
    source = MqQueueDataSource(options(tmp_path))
    stream = source.streamReader(source.schema())
    with pytest.raises(WrongOption, match="pipeline drain"):
        stream.initialOffset()
    with pytest.raises(WrongOption, match="one by one"):
        read(options(tmp_path, queue="APP.*"))
    with pytest.raises(QueueUnreachable, match="2085"):
        read(options(tmp_path, queue="NO.SUCH"))
    (tmp_path / "pw").write_text("wrong\n")
    with pytest.raises(QueueUnreachable, match="2035"):
        read(options(tmp_path))
