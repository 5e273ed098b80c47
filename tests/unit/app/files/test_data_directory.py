"""What the process keeps in its directory: private, the same after a restart, and no reason not to start."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest

from gateway.app.files.data_directory import own_secret, own_token, patiently, write_address
from gateway.app.files.directories import data_directory
from gateway.config.load import load_settings
from gateway.errors import ConfigurationError, StoreInUse
from gateway.queue_manager.journal.lock import DirectoryLock


def test_the_secret_of_salts_is_kept_and_private(tmp_path: Path) -> None:
    first = own_secret(tmp_path)
    assert len(first) == 32
    assert own_secret(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "salt.secret").stat().st_mode) == 0o600


def test_one_that_cannot_be_kept_or_read_is_replaced_for_this_time(tmp_path: Path) -> None:
    assert len(own_secret(tmp_path / "missing")) == 32
    (tmp_path / "salt.secret").write_bytes(b"short")
    mended = own_secret(tmp_path)
    assert len(mended) == 32
    assert own_secret(tmp_path) == mended


def test_an_address_of_other_bytes_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "gateway.json").write_bytes(b'{"pid": 1, "admin": "\xff"}')
    assert write_address(tmp_path, load_settings(None, {}), 9160)
    assert '"http://127.0.0.1:9160"' in (tmp_path / "gateway.json").read_text()


def test_a_token_that_cannot_be_read_is_said_and_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "admin.token"
    file.write_bytes(b"abc\xff\n")
    with pytest.raises(ConfigurationError, match=r"admin.token: cannot be read: .*: remove it"):
        own_token(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigurationError, match="Is a directory: remove it"):
        own_token(tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log: {format: json}", "mqgate-data"),
        ("queue_manager: {embedded: {name: QM}}", "mqgate-data"),
        ("queue_manager: {ibm: {name: QM, connection: 'mq(1414)', channel: C}}", "mqgate-data"),
        (
            "queue_manager: {ibm: {connection: 'mq(1414)', channel: C}, buffer: {max_bytes: 1GiB}}",
            "mqgate-buffer",
        ),
        ("queue_manager: {embedded: {path: ./mqgate-data}}", "etc/mqgate-data"),
    ],
)
def test_what_the_file_does_not_write_is_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "mqgate.yaml").write_text(f"{text}\n")
    assert data_directory(load_settings("etc/mqgate.yaml")) == Path(expected)


def test_a_store_that_an_earlier_release_made_beside_the_file_is_used_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc" / "mqgate-data").mkdir(parents=True)
    (tmp_path / "etc" / "mqgate.yaml").write_text("queue_manager: {embedded: {name: QM}}\n")
    settings = load_settings("etc/mqgate.yaml")
    assert data_directory(settings) == Path("etc/mqgate-data")
    (tmp_path / "mqgate-data").mkdir()
    assert data_directory(settings) == Path("mqgate-data")


def test_an_address_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = load_settings(None)
    (tmp_path / "gateway.new").mkdir()
    assert [write_address(tmp_path, settings, 9160, again=again) for again in (False, True)] == [False, False]
    assert caplog.text.count("commands may not find this gateway") == 1
    (tmp_path / "gateway.new").rmdir()
    assert write_address(tmp_path, settings, 9160, again=True)


def test_a_store_that_a_command_has_open_is_waited_for(tmp_path: Path) -> None:
    command = DirectoryLock(tmp_path)
    ending = threading.Timer(0.3, command.release)
    ending.start()
    patiently(lambda: DirectoryLock(tmp_path), 60.0).release()
    ending.join()


def test_one_that_a_gateway_has_open_is_not_waited_for_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = DirectoryLock(tmp_path)
    with caplog.at_level("WARNING"), pytest.raises(StoreInUse, match="has this store open"):
        patiently(lambda: DirectoryLock(tmp_path), 0.25)
    said = [record.getMessage() for record in caplog.records if "waiting for it" in record.getMessage()]
    assert [one for one in said if "stop it" not in one]  # it may be a command that ends by itself
    gateway.release()
