"""A client that publishes below ever new first levels takes no more memory, and subscribers still get everything."""

from __future__ import annotations

from broker_harness import Bench

from gateway.broker import router


def test_first_levels_are_forgotten_and_routes_looked_up_again(monkeypatch):
    monkeypatch.setattr(router, "_MAX_CELLS", 50)
    bench = Bench()
    sender, listener = bench.device(4, "s").connect(), bench.device(4, "l").connect()
    sender.publish("stays/a", b"nobody")
    for number in range(500):
        sender.publish(f"new{number}/a", b"x")
    assert len(bench.engine.router._cells) <= 50
    listener.subscribe("stays/a", 0)
    listener.subscribe("new7/#", 0)
    listener.take()
    sender.publish("stays/a", b"now")
    sender.publish("new7/a", b"too")
    assert [packet[1] for packet in listener.take()] == [b"stays/a", b"new7/a"]


def test_a_subscription_in_the_same_chunk_is_seen(monkeypatch):
    """A topic is cached, its first level forgotten, and a subscription comes behind: nothing is stale."""
    monkeypatch.setattr(router, "_MAX_CELLS", 3)
    bench = Bench()
    device = bench.device(4, "d").connect()
    device.publish("a/b", b"cached")
    for name in ("b", "c", "d", "e"):
        device.publish(f"{name}/x", b"x")
    device.subscribe("a/b", 0)
    device.take()
    device.publish("a/b", b"seen")
    assert [packet[4] for packet in device.take()] == [b"seen"]
