"""What tasks tell of put times stands for all rows: the driver's figures are near those of every row together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")

from gateway.pipeline.source.put_times import PutTimes, waited  # noqa: E402

NOW = 2_000_000.0
RUNS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**6), st.integers(1, 3000)), min_size=1, max_size=4)
"""Record batches: first put time, distance of the rows, rows."""


def told(runs: list[tuple[int, int, int]]) -> tuple[bytes, int]:
    times = PutTimes()
    for run in runs:
        times.add(put(run))
    return times.as_bytes(), sum(rows for _, _, rows in runs)


def put(run: tuple[int, int, int]) -> object:
    first, distance, rows = run
    return first + distance * np.arange(rows, dtype=np.int64)


@given(st.lists(RUNS, min_size=1, max_size=4))
def test_the_wait_of_files_is_that_of_their_rows(files: list[list[tuple[int, int, int]]]) -> None:
    found = waited([told(runs) for runs in files], NOW)
    assert found is not None
    every = NOW - np.concatenate([put(run) for runs in files for run in runs]) / 1e6
    for wait, share in zip(found, (0.5, 0.99), strict=True):
        shorter, longer = np.mean(every < wait - 1e-6), np.mean(every > wait + 1e-6)
        assert shorter <= share + 0.02
        assert longer <= 1 - share + 0.02


def test_one_row_of_a_file_is_told_and_rows_without_a_time_are_not() -> None:
    assert waited([told([(1_000_000, 0, 1)])], 3.0) == (2.0, 2.0)
    assert waited([(b"", 12)], 3.0) is None
    assert PutTimes().as_bytes() == b""
    assert waited([told([(5_000_000, 0, 1)])], 3.0) == (0.0, 0.0), "a clock that is ahead"
