"""The benchmarks, which CI does not run, can at least be started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
SCRIPTS = sorted(path.name for path in BENCH.glob("*.py") if "__main__" in path.read_text())


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_says_how_it_is_used(script: str) -> None:
    command = [sys.executable, BENCH / script, "--help"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in ran.stderr
    assert script in ran.stdout + ran.stderr
