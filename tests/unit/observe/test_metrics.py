"""/metrics: complete from the first scrape, with closed label sets, and not affected by one bad gauge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.observe import metrics
from gateway.ports.counters import CATALOGUE, MAX_ROUTES, Counters, Names

NAMES = Names(("plain",), ("temperature",), ("QM1",), ("0",), ("T",))


def scrape(
    counters: Counters, gauges: metrics.Gauges | None = None
) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    body, _ = metrics.rendered(metrics.registry_of(counters, gauges or metrics.Gauges()))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def of(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


def test_gauges_and_catalogue_agree() -> None:
    gauges = {metric.name for metric in CATALOGUE if metric.kind == "gauge"}
    assert {field.name for field in fields(metrics.Gauges)} == gauges


def test_every_counter_and_histogram_is_there_at_the_first_scrape() -> None:
    names = {name for name, _ in scrape(Counters(NAMES))}
    for metric in CATALOGUE:
        if metric.kind != "gauge":
            assert metric.exposed_name + ("_bucket" if metric.kind == "histogram" else "") in names


def test_what_was_counted_is_what_is_shown() -> None:
    counters = Counters(NAMES)
    counters.mqtt_publish_received["temperature", 1] += 42
    counters.bridge_latency_seconds["in"].observe_many(0.003, 10)
    shown = scrape(counters)
    assert shown[of("mqgate_mqtt_publish_received_total", route="temperature", qos="1")] == 42
    assert shown[of("mqgate_bridge_latency_seconds_bucket", direction="in", le="0.0025")] == 0
    assert shown[of("mqgate_bridge_latency_seconds_bucket", direction="in", le="0.005")] == 10
    assert shown[of("mqgate_bridge_latency_seconds_count", direction="in")] == 10


def test_gauges_are_read_when_scraped_and_absent_ones_have_no_series() -> None:
    depth = {"T": 3.0}
    gauges = metrics.Gauges(
        queue_depth=lambda: depth,
        mqtt_subscriptions=lambda: 5,
        mq_connections=lambda: {("QM1", "0"): 4},
        build_info=metrics.build_info("1.2.3", "embedded", "edge-1"),
    )
    counters = Counters(NAMES)
    assert scrape(counters, gauges)[of("mqgate_queue_depth", queue="T")] == 3
    depth["T"] = 9.0
    shown = scrape(counters, gauges)
    assert shown[of("mqgate_queue_depth", queue="T")] == 9
    assert shown[of("mqgate_mqtt_subscriptions")] == 5
    assert shown[of("mqgate_mq_connections", qmgr="QM1", worker="0")] == 4
    assert not [name for name, _ in shown if name.startswith("mqgate_spool_bytes")]


def test_nobody_connected_is_zero_and_not_absent() -> None:
    shown = scrape(Counters(NAMES), metrics.Gauges(mqtt_connections=lambda: {("plain", "5.0"): 2}))
    assert shown[of("mqgate_mqtt_connections", listener="plain", protocol="5.0")] == 2
    assert shown[of("mqgate_mqtt_connections", listener="plain", protocol="3.1")] == 0
    assert not [name for name, _ in shown if name == "mqgate_mqtt_sessions"]


def test_one_failing_gauge_does_not_take_the_others_away() -> None:
    def broken() -> float:
        raise OSError

    shown = scrape(Counters(NAMES), metrics.Gauges(queue_depth=broken, mqtt_subscriptions=lambda: 1))
    assert of("mqgate_mqtt_subscriptions") in shown
    assert not [name for name, _ in shown if name == "mqgate_queue_depth"]


def test_a_label_value_outside_its_closed_set_is_shown_as_other() -> None:
    counters = Counters(NAMES)
    counters.mq_errors["QM1", "put", "MQRC_OF_TOMORROW"] += 2
    counters.mq_errors["QM1", "put", "other"] += 3
    assert scrape(counters)[of("mqgate_mq_errors_total", qmgr="QM1", call="put", reason="other")] == 5


def test_routes_beyond_the_limit_share_a_series() -> None:
    routes = tuple(f"r{n}" for n in range(MAX_ROUTES + 50))
    counters = Counters(Names(routes=routes))
    for route in routes:
        counters.route_matched[route] += 1
    shown = {
        labels: value for (name, labels), value in scrape(counters).items() if name == "mqgate_route_matched_total"
    }
    assert len(shown) == MAX_ROUTES + 1
    assert sum(shown.values()) == len(routes)


def test_many_rules_cost_no_more_series_than_are_shown() -> None:
    """Every few seconds all series are checked for failures, in one turn of the reactor."""
    counters = Counters(Names(routes=tuple(f"r{n}" for n in range(10_000))))
    reasons = len({reason for _, reason in counters.dlq_messages})
    assert len(counters.dlq_messages) == (MAX_ROUTES + 1) * reasons
    shown = {labels for name, labels in scrape(counters) if name == "mqgate_dlq_messages_total"}
    assert len(shown) == len(counters.dlq_messages)
    counters.dlq_messages["r9999", "queue_full"] += 1
    assert scrape(counters)[of("mqgate_dlq_messages_total", route="_other", reason="queue_full")] == 1


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
def test_many_series_are_written_in_steps_and_have_one_head(accept: str) -> None:
    depths = {f"Q{n}": float(n) for n in range(5000)}
    counters = Counters(Names(routes=tuple(f"r{n}" for n in range(400))))
    registry = metrics.registry_of(counters, metrics.Gauges(queue_depth=lambda: depths))
    body, _ = metrics.rendered(registry, accept)
    lines = body.decode().splitlines()
    assert len([line for line in lines if line.startswith("# TYPE mqgate_queue_depth ")]) == 1
    assert [line for line in lines if line.startswith("mqgate_queue_depth{")] == [
        f'mqgate_queue_depth{{queue="Q{n}"}} {float(n)}' for n in range(5000)
    ]
    expected = metrics.choose_encoder(accept)[0](metrics.CollectorRegistry(auto_describe=False))
    assert body.endswith(expected), "an end, once"
    assert body.count(b"# EOF") == expected.count(b"# EOF")
    assert max(len(family.samples) for family in registry.collect()) < metrics.SERIES_IN_A_STEP * 30
    assert len(list(metrics.render(registry, accept))) == len(list(registry.collect())), "a step for each"


def test_openmetrics_is_spoken_when_asked_for() -> None:
    registry = metrics.registry_of(Counters(NAMES), metrics.Gauges())
    body, content_type = metrics.rendered(registry, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    assert metrics.rendered(registry)[1].startswith("text/plain")


def test_what_is_asked_for_one_after_the_other_is_asked_for_in_its_step() -> None:
    asked: list[int] = []

    def depths() -> Iterator[tuple[tuple[str, ...], float]]:
        for number in range(1000):
            asked.append(number)
            yield (f"Q{number}",), float(number)

    registry = metrics.registry_of(Counters(NAMES), metrics.Gauges(queue_depth=depths))
    before, most = 0, 0
    for _ in metrics.render(registry):
        before, most = len(asked), max(most, len(asked) - before)
    assert len(asked) == 1000
    assert most <= metrics.SERIES_IN_A_STEP


def test_what_has_no_number_is_asked_for_in_steps_too() -> None:
    """Ten thousand queues that nobody has defined."""
    asked: list[int] = []

    def depths() -> Iterator[tuple[tuple[str, ...], float] | None]:
        for number in range(1000):
            asked.append(number)
            yield None if number < 999 else (("Q",), 1.0)

    registry = metrics.registry_of(Counters(NAMES), metrics.Gauges(queue_depth=depths))
    before, most = 0, 0
    for _ in metrics.render(registry):
        before, most = len(asked), max(most, len(asked) - before)
    assert most <= metrics.SERIES_IN_A_STEP
    assert scrape(Counters(NAMES), metrics.Gauges(queue_depth=depths))[of("mqgate_queue_depth", queue="Q")] == 1


def test_what_is_added_up_is_read_in_steps() -> None:
    """Ten thousand rules, of which five hundred have a series."""
    read: list[int] = []

    def held() -> Iterator[tuple[tuple[str, ...], float]]:
        for number in range(1000):
            read.append(number)
            yield (f"r{number}",), 1.0

    counters = Counters(Names(routes=tuple(f"r{number}" for number in range(1000))))
    before, most = 0, 0
    for _ in metrics.render(metrics.registry_of(counters, metrics.Gauges(messages_held=held))):
        before, most = len(read), max(most, len(read) - before)
    assert most <= metrics.SERIES_IN_A_STEP
    shown = scrape(counters, metrics.Gauges(messages_held=held))
    assert shown[of("mqgate_messages_held", route="r7")] == 1
    assert shown[of("mqgate_messages_held", route="_other")] == 1000 - (MAX_ROUTES - 1)


def test_a_gauge_that_fails_half_way_shows_what_it_has_read() -> None:
    def depths() -> Iterator[tuple[tuple[str, ...], float]]:
        yield ("Q",), 1.0
        raise OSError

    shown = scrape(Counters(NAMES), metrics.Gauges(queue_depth=depths, queue_max_depth=lambda: {"Q": 2.0}))
    assert shown[of("mqgate_queue_depth", queue="Q")] == 1
    assert shown[of("mqgate_queue_max_depth", queue="Q")] == 2
