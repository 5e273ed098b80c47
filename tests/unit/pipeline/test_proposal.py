"""`mqgate pipeline init`: a job for what is on a queue that passes the check; errors of commands in one sentence."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from device_fleet import SMALL, Fleet, put, write_journal

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

from gateway.pipeline.commands import pipeline
from gateway.pipeline.drain.journal_server import serve
from gateway.pipeline.errors import LeaseHeld
from gateway.pipeline.jobs.job import Job, parse_job
from gateway.pipeline.jobs.proposal import MOST_COLUMNS, job_text, propose, text_kind
from gateway.pipeline.journal.owner import Owner
from gateway.pipeline.journal.service import PipelineService
from gateway.pipeline.sentences import first_cause, sentence
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.running_gateway import running_gateway
from gateway.queue_manager.journal.store import Store

JOB = "version: 1\nname: plant\nsource: {{queue: Q, {source}}}\nwarehouse: {warehouse}\n{more}"

TEXT = {"format": "MQSTR", "ccsid": 1208, "encoding": 546}


def asked(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(pipeline, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def proposed(payloads: list[bytes], **more: Any) -> Job:
    row = {"queue": "Q", "client_id": "dev1", "properties": {}, "dlq_reason": None} | TEXT | more
    found = propose([row | {"payload": payload} for payload in payloads])
    return parse_job("job.yaml", job_text(found, Options(queue="PLANT.*", path="x"), "./lake"))


def text_of_job(documents: list[dict[str, Any]]) -> str:
    row = {"queue": "Q", "client_id": "dev1", "properties": {}, "dlq_reason": None} | TEXT
    found = propose([row | {"payload": json.dumps(one).encode()} for one in documents])
    return job_text(found, Options(queue="PLANT.*", path="Änderung"), "./lake")


def columns_of(job: Job) -> dict[str, str]:
    return {column.name: f"{column.type} {column.unit}" for column in job.silver[0].columns}


def test_values_that_are_of_another_kind_than_most() -> None:
    """They are text, as nothing is lost so; which share would be a number is for the user to know."""
    rows = []
    for at in range(70):
        values = {
            "n": "off" if at % 7 == 0 else at,
            "on": "x" if at == 9 else True,
            "who": "x" if at % 3 else 1,
            "t": at,
        }
        values["ts"] = "soon" if at == 3 else 1_790_000_000_000 + at
        properties = {"line": "?" if at == 5 else "7", "nil": None}
        row = {"queue": "Q", "client_id": "d", "properties": properties, "dlq_reason": None} | TEXT
        rows.append(row | {"payload": json.dumps(values).encode()})
    text = job_text(propose(rows), Options(queue="PLANT.*", path="x"), "./lake")
    lines = {line.partition("name: ")[2].partition("}")[0]: line.partition("  # ")[2] for line in text.splitlines()}
    rest = "the other rows would be in quarantine"
    assert lines["n"] == f"60 of 70 values (86%) are bigint: with `type: bigint` {rest}"
    assert lines["on"] == f"69 of 70 values (99%) are boolean: with `type: boolean` {rest}"
    assert lines["ts"] == f"69 of 70 values (99%) are timestamp: with `type: timestamp, unit: ms` {rest}"
    assert lines["line, from: properties.line"] == f"69 of 70 values (99%) are bigint: with `type: bigint` {rest}"
    assert lines["who"] == lines["t, type: bigint"] == ""
    assert {column.type for column in parse_job("job.yaml", text).silver[0].columns} == {"string", "bigint"}


def test_a_job_for_a_fleet(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", 300, Fleet(devices=20))
    file = tmp_path / "job.yaml"
    assert "wrote" in asked("init", "TELEMETRY.*", "--path", tmp_path / "journal", "-o", file)
    assert "1 silver" in asked("check", file)
    job = parse_job("job.yaml", file.read_text())
    silver = job.silver[0]
    assert silver.decode == "json"
    assert (silver.key, silver.event_time) == (("device",), "ts")
    assert columns_of(job) | {"device": "string iso", "n": "bigint iso", "ts": "timestamp ms"} == columns_of(job)
    assert columns_of(job)["temperature"] == "double iso"
    assert [gold.kind for gold in job.gold] == ["last", "window", "gaps"]
    assert "is there already" in asked("init", "TELEMETRY.*", "--path", tmp_path / "journal", "-o", file, code=1)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2026-11-23T12:00:00.123Z", "2026-11-23T12:00:01.000+01:00"], "timestamp"),
        (["2026-11-23T12:00:00.123Z", "now"], "string"),
        (["12", "-7"], "bigint"),
        (["12", "1.5e3"], "double"),
        (["lima"], "string"),
    ],
)
def test_what_a_property_is(values: list[str], kind: str) -> None:
    """The time of receipt (`{received_at}`) was proposed as text."""
    assert text_kind(values) == kind


def test_a_gateway_that_runs_on_the_folder_keeps_the_cursors(tmp_path: Path) -> None:
    """Its address is proposed; a job without it is refused before Spark starts, with what to add."""
    folder, file = tmp_path / "journal", tmp_path / "job.yaml"
    write_journal(folder, 100, Fleet(devices=20))
    there = {"pid": os.getpid(), "admin": "http://127.0.0.1:1", "token_file": f"{folder}/admin.token"}
    (folder / "gateway.json").write_text(json.dumps(there))
    asked("init", "TELEMETRY.*", "--path", folder, "--warehouse", tmp_path / "lake", "-o", file)
    source = parse_job("job.yaml", file.read_text()).source
    assert source is not None
    assert (source.path, source.url, source.token_file) == (str(folder), there["admin"], there["token_file"])
    file.write_text(JOB.format(source=f"path: {folder}", warehouse=tmp_path / "lake", more=""))
    said = asked("run", file, "--once", code=3)
    assert f"add `url: http://127.0.0.1:1` and `token_file: {folder}/admin.token` to the job's source" in said
    (folder / "gateway.json").write_text(json.dumps(there | {"pid": 2**22 + 1}))  # no process has such a number
    assert running_gateway(folder) is None


def test_an_empty_queue(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", 1)
    said = asked("init", "NOTHING", "--path", tmp_path / "journal", "-o", tmp_path / "job.yaml", code=1)
    assert said.startswith("there is no persistent message on NOTHING, and others are not read: publish some at QoS 1")


def test_a_table_that_the_job_has_not(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.format(source=f"path: {tmp_path}", warehouse=tmp_path / "lake", more=""))
    assert "the job has no table 'reading': name one of bronze" in asked("files", file, "--table", "reading", code=1)
    assert asked("files", file, "--table", "bronze") == ""


def test_types_and_names() -> None:
    document = {
        "when": "2026-11-23T12:00:00Z", "ok": True, "seq": 7, "tempC": 21, "status": "warm", "list": [1, 2],
        "place": {"line": 3, "in": {"x": 1.5, "deep": {"er": 1}}}, "Straße 7": "x", "2nd": None,
    }  # fmt: skip
    texts = [json.dumps(document | {"tempC": value}).encode() for value in (21, 21.5)]
    job = proposed(texts, properties={"site": "lima", "line": "7"})
    assert columns_of(job) == {
        "when": "timestamp iso", "ok": "boolean iso", "payload_seq": "bigint iso", "temp_c": "double iso",
        "payload_status": "string iso", "line": "bigint iso", "x": "double iso", "c_2nd": "string iso",
        "stra_e_7": "string iso", "site": "string iso", "properties_line": "bigint iso",
    }  # fmt: skip
    paths = {column.name: column.path for column in job.silver[0].columns}
    assert (paths["line"], paths["properties_line"]) == ("payload.place.line", "properties.line")
    assert job.silver[0].key == ("client_id",)


def test_fields_that_one_table_cannot_read_together() -> None:
    """The proposal was refused by the job's own check, which named a file that was not there."""
    documents: list[dict[str, object]] = [{"v": 1, "Temp": 2.0, "at": {"x": 1}, "to": {"y": {"z": 1}}}] * 3
    documents += [{"v": {"o": 1}, "temp": 3.0, "at": 7, "AT": {"x": 1}, "to": None}, {"v": None, "to": 7}]
    job = proposed([json.dumps(one).encode() for one in documents])
    assert columns_of(job) == {"v": "string iso", "temp": "double iso", "x": "bigint iso", "z": "bigint iso"}
    paths = ["payload.v", "payload.Temp", "payload.at.x", "payload.to.y.z"]
    assert [column.path for column in job.silver[0].columns] == paths
    text = text_of_job([{"v": 1}, {"v": 2}, {"v": {"o": 1}}])
    assert "2 of 3 values (67%) are bigint: with `type: bigint` the other rows would be in quarantine" in text
    assert "# left out: payload.v.o: payload.v is a value in more messages" in text


@pytest.mark.parametrize(
    "mark", ["\n", "\r", "\t", "\0", "\x7f", "\x85", "\u2028", "\ufeff", "\ufffe", '"', "\\", " #", "é\U0001f600"]
)
def test_a_name_is_data_whatever_is_in_it(mark: str) -> None:
    """Devices choose the names of fields: what is behind an end of a line in one would be a part of the job."""
    name = f"a{mark}name: evil"
    for first, others in ((1, [{"N": 1}]), ([1], []), (1, [{name: {"x": 1}}]), (1, [{name.upper(): 1}])):
        job = parse_job("job.yaml", text_of_job([*[{name: first, "n": 1.5}] * 3, *others]))
        assert (job.name, job.warehouse) == ("plant", "./lake")
        paths = {column.path for column in job.silver[0].columns}
        assert paths == {"payload.n"} | ({f"payload.{name}"} if first == 1 else set())


@pytest.mark.parametrize("word", ["TRUE", "False", "null"])
def test_words_of_yaml_are_names_like_others(word: str) -> None:
    row = {"queue": "Q", "client_id": "dev1", "properties": {}, "dlq_reason": None} | TEXT
    found = propose([row | {"payload": json.dumps({word: 1}).encode()}])
    job = parse_job("job.yaml", job_text(found, Options(queue=word, path="x"), "./lake"))
    assert (job.inputs[0].source.queue, job.silver[0].columns[0].path) == (word, f"payload.{word}")


def test_a_name_that_is_no_text_is_left_out() -> None:
    text = text_of_job([{"a\ud800": 1, "b": {"\udc00": [1]}, "n": 1}])
    assert 'left out: "payload.a\\ud800": its name is no text' in text
    assert 'left out: "payload.b.\\udc00": its name is no text' in text
    assert columns_of(parse_job("job.yaml", text)) == {"n": "bigint iso"}


def test_a_document_whose_names_are_data() -> None:
    """Each was a column: 10,000 of them, of a single message among thousands."""
    text = text_of_job([{"v": 1}, {f"k{at}": at for at in range(10_000)} | {"v": 2, "a.b": 1, "list": []}])
    assert len(parse_job("job.yaml", text).silver[0].columns) == MOST_COLUMNS
    assert (
        "# left out: payload.a.b: a path has a name between dots\n# left out: payload.list: a list, and a column"
        in text
    )
    assert f"# left out: {10_003 - MOST_COLUMNS - 20:,} more\n" in text


@pytest.mark.parametrize(("ccsid", "encoding", "codec"), [(500, 785, "cp500"), (1200, 785, "utf-16-be")])
def test_text_is_read_in_its_character_set(ccsid: int, encoding: int, codec: str) -> None:
    payloads = ['{"room": "Küche", "n": 7}'.encode(codec)]
    job = proposed(payloads, ccsid=ccsid, encoding=encoding)
    assert (job.silver[0].decode, columns_of(job)) == ("json", {"room": "string iso", "n": "bigint iso"})


@pytest.mark.parametrize(
    ("payloads", "decode"), [([b"21.5", b"22"], "text"), ([b"\xff\xfe\x00"], "raw"), ([b"\xa1\x61t\x15"], "cbor")]
)
def test_other_payloads(payloads: list[bytes], decode: str) -> None:
    if decode == "cbor":
        pytest.importorskip("cbor2", reason="cbor2 is not installed: pip install '.[spark]'")
    assert proposed(payloads).silver[0].decode == decode


def test_dead_letters_alone() -> None:
    job = proposed([b"{}"], dlq_reason=2085)
    assert [gold.kind for gold in job.gold] == ["dead_letters"]


# ---- errors


def test_a_token_that_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "journal", clock=time.time, options=SMALL)
    put(store, "Q", *Fleet().batch(3))
    service = PipelineService(Owner(store), tmp_path / "journal")
    server = serve("127.0.0.1", 0, service.handle, "right", lambda: "", None)
    try:
        file, token = tmp_path / "job.yaml", tmp_path / "token"
        token.write_text("wrong\n")
        source = f'url: "http://127.0.0.1:{server.server_port}", token_file: {token}'
        file.write_text(JOB.format(source=source, warehouse="lake", more=""))
        for words in (("status", file), ("groups", "remove", file, "plant")):
            said = asked(*words, code=3)
            assert "refuses the token: give the gateway's admin token" in said
            assert said.count("\n") == 1
        assert "Traceback" in asked("status", file, "--verbose", code=3)
        token.unlink()
        assert asked("status", file, code=3).endswith("as `token_file`, and let this user read it\n")
    finally:
        server.shutdown()
        server.server_close()
        store.close()


def test_a_warehouse_that_refuses(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    (tmp_path / "lake").write_text("a file")
    write_journal(tmp_path / "x", 1, queue="Q")
    file.write_text(JOB.format(source="path: x", warehouse="lake/below", more=""))
    said = asked("run", file, "--once", code=3)
    assert "/lake/below cannot be written (Not a directory): correct `warehouse`" in said
    assert said.count("\n") == 1


def test_a_check_tells_where_no_journal_is(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.format(source="path: x", warehouse="lake", more=""))
    assert f"{tmp_path / 'x'} is not a folder" in asked("check", file)
    (tmp_path / "x").mkdir()
    assert f"{tmp_path / 'x'} has no journal in it" in asked("check", file)
    write_journal(tmp_path / "x", 1, Fleet(devices=1))
    assert "data folder" not in asked("check", file)


def test_a_catalog_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")
    file = tmp_path / "job.yaml"
    more = "format: iceberg\ncatalog: {uri: 'sqlite:///nowhere/x.db'}\n"
    file.write_text(JOB.format(source="path: x", warehouse="lake", more=more))
    write_journal(tmp_path / "x", 1, queue="Q")
    for words in (("check", file), ("run", file, "--once"), ("compact", file)):
        assert "correct `catalog.uri`" in asked(*words, code=3)


def test_every_command_can_say_more() -> None:
    for name, command in pipeline.commands.items():
        below = getattr(command, "commands", {name: command})
        for each in below.values():
            assert any("--verbose" in one.opts for one in each.params), each.name


QUERY = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed
Traceback (most recent call last):
  File "x.py", line 1, in latestOffset
gateway.pipeline.errors.WrongOption: consumer group 'a' reads 'Q', not 'R': choose another group name
  at org.apache.spark.Frame(Frame.scala:1)
"""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError(QUERY), "consumer group 'a' reads 'Q', not 'R': choose another group name"),
        (LeaseHeld("stop that driver"), "stop that driver"),
        (PermissionError(13, "Permission denied", "/lake"), "/lake: Permission denied: correct the path"),
        (
            ValueError("x\n[UNRESOLVED_COLUMN.WITH] A column `a`.\nat b"),
            "[UNRESOLVED_COLUMN.WITH] A column `a`: the same",
        ),
        (
            Exception(
                "[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An "
                "error occurred. Reason: Traceback:\n  File x\n[CAST_OVERFLOW] The value 1 is too large.\n at y"
            ),
            "[CAST_OVERFLOW] The value 1 is too large: the same",
        ),
        (KeyError("a"), "'a': the same command with --verbose says where"),
    ],
)
def test_sentences(error: Exception, says: str) -> None:
    assert sentence(error).startswith(says)
    assert "\n" not in sentence(error)


def test_the_cause_of_a_restart_is_a_text_of_ours() -> None:
    spark = "Job aborted.\n  at org.apache.X\ngateway.pipeline.errors.LeaseHeld: group 'g' is read by h:1\nFrame\n"
    assert first_cause(spark) == "group 'g' is read by h:1"
    assert first_cause("java.io.IOException: no room\n at x") == "java.io.IOException: no room"


def test_a_machine_that_is_too_busy_for_a_process_of_sparks_is_said() -> None:
    error = RuntimeError("[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back.")
    for text in (sentence(error), first_cause(str(error))):
        assert text.startswith("no Python process of Spark's has started within its ten seconds")
        assert text.endswith(
            "begin when less runs on it, or give the job a larger share with `nice: 0` where it has not got that"
        )
