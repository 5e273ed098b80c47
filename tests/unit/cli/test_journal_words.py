"""gateway.cli.journal: its output, and that it leaves alone what is not a journal of the gateway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import main
from gateway.cli.reach import LocalClock
from gateway.errors import StoreError
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.restoring import OBJECT_STATE, Restoration

IBM = "queue_manager: {ibm: {name: QM1, connection: 'localhost(1414)', channel: MQGATE}}\n"


@pytest.mark.parametrize("command", [["check"], ["dump"], ["salvage", "out"], ["restore", "out"]])
def test_settings_that_name_ibm_mq_are_refused(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("out").write_text("")
    Path("ibm.yaml").write_text(IBM)
    result = CliRunner().invoke(main, ["journal", *command, "-c", "ibm.yaml"])
    assert result.exit_code == 3
    assert "the settings name IBM MQ (QM1)" in result.output
    assert not Path("mqgate-data").exists(), "no store is made"


def test_what_was_salvaged_is_not_lost_to_an_attempt_that_comes_to_nothing(tmp_path: Path) -> None:
    """This happens if the damaged directory has been moved away already."""
    data, saved = str(tmp_path / "data"), tmp_path / "saved.jsonl"
    run = CliRunner()
    assert run.invoke(main, ["mqsc", "--data", data], input="DEFINE QLOCAL(A)").exit_code == 0
    assert run.invoke(main, ["queue", "put", "A", "kept", "--data", data]).exit_code == 0
    assert run.invoke(main, ["journal", "salvage", str(saved), "--data", data]).exit_code == 0
    whole = saved.read_text()
    assert '"queue": "A"' in whole
    Path(data).rename(tmp_path / "moved")
    assert run.invoke(main, ["journal", "salvage", str(saved), "--data", data]).exit_code == 3
    assert saved.read_text() == whole
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".partial")] == []


def test_a_command_makes_a_store_as_large_as_the_settings_say(tmp_path: Path) -> None:
    """After `journal restore`, or `mqsc` before the first start, the gateway found the store full."""
    settings, saved = tmp_path / "settings.yaml", tmp_path / "saved.jsonl"
    settings.write_text("queue_manager: {embedded: {path: data, max_bytes: 24MiB, segment_bytes: 1MiB}}\n")
    run, there = CliRunner(), ["-c", str(settings)]
    assert run.invoke(main, ["mqsc", *there], input="DEFINE QLOCAL(A)").exit_code == 0
    assert run.invoke(main, ["queue", "put", "A", "kept", *there]).exit_code == 0
    assert run.invoke(main, ["journal", "salvage", str(saved), *there]).exit_code == 0
    made = {file.stat().st_size for file in (tmp_path / "data").glob("*.segment")}
    (tmp_path / "data").rename(tmp_path / "damaged")
    assert run.invoke(main, ["journal", "restore", str(saved), *there]).exit_code == 0
    restored = {file.stat().st_size for file in (tmp_path / "data").glob("*.segment")}
    assert made == restored == {1 << 20}


def test_flags_of_frames_have_names(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    assert CliRunner().invoke(main, ["mqsc", "--data", data], input="DEFINE QLOCAL(A)").exit_code == 0
    shown = CliRunner().invoke(main, ["journal", "dump", "--data", data])
    assert shown.exit_code == 0
    assert "FrameFlag" not in shown.output
    assert shown.output.splitlines()[-1].endswith("  close")
    lines = CliRunner().invoke(main, ["journal", "dump", "--data", data, "--json"]).output.splitlines()
    assert json.loads(lines[-1])["flags"] == ["close"]
    assert json.loads(lines[0])["flags"] == []


def test_doctor_looks_whether_the_store_is_whole(tmp_path: Path) -> None:
    data, settings = tmp_path / "data", tmp_path / "settings.yaml"
    settings.write_text(f"queue_manager: {{embedded: {{path: {data}}}}}\n")
    run = CliRunner()
    for name in "AB":
        assert run.invoke(main, ["mqsc", "-c", str(settings)], input=f"DEFINE QLOCAL({name})").exit_code == 0
    assert store_of(run, settings) == ("ok", "whole, 0 messages")
    segment, at = next(
        (file, file.read_bytes().find(b"QLOCAL")) for file in data.glob("*.segment") if b"QLOCAL" in file.read_bytes()
    )
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(b"XYZ")
    state, text = store_of(run, settings)
    assert state == "wrong"
    assert f"{segment}, byte " in text
    assert "docs/runbooks/damaged-frame.md" in text


def store_of(run: CliRunner, settings: Path) -> tuple[str, str]:
    """Returns what doctor says about the store."""
    found = json.loads(run.invoke(main, ["doctor", "--json", "-c", str(settings)]).output)
    return next((one["state"], one["text"]) for one in found if one["what"] == "store")


MESSAGE = {
    "queue": "A", "key": "", "priority": 0, "put_time": 1, "expiry": 0, "msg_id": "00" * 24,
    "head": "4d" * 364, "body": "",
}  # fmt: skip
RECORD = {"state": "00", "value": "00"}


@pytest.mark.parametrize("line", [
    *(MESSAGE | {name: wrong} for name in MESSAGE for wrong in (None, 1.5, [], "zz", -1, 1 << 64)
      if (name, wrong) != ("queue", "zz")),
    *({key: value for key, value in MESSAGE.items() if key != name} for name in MESSAGE),
    *(RECORD | {name: wrong} for name in RECORD for wrong in (None, 5, "x")), {"state": "00"}, 5, None, "x", [],
    MESSAGE | {"priority": 10}, MESSAGE | {"msg_id": "00"}, MESSAGE | {"head": "00"},
])  # fmt: skip
def test_a_damaged_line_restores_nothing_and_is_named(tmp_path: Path, line: object) -> None:
    saved = tmp_path / "saved.jsonl"
    saved.write_text(json.dumps(MESSAGE) + "\n" + json.dumps(line) + "\n")
    core = EmbeddedQueueManager.open(None, "QM1", LocalClock(), "DEFINE QLOCAL(A)").core
    with pytest.raises(StoreError, match=r"before byte .*: not a line of `mqgate journal salvage`"):
        Restoration(core, saved, lambda _name: None).run()
    assert core.depth(core.queues["A"]) == 0


def test_a_damaged_definition_restores_nothing_and_is_named(tmp_path: Path) -> None:
    saved = tmp_path / "saved.jsonl"
    saved.write_text(json.dumps({"state": (OBJECT_STATE + b"x").hex(), "value": "00"}) + "\n")
    core = EmbeddedQueueManager.open(None, "QM1", LocalClock()).core
    with pytest.raises(StoreError, match=r"nothing was restored: the record .* is no definition"):
        Restoration(core, saved, lambda _name: None).run()
