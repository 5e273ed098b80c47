"""The published MQ clients, unchanged, through the MQI library: against the embedded queue manager.

Each program runs once in a process of its own and reports on its parts; each part is a test here.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import OBJECTS, served

pytestmark = pytest.mark.mqi

PROGRAMS = Path(__file__).with_name("mqi_programs")


def _parts(program: str) -> list[str]:
    """The names in the program's list of parts, read without running it."""
    for node in ast.parse((PROGRAMS / f"{program}.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PARTS":
            return [element.id for element in node.value.elts]
    return ["batches"]


CASES = [
    pytest.param(program, part, id=f"{program}-{part}")
    for program in ("with_ibmmq", "with_pymqi", "with_mq_bridge")
    for part in _parts(program)
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory):
    """Runs a program where it is asked for, the first time somebody asks."""
    results: dict[str, dict[str, str]] = {}

    def run(program: str) -> dict[str, str]:
        if program not in results:
            results[program] = _run(program, tmp_path_factory.mktemp("mqi"))
        return results[program]

    return run


def _run(program: str, folder: Path) -> dict[str, str]:
    wanted = mqi_clients.BRIDGE if "bridge" in program else mqi_clients.BINDINGS
    with served(None, folder / "mqi.sock", OBJECTS):
        return _process(program, mqi_clients.program_environment(str(folder / "mqi.sock"), *wanted))


def _process(program: str, environment: dict[str, str]) -> dict[str, str]:
    command = [sys.executable, str(PROGRAMS / f"{program}.py")]
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert isinstance(results, dict)
    return results


@pytest.mark.parametrize(("program", "part"), CASES)
def test_client(ran, program: str, part: str) -> None:
    assert ran(program)[part] == "ok"
