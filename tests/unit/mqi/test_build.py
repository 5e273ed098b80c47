"""Building the MQI library: once for the same sources, in place, and with a helpful error."""

from __future__ import annotations

import pwd
import subprocess
import sys
from pathlib import Path

import mqi_clients
import pytest

from gateway.mqi.build import BuildFailed, build, instructions

pytestmark = pytest.mark.mqi


def test_a_build_is_made_once() -> None:
    built = mqi_clients.installation()
    assert build() == built
    assert sorted(path.name for path in built.includes.iterdir()) == ["cmqbc.h", "cmqc.h", "cmqcfc.h", "cmqxc.h"]


def test_a_folder_of_ones_own_is_filled_and_left_alone_afterwards(tmp_path: Path) -> None:
    mqi_clients.installation()
    out = tmp_path / "mqi"
    out.mkdir()
    (out / "mine.txt").write_text("stays")
    built = build(out, flags=("-O0",))
    made = built.library.stat().st_mtime_ns
    assert build(out, flags=("-O0",)).library.stat().st_mtime_ns == made
    assert (out / "mine.txt").read_text() == "stays"
    # In a process of its own: a second copy of the library in this one would be taken for the first by its name.
    loads = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).MQCONN"
    subprocess.run([sys.executable, "-c", loads, str(built.library)], check=True)
    assert str(out) in instructions(built)


def test_without_a_compiler_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "denied").write_text("may not be executed")
    for compiler in ("no-such-compiler", str(tmp_path / "denied")):
        monkeypatch.setenv("CC", compiler)
        with pytest.raises(BuildFailed, match="install one"):
            build(tmp_path / "mqi")


def test_a_user_without_a_home_is_told_to_choose_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container with a number for a user."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(BuildFailed, match="choose a place"):
        build()


def test_a_place_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildFailed, match="choose another place"):
        build(Path("/proc/nowhere/mqi"))


def test_the_command_line_builds_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gateway", "mqi", "build"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert str(mqi_clients.installation().library.parent) in done.stdout
