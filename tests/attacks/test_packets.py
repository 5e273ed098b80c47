"""Packets made to be expensive: thousands of filters, topics of many levels, retained messages by the ten thousand,
and whatever a client may send in one write after it has been quick for a while."""

from __future__ import annotations

import pytest
from stall_attacks import LONG, Attacked, drain, publish, read, subscribe

from gateway.mqtt import client, writer
from gateway.mqtt.packets import Subscribe, Subscription, Unsubscribe

SETTINGS = "mqtt: {max_inflight: 1000, max_retained: 200000}\nlisteners: [{name: plain, port: 0}]\n"
MANY = 100_000 if LONG else 8_000
"""Retained messages."""
PINGREQ = b"\xc0\x00"
"""Among what is sent, so that it shows how far the gateway is."""


def quick_for_a_while(attacked: Attacked, name: str, **options: object) -> object:
    """A connection of which much is read at once."""
    sock = attacked.online(name, **options)  # type: ignore[arg-type]
    for _ in range(12):
        sock.sendall(publish("quick", bytes(60), 0) * 900 + b"\xc0\x00")
        read(sock, 2)
    return sock


@pytest.mark.parametrize("version", [4, 5])
def test_packets_with_ever_so_many_filters(attacked: Attacked, version: int) -> None:
    with attacked.budget() as sockets:
        for count in (1000, 2000, 200_000):
            sock = sockets.enter_context(attacked.online(f"filters-{count}", version))
            names = [f"{number}/+" for number in range(count)]
            body = b"".join(len(one).to_bytes(2, "big") + one.encode() + b"\0" for one in names)
            sock.sendall(writer.frame(0x82, b"\0\1" + (b"\0" if version == 5 else b"") + body[: 1000 << 10]))
            drain(sock, 0.2)
            body = b"".join(len(one).to_bytes(2, "big") + one.encode() for one in names)
            try:
                sock.sendall(writer.frame(0xA2, b"\0\2" + (b"\0" if version == 5 else b"") + body[: 1000 << 10]))
                drain(sock, 0.2)
            except OSError:
                pass


@pytest.mark.parametrize("durable", [False, True])
def test_filters_as_long_and_as_deep_as_they_may_be(attacked: Attacked, durable: bool) -> None:
    with attacked.budget() as sockets:
        for one in range(8):
            sock = sockets.enter_context(attacked.online(f"deep-{durable}-{one}", expiry=300 if durable else 0))
            deep = [Subscription("/".join(["+"] * 199) + f"/{one}-{number}", 1) for number in range(50)]
            long = [Subscription(f"{number}/" + "x" * 250, 1) for number in range(900)]
            for number, some in enumerate((deep, long[:450], long[450:]), 1):
                sock.sendall(client.encode_subscribe(5, Subscribe(number, some)))
            for number in range(10, 200):
                sock.sendall(client.encode_subscribe(5, Subscribe(number, long[:1])))
            sock.sendall(client.encode_unsubscribe(5, Unsubscribe(9, [one.filter for one in long])))
        publisher = sockets.enter_context(attacked.online("publisher"))
        publisher.sendall(publish("/".join(["a"] * 200)) * 50 + publish("/" * 199) * 50 + publish("/" * 40_000))


def test_wildcards_come_and_go_while_ever_new_first_levels_are_published_to(attacked: Attacked) -> None:
    with attacked.budget() as sockets:
        publisher = sockets.enter_context(attacked.online("publisher"))
        fickle = sockets.enter_context(attacked.online("fickle"))
        for start in range(0, 40_000, 2000):
            publisher.sendall(b"".join(publish(f"level{start + number}/a") for number in range(2000)) + PINGREQ)
            if start % 10_000 == 0:
                fickle.sendall(subscribe(*(f"+/{number}" for number in range(990)), packet_id=1))
                fickle.sendall(client.encode_unsubscribe(5, Unsubscribe(2, [f"+/{number}" for number in range(990)])))
        read(publisher, 2 * 20)
        drain(fickle, 0.2)


def test_retained_messages_by_wildcard(attacked: Attacked) -> None:
    nowhere = [f"+/+/+/nothing{number}" for number in range(100)]  # looked for everywhere, and brings nothing
    with attacked.budget() as sockets:
        publisher = sockets.enter_context(attacked.online("publisher"))
        for start in range(0, MANY, 1000):
            publisher.sendall(
                b"".join(publish(f"kept/{number % 100}/{number}", retain=True) for number in range(start, start + 1000))
                + PINGREQ
            )
        read(publisher, 2 * MANY // 1000)
        greedy = [sockets.enter_context(attacked.online(f"greedy-{one}")) for one in range(5 if LONG else 2)]
        for sock in greedy:
            for number, filters in enumerate((["#"], ["+/+/+"], ["kept/+/nothing"] * 40, ["kept/1/#"], nowhere), 1):
                sock.sendall(subscribe(*filters, packet_id=number))
        for sock in greedy:
            drain(sock, 0.2)
        for start in range(0, MANY, 1000):
            publisher.sendall(
                b"".join(
                    publish(f"kept/{number % 100}/{number}", b"", retain=True) for number in range(start, start + 1000)
                )
                + PINGREQ
            )
        read(publisher, 2 * MANY // 1000)


@pytest.mark.parametrize("what", ["new topics", "subscribers", "retained", "properties", "subscribe", "pings"])
def test_much_at_once_after_being_quick(attacked: Attacked, what: str) -> None:
    with attacked.budget() as sockets:
        if what == "subscribers":
            for one in range(300 if LONG else 100):
                sock = sockets.enter_context(attacked.online(f"listener-{one}"))
                sock.sendall(subscribe("much/#", qos=0))
                read(sock, 6)
        packets = {
            "new topics": b"".join(publish(f"much/{number}/topic") for number in range(4000)),
            "subscribers": publish("much/a") * 8000,
            "retained": b"".join(publish(f"r{number}", retain=True) for number in range(6000)),
            "properties": writer.frame(0x30, b"\0\1a" + b"\xf4\x03" + b"\x26\0\0\0\0" * 100 + b"x") * 120,
            "subscribe": b"".join(subscribe(f"much/{number}/+", packet_id=1) for number in range(3000)),
            "pings": b"\xc0\x00" * 32_000,
        }[what]
        for one in range(4):
            sock = sockets.enter_context(quick_for_a_while(attacked, f"quick-{one}"))  # type: ignore[type-var]
            sock.sendall(packets[: 60 << 10])
        attacked.settled()


def test_topics_by_the_thousand_with_rules_that_look_into_them(attacked: Attacked) -> None:
    with attacked.budget() as sockets:
        for one in range(4):
            sock = sockets.enter_context(attacked.online(f"many-{one}"))
            for start in range(0, 20_000 if LONG else 6000, 500):
                sock.sendall(
                    b"".join(
                        publish(f"plant/{start + number}/line/{one}/temperature", b"1", 1, number + 1)
                        for number in range(500)
                    )
                )
                read(sock, 4 * 500)  # of each a PUBACK
