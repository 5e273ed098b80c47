"""Password files: what mosquitto_passwd writes is read, what is written can be read by it, wrong lines are findings."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from gateway.access.passwords import hash_password, read_password_file, verify, write_password_file
from gateway.errors import ConfigurationError


@pytest.mark.parametrize("pbkdf2", [False, True])
def test_a_hash_is_verified_and_nothing_else(pbkdf2: bool) -> None:
    stored = hash_password(b"s3cret", pbkdf2=pbkdf2, iterations=1000)
    assert verify(stored, b"s3cret")
    assert not verify(stored, b"s3cre")
    assert not verify(None, b"s3cret")


@pytest.mark.parametrize("stored", ["$7$x$y$z", "$7$0$AAAA$AAAA", "$6$only", "$argon2id$nonsense", "plain"])
def test_a_damaged_hash_lets_nobody_in(stored: str) -> None:
    assert not verify(stored, b"")


def test_what_is_written_is_read_and_private(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users = {"alice": hash_password(b"a", pbkdf2=True, iterations=1000), "bob": hash_password(b"b")}
    write_password_file(path, users)
    assert read_password_file(path) == users
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_wrong_line_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# comment\nalice:plaintext\n\n:x\n")
    with pytest.raises(ConfigurationError) as caught:
        read_password_file(path)
    assert [finding.line for finding in caught.value.findings] == [2, 4]


@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
def test_a_file_of_mosquitto_passwd_is_read(tmp_path: Path) -> None:
    path = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(path), "carol", "pw"], check=True, capture_output=True)
    assert verify(read_password_file(path)["carol"], b"pw")
