"""One Spark session for all tests here. Without pyspark, pyarrow or Java they are skipped and say why."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from s3_server import CREDENTIALS

from gateway.pipeline.jobs.spark_session import UNCHECKED_ARROW

HERE = Path(__file__).parent
SHORT_LIVED = {
    # A session that lives for a minute never gets its money back from the optimising compiler, Spark's or Java's.
    "spark.driver.extraJavaOptions": f"{UNCHECKED_ARROW} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.timeout(900))
            item.add_marker(pytest.mark.filterwarnings("default"))  # pyspark and pandas warn of one another


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    for module in ("pyspark", "pyarrow", "numpy"):
        pytest.importorskip(module, reason=f"{module} is not installed: pip install '.[spark]'")
    from gateway.pipeline.errors import JavaMissing
    from gateway.pipeline.jobs.spark_session import make_session

    os.environ["TZ"] = "UTC"
    os.environ |= CREDENTIALS  # workers have the environment in which Java was started
    try:
        session = make_session("tests", SHORT_LIVED | {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("w"))})
    except JavaMissing as missing:
        pytest.skip(str(missing))
    yield session
    session.stop()
