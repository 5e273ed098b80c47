"""The published MQ clients for tests: installed once into a cache, loaded against the MQI library of this checkout.

Three packages: the `ibmmq` and `mq-bridge` wheels as published, `pymqi` built by pip from its source distribution
against our headers. Tests that cannot have them (no compiler, no package index) are skipped, saying why.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from gateway.mqi.build import SOURCES, Installation, build
from gateway.mqi.headers import headers
from gateway.mqi.prototypes import bag_stubs

BINDINGS = ("ibmmq", "pymqi")
if not os.access(
    next(one for one in (Path.home() / ".cache", Path.home(), *Path.home().parents) if one.exists()), os.W_OK
):
    os.environ.setdefault("XDG_CACHE_HOME", str(Path(tempfile.gettempdir()) / f"mqgate-cache-{os.getuid()}"))
BRIDGE = ("mq-bridge",)
LOCK = Path(__file__).parents[2] / "deploy" / "requirements.lock"
"""Versions and hashes of all of them."""
TEST_SOURCE = Path(__file__).parents[1] / "unit" / "mqi" / "c" / "library_test.c"
CHECKS = "undefined" if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY else "address,undefined"
"""That of addresses reserves terabytes, which a process has not under `ulimit -v`."""
SANITIZERS = ("-g", "-O0", f"-fsanitize={CHECKS}", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")


@cache
def installation() -> Installation:
    """The library, compiled once for all."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("needs a C compiler")
    return build()


@cache
def packages(*wanted: str) -> Path:
    """A folder with these packages, made by pip on first use."""
    parts = (wanted, sys.version_info[:2], sorted(headers().items()), LOCK.read_bytes())
    name = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    target = installation().root.parent / f"clients-{name}"
    if not target.exists():
        _install(target, wanted)
    return target


def _install(target: Path, wanted: tuple[str, ...]) -> None:
    environment = {**os.environ, "MQ_FILE_PATH": str(installation().root), "PIP_NO_CACHE_DIR": "1"}
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".clients-") as work:
        made = Path(work) / "made"
        command = [sys.executable, str(LOCK.with_name("install.py")), "--target", str(made), "--only", *wanted]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=280)
        if done.returncode:
            pytest.skip(f"pip could not install {wanted}: {done.stderr.strip()[-400:]}")
        try:
            made.rename(target)
        except OSError:  # somebody else was faster
            if not target.exists():
                raise


@cache
def suite_of_ibmmq() -> Path:
    """IBM's own tests of `ibmmq`, out of its source distribution, unchanged."""
    target = installation().root.parent / f"suite-{BINDINGS[0]}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".suite-") as work:
            wanted = Path(work) / "wanted.txt"
            locked = re.search(rf"^{BINDINGS[0]}==.*?(?=^[a-z#]|\Z)", LOCK.read_text(), re.MULTILINE | re.DOTALL)
            assert locked is not None, f"{BINDINGS[0]} is not in the lock: run deploy/lock"
            wanted.write_text(locked[0])
            command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
            command += ["--no-binary", ":all:", "--no-build-isolation", "--require-hashes", "-r", str(wanted)]
            command += ["--dest", work]
            environment = {**os.environ, "MQ_FILE_PATH": str(installation().root)}  # its metadata wants an SDK
            done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=280)
            if done.returncode:
                pytest.skip(f"pip could not fetch the source of {BINDINGS[0]}: {done.stderr.strip()[-400:]}")
            with tarfile.open(next(Path(work).glob("*.tar.gz"))) as archive:
                safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not yet in Debian 12's 3.11.2
                archive.extractall(work, **safely)
            with suppress(OSError):  # somebody else was faster
                next(Path(work).glob("*/code/tests")).rename(target)
    return target


def load_bindings() -> None:
    """Make `import ibmmq` and `import pymqi` work in this process."""
    ctypes.CDLL(str(installation().library), mode=ctypes.RTLD_GLOBAL)
    folder = str(packages(*BINDINGS))
    if folder not in sys.path:
        sys.path.append(folder)


def program_environment(where: str, *wanted: str) -> dict[str, str]:
    """The environment of a program that uses a client: the loader's path, the bindings and the gateway of
    this tree, and where the queue manager is."""
    library = installation().library
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "PYTHONPATH": os.pathsep.join([str(packages(*wanted)), str(Path(__file__).parents[2])]),
        "MQB_IBM_MQ_LIB": str(library),
        "MQGATE_MQI": where,
    }


@cache
def sanitized_program() -> Path:
    """The library and its C tests in one executable, under sanitizers; made once for the same sources."""
    built = installation()
    parts = [path.read_text() for path in (*sorted(SOURCES.iterdir()), TEST_SOURCE)]
    digest = hashlib.sha256(repr((parts, SANITIZERS, bag_stubs(), sorted(headers().items()))).encode()).hexdigest()[:16]
    program = built.root.parent / f"library-test-{digest}"
    if program.exists():
        return program
    with tempfile.TemporaryDirectory(dir=program.parent, prefix=".library-test-") as work:
        bags, staged = Path(work) / "bags.c", Path(work) / "program"
        bags.write_text(bag_stubs())
        command = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", *SANITIZERS, "-pthread"]
        command += [f"-I{built.includes}", f"-I{SOURCES}", "-o", str(staged)]
        command += [*map(str, sorted(SOURCES.glob("*.c"))), str(bags), str(TEST_SOURCE)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        staged.replace(program)
    return program
