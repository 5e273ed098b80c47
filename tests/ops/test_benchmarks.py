"""The benchmarks, which CI does not run, can at least be started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gateway_template
import pytest

BENCH = Path(__file__).parents[1] / "bench"
SCRIPTS = sorted(path.name for path in BENCH.glob("*.py") if "__main__" in path.read_text())
EACH_IN_A_COPY = """
import gc, json, os, runpy, sys, traceback
from importlib import import_module

bench, modules, scripts = sys.argv[1], *map(json.loads, sys.argv[2:])
for module in modules:
    import_module(module)
gc.freeze()
said = {}
for script in scripts:
    out, into = os.pipe()
    if not os.fork():
        for file in (1, 2):
            os.dup2(into, file)
        os.close(into)
        sys.path[0], sys.argv = bench, [os.path.join(bench, script), "--help"]
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as ended:
            print(ended)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(0)  # it would take down a thousand modules
    os.close(into)
    with open(out) as file:
        said[script] = file.read()
    os.wait()
print(json.dumps(said))
"""
"""Copies of a process that has imported what most of them do, a second of processor time each."""


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    command = [sys.executable, "-c", EACH_IN_A_COPY, str(BENCH)]
    command += [json.dumps([*gateway_template.MODULES, "pytest"]), json.dumps(SCRIPTS)]
    environment = os.environ | {"PYTHONPATH": str(BENCH.parents[1])}
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=280, env=environment)
    found: dict[str, str] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_it_says_how_it_is_used(said: dict[str, str], script: str) -> None:
    assert "Traceback" not in said[script]
    assert script in said[script]
