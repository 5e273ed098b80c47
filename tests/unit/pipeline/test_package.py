"""The file for --py-files: complete, the same each time, and importable where mqgate is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from device_fleet import write_journal

from gateway.pipeline.jobs.spark.spark_session import write_package

READ = """
import sys, pkgutil
assert not any("__editable__" in name for name in sys.modules)
assert "pyspark_mqqueue" in [module.name for module in pkgutil.iter_modules()]
import gateway
assert gateway.__file__.startswith(sys.argv[1]), gateway.__file__
from pyspark_mqqueue import DefaultSource
reader = DefaultSource({"path": sys.argv[2], "queue": "*", "columns": "seq,topic,payload"})
source = reader.reader(reader.schema())
print(sum(batch.num_rows for part in source.partitions() for batch in source.read(part)))
"""


def test_the_same_sources_give_the_same_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one.zip", tmp_path / "two.zip"
    assert write_package(one) == write_package(two)
    assert one.read_bytes() == two.read_bytes()
    names = zipfile.ZipFile(one).namelist()
    assert {"pyspark_mqqueue/__init__.py", "gateway/pipeline/source/source.py", "gateway/mq/headers/rfh2.py"} <= set(
        names
    )


def test_it_reads_a_journal_where_nothing_is_installed(tmp_path: Path) -> None:
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install '.[spark]'")
    write_journal(tmp_path / "j", 300)
    package = tmp_path / "mqgate.zip"
    write_package(package)
    path = os.pathsep.join([str(package), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    done = subprocess.run(  # -S: without the .pth files by which a checkout is installed
        [sys.executable, "-S", "-W", "ignore", "-c", READ, str(package), str(tmp_path / "j")],
        env={**os.environ, "PYTHONPATH": path}, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "300", done.stderr
