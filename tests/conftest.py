"""Shared test set-up: Hypothesis has a CI and a long profile, and there is one Spark session for all that want one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from left_behind import LeftBehind

# What CI says depends on the change alone; new ones are looked for by the long form, and by MQGATE_EXPLORE=1. A test
# that suppressed health checks itself would have that of a slow machine again.
UNCHECKED = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
settings.register_profile(
    "ci", deadline=None, max_examples=60, suppress_health_check=UNCHECKED,
    derandomize="MQGATE_EXPLORE" not in os.environ,
)  # fmt: skip
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=UNCHECKED)
WITH_SPARK = re.compile(r"tests/(spark/|fault/test_pipeline_(object_)?kills\.py)")
LONGEST = (
    "spark",
    "tests/e2e/test_dead_letters.py",
    "tests/fuzz/test_fuzz_admin_api.py",
    "tests/fault/test_ibm_faults_counted.py",
    "tests/property/test_broker_lanes.py",
    "tests/unit/pipeline/test_object_landing.py",
    "tests/fault/test_ibm_silent.py",
    "tests/fault/test_backup.py",
    "tests/ops/test_page.py",
    "tests/attacks/test_packets.py",
    "tests/e2e/test_targets.py",
    "tests/e2e/test_token_issuers.py",
)
"""Files that take half a minute or more. xdist begins with those of many tests, and most of these have few: begun last,
one would go on alone while the other processors have nothing to do."""
settings.load_profile("long" if os.environ.get("MQGATE_LONG") else "ci")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files are shared out one by one, those that take long first; those that want the Spark session go together: one
    Java, warmed up once."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if WITH_SPARK.match(nodeid) else super()._split_scope(nodeid)

        def _assign_work_unit(self, node: Any) -> None:
            first = next((scope for scope in LONGEST if scope in self.workqueue), None)
            if first is not None:
                self.workqueue.move_to_end(first, last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


class _Modules:
    """Nothing that a module's tests have started goes on after it, and the process is as it was: or the last of them
    fails, and says which it was."""

    behind: LeftBehind | None = None
    failed = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        if self.behind is None:
            self.behind, self.failed = LeftBehind(), item.session.testsfailed
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        behind, last = self.behind, nextitem is None or nextitem.path != item.path
        if last:
            self.behind = None
        yield
        if behind is not None:
            behind.after(item.name)
            left = behind.found() if last and item.session.testsfailed == self.failed else []
            assert not left, "\n".join(["left behind:", *left])


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Modules())


@pytest.fixture(scope="module", autouse=True)
def _folders_go_with_the_module(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """pytest keeps what `tmp_path_factory` made until the whole run ends: with a journal in each, gigabytes."""
    base, failed = tmp_path_factory.getbasetemp(), request.session.testsfailed
    before = set(base.iterdir())
    yield
    if request.session.testsfailed == failed:
        for folder in set(base.iterdir()) - before:
            shutil.rmtree(folder, ignore_errors=True)


SHORT_LIVED = {
    # A session that lives for minutes never gets its money back from the optimising compiler, Spark's or Java's.
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false "
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
SPARK_PYTHON = str(Path(__file__).parent / "support/spark_python")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session of this process. Without pyspark, pyarrow or Java its tests are skipped and say why."""
    for module in ("pyspark", "pyarrow", "numpy"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install '.[spark]'")
    from s3_server import CREDENTIALS

    from gateway.pipeline.errors import JavaMissing
    from gateway.pipeline.jobs.spark.spark_session import make_session

    os.environ["TZ"] = "UTC"
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SPARK_PYTHON, os.environ.get("PYTHONPATH")]))
    os.environ |= CREDENTIALS  # workers have the environment in which Java was started
    try:
        session = make_session("tests", SHORT_LIVED | {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("w"))})
    except JavaMissing as missing:
        pytest.skip(str(missing))
    yield session
    session.stop()
