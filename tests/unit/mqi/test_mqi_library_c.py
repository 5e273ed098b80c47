"""The MQI library's own C tests, compiled with it under the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import mqi_clients
import pytest

from gateway.backends.embedded.mqi.build import SOURCES
from gateway.backends.embedded.mqi.prototypes import bag_stubs

pytestmark = pytest.mark.mqi

TEST_SOURCE = Path(__file__).parent / "c" / "library_test.c"
SANITIZERS = ("-g", "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
NAMES = re.findall(r"TEST\((\w+)\)", TEST_SOURCE.read_text().split("#define TEST(name)")[1])


def compile_test(name: str, source: Path, flags: tuple[str, ...]) -> Path:
    """The library and a test program in one executable; made once for the same sources."""
    built = mqi_clients.installation()
    parts = [path.read_text() for path in (*sorted(SOURCES.iterdir()), source)]
    digest = hashlib.sha256(repr((parts, flags, bag_stubs())).encode()).hexdigest()[:16]
    program = built.root.parent / f"{name}-{digest}"
    if not program.exists():
        bags = built.root.parent / f"bags-{digest}.c"
        bags.write_text(bag_stubs())
        units = [*map(str, sorted(SOURCES.glob("*.c"))), str(bags), str(source)]
        staged = program.with_suffix(f".{os.getpid()}")
        command = [os.environ.get("CC", "cc"), "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", *flags, "-pthread"]
        command += [f"-I{built.includes}", f"-I{SOURCES}", "-o", str(staged), *units]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
        staged.replace(program)
        bags.unlink()
    return program


@pytest.fixture(scope="module")
def program() -> Path:
    return compile_test("library-test", TEST_SOURCE, SANITIZERS)


@pytest.mark.parametrize("name", NAMES)
def test_library(program: Path, name: str) -> None:
    environment = {**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1", "ASAN_OPTIONS": "detect_leaks=1"}
    done = subprocess.run([program, name], check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr or done.stdout
    assert f"{name} ok" in done.stdout
