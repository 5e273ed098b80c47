"""The MQI library's own C tests, compiled with it under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import mqi_clients
import pytest

pytestmark = pytest.mark.mqi

TEST_SOURCE = mqi_clients.TEST_SOURCE
NAMES = re.findall(r"TEST\((\w+)\)", TEST_SOURCE.read_text().split("#define TEST(name)")[1])


@pytest.fixture(scope="module")
def program() -> Path:
    return mqi_clients.sanitized_program()


@pytest.mark.parametrize("name", NAMES)
def test_library(program: Path, name: str) -> None:
    environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=1"}
    done = subprocess.run([program, name], check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr or done.stdout
    assert f"{name} ok" in done.stdout
