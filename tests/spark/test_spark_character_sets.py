"""Text in the character sets of hosts, put by a program through the MQI, in the tables and on the topics of rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mqi_clients
import pytest
from ibm_rig import Rig, served

from gateway.bridge.outbound import publication
from gateway.mq import mqmd
from gateway.mq.character_sets.ccsid import target_codec
from gateway.mq.headers import chain
from gateway.pipeline.jobs.job import parse_job
from gateway.rules.parse import parse_mappings

pytestmark = pytest.mark.mqi
BIG, LITTLE, PACKED = 785, 546, 0x221
"""Encodings; the last has integers that are big-endian beside decimals and floats that are not."""
JOB = """
version: 1
name: hosts
source: {{queue: "*.Q", path: {folder}/j, purge_delay: 0s}}
warehouse: {folder}/lake
format: delta
trigger: 0s
silver:
  - table: readings
    when: queue = 'APP.Q'
    columns: [{{name: room, required: true}}, {{name: n, type: int}}]
  - table: texts
    when: queue = 'OTHER.Q'
    decode: text
    ccsid: 37
    columns: [{{name: text, required: true}}]
"""
RULE = "to_mqtt: [{{name: r, queue: Q, topic: 'rooms/{{json.room}}'{convert}}}]\n"
CHAINS: list[tuple[str, ...]] = [
    (), ("MQRFH2",), ("MQDLH",), ("MQXQH",), ("MQCIH",), ("MQIIH",), ("MQDLH", "MQXQH", "MQRFH2"),
]  # fmt: skip
ROOMS = {
    37: "Größe", 500: "Größe [1]", 1047: "Größe [1]", 1140: "10 €", 1141: "Größe €", 939: "部屋", 943: "部屋",
    1200: "Größe 部屋", 1202: "部屋", 1208: "部屋", 1252: "10 €", 819: "Größe",
}  # fmt: skip


class Put(NamedTuple):
    """A message, and what becomes of it."""

    md: bytes
    data: bytes
    payload: bytes
    room: str
    error: str | None = None


def text(room: str, ccsid: int, encoding: int, *names: str, form: bytes = b"MQSTR   ", json_text: str = "") -> Put:
    """A message with these headers in front."""
    payload = (json_text or json.dumps({"room": room, "n": 7}, ensure_ascii=False)).encode(
        target_codec(ccsid, encoding)
    )
    md = mqmd.build(format=form, coded_char_set_id=ccsid, encoding=encoding, persistence=1)
    data = payload
    for name in reversed(names):
        md, data = chain.prepend(md, data, name)
    return Put(md, data, payload, room)


def readings() -> Iterator[Put]:
    for at, (ccsid, room) in enumerate(ROOMS.items()):
        for encoding in (BIG, LITTLE, PACKED):
            yield text(room, ccsid, encoding, *CHAINS[(3 * at + encoding) % len(CHAINS)])
    for names in CHAINS:
        yield text("Größe", 500, BIG, *names)
        yield text("Größe", 1200, LITTLE, *names)
    yield text("x", 500, BIG, json_text="{}")._replace(error="missing:room")
    yield text("x", 500, BIG, json_text="{oops")._replace(error="not_json")
    cut = text("x", 1200, BIG)
    yield cut._replace(
        data=cut.data[:-1],
        payload=cut.payload[:-1],
        error=f"decode: MQRC 2119: byte {len(cut.data) - 2} is not a character of utf-16-be: truncated data",
    )
    md = mqmd.build(format=b"MQSTR   ", coded_char_set_id=60000, persistence=1)
    unknown = "decode: MQRC 2111: CCSID 60000 of the message is not known here"
    yield Put(md, b"{}", b"{}", "x", unknown)
    yield text("Größe", 500, BIG, form=b"OWNKIND ")._replace(error="not_json")


def put(puts: dict[str, list[Put]]) -> None:
    """As a program does that fills in an MQMD and calls MQPUT."""
    import ibmmq

    manager = ibmmq.connect("QM1", "DEV.APP.SVRCONN", "localhost(1414)", user="app", password="pw")
    for name, messages in puts.items():
        queue = ibmmq.Queue(manager, name)
        for at, message in enumerate(messages):
            md, said = ibmmq.MD(), chain.described_by(message.md)
            md.Version, md.Persistence = 2, 1
            md.Encoding, md.CodedCharSetId, md.Format = said.encoding, said.ccsid, said.format
            md.GroupId, md.MsgSeqNumber = b"g".ljust(24, b"\0"), at + 1
            md.MsgFlags = ibmmq.CMQC.MQMF_MSG_IN_GROUP
            queue.put(message.data, md)
        queue.close()
    manager.disconnect()


def test_text_in_the_character_sets_of_hosts(spark: Any, tmp_path: Path) -> None:
    from gateway.pipeline.jobs.run import JobRun

    mqi_clients.load_bindings()
    messages = list(readings())
    texts = [
        text("", 1200, BIG, json_text="tank full"),
        text("", 37, BIG, json_text="tank full\x85now", form=b"        "),
        text("", 939, BIG, "MQDLH", json_text="部屋 A"),
    ]
    with served(tmp_path / "j", tmp_path / "mqi.sock"):
        rig = Rig("ibmmq", str(tmp_path / "mqi.sock"))
        put({"APP.Q": messages, "OTHER.Q": texts})
        rig.close()
    job = parse_job("job.yaml", JOB.format(folder=tmp_path))
    assert JobRun(spark, job).run(once=True).state == "done"

    bronze = spark.read.parquet(str(tmp_path / "lake/bronze")).orderBy("seq").collect()
    assert [bytes(row.payload) for row in bronze] == [each.payload for each in (*messages, *texts)]
    rows = spark.read.parquet(str(tmp_path / "lake/readings")).orderBy("seq").collect()
    assert [(row.error, row.room if row.status == "ok" else "") for row in rows] == [
        (each.error, "" if each.error else each.room) for each in messages
    ]
    assert all(bytes(row.payload) == each.payload for row, each in zip(rows, messages, strict=True) if each.error)
    rows = spark.read.parquet(str(tmp_path / "lake/texts")).orderBy("seq").collect()
    assert [row.text for row in rows] == ["tank full", "tank full\nnow", "部屋 A"]
    for each in messages:
        if each.error is None:
            rule = parse_mappings([("m", RULE.format(convert=""))]).to_mqtt[0]
            made = publication(rule, each.md, each.data)
            assert (made.topic, made.payload) == (f"rooms/{each.room}", each.payload)
            rule = parse_mappings([("m", RULE.format(convert=", convert: 1208"))]).to_mqtt[0]
            made = publication(rule, each.md, each.data)
            assert (made.topic, json.loads(made.payload)["room"]) == (f"rooms/{each.room}", each.room)
