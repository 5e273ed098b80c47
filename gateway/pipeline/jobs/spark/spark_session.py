"""Makes Spark sessions: with Java found, settings for long-running jobs, and our modules where executors find them.

`write_package` makes the file for `spark-submit --py-files`, so that executors need not have mqgate installed. It has
Python modules only; what they import (pyarrow, numpy, xxhash, pydantic, pyyaml) must be on the hosts. The same sources
give the same bytes, so that a cluster's cache recognises the file.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gateway.config.extras import how_to_install
from gateway.pipeline.errors import SparkMissing
from gateway.pipeline.jobs.checkpoint_folder import OwnFolder
from gateway.pipeline.jobs.spark.java import find_java
from gateway.pipeline.jobs.spark.java_output import start_context

OLDEST = (4, 2)
AUTOLOAD = Path(__file__).parents[2] / "autoload"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the default is read as nanoseconds by other readers
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.task.maxFailures": "8",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",  # of many files each is looked at by a task
    "spark.dynamicAllocation.enabled": "false",
    "spark.log.level": "WARN",
}
QUIET = "OFF"
"""The level of Spark's log at which a session begins without a word."""
PLAIN_CHECKPOINT = {
    # Checkpoints of jobs are on a POSIX folder. Spark's default goes through an interface of Hadoop that starts
    # twenty processes a batch there (readlink, chmod), which is half of the time its two logs take.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
PLAIN_SINCE = (4, 3)
UNCHECKED_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
LOCAL = {
    # The second number is attempts for a task; with plain local[2] any passing error ends the query.
    "spark.master": "local[2,4]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # The JVM does not check again what Arrow has made, which is a twentieth of the time of a read.
    "spark.driver.extraJavaOptions": UNCHECKED_ARROW,
}
LAST_SECONDS = 30.0
"""How long a JVM takes at most from the end of its context to its own."""
TOLD = {code for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) for code in (-number, 128 + number)}
"""How one ends that is signalled. Without memory it ends by itself, or the system kills it."""

LONGEST_FOLDER = 64
"""A socket's path has at most 107 bytes, and Spark adds a name to the folder."""


def socket_settings() -> dict[str, str]:
    """Have the JVM and Spark's Python processes talk through Unix sockets, which cost less than TCP, in a folder that
    only this user can enter. For a master on this machine; nothing where there is no place for them."""
    own = OwnFolder("mqgate-sockets-")
    atexit.register(own.remove)
    if len(os.fsencode(own.path)) > LONGEST_FOLDER:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(own.path)}


def check_spark() -> tuple[int, ...]:
    """The version of pyspark; SparkMissing unless the extra is installed and new enough."""
    for name in ("pyspark", "pyarrow", "numpy"):
        if find_spec(name) is None:
            raise SparkMissing(f"{name} is not installed: {how_to_install('spark')}")
    import pyspark

    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < OLDEST:
        raise SparkMissing(
            f"pyspark {pyspark.__version__} is too old: 4.2 or later has the streaming calls needed here"
        )
    return version


def check_home(given: str, wanted: tuple[int, ...]) -> None:
    """SparkMissing where SPARK_HOME is set, and has no Spark or one of another version than pyspark. That one would be
    started, and say nothing that a user can do something with."""
    needed = ".".join(map(str, wanted))
    fix = f"unset SPARK_HOME, as pyspark brings a Spark of its own, or let it name one of {needed}"
    if given and not Path(given, "bin", "spark-submit").is_file():
        raise SparkMissing(f"SPARK_HOME is {given}, where no Spark is: {fix}")
    for jar in Path(given, "jars").glob("spark-core_*-*.jar") if given else ():
        version = jar.stem.split("-", 2)[2]
        if version.split(".")[:2] != needed.split("."):
            raise SparkMissing(f"SPARK_HOME is {given}, which is Spark {version}, and pyspark is {needed}: {fix}")


def make_session(name: str, settings: Mapping[str, str]) -> Any:
    """The session of this process. Under spark-submit the submitted settings win over ours."""
    version = check_spark()
    from pyspark.sql import SparkSession

    if "SPARK_ENV_LOADED" not in os.environ and "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_home(os.environ.get("SPARK_HOME", ""), version)
        cache = Path(tempfile.gettempdir()) / f"mqgate-{os.getuid()}"
        os.environ["JAVA_HOME"] = str(find_java(os.environ, cache))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise whatever python3 the PATH has
    # As Spark has it for tasks: numpy's threads are never used, and their start is a third of what a process takes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    paths = worker_path(os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = paths
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    local = {} if submitted else LOCAL
    if not submitted and settings.get("spark.master", LOCAL["spark.master"]).startswith("local"):
        local = LOCAL | socket_settings()
    plain = PLAIN_CHECKPOINT if version >= PLAIN_SINCE else {}
    own = {"spark.app.name": f"mqgate-{name}", "spark.executorEnv.PYTHONPATH": paths}
    chosen = {**own, **local, **SETTINGS, **plain, **settings}
    if chosen["spark.log.level"] == QUIET and not submitted and "SPARK_REMOTE" not in os.environ:
        start_context(chosen)
    builder = SparkSession.builder
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not AUTOLOAD.is_dir():
        # We are in a file that spark-submit was given (--py-files): Spark looks among installed packages only.
        from gateway.pipeline.source.source import MqQueueDataSource

        session.dataSource.register(MqQueueDataSource)
    return session


def has_ended(session: Any) -> bool:
    """Whether the JVM of a session is gone, or was told to end, as when it has no memory left."""
    context = getattr(session, "_sc", None)
    if context is None:  # none yet, or one of Spark Connect
        return False
    try:
        return bool(context._jsc.sc().isStopped())  # noqa: SLF001 -- nothing public asks the JVM
    except Exception:  # noqa: BLE001 -- py4j's own errors, and those of its sockets
        return True


def was_told_to_end(session: Any) -> bool:
    """Whether a JVM that has ended was signalled to, as by a supervisor that signals all processes of a job. Of one
    that this process has not started nothing is known."""
    process = getattr(session._sc._gateway, "proc", None)  # noqa: SLF001 -- nothing public tells
    if process is None:
        return True
    try:
        return process.wait(LAST_SECONDS) in TOLD
    except subprocess.TimeoutExpired:
        return True


def worker_path(current: str) -> str:
    """PYTHONPATH on which Spark's Python processes find the package that registers the data source."""
    wanted = [str(AUTOLOAD), *filter(None, current.split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(wanted))


PACKAGE = Path(__file__).parents[3]
EPOCH = (1980, 1, 1, 0, 0, 0)


def write_package(target: Path) -> int:
    """Write the file for `--py-files`; how many modules are in it."""
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in modules():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
            count += 1
    return count


def modules() -> Iterator[tuple[str, Path]]:
    """Names in the file and their sources: `gateway`, and the package by which Spark finds the data source."""
    for root in (PACKAGE, AUTOLOAD):
        for path in sorted(root.rglob("*.py")):
            yield str(path.relative_to(root.parent if root is PACKAGE else root)), path
