"""The charts' memory: totals become rates, it never grows beyond ten minutes, a clock that jumps does no harm."""

from __future__ import annotations

from gateway.observe.history import KEPT, STEP_SECONDS, History


def test_totals_become_rates_and_levels_stay() -> None:
    history = History()
    history.sample(100.0, {"received": 10, "put": 10, "sent": 0, "connections": 3})
    history.sample(105.0, {"received": 60, "put": 35, "sent": 0, "connections": 4, "latency_p99_ms": None})
    columns = history.columns()
    assert columns["received"] == [10.0]
    assert columns["put"] == [5.0]
    assert columns["connections"] == [4]
    assert columns["latency_p99_ms"] == [None]
    assert columns["step_seconds"] == STEP_SECONDS


def test_memory_is_bounded() -> None:
    history = History()
    for n in range(KEPT * 2):
        history.sample(float(n), {"received": n})
    assert len(history.columns()["received"]) == KEPT  # type: ignore[arg-type]


def test_a_clock_that_jumps_back_and_a_restarted_total_give_no_nonsense() -> None:
    history = History()
    history.sample(100.0, {"received": 500})
    history.sample(90.0, {"received": 600})
    history.sample(95.0, {"received": 10})
    assert history.columns()["received"] == [0.0]
