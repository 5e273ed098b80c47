"""`mqgate import`: what it writes passes `mqgate check`, whatever it was made from."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from click.testing import CliRunner, Result

from gateway.cli.main import main

CONF = """\
listener 1883 127.0.0.1
allow_anonymous true
password_file passwd
acl_file acl
listener 8883
certfile server.pem
keyfile server.key
cafile ca.pem
require_certificate true
connection hq
address hq.example
topic sensors/# out
"""
CHANNELS = """\
AMQ8414I: Display Channel details.
   CHANNEL(PLAIN)                          CHLTYPE(MQTT)
   JAASCFG(Login)                          MCAUSER(mqtt)
   PORT(1883)                              PROTOCOL(MQTTV311,MQTTV3,HTTP)
AMQ8414I: Display Channel details.
   CHANNEL(TLS)                            CHLTYPE(MQTT)
   PORT(8883)                              SSLKEYR(/k.jks)
   SSLCAUTH(REQUIRED)                      USECLTID(YES)
"""
AMLEN: dict[str, Any] = {
    "Endpoint": {"E": {"Port": 16102, "TopicPolicies": "T", "ConnectionPolicies": "C", "SecurityProfile": "S"}},
    "SecurityProfile": {"S": {"TLSEnabled": False}},
    "ConnectionPolicy": {"C": {"ClientID": "*"}},
    "TopicPolicy": {"T": {"Topic": "iot/*", "ActionList": "Publish,Subscribe"}},
    "QueueManagerConnection": {"Q": {"QueueManagerName": "QM1", "ConnectionName": "mq", "ChannelName": "C"}},
    "DestinationMappingRule": {
        str(kind): {"QueueManagerConnection": "Q", "RuleType": kind, "Source": f"s/{kind}", "Destination": f"D.{kind}"}
        for kind in range(1, 15)
    },
}


def _run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def _checked(directory: Path) -> str:
    done = _run("check", directory / "mqgate.yaml", directory / "mappings" / "imported.yaml")
    assert done.exit_code == 0, done.output
    return done.output


def _mosquitto(directory: Path) -> Path:
    authority = Authority(directory)
    shutil.copy(authority.path, directory / "ca.pem")
    for made, name in zip(authority.issue("server one"), ("server.pem", "server.key"), strict=True):
        shutil.copy(made, directory / name)
    (directory / "passwd").write_text("alice:$7$101$c2FsdA==$aGFzaA==\n")
    (directory / "acl").write_text("user alice\ntopic a/#\n")
    file = directory / "mosquitto.conf"
    file.write_text(CONF)
    return file


def test_mosquitto_conf_is_recognized_and_passes_the_check(tmp_path: Path) -> None:
    done = _run("import", _mosquitto(tmp_path), "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "connection hq: no counterpart for a bridge to another broker" in done.output
    _checked(tmp_path / "out")
    assert stat.S_IMODE((tmp_path / "out" / "users").stat().st_mode) == 0o600
    assert (tmp_path / "out" / "objects.mqsc").read_text().startswith("DEFINE QLOCAL(BRIDGE.HQ) ")


def test_the_notes_are_in_a_file_too(tmp_path: Path) -> None:
    done = _run("import", _mosquitto(tmp_path), "-o", tmp_path / "out")
    notes = (tmp_path / "out" / "NOTES.txt").read_text().splitlines()
    assert notes
    assert all(note in done.output for note in notes)


@pytest.mark.parametrize("words", [(), ("mqxr",)])
def test_telemetry_channels_pass_the_check(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "channels.txt").write_text(CHANNELS)
    out = tmp_path / "out"
    assert _run("import", *words, tmp_path / "channels.txt", "-o", out).exit_code == 0
    authority = Authority(tmp_path)
    shutil.copy(authority.path, out / "TLS.ca.pem")
    for made, name in zip(authority.issue("server one"), ("TLS.pem", "TLS.key"), strict=True):
        shutil.copy(made, out / name)
    _checked(out)


@pytest.mark.parametrize("words", [(), ("amlen",)])
def test_amlen_passes_the_check(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "amlen.json").write_text(json.dumps(AMLEN))
    assert _run("import", *words, tmp_path / "amlen.json", "-o", tmp_path / "out").exit_code == 0
    _checked(tmp_path / "out")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    file = _mosquitto(tmp_path)
    assert _run("import", file, "-o", tmp_path / "out").exit_code == 0
    before = (tmp_path / "out" / "mqgate.yaml").read_text()
    again = _run("import", file, "-o", tmp_path / "out")
    assert again.exit_code == 1
    assert "already has mqgate.yaml" in again.output
    assert (tmp_path / "out" / "mqgate.yaml").read_text() == before


def test_wrong_use_and_missing_files_are_said(tmp_path: Path) -> None:
    assert _run("import", "mosquitto").exit_code == 2
    missing = _run("import", tmp_path / "nowhere.conf")
    assert missing.exit_code == 3
    assert "nowhere.conf cannot be read: No such file" in missing.output
    (tmp_path / "x.json").write_text('{"Endpoint":')
    wrong = _run("import", tmp_path / "x.json", "-o", tmp_path / "out")
    assert wrong.exit_code == 1
    assert "x.json:1:13: not JSON" in wrong.output


def test_standard_input_and_files_of_a_directory_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "B.conf").write_text("allow_anonymous true\n")
    (tmp_path / "conf.d" / "a.conf").write_text("listener 1999\nfrobnicate yes\n")
    monkeypatch.chdir(tmp_path)
    words = ["import", "mosquitto", "-", "-o", "out"]
    done = CliRunner().invoke(main, words, input="include_dir conf.d\n")
    assert done.exit_code == 0, done.output
    assert "conf.d/a.conf:2: frobnicate" in done.output
    _checked(tmp_path / "out")
