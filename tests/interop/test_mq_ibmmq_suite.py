"""IBM's own test suite for `ibmmq`, as published, against the embedded queue manager behind the MQI library.

Queues, buffers, message properties, RFH2, publish/subscribe, PCF, connecting with user and password, connection-name
lists. Its tests of a TLS channel skip themselves: there is no channel.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mqi_clients
import pytest

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
OBJECTS = "\n".join(f"DEFINE QLOCAL(DEV.QUEUE.{number})" for number in (1, 2, 3))
DDT = '''
"""The two decorators of `ddt` that the suite uses: a test for each value."""

def data(*values):
    def mark(test):
        test.values = values
        return test
    return mark

def ddt(tests):
    for name, test in [(name, one) for name, one in vars(tests).items() if hasattr(one, "values")]:
        delattr(tests, name)
        for number, value in enumerate(test.values):
            made = lambda self, test=test, value=value: test(self, value)
            vars(made).update(vars(test))
            setattr(tests, f"{name}_{number}", made)
    return tests
'''
RUN = """
import sys
sys.modules["opentelemetry"] = None  # ibmmq would trace into whatever of it is installed here
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", ".", "--tb=short", "."]))
"""


@contextmanager
def developer_queue_manager(folder: Path, check_client: str) -> Iterator[Path]:
    """What the suite expects: QM1 with the users `admin` and `app`, as in IBM's container for developers."""
    (folder / "objects.mqsc").write_text(OBJECTS)
    socket = folder / "s"
    command = [sys.executable, "-m", "gateway.mqi.serve", str(folder / "data"), "--name", "QM1"]
    command += ["--socket", str(socket), "--objects", str(folder / "objects.mqsc"), "--check-client", check_client]
    command += ["--user", "admin:password", "--user", "app:password", "--administrator", "admin"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert server.stdout is not None
    try:
        assert "answers" in server.stdout.readline()
        yield socket
    finally:
        server.terminate()
        server.wait(20)


def test_the_published_suite_passes(tmp_path: Path) -> None:
    suite = mqi_clients.suite_of_ibmmq()
    (tmp_path / "ddt.py").write_text(DDT)
    with developer_queue_manager(tmp_path, "required") as socket:
        environment = mqi_clients.program_environment(str(socket), *mqi_clients.BINDINGS)
        environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
        done = subprocess.run(
            [sys.executable, "-c", RUN], check=False, cwd=suite, env=environment, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout[-6000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 100
