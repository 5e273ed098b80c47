"""What Prometheus sees: one collector that reads the plain counters and the gauges when it is scraped.

The only module that may import prometheus_client. Nothing here runs between scrapes. `render` must be called in the
reactor thread (the counters belong to it); a scrape of 1,500 series takes some milliseconds.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from gateway.ports.counters import (
    CATALOGUE,
    OTHER_ROUTE,
    PREFIX,
    ROUTE,
    Counters,
    Label,
    LabelValues,
    Metric,
)

Read = Callable[[], float | Mapping[Any, float]]
"""A gauge: one number, or a number by label values (one label as it is, several as a tuple in the catalogue's order).
A gauge that raises is left out of that scrape."""


ZEROED = frozenset({"mqtt_connections", "mqtt_sessions", "mqtt_listener_sessions"})
"""Gauges that show 0 for every label value with nothing to count: no connections is not 'no data'."""


@dataclass(slots=True)
class Gauges:
    """Gauges: read at the scrape, not counted. One left out has no series, as `spool_bytes` without a buffer or
    journal."""

    build_info: Read | None = None
    route_info: Read | None = None
    config_last_reload_successful: Read | None = None
    config_last_reload_timestamp_seconds: Read | None = None
    worker_up: Read | None = None
    token_keys_age_seconds: Read | None = None
    mqtt_connections: Read | None = None
    mqtt_connections_limit: Read | None = None
    mqtt_sessions: Read | None = None
    mqtt_listener_sessions: Read | None = None
    mqtt_sessions_limit: Read | None = None
    mqtt_inflight_messages: Read | None = None
    mqtt_subscriptions: Read | None = None
    mqtt_retained_messages: Read | None = None
    messages_held: Read | None = None
    set_aside_messages: Read | None = None
    dlq_depth: Read | None = None
    spool_messages: Read | None = None
    spool_bytes: Read | None = None
    spool_limit_bytes: Read | None = None
    spool_full_since_seconds: Read | None = None
    spool_oldest_message_age_seconds: Read | None = None
    spool_state: Read | None = None
    queue_depth: Read | None = None
    queue_max_depth: Read | None = None
    queue_high_depth: Read | None = None
    queue_oldest_message_age_seconds: Read | None = None
    queue_incomplete_messages: Read | None = None
    mq_connections: Read | None = None
    backpressure_paused_connections: Read | None = None
    tls_certificate_not_after_timestamp_seconds: Read | None = None
    tls_crl_next_update_timestamp_seconds: Read | None = None
    tls_handshakes_waiting: Read | None = None


def build_info(version: str, backend: str, gateway: str) -> Read:
    """The gauge with the version, the backend and the gateway's name as labels."""
    values = {(version, platform.python_version(), backend, gateway): 1.0}
    return lambda: values


def registry_of(counters: Counters, gauges: Gauges) -> CollectorRegistry:
    """The registry /metrics is rendered from: the catalogue, and the process's memory, CPU, descriptors and GC."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Catalogue(counters, gauges))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """The exposition and its content type: OpenMetrics if `accept` asks for it, the plain text format otherwise."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Catalogue(Collector):
    """All metrics of the catalogue, read at the moment of the scrape."""

    def __init__(self, counters: Counters, gauges: Gauges) -> None:
        self._counters = counters
        self._gauges = gauges

    def collect(self) -> Iterable[Family]:
        for metric in CATALOGUE:
            family = self._gauge(metric) if metric.kind == "gauge" else self._counted(metric)
            if family is not None:
                yield family

    def _gauge(self, metric: Metric) -> Family | None:
        read: Read | None = getattr(self._gauges, metric.name)
        if read is None:
            return None
        try:
            found = read()
        except Exception:  # noqa: BLE001 - one broken gauge must not take the other series away from the alerts
            return None
        family = GaugeMetricFamily(PREFIX + metric.name, metric.text, labels=_label_names(metric))
        values = found if isinstance(found, Mapping) else {(): found}
        if metric.name in ZEROED:
            values = {
                **dict.fromkeys(product(*map(self._counters.names.values, metric.labels)), 0.0),
                **_tupled(values),
            }
        for labels, value in _folded(metric, _tupled(values).items(), self._counters):
            family.add_metric(labels, value)
        return family

    def _counted(self, metric: Metric) -> Family:
        series = self._counters.series(metric)
        if metric.kind == "counter":
            counter = CounterMetricFamily(PREFIX + metric.name, metric.text, labels=_label_names(metric))
            for labels, count in _folded(metric, series.items(), self._counters):
                counter.add_metric(labels, count)
            return counter
        histogram = HistogramMetricFamily(PREFIX + metric.name, metric.text, labels=_label_names(metric))
        for key, value in series.items():
            histogram.add_metric([str(part) for part in key], list(value.cumulative()), value.total)
        return histogram


def _tupled(values: Mapping[Any, float]) -> dict[LabelValues, float]:
    return {key if isinstance(key, tuple) else (key,): value for key, value in values.items()}


def _label_names(metric: Metric) -> list[str]:
    return [label.name for label in metric.labels]


def _folded(
    metric: Metric, series: Iterable[tuple[LabelValues, float]], counters: Counters
) -> Iterator[tuple[list[str], float]]:
    """Series as text, values outside their closed set added up as `other` and routes beyond the limit as `_other`."""
    allowed = [_allowed(label, counters) for label in metric.labels]
    sums: dict[tuple[str, ...], float] = {}
    for key, value in series:
        labels = tuple(
            str(part) if known is None or part in known else other
            for part, (known, other) in zip(key, allowed, strict=True)
        )
        sums[labels] = sums.get(labels, 0.0) + value
    for labels, value in sums.items():
        yield list(labels), value


def _allowed(label: Label, counters: Counters) -> tuple[frozenset[object] | None, str]:
    """The values of `label` that are shown (None: all), and what the others are shown as."""
    if label is ROUTE:
        shown = counters.names.with_series(label)
        return (frozenset(shown) if OTHER_ROUTE in shown else None), OTHER_ROUTE
    return (frozenset(label.values) if label.values else None), "other"
