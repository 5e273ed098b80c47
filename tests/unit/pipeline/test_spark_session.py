"""Which Spark a session is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.pipeline.errors import SparkMissing
from gateway.pipeline.jobs.spark.spark_session import check_home


def test_another_spark_in_the_environment_is_told(tmp_path: Path) -> None:
    """It was started; a path without one was told without its variable, and another version by Python's frames."""
    check_home("", (4, 3))
    with pytest.raises(SparkMissing, match=f"SPARK_HOME is {tmp_path}, where no Spark is: unset SPARK_HOME"):
        check_home(str(tmp_path), (4, 3))
    for name in ("bin/spark-submit", "jars/spark-core_2.13-4.3.1.jar"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    check_home(str(tmp_path), (4, 3))
    (tmp_path / "jars/spark-core_2.13-4.3.1.jar").rename(tmp_path / "jars/spark-core_2.12-3.5.6-amzn-1.jar")
    with pytest.raises(SparkMissing, match=r"which is Spark 3\.5\.6-amzn-1, and pyspark is 4\.3: unset SPARK_HOME"):
        check_home(str(tmp_path), (4, 3))
