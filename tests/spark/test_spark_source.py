"""The data source found by Spark itself: batch, streaming, acknowledgement, damaged messages."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from device_fleet import SMALL, Fleet, descriptor, put, reading, write_journal
from spark_queries import ended

from gateway.mq import mqmd
from gateway.pipeline.decode.columns import MAY_BE_NULL
from gateway.pipeline.journal.owner import opened
from gateway.queue_manager.journal.store import Store


def load(spark: Any, path: Path, **options: str) -> Any:
    return spark.read.format("mqqueue").options(path=str(path), queue="TELEMETRY.*", **options).load()


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal")
    write_journal(path, 5000)
    return path


def test_every_message_once_with_its_columns(spark: Any, journal: Path) -> None:
    rows = load(spark, journal).orderBy("seq").collect()
    assert len(rows) == 5000
    assert len({row.msg_id for row in rows}) == 5000
    first, last = rows[0], rows[-1]
    assert first.topic == "plant/site0/dev0000/telemetry"
    assert (first.client_id, first.qos, first.persistence, first.queue) == ("dev0000", 1, 1, "TELEMETRY.A")
    assert first.properties == {"site": "site0", "line": "0"}
    assert bytes(last.payload) == reading(99, 49)
    assert abs(first.put_ts.timestamp() - time.time()) < 600
    assert first.header_error is None


def test_sql_using_mqqueue(spark: Any, journal: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW m USING mqqueue OPTIONS (path '{journal}', queue 'TELEMETRY.*')")
    assert spark.sql("SELECT count(DISTINCT client_id) FROM m").first()[0] == 100


def test_columns_and_tuples_say_the_same(spark: Any, journal: Path) -> None:
    names = "seq,topic,properties,payload"
    arrow = load(spark, journal, columns=names).orderBy("seq").limit(50).collect()
    rows = load(spark, journal, columns=names, transfer="rows").orderBy("seq").limit(50).collect()
    assert arrow == rows


def test_a_schema_may_say_that_a_column_is_never_null(spark: Any, journal: Path) -> None:
    reader = spark.read.format("mqqueue").options(path=str(journal), queue="TELEMETRY.*")
    declared = reader.schema("seq bigint NOT NULL, topic string NOT NULL, dlq_reason int").load()
    assert [field.nullable for field in declared.schema] == [False, False, True]
    assert declared.exceptAll(load(spark, journal, columns="seq,topic,dlq_reason")).count() == 0
    with pytest.raises(Exception, match="'dlq_reason' is null in some messages"):
        reader.schema("dlq_reason int NOT NULL").load().collect()
    told = load(spark, journal, notNull="true")
    assert {field.name for field in told.schema if field.nullable} == MAY_BE_NULL
    assert told.drop("properties").exceptAll(load(spark, journal).drop("properties")).count() == 0
    assert load(spark, journal, notNull="true", transfer="rows").orderBy("seq").first() == told.orderBy("seq").first()


def test_filters_are_taken_over(spark: Any, journal: Path) -> None:
    frame = load(spark, journal, pushdown="true").where("seq >= 101 AND seq < 301 AND client_id = 'dev0007'")
    assert frame.count() == 2


def test_a_time_range(spark: Any, journal: Path) -> None:
    assert load(spark, journal, startingTimestamp="2020-01-01T00:00:00Z").count() == 5000
    assert load(spark, journal, startingTimestamp="2099-01-01T00:00:00Z").count() == 0


def test_headers_that_differ_in_every_message(spark: Any, tmp_path: Path) -> None:
    write_journal(tmp_path, 1000, Fleet(varying=True))
    rows = load(spark, tmp_path).orderBy("seq").collect()
    assert [row.client_id for row in rows] == [f"dev{at % 100:04}" for at in range(1000)]
    assert rows[7].recv_ts.isoformat() == "2026-11-21T00:00:00.007000"
    assert rows[999].properties == {
        "site": f"site{99 % 7}",
        "line": f"{99 % 13}",
        "received": "2026-11-21T00:00:00.999Z",
    }
    assert bytes(rows[999].payload) == reading(99, 9)


def test_damaged_headers_are_rows_with_an_error(spark: Any, tmp_path: Path) -> None:
    fleet = Fleet()
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    heads, bodies = fleet.batch(100)
    heads[3], bodies[3] = descriptor(), b"RFH \x02\0\0\0\xff\xff\xff\x7f rest"
    heads[4], bodies[4] = descriptor(), b""
    heads[5], bodies[5] = mqmd.build(format=b"MQSTR   "), b"plain"
    put(store, "TELEMETRY.A", heads, bodies)
    store.close()
    rows = load(spark, tmp_path).orderBy("seq").collect()
    assert len(rows) == 100
    assert "StrucLength" in rows[3].header_error
    assert bytes(rows[3].payload) == bodies[3]
    assert rows[4].header_error
    assert (rows[5].format, bytes(rows[5].payload), rows[5].header_error) == ("MQSTR", b"plain", None)
    assert sum(row.header_error is None for row in rows) == 98


def test_an_unknown_option_is_refused(spark: Any, journal: Path) -> None:
    with pytest.raises(Exception, match="no option 'colums'"):
        load(spark, journal, colums="seq")


def stream(spark: Any, path: Path, work: Path, **options: str) -> Any:
    options = {"path": str(path), "queue": "TELEMETRY.*", "consumerGroup": "test", "purgeDelay": "0", **options}
    writer = spark.readStream.format("mqqueue").options(**options).load().writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(work / "checkpoint")).option("path", str(work / "out"))
    return writer.trigger(availableNow=True).start()


def landed(spark: Any, path: Path, work: Path, **options: str) -> Any:
    return ended(lambda: stream(spark, path, work, **options))


def test_a_stream_reads_all_and_depth_reaches_zero(spark: Any, tmp_path: Path) -> None:
    journal, work = tmp_path / "j", tmp_path / "w"
    fleet = write_journal(journal, 3000)
    query = landed(spark, journal, work, maxMessagesPerTrigger="1000")
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [1000, 1000, 1000]
    behind = [progress.sources[0] for progress in query.recentProgress if progress.numInputRows]
    told = [(json.loads(each.endOffset)["messages"], json.loads(each.latestOffset)["messages"]) for each in behind]
    assert told == [(1000, 3000), (2000, 3000), (3000, 3000)], "the backlog, as the query's progress has it"
    write_journal(journal, 500, fleet)
    landed(spark, journal, work)
    assert spark.read.parquet(str(work / "out")).selectExpr("count(*)", "count(DISTINCT seq)").first() == (3500, 3500)
    with opened(journal) as owner:
        group = owner.group("test")
        assert group is not None
        assert owner.lookup.count("TELEMETRY.*", group.cursor) == 0
        owner.clock = lambda: time.time() + 10
        owner.purge()
        assert owner.lookup.count("TELEMETRY.*", 0) == 0


def test_rows_written_to_a_queue_come_back(spark: Any, tmp_path: Path) -> None:
    write_journal(tmp_path, 100)
    rows = load(spark, tmp_path).selectExpr("payload", "properties", "topic")
    target = {"path": str(tmp_path), "queue": "REPLAY", "txn": "once"}
    for _ in range(2):  # a repeated batch adds nothing
        rows.write.format("mqqueue").options(**target).mode("append").save()
    back = spark.read.format("mqqueue").options(path=str(tmp_path), queue="REPLAY").load()
    assert back.count() == 100
    assert {row.topic for row in back.collect()} == {row.topic for row in rows.collect()}


def test_rows_staged_on_a_folder(spark: Any, tmp_path: Path) -> None:
    journal, staging = tmp_path / "j", tmp_path / "staging"
    write_journal(journal, 100)
    rows = load(spark, journal, columns="payload")
    target = {"path": str(journal), "queue": "STAGED", "staging": str(staging)}
    rows.write.format("mqqueue").options(**target).mode("append").save()
    assert spark.read.format("mqqueue").options(path=str(journal), queue="STAGED").load().count() == 100
    assert list(staging.iterdir()) == []


def test_tasks_write_the_rows_and_hand_over_files(spark: Any, journal: Path, tmp_path: Path) -> None:
    files = load(spark, journal, staging=str(tmp_path), columns="seq,client_id,payload").collect()
    assert sum(row.rows for row in files) == 5000
    assert {row.file: row.bytes for row in files} == {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    landed = spark.read.parquet(str(tmp_path))
    assert landed.exceptAll(load(spark, journal, columns="seq,client_id,payload")).count() == 0
    reader = spark.read.format("mqqueue").options(path=str(journal), queue="TELEMETRY.*", staging=str(tmp_path))
    with pytest.raises(Exception, match="leave the schema out"):
        reader.schema("seq bigint").load().collect()


def test_a_stream_begins_at_a_time_and_has_no_end(spark: Any, tmp_path: Path) -> None:
    journal = tmp_path / "j"
    fleet = write_journal(journal, 300)
    time.sleep(0.01)
    since = time.time()
    write_journal(journal, 200, fleet)
    landed(spark, journal, tmp_path / "w", startingTimestamp=f"{since:.6f}")
    assert spark.read.parquet(str(tmp_path / "w/out")).count() == 200
    from gateway.pipeline.decode.columns import COLUMNS, spark_schema
    from gateway.pipeline.errors import WrongOption
    from gateway.pipeline.source.options import Options
    from gateway.pipeline.source.source import QueueStreamReader

    with pytest.raises(WrongOption, match="a stream has no end"):
        QueueStreamReader(Options.read({"path": str(journal), "queue": "A", "endingSeq": "5"}), spark_schema(COLUMNS))


def test_messages_restored_byte_for_byte(spark: Any, tmp_path: Path) -> None:
    write_journal(tmp_path, 50)
    raw = load(spark, tmp_path, includeRaw="true").select("mqmd", "headers", "payload")
    raw.write.format("mqqueue").options(path=str(tmp_path), queue="REPLAY").mode("append").save()
    back = spark.read.format("mqqueue").options(path=str(tmp_path), queue="REPLAY", includeRaw="true").load()

    def whole(frame: Any) -> list[bytes]:
        rows = frame.select("mqmd", "headers", "payload").collect()
        return sorted(bytes(row.mqmd) + bytes(row.headers) + bytes(row.payload) for row in rows)

    assert whole(back) == whole(raw)


def test_a_second_driver_is_refused(spark: Any, tmp_path: Path) -> None:
    journal = tmp_path / "j"
    write_journal(journal, 10)
    from gateway.pipeline.journal.groups import ConsumerGroup

    with opened(journal) as owner:
        owner.acquire(ConsumerGroup("test", "TELEMETRY.*"), "elsewhere:1", 900.0)
    with pytest.raises(Exception, match="is read by elsewhere:1"):
        landed(spark, journal, tmp_path / "w")


def test_messages_taken_by_somebody_else_are_noticed(spark: Any, tmp_path: Path) -> None:
    from device_fleet import commit
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from gateway.pipeline.decode.columns import COLUMNS, spark_schema
    from gateway.pipeline.source.options import Options
    from gateway.pipeline.source.source import QueueStreamReader
    from gateway.queue_manager.store.unit import LaneTakes, StoreUnit

    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    tokens = put(store, "TELEMETRY.A", *Fleet().batch(100))
    store.close()
    reader = QueueStreamReader(Options.read({"path": str(tmp_path), "queue": "TELEMETRY.A"}), spark_schema(COLUMNS))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    commit(store, StoreUnit(takes=[LaneTakes("TELEMETRY.A", b"", tokens[:5])]))
    store.close()
    with pytest.raises(Exception, match="5 of 100 messages"):
        reader.partitions(start, end)


def test_a_logged_batch_that_lies_before_the_beginning_is_empty(spark: Any, tmp_path: Path) -> None:
    """The checkpoint kept its first offset and lost what came after; the job begins behind what it has landed."""
    from gateway.pipeline.decode.columns import COLUMNS, spark_schema
    from gateway.pipeline.source.options import Options
    from gateway.pipeline.source.source import QueueStreamReader

    write_journal(tmp_path, 300)
    given = {"path": str(tmp_path), "queue": "TELEMETRY.A", "startingSeq": "241"}
    reader = QueueStreamReader(Options.read(given), spark_schema(COLUMNS))
    start = reader.initialOffset()
    (empty,) = reader.partitions(start, {"messages": 100, "next": 101})
    assert list(reader.read(empty)) == []
