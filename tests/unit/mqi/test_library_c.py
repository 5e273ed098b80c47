"""The MQI library's own C tests, compiled with it under the address and undefined-behaviour sanitizers.

The queue manager keeps its messages in memory and answers on a socket.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import served

pytestmark = pytest.mark.mqi

TEST_SOURCE = mqi_clients.TEST_SOURCE
NAMES = re.findall(r"TEST\((\w+)\)", TEST_SOURCE.read_text().split("#define TEST(name)")[1])


QUEUES = [*re.findall(r'opened\(\w+, "([A-Z.]+)"', TEST_SOURCE.read_text()), "LOW.VERSIONS", "MANY.THREADS"]


@pytest.fixture(scope="module")
def program() -> Path:
    return mqi_clients.sanitized_program()


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    where = tmp_path_factory.mktemp("library") / "mqi.sock"
    with served(None, where, "\n".join(f"DEFINE QLOCAL({queue}) REPLACE" for queue in QUEUES)):
        yield str(where)


@pytest.mark.parametrize("name", NAMES)
def test_library(program: Path, socket: str, name: str) -> None:
    environment = {
        **os.environ,
        "MQGATE_MQI": socket,
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "ASAN_OPTIONS": "detect_leaks=1",
    }
    done = subprocess.run([program, name], check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr or done.stdout
    assert f"{name} ok" in done.stdout
