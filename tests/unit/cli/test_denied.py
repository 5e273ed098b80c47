"""For every command, a directory that belongs to somebody else is one line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from gateways import TREE

from gateway.cli.denied import denied
from gateway.cli.main import main
from gateway.cli.run import _said


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_what_may_not_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    program = (
        f"import os, sys; sys.path.insert(0, {TREE!r}); from gateway.cli.main import main; "
        "from gateway.cli import queue; from gateway.config.model import Settings; Settings.model_rebuild(); "
        "os.chdir('/'); os.setgid(65534); os.setuid(65534); "
        f"sys.argv = ['mqgate', 'queue', 'list', '--data', {str(mine / 'data')!r}]; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert f"{tmp_path}" in done.stderr
    assert "permission denied: run this as its owner" in done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
@pytest.mark.parametrize("words", ["queue list", "journal dump", "backup out", "status", "mqsc", "run --port 0"])
def test_a_directory_that_may_not_be_looked_into_is_not_an_empty_one(tmp_path: Path, words: str) -> None:
    main.get_command(click.Context(main), words.split(maxsplit=1)[0])  # the other user may not import it
    tmp_path.chmod(0o700)
    os.seteuid(65534)
    try:
        done = CliRunner().invoke(main, [*words.split(), "--data", str(tmp_path)])
    finally:
        os.seteuid(0)
    assert done.exit_code == 3
    assert f"{tmp_path}: permission denied: run this as its owner" in done.output


def test_the_start_says_the_same() -> None:
    error = PermissionError(13, "Permission denied", "/var/lib/mqgate")
    assert _said(error) == denied(error)
    assert _said(OSError(28, "No space left on device")) == "[Errno 28] No space left on device"
