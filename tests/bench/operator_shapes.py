"""Shapes of `sizes.py`: what comes at once because time passes, and what one message may carry."""

from __future__ import annotations

import time
from collections.abc import Iterator

from shapes import RULE, Window, World, now, shape, window

from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.mqtt import writer

SIZES = (2500, 5000, 10_000, 20_000)


def _passes(world: World, seconds: int, turns: int = 30) -> float:
    """So much time, and what the seconds of it bring; how long that took."""
    world.clock.now = lambda: time.time() + seconds  # type: ignore[method-assign]
    world.clock.monotonic = lambda: time.monotonic() + seconds  # type: ignore[method-assign]
    before = now()
    for _ in range(turns):
        world.clock.soon(world.engine.tick)
        world.clock.advance(1)
        world.settle()
    took = now() - before
    world.clock.now, world.clock.monotonic = time.time, time.monotonic  # type: ignore[method-assign]
    return took


def ending(what: str, *, will: bool, filters: int) -> None:
    """Sessions whose time is up in the same second."""

    @shape(f"sessions that end in the same second{what}, each", SIZES)
    def _(world: World, size: int) -> Iterator[int]:
        number = 0
        while True:
            number += 1
            names = [f"c{number}-{n}" for n in range(size)]
            last = p.Will("dev/1", b"gone", 1, False) if will else None
            found = world.join(names, version=5, clean=False, expiry=30, will=last)
            for at, one in enumerate(found):
                if filters:
                    world.subscribe(one, [f"cmd/{at}/{n}" for n in range(filters)], 1, 5)
            for one in found:
                world.engine.closed(one)
            world.rest()
            assert len(world.engine.sessions) >= size
            world.own = _passes(world, 60)
            assert len(world.engine.sessions) < 10, len(world.engine.sessions)
            yield size


ending("", will=False, filters=0)
ending(", with subscriptions", will=False, filters=5)
ending(", with wills", will=True, filters=0)


@shape("retained messages that expire in the same second, each", (5000, 10_000, 20_000, 40_000))
def _(world: World, size: int) -> Iterator[int]:
    (publisher,) = world.join(["pub"], version=5)
    block = prop.encode({prop.MESSAGE_EXPIRY_INTERVAL: 30})
    while True:
        for begin in range(0, size, 5000):
            topics = (f"r/{n % 100}/{n}".encode() for n in range(begin, min(size, begin + 5000)))
            chunk = (
                writer.encode_publish(5, topic, b"1", 1, retain=True, packet_id=at, properties=block)
                for at, topic in enumerate(topics, 1)
            )
            world.feed([(publisher, b"".join(chunk))])
            world.rest(1)
            publisher.link.take()
        assert world.engine.retained.count >= size
        world.own = _passes(world, 60)
        assert world.engine.retained.count < 100, world.engine.retained.count
        yield size


@shape("stored messages that expire in the same second, each", (5000, 10_000, 20_000, 40_000))
def _(world: World, size: int) -> Iterator[int]:
    (publisher,) = world.join(["pub"], version=5)
    (sub,) = world.join(["s"], version=5, clean=False, expiry=3600)
    world.subscribe(sub, ["dev/#"], 1, 5)
    world.engine.closed(sub)
    world.rest()
    block = prop.encode({prop.MESSAGE_EXPIRY_INTERVAL: 30})
    while True:
        for begin in range(0, size, 5000):
            chunk = (
                writer.encode_publish(5, b"dev/1", b"1", 1, packet_id=at, properties=block)
                for at in range(1, min(size - begin, 5000) + 1)
            )
            world.feed([(publisher, b"".join(chunk))])
            world.rest(1)
            publisher.link.take()
        world.own = _passes(world, 60)
        assert world.engine.context.stored.messages < 100, world.engine.context.stored.messages
        yield size


def properties(what: str, filters: tuple[str, ...]) -> None:
    """Of one message ever more."""

    @shape(f"user properties of a message{what}, each", (8, 16, 32, 64), lambda _: (RULE.format("A"), ""))
    def _(world: World, size: int) -> Iterator[int]:
        pairs = [(f"name{n}", f"value{n}") for n in range(size)]
        for count in Window(properties={prop.USER_PROPERTY: pairs}, filters=filters)(world, 20):
            yield count * size


properties("", ())
properties(", and a subscriber", ("dev/#",))


@shape("user properties of a will, each", (8, 16, 32, 64))
def _(world: World, size: int) -> Iterator[int]:
    number = 0
    pairs = {prop.USER_PROPERTY: [(f"name{n}", f"value{n}") for n in range(size)]}
    while True:
        number += 1
        before = now()
        found = world.join(
            [f"c{number}-{n}" for n in range(50)], version=5, will=p.Will("dev/1", b"x", 1, False, pairs)
        )
        for one in found:
            world.engine.closed(one)
        world.rest()
        world.own = now() - before
        yield size * 50


window("topic alias", Window(RULE.format("A"), properties={prop.TOPIC_ALIAS: 1}, topics=1))
