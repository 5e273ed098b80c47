"""An output without a buffer is written whole."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gateways import TREE

from gateway.cli.output import whole

PROGRAM = f"""
import resource, sys
sys.path.insert(0, {TREE!r})
from gateway.cli.output import whole
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
out = whole(sys.stdout)
try:
    out.write("as long as 10 bytes and more")
except OSError as error:
    sys.exit(error.strerror)
"""


def test_a_write_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-u", "-c", PROGRAM],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "File too large\n")
    assert (tmp_path / "out").read_text() == "as long as"


def test_an_output_with_a_buffer_stays() -> None:
    for output in (io.TextIOWrapper(io.BytesIO()), io.StringIO()):
        assert whole(output) is output


def test_text_and_bytes_come_in_order() -> None:
    begin, end = os.pipe()
    with open(begin, "rb") as reader:  # noqa: PTH123 - a descriptor
        with open(end, "wb", buffering=0) as raw:  # noqa: PTH123
            first = io.TextIOWrapper(raw, "utf-8", write_through=True)
            output = whole(first)
            assert output is not first
            output.write("one\n")
            output.buffer.write(b"two\n")
            output.write("dré\n")
        assert reader.read() == "one\ntwo\ndré\n".encode()


def test_none_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever started the command may have closed standard output."""
    monkeypatch.setattr(sys, "stdout", None)
    assert whole(sys.stdout) is None
