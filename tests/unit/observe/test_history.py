"""The samples behind the charts."""

from __future__ import annotations

import pytest

from gateway.observe.history import DAY, IDLE_SAMPLES, KINDS, RECENT, STEP_SECONDS, History


def sampled(history: History, times: int, rate: float, start: float = 0.0) -> float:
    """Add samples with a total that grows by `rate` a second; returns the time after the last one."""
    now = start
    for _ in range(times):
        history.sample(now, {("gateway", ""): {"received": rate * now, "connections": now}})
        now += STEP_SECONDS
    return now


def test_totals_become_rates_and_levels_stay() -> None:
    history = History()
    history.sample(100.0, {("gateway", ""): {"received": 10, "put": 10, "sent": 0, "connections": 3}})
    history.sample(105.0, {("gateway", ""): {"received": 60, "put": 35, "connections": 4, "latency_p99_ms": None}})
    columns = history.columns()
    assert columns["time"] == [105.0]
    assert (columns["received"], columns["put"], columns["sent"]) == ([10.0], [5.0], [0.0])
    assert (columns["connections"], columns["latency_p99_ms"]) == ([4.0], [None])


def test_ten_minutes_are_kept_in_steps_of_five_seconds_and_a_day_in_minutes() -> None:
    history = History()
    now = sampled(history, 12 * (DAY + 400), 7.0)
    recent = history.columns(seconds=600, now=now)
    assert recent["step_seconds"] == STEP_SECONDS
    assert len(recent["time"]) == RECENT  # type: ignore[arg-type]
    day = history.columns(seconds=86_400, now=now)
    assert (day["step_seconds"], len(day["time"])) == (60.0, DAY)  # type: ignore[arg-type]
    assert set(day["received"]) == {7.0}  # type: ignore[call-overload]
    hour = history.columns(seconds=3600, now=now)
    assert len(hour["time"]) == 60  # type: ignore[arg-type]


def test_a_counter_that_starts_again_is_no_negative_rate() -> None:
    history = History()
    for now, total in ((0, 100), (5, 200), (10, 3)):
        history.sample(float(now), {("client", "a"): {"received": total, "sent": 0}})
    assert history.columns(("client", "a"))["received"] == [20.0, 0.0]


def test_a_series_that_begins_later_has_nothing_before() -> None:
    history = History()
    history.sample(0.0, {("gateway", ""): {}})
    history.sample(5.0, {("gateway", ""): {}, ("queue", "Q"): {"depth": 1}})
    history.sample(10.0, {("gateway", ""): {}, ("queue", "Q"): {"depth": 2}})
    columns = history.columns(("queue", "Q"))
    assert (columns["time"], columns["depth"]) == ([5.0, 10.0], [None, 2.0])
    assert history.columns(("queue", "NONE"))["depth"] == [None, None]


def test_there_is_room_for_so_many_clients_and_the_idle_ones_make_room() -> None:
    history, most = History(), KINDS["client"].most
    everybody = {("client", str(n)): {"received": 0, "sent": 0} for n in range(most)}
    history.sample(0.0, everybody)
    late = ("client", "late")
    for n in range(1, IDLE_SAMPLES + 3):
        assert len(history.names("client")) == most
        history.sample(
            n * STEP_SECONDS, {late: {"received": n, "sent": 0}, ("client", "0"): {"received": n, "sent": 0}}
        )
    assert "late" in history.names("client")
    assert "0" in history.names("client")
    assert len(history.names("client")) == most


def test_what_an_earlier_process_has_kept_is_continued() -> None:
    first = History()
    minutes = []
    for n in range(25):
        rows = first.sample(n * STEP_SECONDS, {("queue", "Q"): {"put": 10 * n, "got": 0, "depth": n}})
        if rows is not None:
            minutes.append((n * STEP_SECONDS, rows))
    second = History()
    second.restore(200.0, [*minutes, (-90_000.0, {("queue", "Q"): (1.0, 1.0, 1.0)})])
    columns = second.columns(("queue", "Q"), 3600, 200.0)
    assert columns["put"] == [2.0, 2.0]
    assert columns["depth"] == [11.0, 23.0]
    assert columns["time"] == [55.0, pytest.approx(115.0)]


def test_a_clock_that_is_set_back_leaves_no_samples_of_the_future_and_no_time_twice() -> None:
    history = History()
    sampled(history, 20, 1.0, 1000.0)
    sampled(history, 10, 2.0, 9_000_000.0)
    now = sampled(history, 10, 3.0, 1050.0) - STEP_SECONDS
    times = history.columns(seconds=600, now=now)["time"]
    assert times == sorted(set(times))
    assert times[-1] == now
    assert times[0] == 1000.0 + STEP_SECONDS
