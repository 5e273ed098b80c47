"""The MQI library with a queue manager inside it, so that a benchmark measures the program and not what is behind it.

The library of the product without its socket, linked with `c/memory_queue_manager.c`. Any queue exists when it is first
opened; nothing outlives the process.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

import mqi_clients

from gateway.mqi.build import CLIENT_LINK, LIBRARY, SOURCES
from gateway.mqi.prototypes import bag_stubs

QUEUE_MANAGER = Path(__file__).with_name("c") / "memory_queue_manager.c"
FLAGS = ("-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared")


def memory_library() -> Path:
    """Compile it once for the same sources; the library."""
    built = mqi_clients.installation()
    sources = [path for path in sorted(SOURCES.glob("*.c")) if not path.name.startswith("socket_")] + [QUEUE_MANAGER]
    parts = [path.read_text() for path in (*sources, *sorted(SOURCES.glob("*.h")))]
    digest = hashlib.sha256(repr((parts, FLAGS, built.root.name)).encode()).hexdigest()[:16]
    folder = built.root.parent / f"mqi-memory-{digest}"
    if folder.exists():
        return folder / LIBRARY
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".mqi-memory-") as work:
        made, bags = Path(work) / "made", Path(work) / "bags.c"
        made.mkdir()
        bags.write_text(bag_stubs())
        command = [os.environ.get("CC", "cc"), *FLAGS, f"-Wl,-soname,{LIBRARY}", f"-I{built.includes}", f"-I{SOURCES}"]
        command += ["-o", str(made / LIBRARY), *map(str, sources), str(bags)]
        subprocess.run(command, check=True)
        (made / CLIENT_LINK).symlink_to(LIBRARY)
        made.rename(folder)
    return folder / LIBRARY


def program_environment(*wanted: str) -> dict[str, str]:
    """The environment of a program that uses these clients with the queue manager inside it."""
    library = memory_library()
    environment = mqi_clients.program_environment("", *wanted)
    return environment | {"LD_LIBRARY_PATH": str(library.parent), "MQB_IBM_MQ_LIB": str(library)}
