"""What is looked up as one run is what a look at every run finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.queue_manager.store.index import Index, TokenRun
from gateway.queue_manager.store.place import NUMBER_BITS, ROW_BITS, VOLATILE

RANK = 3


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4), st.lists(st.integers(1, 24), max_size=5), st.integers(1, 26),
    st.integers(1, 6), st.booleans(),
)  # fmt: skip
def test_one_run_is_what_a_look_at_every_run_finds(
    frames: list[int], gone: list[int], first: int, count: int, volatile: bool
) -> None:
    index, number, name = Index(), 1, ("Q", b"k", RANK)
    index.space.open(1, 0)
    for at, rows in enumerate(frames):
        index.put([(name, rows)], number, ((VOLATILE if volatile else 0) | at) << ROW_BITS)
        number += rows
    index.take([TokenRun(name, one, 1) for one in gone], None)
    token = RANK << NUMBER_BITS | first
    runs, missing = index.runs_of("Q", b"k", [(token, count)])
    found = index.run_of("Q", b"k", token, count)
    assert found == (runs[0] if len(runs) == 1 and not missing else None)
