"""Password files: what mosquitto_passwd writes is read, it can read what is written here, and wrong lines are
findings."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from gateway.access import passwords
from gateway.access.passwords import Hashes, hash_password, read_password_file, verify, write_password_file
from gateway.errors import ConfigurationError


@pytest.mark.parametrize("pbkdf2", [False, True])
def test_a_hash_is_verified_and_nothing_else(pbkdf2: bool) -> None:
    stored = hash_password(b"s3cret", pbkdf2=pbkdf2, iterations=1000)
    assert verify(stored, b"s3cret")
    assert not verify(stored, b"s3cre")


@pytest.mark.parametrize("pbkdf2", [False, True])
def test_an_empty_password_lets_nobody_in(pbkdf2: bool) -> None:
    assert not verify(hash_password(b"", pbkdf2=pbkdf2, iterations=1000), b"")


@pytest.mark.parametrize("stored", ["$7$x$y$z", "$7$0$AAAA$AAAA", "$6$only", "$argon2id$nonsense", "plain"])
def test_a_damaged_hash_lets_nobody_in(stored: str) -> None:
    assert not verify(stored, b"")


def test_what_is_written_is_read_and_private(tmp_path: Path) -> None:
    path = tmp_path / "users"
    users = {"alice": hash_password(b"a", pbkdf2=True, iterations=1000), "bob": hash_password(b"b")}
    write_password_file(path, users)
    assert read_password_file(path).users == users
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_wrong_line_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# comment\nalice:plaintext\n\n:x\n")
    with pytest.raises(ConfigurationError) as caught:
        read_password_file(path)
    assert [finding.line for finding in caught.value.findings] == [2, 4]


@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
def test_a_byte_order_mark_is_not_part_of_a_name(tmp_path: Path) -> None:
    stored = hash_password(b"secret")
    (tmp_path / "users").write_text(f"alice:{stored}\n", encoding="utf-8-sig")
    assert read_password_file(tmp_path / "users").users == {"alice": stored}


def test_a_file_of_mosquitto_passwd_is_read(tmp_path: Path) -> None:
    path = tmp_path / "users"
    subprocess.run(["mosquitto_passwd", "-b", "-c", str(path), "carol", "pw"], check=True, capture_output=True)
    assert verify(read_password_file(path).users["carol"], b"pw")


def test_an_unknown_user_costs_what_a_known_one_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same work with the same parameters is done for any user."""
    cheap = {f"m{number}": hash_password(b"x", pbkdf2=True, iterations=101) for number in range(3)}
    dear = {"a": PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(b"x")}
    asked: list[str] = []
    monkeypatch.setattr(
        passwords, "_verify_argon", lambda stored, _password: bool(asked.append(stored.rsplit("$", 2)[0]))
    )
    monkeypatch.setattr(passwords, "_verify_pbkdf2", lambda stored, _password: bool(asked.append(stored.split("$")[2])))

    def work(hashes: Hashes, user: str) -> str:
        asked.clear()
        assert not hashes.verify(user, b"wrong")
        (one,) = asked
        return one

    only_cheap = Hashes(cheap, b"s" * 32)
    assert {work(only_cheap, user) for user in ("m0", "nobody", "", "somebody")} == {"101"}
    both = Hashes(cheap | dear, b"s" * 32)
    of_strangers = {name: work(both, name) for name in (f"stranger-{number}" for number in range(100))}
    assert set(of_strangers.values()) == {work(both, "m0"), work(both, "a")}, "as users differ, so do strangers"
    assert of_strangers == {name: work(both, name) for name in of_strangers}, "and each stays what he is"


def test_without_hashes_there_is_nothing_to_hide() -> None:
    assert not Hashes({}, b"s" * 32)
    assert not Hashes({}, b"s" * 32).verify("nobody", b"x")


@pytest.mark.parametrize("stored", ["$argon2id$nonsense", "$argon2id$v=19$m=1,t=0,p=1$AAAA$AAAA", "$7$", "$6$x"])
def test_a_damaged_hash_keeps_nobody_else_from_logging_in(stored: str) -> None:
    hashes = Hashes({"broken": stored, "alice": hash_password(b"pw", pbkdf2=True, iterations=10)}, b"s" * 32)
    assert hashes.verify("alice", b"pw")
    assert not any(hashes.verify(f"stranger-{number}", b"pw") for number in range(10))


def test_a_file_without_users_says_so(tmp_path: Path) -> None:
    """Such a file can be told from one that was emptied."""
    path = tmp_path / "users"
    write_password_file(path, {})
    assert read_password_file(path)[1:] == ({}, False)
    path.write_text(" \n")
    assert read_password_file(path)[1:] == ({}, True)
