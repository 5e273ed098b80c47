"""`mqgate init`, `mqgate import` and `mqgate passwd`: no room for what they write, and no password given."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config.load import load_settings


def run(limit: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with files that cannot grow beyond `limit` bytes: a write fails as on a full disk."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments], check=False, capture_output=True, text=True,
        input="secret\nsecret\n",
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},  # half a module of bytecode would be there for good
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)),
    )  # fmt: skip


@pytest.mark.parametrize("limit", [10, 3000])
def test_a_configuration_that_found_no_room_is_made_by_the_next_attempt(tmp_path: Path, limit: int) -> None:
    where = tmp_path / "configuration"
    failed = run(limit, "init", str(where))
    assert failed.returncode != 0
    assert f"{where}/" in failed.stderr
    assert "File too large" in failed.stderr
    assert [path for path in where.rglob("*") if path.is_file()] == []
    assert run(resource.RLIM_INFINITY, "init", str(where)).returncode == 0
    assert (where / "mqgate.yaml").stat().st_size > 0


@pytest.mark.parametrize("given", [False, True])
def test_the_directory_of_the_journal_is_written_only_where_it_is_given(tmp_path: Path, given: bool) -> None:
    where, data = tmp_path / "configuration", str(tmp_path / "here")
    assert run(resource.RLIM_INFINITY, "init", str(where), *(("--data", data) if given else ())).returncode == 0
    embedded = load_settings(str(where / "mqgate.yaml"), {}).queue_manager.embedded
    assert embedded is not None
    assert embedded.path == (data if given else "./mqgate-data")


@pytest.mark.parametrize("limit", [10, 150])
def test_what_is_imported_and_found_no_room_is_made_by_the_next_attempt(tmp_path: Path, limit: int) -> None:
    where, other = tmp_path / "imported", tmp_path / "mosquitto.conf"
    other.write_text("listener 1883\nallow_anonymous true\n")
    command = ("import", "mosquitto", str(other), "-o", str(where))
    failed = run(limit, *command)
    assert failed.returncode == 3
    assert f"{where} cannot be written: File too large" in failed.stderr
    assert [path for path in where.rglob("*") if path.is_file()] == []
    assert run(resource.RLIM_INFINITY, *command).returncode == 0
    assert (where / "mqgate.yaml").stat().st_size > limit


def test_a_password_that_found_no_room_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    users = tmp_path / "users"
    assert run(resource.RLIM_INFINITY, "passwd", str(users), "ana").returncode == 0
    before = users.read_text()
    failed = run(len(before), "passwd", str(users), "bob")
    assert f"{users}: File too large" in failed.stderr
    assert users.read_text() == before
    assert sorted(tmp_path.iterdir()) == [users]


def test_an_empty_password_is_refused(tmp_path: Path) -> None:
    """An empty password may come from a command that was to fetch it and failed; everybody who gives none would be let
    in."""
    users = tmp_path / "users"
    for words in (["passwd", str(users), "ana"], ["passwd", str(users), "ana", "-b", ""]):
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *words], check=False, capture_output=True, text=True, input=""
        )
        assert (done.returncode, "the password is empty" in done.stderr) == (2, True)
    assert not users.exists()
