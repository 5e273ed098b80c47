"""A client that publishes below ever new first levels takes no more memory, and subscribers still get everything."""

from __future__ import annotations

from broker_harness import Harness

from gateway.broker.publish import router
from gateway.broker.publish.route import Route
from gateway.mqtt import packets as p
from gateway.routing.filters import Interest
from gateway.session.connection import Publisher


def test_first_levels_are_forgotten_and_routes_looked_up_again(monkeypatch):
    monkeypatch.setattr(router, "_MAX_COUNTERS", 50)
    bench = Harness()
    sender, listener = bench.device(4, "s").connect(), bench.device(4, "l").connect()
    sender.publish("stays/a", b"nobody")
    for number in range(500):
        sender.publish(f"new{number}/a", b"x")
    assert len(bench.engine.router._counters) <= 50
    listener.subscribe("stays/a", 0)
    listener.subscribe("new7/#", 0)
    listener.take()
    sender.publish("stays/a", b"now")
    sender.publish("new7/a", b"too")
    assert [packet[1] for packet in listener.take()] == [b"stays/a", b"new7/a"]


def test_a_subscription_in_the_same_chunk_is_seen(monkeypatch):
    """A topic is cached, its first level forgotten, and a subscription comes behind: nothing is stale."""
    monkeypatch.setattr(router, "_MAX_COUNTERS", 3)
    bench = Harness()
    device = bench.device(4, "d").connect()
    device.publish("a/b", b"cached")
    for name in ("b", "c", "d", "e"):
        device.publish(f"{name}/x", b"x")
    device.subscribe("a/b", 0)
    device.take()
    device.publish("a/b", b"version")
    assert [packet[4] for packet in device.take()] == [b"version"]


def test_long_topics_and_properties_fill_no_cache():
    bench = Harness("version: 1\nto_mq:\n  - {name: all, topic: '#', queue: Q}\n")
    device = bench.device(5, "d").connect()
    for number in range(300):
        device.publish(f"{number}/" + "x" * 2000, b"x", 1, 1)
        device.publish("a", b"x", 1, 1, properties=b"\x26\x00\x01k" + (2000).to_bytes(2, "big") + b"%02000d" % number)
    router_ = bench.engine.router
    kept = [len(topic) for cache in device.connection.caches for topic in cache]
    assert kept == [1]
    assert sum(map(len, router_._heads)) < 100_000
    assert len(bench.engine.queue_rows._plans) == 0
    assert all(len(level) <= 64 for level in router_._counters)


def test_the_first_64_characters_of_a_first_level_are_enough_to_see_a_subscription():
    bench = Harness()
    sender, listener = bench.device(4, "s").connect(), bench.device(4, "l").connect()
    name = "n" * 64
    sender.publish(f"{name}1/a", b"early")
    listener.subscribe(f"{name}1/a", 0)
    listener.take()
    sender.publish(f"{name}1/a", b"version")
    sender.publish(f"{name}2/a", b"not")
    assert [packet[4] for packet in listener.take()] == [b"version"]


def test_rules_take_topics_that_begin_with_a_dollar_where_they_name_it():
    bench = Harness(
        "version: 1\nunmatched: dead_letter\nto_mq:\n"
        "  - {name: things, topic: '$aws/things/{x}', queue: THINGS}\n  - {name: all, topic: '+/#', queue: Q}\n"
    )
    device = bench.device(5, "d").connect()
    for qos in (0, 1, 2):
        device.publish("$aws/things/a", b"%d" % qos, qos, qos)
    device.ack(p.PUBREL, 2)
    device.publish("$aws/other", b"no rule", 1, 3)
    assert [(queue, len(rows)) for queue, rows in bench.queues.rows.items() if queue in {"THINGS", "Q", "DEAD.Q"}] == [
        ("THINGS", 3),
        ("DEAD.Q", 1),
    ]
    assert bench.engine.context.counters.messages_unrouted == 1


def test_the_filters_of_a_gateway_that_is_no_more_are_forgotten_one_by_one_and_count_for_nothing_meanwhile():
    found = Harness().engine.router
    publisher = Publisher("bench", "p", None, 5)

    def elsewhere() -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
        route = found.route(publisher, b"t/7", 0)
        return route.elsewhere, route.shared_elsewhere

    for number in range(100):
        found.subscribe_elsewhere("gone", f"t/{number}", Interest(2))
    for gateway in ("gone", "other"):
        found.subscribe_elsewhere(gateway, "$share/s/t/+", Interest(2))
        found.subscribe_elsewhere(gateway, "t/#", Interest(2))
    assert elsewhere() == (("gone", "other"), {"$share/s/t/+": ("gone", "other")})
    assert found.sharing_elsewhere("$share/s/t/+") == ["gone", "other"]
    known = found.route(publisher, b"t/7", 0)
    steps = found.forget_elsewhere("gone")
    for left in range(102, 0, -1):
        next(steps)
        assert known.version != known.changes[0]  # whoever has kept it, as the queues for devices do, asks again
        assert found.sharing_elsewhere("$share/s/t/+") == ["other"]
        assert len(found.elsewhere.of("gone")) == left
        assert elsewhere() == (("other",), {"$share/s/t/+": ("other",)})
    assert list(steps) == []
    assert not found.elsewhere.of("gone")
    assert elsewhere() == (("other",), {"$share/s/t/+": ("other",)})


def test_a_gateway_that_is_there_again_while_it_is_forgotten_wants_what_it_says_now():
    found = Harness().engine.router
    publisher = Publisher("bench", "p", None, 5)
    for name in "abc":
        found.subscribe_elsewhere("other", name, Interest(2))
    steps = found.forget_elsewhere("other")
    next(steps)
    found.subscribe_elsewhere("other", "b", Interest(1))
    assert list(steps) == []
    assert [found.route(publisher, name, 0).elsewhere for name in (b"a", b"b", b"c")] == [(), ("other",), ()]


def test_a_gateway_that_is_there_again_and_ends_again_while_it_is_forgotten_is_forgotten():
    found = Harness().engine.router
    for name in "abc":
        found.subscribe_elsewhere("other", name, Interest(2))
    before = found.forget_elsewhere("other")
    next(before)
    for name in "abcdef":
        found.subscribe_elsewhere("other", name, Interest(2))
    after = found.forget_elsewhere("other")
    next(after)
    assert list(before) == []
    assert len(found.elsewhere.of("other")) == 6
    assert found.route(Publisher("bench", "p", None, 5), b"a", 0).elsewhere == ()
    assert len(list(after)) == 5
    assert not found.elsewhere.of("other")


def test_routes_that_are_no_connections_are_void_when_all_are():
    """As those are by which publications of other gateways and messages of targets find who wants them."""
    found = Harness().engine.router
    found.subscribe_elsewhere("gone", "t/7", Interest(2))
    route = Route("t/7", b"t/7", 2)
    for void in (found.touch, lambda: next(found.forget_elsewhere("gone"))):
        found.find_receivers(route, Publisher("bench", "p", None, 5))
        assert route.elsewhere == ("gone",)
        assert route.version == route.changes[0]
        void()
        assert route.version != route.changes[0]
    found.find_receivers(route, Publisher("bench", "p", None, 5))
    assert route.elsewhere == ()
