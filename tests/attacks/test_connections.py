"""Many connections that do one thing together: connect, leave, fall silent, let their sessions expire, take a full
session over, publish their wills."""

from __future__ import annotations

import contextlib
import socket

import pytest
from long_form import in_long_form
from stall_attacks import LONG, Attacked, drain, publish, read, subscribe

from gateway.mqtt import client
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Will

SETTINGS = "mqtt: {max_inflight: 1000, max_queued: 1000}\nlisteners: [{name: plain, port: 0}]\n"
CLIENTS = 400 if LONG else 150


@pytest.mark.parametrize("expiry", [1, *in_long_form(0)])
def test_clients_with_many_subscriptions_leave_together(attacked: Attacked, expiry: int) -> None:
    with attacked.budget() as sockets:
        for one in range(CLIENTS // 3):
            sock = sockets.enter_context(attacked.online(f"leaver-{expiry}-{one}", expiry=expiry))
            for start in range(0, 1000, 500):
                sock.sendall(subscribe(*(f"left/{one}/{number}/+" for number in range(start, start + 500))))
                drain(sock, 0.01)


def test_wills_of_many_reach_many(attacked: Attacked) -> None:
    with attacked.budget() as sockets:
        for one in range(CLIENTS // 3):
            reader = sockets.enter_context(attacked.online(f"mourner-{one}"))
            reader.sendall(subscribe("wills/#", qos=0))
            read(reader, 6)
        leaving = [
            attacked.online(f"dying-{one}", will=Will(f"wills/{one}", bytes(1000), 1, False)) for one in range(CLIENTS)
        ]
        for sock in leaving:
            sock.close()


def test_a_connect_as_long_as_it_may_be_from_many_at_once(attacked: Attacked) -> None:
    connect = client.connect(5, "long")
    connect.properties[prop.USER_PROPERTY] = [("", "")] * 4900  # type: ignore[assignment]
    data = client.encode_connect(connect)
    with attacked.budget() as sockets:
        held = [sockets.enter_context(attacked.open()) for _ in range(CLIENTS)]
        for sock in held:
            sock.sendall(data[:-1])
        for sock in held:
            sock.sendall(data[-1:])
        for sock in held:
            drain(sock, 0.01)


def test_a_full_session_is_taken_over_again_and_again(attacked: Attacked) -> None:
    with attacked.budget() as sockets:
        attacked.online("full", expiry=3600, clean=False).close()
        sleeper = attacked.online("full", expiry=3600, clean=False)
        sleeper.sendall(subscribe("full/#"))
        read(sleeper, 6)
        sleeper.close()
        publisher = sockets.enter_context(attacked.online("publisher"))
        for start in range(0, 1000, 100):
            publisher.sendall(b"".join(publish(f"full/{start + n}", bytes(4000), 1, n + 1) for n in range(100)))
            drain(publisher, 0.05)
        for _ in range(30):
            sockets.enter_context(attacked.online("full", expiry=3600, clean=False, receive=1000))
        for clean in (True, False):
            attacked.online("full", clean=clean).close()


def test_connections_that_come_and_go(attacked: Attacked) -> None:
    with attacked.budget():
        for _ in range(4):
            held: list[socket.socket] = []
            for _ in range(CLIENTS):
                with contextlib.suppress(OSError):
                    held.append(attacked.open())
            for one, sock in enumerate(held):
                sock.sendall(client.encode_connect(client.connect(4, f"fleeting-{one}")))
            for sock in held:
                sock.close()
