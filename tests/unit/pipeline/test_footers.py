"""Footers of Parquet files: which columns there are in any of them, and which files can have the rows in question."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.pipeline.jobs.tables.footers import all_columns, footers_of, has_any, has_between, has_one_of
from gateway.pipeline.land.objects import StoreSettings, open_store

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")


def footers(folder: Path, *tables: dict[str, Any], **how: Any) -> list[Any]:
    import pyarrow.parquet as pq

    names = [f"{number}.parquet" for number in range(len(tables))]
    for name, columns in zip(names, tables, strict=True):
        pq.write_table(pa.table(columns), folder / name, row_group_size=2, **how)
    return footers_of(open_store(str(folder), StoreSettings()), names)


def test_columns_of_a_job_that_has_changed(tmp_path: Path) -> None:
    short, long = pa.array([1], pa.int32()), pa.array([1], pa.int64())
    found = footers(
        tmp_path, {"n": short, "kind": ["x"]}, {"n": long, "more": [True], "kind": [1]}, {"kind": [2.5], "n": short}
    )
    assert all_columns(found) == pa.schema([("n", pa.int64()), ("kind", pa.string()), ("more", pa.bool_())])


def test_files_that_have_a_value(tmp_path: Path) -> None:
    none = pa.array([None] * 5, pa.int32())
    found = footers(
        tmp_path, {"r": none}, {"r": pa.array([None] * 4 + [2085], pa.int32())}, {"seq": [1]}, {"r": none[:0]}
    )
    assert [has_any(each, "r") for each in found] == [False, True, False, False]
    assert has_any(*footers(tmp_path, {"r": none}, write_statistics=False), "r"), "it does not say"


def test_files_that_have_one_of_some_values(tmp_path: Path) -> None:
    import numpy as np

    found = footers(tmp_path, {"seq": [1, 2, 3]}, {"seq": [4, 5, 8, 9]}, {"seq": [10]})
    for values, expected in (([3, 7, 10], [1, 0, 1]), ([5, 6], [0, 1, 0]), ([6, 7], [0, 0, 0]), ([], [0, 0, 0])):
        assert [has_one_of(each, "seq", np.array(values, dtype=np.int64)) for each in found] == list(
            map(bool, expected)
        )
    (silent,) = footers(tmp_path, {"seq": [1]}, write_statistics=False)
    assert has_one_of(silent, "seq", np.array([7]))


def test_files_that_have_a_value_between_two(tmp_path: Path) -> None:
    at = pa.array([datetime(2026, 11, 29, 1, tzinfo=UTC), None, datetime(2026, 11, 29, 2, tzinfo=UTC)])
    (found,) = footers(tmp_path, {"n": [3, 4, 5], "at": at, "name": ["b", "d", "c"], "x": [0.5, 1.5, None]})
    hour = 3_600_000_000
    first = 20_786 * 24 * hour + hour
    cases = {
        ("n", 5, None): True, ("n", 6, None): False, ("n", None, 3): True, ("n", None, 2): False, ("N", 6, 9): False,
        ("at", first + hour, None): True, ("at", first + hour + 1, None): False, ("at", None, first - 1): False,
        ("name", "d", "z"): True, ("name", "e", None): False, ("name", None, "a"): False, ("name", 1, 2): True,
        ("x", 7, None): True, ("gone", 1, None): False,
    }  # fmt: skip
    assert {case: has_between(found, *case) for case in cases} == cases
    (silent,) = footers(tmp_path, {"n": [3]}, write_statistics=False)
    assert has_between(silent, "n", 9, None)
