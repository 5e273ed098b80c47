"""The catalogue and the counters agree with each other, and every series is there from the start."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports import counters as c

NAMES = c.Names(("plain", "tls"), ("temperature", "commands"), ("QM1",), ("0", "1"), ("T.LIMA",))


def counted() -> list[c.Metric]:
    return [metric for metric in c.CATALOGUE if metric.kind != "gauge"]


@pytest.mark.parametrize("metric", counted(), ids=lambda metric: metric.name)
def test_every_series_of_a_metric_exists_at_zero_from_the_start(metric: c.Metric) -> None:
    series = c.Counters(NAMES).series(metric)
    expected = 1
    for label in metric.labels:
        expected *= len(NAMES.values(label))
    assert len(series) == expected > 0
    for key, value in series.items():
        assert len(key) == len(metric.labels)
        assert value == 0 if metric.kind == "counter" else sum(value.buckets) == 0


def test_names_are_unique_and_every_counter_is_in_the_catalogue() -> None:
    names = [metric.name for metric in c.CATALOGUE]
    assert len(names) == len(set(names))
    held = set(c.Counters.__slots__) - {"names", "examples", "bytes_in", "bytes_out", "packets_in", "packets_out"}
    assert held | {"mqtt_packets", "mqtt_bytes"} == {metric.name for metric in counted()}


def test_a_reload_adds_series_and_keeps_counts() -> None:
    counters = c.Counters(NAMES)
    counters.route_matched["temperature"] += 7
    counters.declare(c.Names(NAMES.listeners, ("temperature", "pressure"), NAMES.queue_managers))
    assert counters.route_matched["temperature"] == 7
    assert "pressure" in counters.route_matched


def test_a_reload_touches_the_series_of_new_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be tens of thousands of series, and everybody waits while they are touched."""
    routes = tuple(f"r{number}" for number in range(c.MAX_ROUTES - 1))
    counters, touched, touch = c.Counters(c.Names(("plain",), routes)), list[object](), c._Counts.touch
    monkeypatch.setattr(c._Counts, "touch", lambda counts, key: touched.append(key) or touch(counts, key))
    counters.declare(c.Names(("plain",), (*routes,)))
    assert not touched
    counters.declare(c.Names(("plain",), ("new", *routes[1:])))
    assert touched
    assert all(key == "new" or "new" in key for key in touched)
    fresh = c.Counters(c.Names(("plain",), ("new", *routes)))
    for metric in counted():
        if metric.kind == "counter" and metric.labels and metric.name != "mqtt_packets":
            there = {key for key in fresh.series(metric) if c.OTHER_ROUTE not in key}
            assert there <= set(counters.series(metric))


def test_an_undeclared_name_counts_from_nothing() -> None:
    counters = c.Counters()
    counters.messages_dropped["new", "expired"] += 3
    counters.mqtt_puback_seconds[1].observe_many(0.002, 5)
    assert counters.messages_dropped["new", "expired"] == 3
    assert sum(counters.mqtt_puback_seconds[1].buckets) == 5


def test_packets_and_bytes_are_counted_by_direction() -> None:
    counters = c.Counters()
    counters.packets_in[3] += 100
    counters.packets_out[4] += 99
    counters.bytes_out += 396
    packets = counters.series(c.BY_NAME["mqtt_packets"])
    assert packets["in", "publish"] == 100
    assert packets["out", "puback"] == 99
    assert counters.series(c.BY_NAME["mqtt_bytes"]) == {("in",): 0, ("out",): 396}


@given(st.lists(st.one_of(st.sampled_from(c.LATENCY_BUCKETS), st.floats(0, 100))))
def test_a_histogram_counts_what_lies_at_or_below_each_bound(values: list[float]) -> None:
    histogram = c.Histogram(c.LATENCY_BUCKETS)
    histogram.observe_each(values)
    cumulative = list(histogram.cumulative())
    for bound, count in cumulative:
        assert count == sum(value <= float(bound) for value in values)
    assert cumulative[-1] == ("+Inf", len(values))
    assert all(before <= after for (_, before), (_, after) in pairwise(cumulative))
    assert histogram.total == pytest.approx(sum(values))


def test_mqrc_labels_are_a_closed_set() -> None:
    assert c.mqrc_label(2053) == "MQRC_Q_FULL"
    assert c.mqrc_label(9999) == "other"
    assert len(c.MQRC_LABELS) == 26
