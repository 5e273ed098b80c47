"""A session belongs to the user that made it: nobody else resumes it, ends it, gets its messages or disturbs its
client, before and after a restart.
"""

from __future__ import annotations

import pytest
from broker_harness import Device, Harness

from gateway.mqtt import client
from gateway.mqtt import packets as p

REFUSED = {3: 2, 4: 2, 5: 0x85}


@pytest.fixture
def bench() -> Harness:
    return Harness()


def arrives(
    bench: Harness, version: int, user: str | None, *, clean: bool = False, will: p.Will | None = None
) -> Device:
    device = bench.device(version, "line7")
    connect = client.connect(version, "line7", clean_start=clean, will=will)
    connect.username, connect.password = user, b"x" if user else None
    if version == 5 and not clean:
        connect.properties[0x11] = 3600
    device.send(client.encode_connect(connect))
    return device


def left_behind(bench: Harness, user: str | None, version: int = 4) -> None:
    """A session that is away, with a message that waits for it."""
    device = arrives(bench, version, user)
    device.subscribe("a", 1)
    device.drop()
    sender = bench.device(4, "sender").connect()
    sender.publish("a", b"for its user alone", 1, 1)
    sender.disconnect()


def code(device: Device) -> int:
    ((first, connack),) = device.take()
    assert first == 0x20
    return int(connack.reason)


@pytest.mark.parametrize("again", [False, True], ids=["same process", "after a kill"])
@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("other", ["mallory", None, "Alice", "alice "])
def test_another_user_gets_nothing_and_changes_nothing(
    bench: Harness, version: int, clean: bool, other: str | None, again: bool
) -> None:
    left_behind(bench, "alice")
    if again:
        bench.kill()
    before = {queue: dict(rows) for queue, rows in bench.queues.rows.items()}
    intruder = arrives(bench, version, other, clean=clean, will=p.Will("gone", b"w", 1, retain=False))
    assert code(intruder) == REFUSED[version]
    assert intruder.wire.closed
    assert {queue: dict(rows) for queue, rows in bench.queues.rows.items()} == before
    alice = arrives(bench, 5, "alice")
    connack, message = alice.take()
    assert connack[1].session_present
    assert message[4] == b"for its user alone"


@pytest.mark.parametrize("expiry", [False, True], ids=["ends with its connection", "persistent"])
def test_who_is_connected_stays_connected(bench: Harness, expiry: bool) -> None:
    alice = arrives(bench, 5, "alice", clean=not expiry)
    alice.take()
    assert code(arrives(bench, 5, "mallory", clean=True)) == 0x85
    alice.send(b"\xc0\x00")
    assert alice.take() == [(0xD0,)]


def test_the_same_user_takes_over_as_ever(bench: Harness) -> None:
    first = arrives(bench, 5, "alice")
    first.take()
    second = arrives(bench, 5, "alice")
    assert first.take()[0][1].reason == 0x8E
    assert second.take()[0][1].reason == 0


def test_an_identifier_is_free_again_when_its_session_has_ended(bench: Harness) -> None:
    arrives(bench, 5, "alice", clean=True).disconnect()
    bob = arrives(bench, 5, "bob")
    assert code(bob) == 0
    bob.drop()
    bench.clock.advance(3601)  # its expiry is over, and no tick has looked yet
    assert code(arrives(bench, 5, "alice")) == 0


def test_what_nobody_made_becomes_the_users_who_takes_it(bench: Harness) -> None:
    left_behind(bench, None)
    alice = arrives(bench, 5, "alice")
    assert alice.take()[0][1].session_present
    alice.drop()
    bench.kill()
    assert code(arrives(bench, 5, None)) == 0x85, "nobody gets it back"
    assert code(arrives(bench, 5, "mallory")) == 0x85
    assert arrives(bench, 5, "alice").take()[0][1].session_present


def test_a_refused_one_counts_and_says_why(bench: Harness) -> None:
    left_behind(bench, "alice")
    ended: list[str] = []
    bench.engine.context.on_end = lambda connection, _why: ended.append(connection.close_reason)
    arrives(bench, 5, "mallory")
    assert bench.engine.counters.mqtt_connects["bench", "5.0", "bad_client_id"] == 1
    assert ended == ["the session of this client identifier belongs to another user"]
