"""What Prometheus sees: one collector that reads the plain counters and the gauges when it is scraped.

This is the only module that may import prometheus_client. Nothing here runs between scrapes. A scrape is rendered in
the reactor's thread, to which the counters belong, and in steps: five hundred rules and ten thousand queues are half a
second of work.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
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

Read = Callable[[], float | Mapping[Any, float] | Iterator[tuple[LabelValues, float] | None]]
"""Reads a gauge: one number, or a number by label values (one label as it is, several as a tuple in the catalogue's
order). If there are very many, it yields them one after the other, each read at its step (None: it has no number). A
gauge that raises is left out of that scrape, with what has not been read yet."""


ZEROED = frozenset({"mqtt_connections", "mqtt_sessions", "mqtt_listener_sessions"})
"""Gauges that show 0 for every label value with nothing to count: no connections is not the same as no data."""

Series = tuple[Any, ...]
"""One series of a family: its labels, and its value."""
SERIES_IN_A_STEP = 100
_STEP = Family("step", "", "untyped")
FAMILIES: dict[str, Callable[..., Any]] = {
    "gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily,
}  # fmt: skip
_HEAD_LINES = 2
"""The number of lines for HELP and TYPE of a family."""
_OPEN_METRICS = "application/openmetrics-text"
_END = b"# EOF\n"
"""The end of an OpenMetrics exposition."""


@dataclass(slots=True)
class Gauges:
    """Gauges, which are read at the scrape instead of counted. One that is left out has no series, like `spool_bytes`
    without a buffer or journal."""

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
    """Returns the gauge with the version, the backend and the gateway's name as labels."""
    values = {(version, platform.python_version(), backend, gateway): 1.0}
    return lambda: values


def registry_of(counters: Counters, gauges: Gauges) -> CollectorRegistry:
    """Returns the registry from which /metrics is rendered: the catalogue, and the process's memory, CPU, descriptors
    and GC."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Catalogue(counters, gauges))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry, accept: str = "") -> Generator[None, None, tuple[bytes, str]]:
    """Render some series at each step; returns the exposition and its content type: OpenMetrics if `accept` asks for
    it, otherwise the plain text format."""
    encode, content_type = choose_encoder(accept)
    texts, before = list[bytes](), ""
    for family in registry.collect():
        if family is _STEP:
            yield
            continue
        text = encode(_Only(family)).removesuffix(_END)
        texts.append(text if family.name != before else text.split(b"\n", _HEAD_LINES)[_HEAD_LINES])
        before = family.name
        yield
    if content_type.startswith(_OPEN_METRICS):
        texts.append(_END)
    return b"".join(texts), content_type


def rendered(registry: CollectorRegistry, accept: str = "") -> tuple[bytes, str]:
    """Returns the exposition and its content type at once, where no device waits."""
    steps = render(registry, accept)
    while True:
        try:
            next(steps)
        except StopIteration as over:
            body, content_type = over.value
            return body, content_type


class _Only(Collector):
    """Collects one family, or a part of it."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterable[Family]:
        return (self._family,)


class _Catalogue(Collector):
    """All metrics of the catalogue, each read when its turn comes; a metric with many series becomes several families
    of the same name."""

    def __init__(self, counters: Counters, gauges: Gauges) -> None:
        self._counters = counters
        self._gauges = gauges

    def collect(self) -> Iterable[Family]:
        """Yields families, and _STEP after much has been read without a series to show for it."""
        for metric in CATALOGUE:
            series = self._gauge(metric) if metric.kind == "gauge" else self._counted(metric)
            if series is not None:
                yield from _families(metric, series)

    def _gauge(self, metric: Metric) -> Iterator[Series | None] | None:
        read: Read | None = getattr(self._gauges, metric.name)
        if read is None:
            return None
        try:
            found = read()
        except Exception:  # noqa: BLE001 - one broken gauge must not take the other series away from the alerts
            return None
        if isinstance(found, Iterator):
            return _folded(metric, _whole(found), self._counters)
        values = found if isinstance(found, Mapping) else {(): found}
        if metric.name in ZEROED:
            values = {
                **dict.fromkeys(product(*map(self._counters.names.values, metric.labels)), 0.0),
                **_tupled(values),
            }
        return _folded(metric, _tupled(values).items(), self._counters)

    def _counted(self, metric: Metric) -> Iterator[Series | None]:
        series = self._counters.series(metric)
        if metric.kind == "counter":
            return _folded(metric, series.items(), self._counters)
        there = list(series.items())  # more may be added between two steps
        return (([str(part) for part in key], list(value.cumulative()), value.total) for key, value in there)


def _families(metric: Metric, series: Iterable[Series | None]) -> Iterator[Family]:
    """Yields families with a limited number of series each; at least one, which says that the metric exists."""
    some, shown = list[Series](), False
    for one in series:
        if one is None:
            yield _STEP
            continue
        some.append(one)
        if len(some) == SERIES_IN_A_STEP:
            yield _family(metric, some)
            some, shown = [], True
    if some or not shown:
        yield _family(metric, some)


def _family(metric: Metric, some: list[Series]) -> Family:
    names = [label.name for label in metric.labels]
    family = FAMILIES[metric.kind](PREFIX + metric.name, metric.text, labels=names)
    for one in some:
        family.add_metric(*one)
    made: Family = family
    return made


def _whole(series: Iterator[tuple[LabelValues, float] | None]) -> Iterator[tuple[LabelValues, float] | None]:
    """Yields the series up to where reading raises."""
    with suppress(Exception):  # as in `_gauge`
        yield from series


def _tupled(values: Mapping[Any, float]) -> dict[LabelValues, float]:
    return {key if isinstance(key, tuple) else (key,): value for key, value in values.items()}


def _folded(
    metric: Metric, series: Iterable[tuple[LabelValues, float] | None], counters: Counters
) -> Iterator[Series | None]:
    """Yields series as text, with values outside their closed set added up as `other` and routes beyond the limit as
    `_other`."""
    allowed = [_allowed(label, counters) for label in metric.labels]
    if all(known is None for known, _ in allowed):  # then no value is shown as another: there may be ten thousand
        yield from (one and ([str(part) for part in one[0]], one[1]) for one in series)
        return
    sums: dict[tuple[str, ...], float] = {}
    for number, one in enumerate(series):
        if number % SERIES_IN_A_STEP == SERIES_IN_A_STEP - 1:
            yield None
        if one is None:
            continue
        key, value = one
        labels = tuple(
            str(part) if known is None or part in known else other
            for part, (known, other) in zip(key, allowed, strict=True)
        )
        sums[labels] = sums.get(labels, 0.0) + value
    for labels, value in sums.items():
        yield list(labels), value


def _allowed(label: Label, counters: Counters) -> tuple[frozenset[object] | None, str]:
    """Returns the values of `label` that are shown (None: all), and as what the others are shown."""
    if label is ROUTE:
        shown = counters.names.with_series(label)
        return (frozenset(shown) if OTHER_ROUTE in shown else None), OTHER_ROUTE
    return (frozenset(label.values) if label.values else None), "other"
