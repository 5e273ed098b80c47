"""Clients with as many subscriptions as they may have: who publishes, leaves or subscribes keeps nobody waiting."""

from __future__ import annotations

import pytest
from stall_attacks import LONG, Attacked, drain, publish, read, subscribe


@pytest.mark.parametrize(("clients", "groups"), [(50, 500), (10, 900)] if LONG else [(12, 500)])
def test_members_of_many_shared_subscriptions_leave_together(attacked: Attacked, clients: int, groups: int) -> None:
    with attacked.budget() as sockets:
        members = [sockets.enter_context(attacked.online(f"member-{one}")) for one in range(clients)]
        for sock in members:
            for at in range(0, groups, 100):
                sock.sendall(subscribe(*(f"$share/g{number}/left/+" for number in range(at, min(groups, at + 100)))))
        for sock in members:
            drain(sock, 0.2)
        publisher = sockets.enter_context(attacked.online("publisher"))
        for number in range(1, 21):
            publisher.sendall(publish(f"left/{number}", b"x", 1, number))
            read(publisher, 4)


@pytest.mark.parametrize("identified", [False, True])
def test_publications_on_new_topics_that_many_filters_of_each_client_match(
    attacked: Attacked, identified: bool
) -> None:
    clients = 100 if LONG else 30
    with attacked.budget() as sockets:
        filters = ["/".join("+" if number >> level & 1 else f"l{level}" for level in range(9)) for number in range(512)]
        for one in range(clients):
            sock = sockets.enter_context(attacked.online(f"overlapping-{identified}-{one}"))
            for at in range(0, 512, 64):
                if identified:
                    for number, filter_ in enumerate(filters[at : at + 64], at + 1):
                        sock.sendall(subscribe(f"{filter_}/#", qos=0, identifier=number))
                else:
                    sock.sendall(subscribe(*(f"{one}/#" for one in filters[at : at + 64]), qos=0))
            drain(sock, 0.01)
        publisher = sockets.enter_context(attacked.online("publisher"))
        topic = "/".join(f"l{level}" for level in range(9))
        publisher.sendall(b"".join(publish(f"{topic}/{number}") for number in range(60)))


@pytest.mark.parametrize("sessions", [pytest.param(5000, marks=pytest.mark.skipif(not LONG, reason="--long")), 220])
@pytest.mark.parametrize("qos", [0, 1])
def test_publications_that_thousands_of_subscriptions_match(attacked: Attacked, sessions: int, qos: int) -> None:
    each = 1 if sessions > 3000 else 10
    with attacked.budget() as sockets:
        filters = [
            "/".join("+" if number >> level & 1 else f"w{level}" for level in range(4)) for number in range(each)
        ]
        for one in range(sessions):
            name = f"wide-{qos}-{one}"
            with attacked.online(name, expiry=60) as sock:
                sock.sendall(subscribe(*(f"{filter_}/#" for filter_ in filters)))
                read(sock, 6)
        publisher = sockets.enter_context(attacked.online("publisher"))
        for number in range(1, 4):
            publisher.sendall(publish(f"w0/w1/w2/w3/{number}", b"x", qos, number if qos else 0))
            if qos:
                read(publisher, 4)
