"""What a gateway loads when it is started, and what only where the settings, a rule or a request ask for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
ON_DEMAND = ("cryptography", "jwt", "OpenSSL", "jsonschema_rs", "pyarrow", "numpy", "opentelemetry", "rich", "ibmmq",
             "pymqi", "wsproto")  # fmt: skip
PROGRAM = """
import sys
import gateway.cli.run, gateway.app.gateway, gateway.net.reactor
print(*sorted(set(sys.argv[1:]) & set(sys.modules)))
import OpenSSL.SSL  # hidden from Twisted, not from those who want it
"""


def test_large_libraries_wait_until_they_are_needed() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *ON_DEMAND], cwd=ROOT, capture_output=True, text=True,
                          timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


MODELS = """
from gateway.config.findings import Part
import gateway.cli.run, gateway.app.gateway, gateway.net.reactor
def parts(of):
    return {of}.union(*map(parts, of.__subclasses__()))
print(*(one.__name__ for one in parts(Part) if one.__pydantic_complete__))
"""


def test_settings_are_built_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", MODELS], cwd=ROOT, capture_output=True, text=True, timeout=60,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not {"Settings", "Listener", "Mqtt", "QueueManager", "MappingFile"} & set(done.stdout.split())
