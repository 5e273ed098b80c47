"""What the JVM and Spark's Python processes write to standard error, without what each session says at its start and
end that is nobody's concern. All else is passed on as it comes: a JVM without memory, a decoder that prints.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

IDLE = re.compile(
    r"WARNING: Using incubator modules: jdk\.incubator\.vector$"
    r"|Using Spark's default log4j profile: "
    r"|Setting (default|Spark) log level to \"\w+\"\.$"
    r"|To adjust logging level use sc\.setLogLevel"
    r"|\S+ \S+ WARN (Utils: (Your hostname, .* resolves to a loopback address|Set SPARK_LOCAL_IP)|NativeCodeLoader: )"
)
TRACEBACK = "Traceback (most recent call last):"
OF_WORKERS = re.compile(r'\s+File ".*[\\/]pyspark[\\/]daemon\.py", line ')
GONE = re.compile(r"BrokenPipeError: ")
"""A Python process of Spark's whose session has ended while it took its leave."""
TOO_LATE = re.compile(r"(FileNotFoundError|ConnectionRefusedError): .*|\S*PySparkRuntimeError: \[CANNOT_OPEN_SOCKET\]")
CONNECTING = "local_connect_and_auth"
"""Where one is that took longer to start than Spark waits for it; the job's error says so."""
CHAINED = "During handling of the above exception"
PATIENCE = 5.0
"""Seconds until all that a JVM has said before it ended has been read."""


def worth_telling(lines: Iterable[str]) -> Iterator[str]:
    """The lines without those."""
    held: list[str] = []
    begun = 0
    """So many tracebacks of those have not ended: processes that end at once write theirs line by line."""
    late = False
    """Whether what is left out is of a process that was late: there is a second traceback for the same."""
    for line in lines:
        if line.startswith(TRACEBACK):
            held.append(line)
            begun += 1
        elif held and (line[:1].isspace() or begun > 1):
            held.append(line)
            begun -= not line[:1].isspace()
        elif held:
            told, held, begun = [*held, line], [], 0
            late = _is_late(told)
            yield from () if late or _is_farewell(told) else told
        elif late and (not line.strip() or line.startswith(CHAINED)):
            continue
        elif not IDLE.match(line):
            late = False
            yield line
    yield from held


def _is_farewell(told: list[str]) -> bool:
    """Whether errors are of processes that the end of their session has met."""
    frames = [line for line in told if line.lstrip().startswith("File ")]
    ends = [line for line in told if not line[:1].isspace() and not line.startswith(TRACEBACK)]
    return bool(frames) and all(map(OF_WORKERS.match, frames)) and all(map(GONE.match, ends))


def _is_late(told: list[str]) -> bool:
    """Whether an error is of a process that nobody waits for any more."""
    frames = [line for line in told if line.lstrip().startswith("File ")]
    return bool(frames) and CONNECTING in frames[-1] and TOO_LATE.match(told[-1]) is not None


def start_context(settings: Mapping[str, str]) -> None:
    """Start Spark's context in a JVM whose standard error goes through `worth_telling`, unless one is there."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # noqa: SLF001 - nothing public tells
        return
    conf = SparkConf().setAll(list(settings.items()))
    reading, writing = os.pipe()
    thread = threading.Thread(
        target=_tell, args=(os.fdopen(reading, errors="replace"),), name="java-output", daemon=True
    )
    thread.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})
    except BaseException:
        os.close(writing)
        thread.join(PATIENCE)
        raise
    os.close(writing)
    SparkContext(conf=conf, gateway=gateway)


def _tell(said: IO[str]) -> None:
    with said:
        for line in worth_telling(said):
            sys.stderr.write(line)
            sys.stderr.flush()
