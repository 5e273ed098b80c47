"""Record batches: the fast ways give what decoding every message by itself gives."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from device_fleet import SMALL, Fleet, descriptor, put
from hypothesis import given, settings
from hypothesis import strategies as st
from long_form import LONG

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

import io

from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.pipeline.decode.columns import COLUMNS, MAY_BE_NULL, RAW_COLUMNS, select_columns
from gateway.pipeline.decode.heads import decode_head
from gateway.pipeline.decode.row_decoder import RowDecoder
from gateway.pipeline.errors import QueueUnreachable
from gateway.pipeline.journal.chunks import read_stream, stream_bytes
from gateway.pipeline.journal.puts import PutColumns, encode_part, read_parts, write_part
from gateway.pipeline.source.queue_access import JournalAccess
from gateway.queue_manager.journal.store import Store
from gateway.queue_manager.store.head_numbers import HeadNumbersInPython

ALL = (*COLUMNS, *RAW_COLUMNS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def chunks(path: Path, rows: int = 1000) -> list[Any]:
    access = JournalAccess(path)
    end = access.extent("*", 0, None)
    return [chunk for piece in access.pieces("*", 0, end.next, 1) for chunk in piece.chunks(rows)]


def decoded(path: Path, columns: Any = ALL, rows: int = 1000) -> list[dict[str, Any]]:
    decoder = RowDecoder("MQGATE", columns)
    return [row for chunk in chunks(path, rows) for row in checked(decoder.batch(chunk)).to_pylist()]


def checked(batch: Any) -> Any:
    batch.validate(full=True)
    assert {name for name in batch.schema.names if batch.column(name).null_count} <= MAY_BE_NULL
    return batch


def stored(path: Path, heads: list[bytes], bodies: list[bytes], **more: Any) -> None:
    store = Store.open(path, clock=time.time, options=SMALL)
    put(store, "Q", heads, bodies, **more)
    store.close()


def expect(rows: list[dict[str, Any]], heads: list[bytes], bodies: list[bytes]) -> None:
    assert len(rows) == len(heads)
    for row, head, body in zip(rows, heads, bodies, strict=True):
        data = head[364:] + body
        one = decode_head(head[:364], data)
        assert row["payload"] == data[one.body_at :]
        assert row["headers"] == data[: one.body_at]
        assert dict(row["properties"] or []) == dict(one.properties)
        for name in (
            "topic",
            "client_id",
            "qos",
            "retain",
            "format",
            "user_id",
            "header_error",
            "expiry",
            "dlq_reason",
        ):
            assert row[name] == one.values.get(name), name
        micros = one.values.get("recv_ts")
        assert row["recv_ts"] == (None if micros is None else EPOCH + timedelta(microseconds=micros))


@pytest.mark.parametrize("varying", [False, True])
def test_devices(tmp_path: Path, varying: bool) -> None:
    heads, bodies = Fleet(devices=17, varying=varying).batch(900)
    stored(tmp_path, heads, bodies)
    rows = decoded(tmp_path)
    expect(rows, heads, bodies)
    assert len({row["msg_id"] for row in rows}) == 900
    assert all((row["recv_ts"] is not None) == varying for row in rows)


def test_fast_and_slow_rows_mixed(tmp_path: Path) -> None:
    heads, bodies = Fleet(devices=9, varying=True).batch(600)
    plain_heads, plain_bodies = Fleet(devices=3).batch(30)
    heads[100:130], bodies[100:130] = plain_heads, plain_bodies
    heads[7], bodies[7] = mqmd.build(format=b"MQSTR   "), b"plain"
    heads[8], bodies[8] = descriptor(), b"RFH \x02\0\0\0\x10\0\0\0"
    bodies[9] = b"<>&" + bodies[9]
    stored(tmp_path, heads, bodies)
    expect(decoded(tmp_path), heads, bodies)


def received(values: list[str], extra: str = "") -> tuple[list[bytes], list[bytes]]:
    """Messages of two devices with these times of receipt, and `extra` in front of them in the usr folder."""
    heads, bodies = [], []
    for at, value in enumerate(values):
        usr = f"<usr>{extra}<site>lima</site><received>{value}</received><n dt='i4'>{at % 2}</n></usr>"
        usr += " " * (-len(usr) % 4)
        header = rfh2.build([usr, folder("mqps", [("Top", f"plant/dev{at % 2}")])], format_name=b"MQSTR   ")
        heads.append(descriptor() + header)
        bodies.append(b"%d" % at)
    return heads, bodies


@pytest.mark.parametrize(
    ("values", "extra"),
    [
        ([f"2026-11-21T00:00:{at % 60:02}.{at:03}Z" for at in range(400)], ""),
        ([str(1_790_000_000_000 + at) for at in range(400)], ""),
        ([str(1_790_000_000_000_000 + at) for at in range(400)], ""),
        ([str(1_790_000_000 + at) for at in range(400)], ""),
        ([str(10**20 - 1 - at) for at in range(400)], ""),  # beyond 64 bits
        ([str(10**18 - 1 - at) for at in range(400)], ""),  # beyond the year 9999
        ([f"9999-12-31T23:59:59.{at:03}-01:00" for at in range(400)], ""),
        (["9" * 20, str(1_790_000_000)], ""),
        ([f"no time at all {at:03}" for at in range(400)], ""),
        ([f"2026-11-21T00:00:00.{at:03}" for at in range(400)], ""),  # without a zone
        ([f"<b>{at:03}</b>" if at == 99 else f"..{at:03}....." for at in range(400)], ""),
        ([f"a&amp;{at:03}" if at % 50 == 0 else f"......{at:03}" for at in range(400)], ""),
        ([f"é{at:03}" for at in range(400)], ""),
        ([f"{at}" for at in range(400)], ""),
        ([f"{at:03}" for at in range(400)], "<received>000</received>"),  # the tag stands there twice
        ([f"{at:03}" for at in range(400)], "<x><received>000</received></x>"),
    ],
)
def test_values_that_differ_in_every_message(tmp_path: Path, values: list[str], extra: str) -> None:
    heads, bodies = received(values, extra)
    stored(tmp_path, heads, bodies)
    expect(decoded(tmp_path), heads, bodies)


def test_a_decoder_that_has_learnt_one_kind_meets_another(tmp_path: Path) -> None:
    decoder = RowDecoder("MQGATE", ALL)
    kinds = [Fleet(devices=3, varying=True).batch(400), received([f"{at:05}" for at in range(400)])]
    kinds.append(Fleet(devices=3, varying=True).batch(400))
    for number, (heads, bodies) in enumerate(kinds):
        stored(tmp_path / str(number), heads, bodies)
        rows = [row for chunk in chunks(tmp_path / str(number), 1000) for row in decoder.batch(chunk).to_pylist()]
        expect(rows, heads, bodies)


@settings(max_examples=250 if LONG else 8)
@given(st.data())
def test_damaged_messages_where_values_are_cut_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gateway.pipeline.decode.row_decoder.FEW_HEADS", 4)
        damaged_among_good(tmp_path_factory.mktemp("store"), data)


@settings(max_examples=250 if LONG else 8)
@given(st.data())
def test_damaged_messages_among_good_ones(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    damaged_among_good(tmp_path_factory.mktemp("store"), data)


@pytest.mark.parametrize("damage", [b"\x80", b"5"])
def test_a_damaged_value_in_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    """The second row is one of those that are looked at to find the values that differ: not UTF-8, or a far year."""
    monkeypatch.setattr("gateway.pipeline.decode.row_decoder.FEW_HEADS", 4)
    heads, bodies = Fleet(devices=4, varying=True).batch(80)
    at = heads[1].index(b"<received>") + len(b"<received>")
    heads[1] = heads[1][:at] + damage + heads[1][at + 1 :]
    stored(tmp_path, heads, bodies)
    expect(decoded(tmp_path), heads, bodies)


def damaged_among_good(path: Path, data: st.DataObject) -> None:
    heads, bodies = Fleet(devices=4, varying=data.draw(st.booleans())).batch(80)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, 79))
        whole = bytearray(heads[at] + bodies[at])
        whole[data.draw(st.integers(8, len(whole) - 1))] = data.draw(st.integers(0, 255))
        heads[at], bodies[at] = bytes(whole[: len(heads[at])]), bytes(whole[len(heads[at]) :])
    stored(path, heads, bodies)
    expect(decoded(path), heads, bodies)


def test_identifiers_and_times_of_rows_win_over_heads(tmp_path: Path) -> None:
    head = descriptor(correl_id=b"c" * 24, put_date="20200102", put_time="03040506")
    ids = [bytes([at]) * 24 if at % 2 else bytes(24) for at in range(6)]
    stored(tmp_path, [head[:364]] * 6, [b"x"] * 6, msg_ids=ids, correl_ids=ids)
    rows = decoded(tmp_path, select_columns("msg_id,correl_id,put_ts,seq"))
    assert [row["correl_id"] for row in rows] == [ids[at] if at % 2 else b"c" * 24 for at in range(6)]
    assert rows[1]["msg_id"] == ids[1]
    assert rows[2]["msg_id"] == b"AMQ MQGATE      " + rows[2]["seq"].to_bytes(8, "big")
    assert rows[0]["put_ts"].isoformat() == "2020-01-02T03:04:05.060000+00:00"


@pytest.mark.parametrize("date", ["00010101", "19691231", "99991231"])
def test_times_of_other_clocks(tmp_path: Path, date: str) -> None:
    """A program may say any time (MQPMO_SET_ALL_CONTEXT): it is not the time of the commit then."""
    head = mqmd.build(format=b"MQSTR   ", put_date=date, put_time="23595999")
    stored(tmp_path, [head, mqmd.build(format=b"MQSTR   ")], [b"x"] * 2)
    one, other = [row["put_ts"] for row in decoded(tmp_path, select_columns("put_ts,payload"))]
    assert one == datetime(int(date[:4]), int(date[4:6]), int(date[6:]), 23, 59, 59, 990_000, tzinfo=UTC)
    assert other > datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("qos", ["2", " 2 ", "3", "-1", "01", "300", ""])
@pytest.mark.parametrize("retain", ["1", " true ", "0", ""])
def test_what_other_programs_write_as_qos_and_retain(tmp_path: Path, qos: str, retain: str) -> None:
    heads = []
    for at in range(400):
        folders = [folder("mqps", [("Top", f"t/{at}"), ("Ret", retain)]), folder("mqtt", [("qos", qos)])]
        heads.append(descriptor() + rfh2.build(folders, format_name=b"MQSTR   "))
    stored(tmp_path, heads, [b"x"] * 400)
    rows = decoded(tmp_path)
    expect(rows, heads, [b"x"] * 400)
    assert {row["qos"] for row in rows} == {2 if qos.strip() == "2" else None}


def test_shared_bodies_and_small_chunks(tmp_path: Path) -> None:
    body = b"shared"
    stored(tmp_path, [mqmd.build(format=b"MQSTR   ")] * 25, [body] * 25)
    assert [row["payload"] for row in decoded(tmp_path, rows=4)] == [body] * 25


def test_the_stream_carries_everything(tmp_path: Path) -> None:
    heads, bodies = Fleet(devices=5).batch(50)
    stored(tmp_path, heads, bodies, correl_ids=[bytes([at + 1]) * 24 for at in range(50)])
    sent = b"".join(stream_bytes(chunks(tmp_path, 20)))
    decoder = RowDecoder("MQGATE", ALL)
    back = [row for chunk in read_stream(io.BytesIO(sent)) for row in decoder.batch(chunk).to_pylist()]
    assert back == decoded(tmp_path)


def test_a_stream_that_breaks_off_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    """Between two parts of it, too, where Arrow's reader takes it for its end."""
    stored(tmp_path, *Fleet(devices=5).batch(50))
    parts = list(stream_bytes(chunks(tmp_path, 20)))
    for sent in [*(b"".join(parts[:count]) for count in range(len(parts))), parts[0] + parts[1][:100]]:
        with pytest.raises(QueueUnreachable, match="broke off"):
            list(read_stream(io.BytesIO(sent)))


def test_rows_to_messages_and_back(tmp_path: Path) -> None:
    import pyarrow as pa

    columns = {
        "payload": [b"1", b"2", b"3"],
        "topic": ["a/b", "a/b", None],
        "properties": [[("site", "lima")], [("site", "lima")], []],
        "correl_id": [b"k", b"k", None],
        "ccsid": [500, 500, None],
        "encoding": [785, 785, None],
    }
    kinds = [pa.binary(), pa.string(), pa.map_(pa.string(), pa.string()), pa.binary(), pa.int32(), pa.int32()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, list(columns))
    template = {"persistence": 1, "priority": 3, "expiry": -1, "format": "MQSTR"}
    messages = read_parts([write_part([encode_part(batch, template)])])
    assert messages.heads[0] is messages.heads[1]
    stored(tmp_path, messages.heads, messages.bodies, priority=3)
    rows = decoded(tmp_path)
    assert [row["payload"] for row in rows] == columns["payload"]
    assert [row["topic"] for row in rows] == ["a/b", "a/b", None]
    assert rows[0]["properties"] == [("site", "lima")]
    assert (rows[0]["correl_id"], rows[0]["priority"]) == (b"k".ljust(24, b"\0"), 3)
    assert [(row["ccsid"], row["encoding"]) for row in rows] == [(500, 785), (500, 785), (1208, 546)]
    texts = batch.set_column(0, "payload", pa.array(["1", "2", "3"]))
    stored(tmp_path / "texts", *_messages(read_parts([write_part([encode_part(texts, template)])])))
    assert {(row["ccsid"], row["encoding"]) for row in decoded(tmp_path / "texts")} == {(1208, 546)}


def _messages(read: PutColumns) -> tuple[list[bytes], list[bytes]]:
    return read.heads, read.bodies


def test_small_chunks_of_a_large_fleet(tmp_path: Path) -> None:
    """Every head of a chunk is another one, and each is decoded once all the same."""
    fleet = Fleet(devices=1000)
    heads, bodies = fleet.batch(6000)
    stored(tmp_path, heads, bodies)
    decoder = RowDecoder("MQGATE", ALL)
    rows = [row for chunk in chunks(tmp_path, 600) for row in checked(decoder.batch(chunk)).to_pylist()]
    expect(rows, heads, bodies)
    assert len(decoder._table.plans) == 1000


def test_heads_that_all_differ_read_again(tmp_path: Path) -> None:
    """A second reader of the same rows is no fleet: nothing is decoded head by head."""
    stored(tmp_path, *Fleet(devices=50, varying=True).batch(6000))
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    fleet = Fleet(devices=50, varying=True)
    for number in range(1, 4):
        fleet.sent = number * 6000
        put(store, "Q", *fleet.batch(6000))
    store.close()
    decoder = RowDecoder("MQGATE", ALL)
    for _ in range(4):
        for chunk in chunks(tmp_path, 6000):
            decoder.batch(chunk)
    assert len(decoder._table.plans) < 200


def read_with_its_heads(decoder: RowDecoder, path: Path, rows: int) -> list[dict[str, Any]]:
    """As a task reads: the chunks are numbered by what the decoder knows."""
    access = JournalAccess(path)
    pieces = access.pieces("*", 0, access.extent("*", 0, None).next, 2)
    found = [
        checked(decoder.batch(chunk)).to_pylist() for piece in pieces for chunk in piece.chunks(rows, decoder.heads)
    ]
    return [row for batch in found for row in batch]


@pytest.mark.parametrize(("varying", "compiled"), [(False, True), (True, True), (True, False)])
def test_heads_are_known_from_task_to_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, varying: bool, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr("gateway.queue_manager.store.head_numbers._kind", HeadNumbersInPython)
    heads, bodies = Fleet(devices=700, varying=varying).batch(2100)
    stored(tmp_path, heads, bodies)
    decoder = RowDecoder("MQGATE", ALL)
    for rows in (700, 100, 2100):
        expect(read_with_its_heads(decoder, tmp_path, rows), heads, bodies)
    assert len(decoder._table.plans) <= 1400


@pytest.mark.parametrize("varying", [False, True])
def test_what_is_forgotten_is_met_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, varying: bool) -> None:
    monkeypatch.setattr("gateway.pipeline.decode.head_table.MOST_HEADS", 120)
    monkeypatch.setattr("gateway.pipeline.decode.head_table.MOST_DECODED", 60)
    monkeypatch.setattr("gateway.pipeline.decode.row_decoder.FEW_HEADS", 20)
    few, many = Fleet(devices=5).batch(200), Fleet(devices=150, varying=varying).batch(600)
    heads, bodies = few[0] + many[0] + few[0], few[1] + many[1] + few[1]
    stored(tmp_path, heads, bodies)
    decoder = RowDecoder("MQGATE", ALL)
    for rows in (50, 200, 1000):
        expect(read_with_its_heads(decoder, tmp_path, rows), heads, bodies)
        assert len(decoder.heads) <= 120 + 600


def test_chunks_read_ahead_of_the_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers mean nothing any more when the decoder has forgotten some heads meanwhile."""
    monkeypatch.setattr("gateway.pipeline.decode.head_table.MOST_HEADS", 10)
    heads, bodies = Fleet(devices=40).batch(400)
    stored(tmp_path, heads, bodies)
    decoder, access = RowDecoder("MQGATE", ALL), JournalAccess(tmp_path)
    pieces = access.pieces("*", 0, access.extent("*", 0, None).next, 1)
    ahead = [chunk for piece in pieces for chunk in piece.chunks(15, decoder.heads)]
    expect([row for chunk in ahead for row in decoder.batch(chunk).to_pylist()], heads, bodies)
