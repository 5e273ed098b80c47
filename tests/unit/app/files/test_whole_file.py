"""gateway.app.files.whole_file: what takes the place of an earlier file, and what cannot be replaced."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import TREE

from gateway.app.files.whole_file import written_whole

MEMORY = Path("/dev/shm")
"""Files in memory: they are files, though they are below /dev."""
PROGRAM = """
from pathlib import Path
from gateway.app.files.whole_file import written_whole
with written_whole(Path("/dev/stdout")) as out:
    out.write("new")
"""


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "memory" and not os.access(MEMORY, os.W_OK):
        pytest.skip(f"{MEMORY} cannot be written here")
    with tempfile.TemporaryDirectory(dir=tmp_path if request.param == "disk" else MEMORY) as made:
        yield Path(made)


def half(path: Path) -> None:
    with written_whole(path) as out:
        out.write("half of it")
        out.flush()
        raise ZeroDivisionError


def test_an_attempt_that_fails_leaves_what_was_there(folder: Path) -> None:
    path = folder / "out"
    with pytest.raises(ZeroDivisionError):
        half(path)
    assert list(folder.iterdir()) == []
    path.write_text("earlier")
    with pytest.raises(ZeroDivisionError):
        half(path)
    assert [(one, one.read_text()) for one in folder.iterdir()] == [(path, "earlier")]


def test_what_is_open_already_is_written_where_it_is(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", PROGRAM], stdout=out, check=True, timeout=60, cwd=TREE)
        assert os.fstat(out.fileno()).st_nlink == 1
    assert (tmp_path / "out").read_text() == "new"
