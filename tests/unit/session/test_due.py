"""gateway.session.due: what is due when, however often it changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.session.due import AT_ONCE, LEAST, Due


def test_times_that_do_not_count_any_more_are_dropped_a_little_at_a_time() -> None:
    looked, names, current = 0, 2000, dict[str, float]()

    def counts(time: float, name: str) -> bool:
        nonlocal looked
        looked += 1
        return current[name] == time

    due = Due(counts)
    for number in range(20 * names):
        name, before = f"n{number % names}", looked
        current[name] = float(number)
        due.note(float(number), name)
        assert looked - before <= AT_ONCE
        assert len(due) <= LEAST + 4 * names
    assert looked > names
    named = list(due.over(1e9))
    assert named[-names:] == [f"n{number}" for number in range(names)]
    assert len(due) == 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20)), max_size=60), st.integers(1, 20))
def test_each_is_named_when_it_is_due(noted: list[tuple[str, int]], now: int) -> None:
    current = dict[str, float]()
    due = Due(lambda time, name: current.get(name) == time)
    due._most = 5
    for name, time in noted:
        current[name] = time
        due.note(time, name)
    named = list(due.over(now))
    assert {name for name, time in current.items() if time <= now} <= set(named)
    assert {name for name, time in current.items() if time > now} <= set(due.over(20))
