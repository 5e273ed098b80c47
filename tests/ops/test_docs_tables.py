"""The examples of the guide that read landed tables, run as they are written on tables like those that a job lands."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

GUIDE = Path(__file__).parents[2] / "docs/howto/pipeline.md"
AT = datetime(2026, 11, 23, 12, tzinfo=UTC)
ROWS = {"device": ["a", "a", "b"], "temperature": [20.0, 22.0, 5.0], "put_ts": [AT] * 3}


def example(containing: str, language: str = "python") -> str:
    """The one block of the guide that has this in it."""
    blocks = re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def said(code: str, folder: Path) -> str:
    """What a program of its own prints there."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Two batches of plain Parquet, the second with a column that the job has gained, and a row in quarantine."""
    import pyarrow.parquet as pq

    for batch, status, rows in [
        ("1-2", "ok", ROWS),
        ("3-4", "ok", {**ROWS, "n": [1, 2, 3]}),
        ("3-4", "quarantine", {"device": ["c"], "error": ["not_json"]}),
    ]:
        part = tmp_path / f"lake/readings/batch={batch}/status={status}"
        part.mkdir(parents=True)
        pq.write_table(pa.table(rows), part / "part-0.parquet")
    return tmp_path


def test_plain_parquet_by_duckdb(lake: Path) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed: tests/run installs it")
    query = example("lake/readings/*/status=ok", "sql")
    assert (
        said(f"import duckdb; print(sorted(duckdb.sql({query!r}).fetchall()))", lake) == "[('a', 21.0), ('b', 5.0)]\n"
    )


def test_plain_parquet_by_pyarrow(lake: Path) -> None:
    code = example("pa.unify_schemas") + "\nprint(table.num_rows, table['n'].to_pylist())"
    assert said(code, lake) == "6 [None, None, None, 1, 2, 3]\n"


def test_plain_parquet_by_polars(lake: Path) -> None:
    pytest.importorskip("polars", reason="polars is not installed")
    wanted = "polars.scan_pyarrow_dataset(readings)"
    assert wanted in GUIDE.read_text(encoding="utf-8")
    code = example("pa.unify_schemas") + f"import polars\nprint({wanted}.filter(polars.col('n') > 1).collect().height)"
    assert said(code, lake) == "2\n"


def test_delta_by_its_log(tmp_path: Path) -> None:
    delta = pytest.importorskip("deltalake", reason="deltalake is not installed: pip install '.[delta]'")
    pytest.importorskip("duckdb", reason="duckdb is not installed: tests/run installs it")
    rows = pa.table({**ROWS, "status": ["ok"] * 3, "batch": ["1-2"] * 3})
    delta.write_deltalake(str(tmp_path / "lake/readings"), rows, partition_by=["batch", "status"])
    code = example("to_pyarrow_dataset")
    if find_spec("polars") is None:
        code = re.sub(r".*\bpolars\b.*\n", "", code)
    assert re.search(r"│ a +│ +21\.0 │", said(code, tmp_path))


def test_iceberg_by_its_catalog(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install '.[iceberg]'")
    pytest.importorskip("duckdb", reason="duckdb is not installed: tests/run installs it")
    from pyiceberg.catalog import load_catalog

    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = load_catalog("mqgate", type="sql", **place)
    catalog.create_namespace("plant")
    rows = pa.table({**ROWS, "status": ["ok", "ok", "quarantine"]})
    catalog.create_table("plant.readings", rows.schema).append(rows)
    code = example('scan(\n    row_filter="status')
    assert re.search(r"│ a +│ +21\.0 │", said(code, tmp_path))
