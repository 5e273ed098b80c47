"""What a JVM writes to standard error: the start and the end of a session are not told, everything else is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.pipeline.jobs.spark.java_output import worth_telling

START = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/27 07:25:37 WARN Utils: Your hostname, h, resolves to a loopback address: 127.0.0.1; using 192.0.2.2 instead
26/11/27 07:25:37 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
26/11/27 07:25:44 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using builtin-java
Setting Spark log level to "OFF".
"""
FAREWELL = """\
Traceback (most recent call last):
  File "/venv/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/venv/pyspark.zip/pyspark/daemon.py", line 95, in worker
BrokenPipeError: [Errno 32] Broken pipe
"""
LATE = """\
Traceback (most recent call last):
  File "/venv/pyspark.zip/pyspark/util.py", line 822, in local_connect_and_auth
FileNotFoundError: [Errno 2] No such file or directory

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main
  File "/venv/pyspark.zip/pyspark/sql/streaming/python_streaming_source_runner.py", line 313, in <module>
  File "/python/contextlib.py", line 137, in __enter__
    return next(self.gen)
           ^^^^^^^^^^^^^^
  File "/venv/pyspark.zip/pyspark/worker_util.py", line 246, in get_sock_file_to_executor
  File "/venv/pyspark.zip/pyspark/util.py", line 828, in local_connect_and_auth
pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: tried to connect to /tmp/x
"""
OF_A_DECODER = """\
Traceback (most recent call last):
  File "/venv/pyspark.zip/pyspark/daemon.py", line 264, in manager
  File "/plant/decoder.py", line 9, in decode
    return known[name]
           ~~~~~^^^^^^
KeyError: 'x'
"""
WITHOUT_MEMORY = """\
OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory(0x0, 1, 0) failed; error='Not enough space' (errno=12)
26/11/27 07:25:44 ERROR Executor: Exception in task 0.0 in stage 1.0 (TID 1)
java.lang.OutOfMemoryError: Java heap space
\tat org.apache.spark.X.y(X.scala:1)
"""


@pytest.mark.parametrize("between", ["", OF_A_DECODER, WITHOUT_MEMORY, OF_A_DECODER + OF_A_DECODER, "a print\n"])
def test_all_but_start_and_end_is_told(between: str) -> None:
    said = START + LATE + between + FAREWELL + LATE + LATE + FAREWELL
    assert "".join(worth_telling(said.splitlines(keepends=True))) == between


def test_the_ends_of_two_processes_at_once_are_not_told() -> None:
    """As they were seen on a busy machine: Python writes a traceback line by line."""
    first, manager, worker, error = FAREWELL.splitlines(keepends=True)
    said = [first, manager, first, manager, worker, error, worker, error]
    assert list(worth_telling(said)) == []
    decoders = OF_A_DECODER.splitlines(keepends=True)
    assert list(worth_telling([first, manager, *decoders, worker, error])) == [first, manager, *decoders, worker, error]


def test_what_ends_in_the_middle_is_told() -> None:
    said = OF_A_DECODER.splitlines(keepends=True)[:-1]
    assert list(worth_telling(said)) == said


def test_a_jvm_that_does_not_start_says_why(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    launcher = tmp_path / "bin/spark-submit"
    launcher.parent.mkdir()
    launcher.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{START}{WITHOUT_MEMORY}END\nexit 1\n")
    launcher.chmod(0o755)
    start = "from gateway.pipeline.jobs.spark.java_output import start_context; start_context({})"
    done = subprocess.run(
        [sys.executable, "-c", start],
        env=os.environ | {"SPARK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr.startswith(WITHOUT_MEMORY)
    assert "JAVA_GATEWAY_EXITED" in done.stderr
