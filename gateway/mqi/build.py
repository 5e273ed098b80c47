"""Compiles the MQI library with the system's C compiler, for `mqgate mqi build`.

A build is named by the hash of everything that goes into it, so that asking twice compiles once. The result is laid out
as client sources expect an MQ installation: `inc/*.h`, `lib64/libmqm_r.so` and the link `lib64/libmqic_r.so`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import MqgateError
from gateway.mqi.headers import assertions, headers
from gateway.mqi.prototypes import bag_stubs

SOURCES = Path(__file__).with_name("c")
LIBRARY, CLIENT_LINK = "libmqm_r.so", "libmqic_r.so"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-pthread")
_LINK = ("-shared", f"-Wl,-soname,{LIBRARY}", "-Wl,-z,defs,-z,relro,-z,now", "-pthread")


class BuildFailed(MqgateError):
    """There is no C compiler, or it reported errors."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A built library with its headers."""

    root: Path
    """The value of `MQ_FILE_PATH` for building pymqi."""

    @property
    def library(self) -> Path:
        """The library that programs load."""
        return self.root / "lib64" / LIBRARY

    @property
    def includes(self) -> Path:
        """The folder of the headers."""
        return self.root / "inc"


def build(out: Path | None = None, *, flags: Sequence[str] = ("-O2",)) -> Installation:
    """Build into `out` (or the cache), unless the same build is there already."""
    generated = {**headers(), "assertions.c": assertions(), "bags.c": bag_stubs()}
    sources = {path.name: path.read_text() for path in sorted(SOURCES.iterdir()) if path.suffix in {".c", ".h"}}
    compiler = os.environ.get("CC", "cc")
    name = _digest(generated, sources, (compiler, *flags, *_FLAGS, *_LINK))
    root = out if out is not None else _cache() / f"mqi-{name}"
    stamp = root / ".build"
    if stamp.exists() and stamp.read_text() == name:
        return Installation(root)
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent, prefix=".mqi-") as work:
            made = Path(work) / "made"
            _compile(made, generated, sources, (compiler, *flags))
            (made / ".build").write_text(name)
            _install(made, root)
    except OSError as error:
        raise BuildFailed(f"the MQI library cannot be put in {root}: {error}; choose another place (--out)") from None
    return Installation(root)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "mqgate"
    except RuntimeError:  # a user whom the system does not know, as in a container
        raise BuildFailed("this user has no home for the MQI library: choose a place (--out), or set HOME") from None


def _compile(made: Path, generated: dict[str, str], sources: dict[str, str], command: Sequence[str]) -> None:
    include, library, work = made / "inc", made / "lib64", made / "work"
    for folder in (include, library, work):
        folder.mkdir(parents=True)
    for name, text in {**generated, **sources}.items():
        (include if name in headers() else work).joinpath(name).write_text(text)
    units = sorted(str(path) for path in work.glob("*.c"))
    _run([*command, *_FLAGS, f"-I{include}", *_LINK, "-o", str(library / LIBRARY), *units])
    (library / CLIENT_LINK).symlink_to(LIBRARY)
    shutil.rmtree(work)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  the system's compiler
    except (FileNotFoundError, PermissionError):  # the latter too where PATH names a folder that may not be looked into
        raise BuildFailed(f"no C compiler `{command[0]}`: install one (Debian: gcc libc6-dev) or set CC") from None
    if done.returncode:
        raise BuildFailed(f"{command[0]} could not compile the MQI library:\n{done.stderr.strip()}")


def _install(made: Path, root: Path) -> None:
    """Move the finished build into place. Another process may install the same files at the same time."""
    if not root.exists():
        try:
            made.rename(root)
        except OSError:
            if not (root / ".build").exists():
                raise
        return
    for source in sorted(made.rglob("*")):
        target = root / source.relative_to(made)
        if source.is_dir():
            target.mkdir(exist_ok=True)
            continue
        staged = target.with_name(f".{target.name}.new")
        shutil.copy2(source, staged, follow_symlinks=False)
        staged.replace(target)


def instructions(built: Installation) -> str:
    """Returns how to use the library, as `mqgate mqi build` prints it."""
    folder = built.library.parent
    return f"""\
The MQI library is in {folder}
  any program       LD_LIBRARY_PATH={folder} program ...
  Python, no setup  ctypes.CDLL("{built.library}", mode=ctypes.RTLD_GLOBAL) before `import ibmmq` or `import pymqi`
  build pymqi       MQ_FILE_PATH={built.root} pip install --no-cache-dir --no-binary pymqi pymqi
It connects to the socket of a running embedded queue manager:
  MQGATE_MQI=/path/to/mqi.sock   which one (default: mqgate-data/mqi.sock)
For development and test: it is not a client for IBM MQ over a network."""
