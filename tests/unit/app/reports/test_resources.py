"""Room on the disk and days of certificates, as they are read for metrics and page."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from certificates import Authority
from schedulers import ManualScheduler

from gateway.app.queue_managers.embedded import open_embedded
from gateway.app.reports.resources import certificate_ends, revocation_ends, room_of
from gateway.config.load import load_settings
from gateway.ports.counters import Counters


def settings(folder: Path, text: str) -> Path:
    path = folder / "mqgate.yaml"
    path.write_text(text)
    return path


def test_room_is_what_the_journal_takes_and_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "segment").write_bytes(b"x" * 5000)
    found = room_of(load_settings(settings(tmp_path, "queue_manager: {embedded: {path: data}}"), {}))
    assert found is not None
    assert found.used == 5000
    assert found.limit > found.used


@pytest.mark.parametrize("limit", ["6MiB"])
def test_a_limit_that_is_set_counts_if_the_disk_has_as_much(tmp_path: Path, limit: str) -> None:
    (tmp_path / "data").mkdir()
    text = f"queue_manager: {{embedded: {{path: data, max_bytes: {limit}, segment_bytes: 1MiB}}}}"
    found = room_of(load_settings(settings(tmp_path, text), {}))
    assert found is not None
    assert found.limit == 6 << 20


def test_nothing_is_said_where_nothing_is_kept(tmp_path: Path) -> None:
    text = "queue_manager: {ibm: {connection: mq(1414), channel: A}}"
    assert room_of(load_settings(settings(tmp_path, text), {})) is None
    missing = room_of(load_settings(settings(tmp_path, "queue_manager: {embedded: {path: not-there}}"), {}))
    assert missing is None


def test_a_certificate_that_cannot_be_read_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "server.pem").write_text("not a certificate")
    text = "listeners: [{name: tls, port: 8883, tls: {certificate: server.pem, key: server.key}}]"
    assert list(certificate_ends(load_settings(settings(tmp_path, text), {}))) == []


def test_a_revocation_list_says_when_the_next_is_due(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    crl = authority.revocation_list()
    text = (
        f"listeners: [{{name: a, port: 0, tls: {{certificate: {certificate}, key: {key}, client_ca: {authority.path}, "
        f"client_certificate: required, crl: {crl}}}}}, {{name: b, port: 1}}]"
    )
    ((name, end),) = revocation_ends(load_settings(settings(tmp_path, text), {}))
    assert name == "a"
    assert 4 < (end - time.time()) / 86_400 < 6
    crl.write_text("nothing")
    assert not list(revocation_ends(load_settings(settings(tmp_path, text), {})))


@pytest.mark.parametrize(("objects", "told"), [("", True), ("ALTER QMGR MAXMSGL(16777216)", False)])
def test_a_dead_letter_that_would_be_cut_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, objects: str, told: bool
) -> None:
    (tmp_path / "o.mqsc").write_text(objects)
    queue_manager = "queue_manager: {embedded: {path: data, objects: o.mqsc}}"
    found = load_settings(settings(tmp_path, f"{queue_manager}\nmqtt: {{max_packet: 16MiB}}"), {})
    open_embedded(found, tmp_path / "data", ManualScheduler(), Counters()).close()
    assert ("takes 4194304 bytes, `mqtt.max_packet` allows 16777216" in caplog.text) == told
