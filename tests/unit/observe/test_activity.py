"""When a rule last matched, what last went wrong, and the current latency, all from counters."""

from __future__ import annotations

from gateway.observe.activity import Activity, Recent
from gateway.ports.counters import Counters, Histogram, Names


def test_growth_is_dated_and_named() -> None:
    counters = Counters(Names(routes=("a", "b")))
    counters.route_matched["a"] += 7
    activity = Activity(counters)
    activity.look(100.0)
    assert activity.last_matched == {}, "what was counted before is nothing new"
    counters.route_matched["a"] += 1
    counters.dlq_messages["b", "queue_full"] += 1
    activity.look(105.0)
    activity.look(110.0)
    assert activity.last_matched == {"a": 105.0}
    assert activity.last_error == {"b": "dead-lettered: queue full"}


def test_a_rule_that_came_with_a_reload_is_seen() -> None:
    counters = Counters()
    activity = Activity(counters)
    counters.messages_dropped["new", "expired"] += 1
    counters.route_matched["new"] += 1
    activity.look(5.0)
    assert (activity.last_matched, activity.last_error) == ({"new": 5.0}, {"new": "dropped: expired"})


def test_latency_is_that_of_the_last_look() -> None:
    histogram = Histogram((0.001, 0.01, 0.1))
    recent = Recent(histogram.bounds)
    assert recent.share(0.99) is None
    histogram.observe_many(0.05, 1000)
    recent.look(histogram.buckets)
    assert recent.share(0.99) == 0.1
    histogram.observe_many(0.0005, 10)
    recent.look(histogram.buckets)
    assert (recent.share(0.5), recent.share(0.99)) == (0.001, 0.001)
    histogram.observe(5.0)
    recent.look(histogram.buckets)
    assert recent.share(0.99) == 0.1, "beyond the last bound is said to be there"
    recent.look(histogram.buckets)
    assert recent.share(0.5) is None


def test_series_that_have_not_grown_are_not_compared_again() -> None:
    """Ten thousand rules have a hundred thousand of them."""
    counters = Counters(Names(routes=("a", "b")))
    activity = Activity(counters)
    before = dict(activity._failed)
    counters.messages_dropped["a", "expired"] += 1
    activity.look(1.0)
    assert [name for name, counts in activity._failed.items() if counts is not before[name]] == ["messages_dropped"]
    counters.messages_dropped["b", "expired"] += 1
    activity.look(2.0)
    assert activity.last_error == dict.fromkeys("ab", "dropped: expired")
