"""Root working on the data of a service that runs as a user of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.access.passwords import write_password_file
from gateway.cli.main import main

USER = 54321
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def mqgate(*words: object, text: str = "") -> None:
    done = CliRunner().invoke(main, [str(word) for word in words], input=text)
    assert done.exit_code == 0, done.output


def owners(directory: Path) -> set[int]:
    return {each.lstat().st_uid for each in (directory, *directory.rglob("*"))}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The files of the service, with a data directory that it has not made yet."""
    made = tmp_path / "home"
    made.mkdir()
    os.chown(made, USER, USER)
    return made


def test_what_root_makes_in_the_store_belongs_to_the_service(home: Path, tmp_path: Path) -> None:
    data = home / "data"
    mqgate("mqsc", "--data", data, text="DEFINE QLOCAL(A)")
    assert owners(home) == {USER}
    mqgate("queue", "put", "A", "hello", "--data", data)
    assert owners(home) == {USER}


def test_nothing_that_a_link_leads_to_is_given_away(home: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / "secret").write_text("x")
    data = home / "data"
    mqgate("mqsc", "--data", data, text="DEFINE QLOCAL(A)")
    (data / "folder").symlink_to(others)
    (data / "file").symlink_to(others / "secret")
    (data / "same").hardlink_to(others / "secret")
    mqgate("queue", "put", "A", "hello", "--data", data)
    assert owners(others) == {0}
    assert {each.name for each in data.iterdir() if each.lstat().st_uid == 0} == {"same"}


def test_what_root_restores_belongs_to_the_service(home: Path, tmp_path: Path) -> None:
    data = home / "data"
    mqgate("mqsc", "--data", data, text="DEFINE QLOCAL(A)")
    mqgate("backup", tmp_path / "backup", "--data", data)
    mqgate("journal", "salvage", tmp_path / "saved", "--data", data)
    mqgate("restore", tmp_path / "backup", "--data", data, "--replace")
    assert owners(home) == {USER}
    mqgate("journal", "restore", tmp_path / "saved", "--data", home / "other")
    assert owners(home) == {USER}
    assert owners(tmp_path / "backup") == {0}


def test_a_password_file_keeps_owner_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "users"
    write_password_file(path, {})
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (0, 0o600)
    os.chown(path, 0, USER)
    path.chmod(0o640)
    mqgate("passwd", path, "alice", "-b", "secret")
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, USER, 0o640)
