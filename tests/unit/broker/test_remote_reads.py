"""A remote queue manager is asked what is stored: who waits for the answer keeps its order, and nobody else
waits.
"""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device, FarQueues, Harness

from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.ports.sources import Backout
from gateway.session.record import key_of
from gateway.session.session import Session


@pytest.fixture
def bench() -> Harness:
    return Harness(queues=FarQueues())


def far(bench: Harness) -> FarQueues:
    assert isinstance(bench.queues, FarQueues)
    return bench.queues


def answers(bench: Harness) -> None:
    while far(bench).answer():
        pass


def kinds(device: Device) -> list[int]:
    return [packet[0] >> 4 for packet in device.take()]


def published(device: Device, qos: int = 1) -> list[bytes]:
    """The payloads that came; each is acknowledged."""
    found = [packet for packet in device.take() if packet[0] >> 4 == p.PUBLISH]
    for packet in found:
        device.ack(p.PUBACK if qos == 1 else p.PUBREC, packet[2])
    return [packet[4] for packet in found]


def stored(bench: Harness, client_id: str) -> int:
    return bench.queues.depth("MQGATE.OUT", key_of(client_id))


def subscriber(bench: Harness, version: int = 4, filter_: str = "a/#", **options: Any) -> Device:
    device = bench.device(version, "sub").connect(clean=False, **options)
    device.subscribe(filter_, 1)
    answers(bench)
    device.take()
    return device


def waiting(bench: Harness, *payloads: bytes, version: int = 4, filter_: str = "a/#") -> Device:
    """Messages for a device that is away; whoever sent them."""
    subscriber(bench, version, filter_).drop()
    sender = bench.device(4, "pub").connect()
    for number, payload in enumerate(payloads, 1):
        sender.publish("a/1", payload, 1, number)
    assert stored(bench, "sub") == len(payloads)
    sender.take()
    return sender


RULES = """
version: 1
to_mq:
  - {name: up, topic: 'up/#', queue: Q, on_failure: {then: disconnect}}
to_mqtt:
  - {name: down, queue: DOWN, topic: down/x}
"""
GIVES_UP = b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00"
"""DISCONNECT with Session Expiry Interval 0."""
OVER = 3601
"""Seconds after which a session of 5.0 is over."""


@pytest.fixture
def returning(bench: Harness) -> tuple[Device, Device]:
    """A device comes back to one message, which is being read; and who sent it."""
    sender = waiting(bench, b"1")
    return sender, bench.device(4, "sub").connect(clean=False)


@pytest.fixture
def ruled() -> Harness:
    """One with rules, and a queue whose poison goes to another."""
    queues = FarQueues()
    queues.backouts["DOWN"] = Backout(3, "POISON")
    return Harness(RULES, queues)


def test_others_are_served_while_a_session_is_read(bench: Harness) -> None:
    sender = waiting(bench, b"1", b"2")
    back = bench.device(4, "sub").connect(clean=False)
    assert kinds(back) == [p.CONNACK]
    sender.publish("b/1", b"for nobody", 1, 9)
    assert kinds(sender) == [p.PUBACK]
    answers(bench)
    assert published(back) == [b"1", b"2"]
    assert stored(bench, "sub") == 0


def test_what_is_stored_while_a_session_is_read_comes_after_it(
    bench: Harness, returning: tuple[Device, Device]
) -> None:
    sender, back = returning
    far(bench).look()
    sender.publish("a/1", b"2", 1, 2)
    answers(bench)
    answers(bench)
    assert published(back) == [b"1", b"2"]
    sender.publish("a/1", b"3", 1, 3)
    assert published(back) == [b"3"]
    assert stored(bench, "sub") == 0


def test_what_was_seen_before_its_commit_was_heard_of_comes_once(
    bench: Harness, returning: tuple[Device, Device]
) -> None:
    sender, back = returning
    bench.queues.automatic = False
    sender.publish("a/1", b"2", 1, 2)
    far(bench).land()
    far(bench).look()
    assert far(bench).answer()
    assert bench.queues.commit()
    bench.queues.automatic = True
    answers(bench)
    assert published(back) == [b"1", b"2"]
    answers(bench)
    assert published(back) == []
    assert stored(bench, "sub") == 0


def test_an_answer_for_an_earlier_connection_is_not_the_next_ones(bench: Harness) -> None:
    waiting(bench, b"1", b"2")
    bench.device(4, "sub").connect(clean=False).drop()
    far(bench).look()
    back = bench.device(4, "sub").connect(clean=False)
    answers(bench)
    assert published(back) == [b"1", b"2"]


def test_one_that_is_away_is_asked_again(bench: Harness) -> None:
    waiting(bench, b"1")
    far(bench).away = True
    back = bench.device(4, "sub").connect(clean=False)
    answers(bench)
    far(bench).away = False
    bench.advance(2)
    answers(bench)
    assert published(back) == [b"1"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_clean_start_waits_until_the_old_session_can_end_whole(bench: Harness, version: int) -> None:
    sender = waiting(bench, b"1", b"2", version=version)
    new = bench.device(version, "sub").connect(clean=True)
    new.subscribe("a/#", 1)  # behind CONNECT, and so is its answer
    assert kinds(new) == []
    sender.publish("b/1", b"for nobody", 1, 9)
    assert kinds(sender) == [p.PUBACK]
    far(bench).look()
    sender.publish("a/1", b"3", 1, 3)  # for the old one, which is not over yet
    commits = bench.queues.commits
    assert far(bench).answer()
    assert kinds(new) == [p.CONNACK, p.SUBACK]
    assert bench.queues.commits <= commits + 2
    assert stored(bench, "sub") == 0
    assert bench.engine.context.stored.messages == 0
    sender.publish("a/1", b"4", 1, 4)
    assert published(new) == [b"4"]


def test_a_kill_before_that_leaves_the_old_session_as_it_was(bench: Harness) -> None:
    waiting(bench, b"1", b"2")
    bench.device(4, "sub").connect(clean=True)
    far(bench).look()
    bench.kill()
    back = bench.device(4, "sub").connect(clean=False)
    answers(bench)
    assert back.wire.packets[0][1].session_present
    assert published(back) == [b"1", b"2"]


def test_two_that_come_with_one_name_keep_their_order(bench: Harness) -> None:
    waiting(bench, b"1")
    first = bench.device(5, "sub").connect(clean=True)
    second = bench.device(5, "sub").connect(clean=False)
    answers(bench)
    assert first.wire.closed
    assert kinds(second) == [p.CONNACK]
    assert not second.wire.closed
    assert stored(bench, "sub") == 0


def test_who_gives_up_while_waiting_leaves_the_session_to_the_next(bench: Harness) -> None:
    waiting(bench, b"1")
    bench.device(4, "sub").connect(clean=True).drop()
    answers(bench)
    back = bench.device(4, "sub").connect(clean=False)
    answers(bench)
    assert published(back) == [b"1"]


@pytest.mark.parametrize(("version", "reason"), [(4, 3), (5, 0x88)])
def test_nobody_waits_for_ever(bench: Harness, version: int, reason: int) -> None:
    waiting(bench, b"1", version=version)
    new = bench.device(version, "sub").connect(clean=True)
    bench.advance(11)
    assert [packet[1].reason for packet in new.take()] == [reason]
    assert new.wire.closed
    answers(bench)
    back = bench.device(version, "sub").connect(clean=False)
    answers(bench)
    assert published(back) == [b"1"]


def test_who_gives_up_again_and_again_is_not_remembered(bench: Harness) -> None:
    waiting(bench, b"1")
    for _ in range(9):
        bench.device(4, "sub").connect(clean=True).drop()
    last = bench.device(4, "sub").connect(clean=True)
    (ending,) = bench.engine.sessions.ending.values()
    assert len(ending.waiters) == 1
    answers(bench)
    assert kinds(last) == [p.CONNACK]


def test_sessions_that_are_due_end_when_the_queue_manager_is_back(bench: Harness) -> None:
    sender = waiting(bench, b"1", version=5)
    far(bench).away = True
    bench.clock.advance(OVER)
    for _ in range(5):
        bench.engine.tick()
        answers(bench)
        bench.clock.advance(1)
    assert bench.engine.sessions.get("sub") is not None
    sender.drop()
    far(bench).away = False
    bench.clock.advance(1)
    answers(bench)
    assert bench.engine.sessions.get("sub") is None
    assert stored(bench, "sub") == 0
    assert bench.queues.depth("MQGATE.SESSIONS", key_of("sub")) == 0


def test_a_device_that_comes_to_its_expired_session_begins_anew(bench: Harness) -> None:
    waiting(bench, b"1", version=5)
    bench.clock.advance(OVER)
    back = bench.device(5, "sub").connect(clean=False)
    assert kinds(back) == []
    answers(bench)
    (connack,) = back.take()
    assert not connack[1].session_present
    assert stored(bench, "sub") == 0


def test_a_session_that_is_given_up_with_disconnect(bench: Harness) -> None:
    device = subscriber(bench, 5)
    sender = bench.device(4, "pub").connect()
    sender.publish("a/1", b"1", 1, 1)
    device.send(GIVES_UP)
    assert device.wire.closed
    sender.publish("a/1", b"2", 1, 2)
    answers(bench)
    assert bench.engine.sessions.get("sub") is None
    assert stored(bench, "sub") == 0
    assert bench.queues.depth("MQGATE.SESSIONS", key_of("sub")) == 0


def test_a_kill_in_between_does_not_bring_it_back(bench: Harness) -> None:
    waiting(bench, b"1", version=5)
    device = bench.device(5, "sub").connect(clean=False)
    device.send(GIVES_UP)
    bench.kill()
    bench.advance(2)
    answers(bench)
    back = bench.device(5, "sub").connect(clean=False)
    answers(bench)
    assert not back.wire.packets[0][1].session_present
    assert published(back) == []


def test_what_came_through_a_share_goes_to_another_member(bench: Harness) -> None:
    other = bench.device(5, "other").connect(clean=False)
    other.subscribe("$share/g/a/#", 1)
    other.take()
    sender = waiting(bench, version=5, filter_="$share/g/a/#")
    other.drop()
    for number in range(1, 5):
        sender.publish("a/1", b"%d" % number, 1, number)
    mine = stored(bench, "sub")
    assert mine
    assert mine + stored(bench, "other") == 4
    bench.device(5, "sub").connect(clean=True)
    answers(bench)
    assert stored(bench, "other") == 4


def test_messages_that_expire_go_when_the_queue_manager_is_back(bench: Harness) -> None:
    for name in ("one", "two"):
        device = bench.device(5, name).connect(clean=False)
        device.subscribe("a/#", 1)
        device.drop()
    sender = bench.device(5, "pub").connect()
    sender.publish("a/1", b"short", 1, 1, properties=prop.encode({0x02: 5}))
    sender.publish("a/1", b"long", 1, 2)
    far(bench).away = True
    for _ in range(3):
        bench.advance(5)
        answers(bench)
    assert (stored(bench, "one"), stored(bench, "two")) == (2, 2)
    far(bench).away = False
    bench.advance(1)
    far(bench).look()
    sender.publish("a/1", b"short too", 1, 3, properties=prop.encode({0x02: 5}))  # stored behind the look
    answers(bench)
    assert (stored(bench, "one"), stored(bench, "two")) == (2, 2)
    bench.advance(7)
    answers(bench)
    assert (stored(bench, "one"), stored(bench, "two")) == (1, 1)


class CountedLookups(dict[Session, float]):
    """Counts how often a session's time is asked for."""

    count = 0

    def get(self, *args: Any) -> Any:
        self.count += 1
        return super().get(*args)


def test_however_many_sessions_have_something_due_the_others_are_passed_over_once(bench: Harness) -> None:
    """One is asked about after the other, and its answer does not begin with the first again."""
    sender, names = bench.device(5, "pub").connect(), range(40)
    for topic, seconds in (("later", 1000), ("soon", 5)):
        for number in names:
            device = bench.device(5, f"{topic}-{number}").connect(clean=False)
            device.subscribe(topic, 1)
            device.drop()
        sender.publish(topic, b"x", 1, 1, properties=prop.encode({prop.MESSAGE_EXPIRY_INTERVAL: seconds}))
        answers(bench)
    expiry = bench.engine.expiry
    expiry._due = counted = CountedLookups(expiry._due)
    assert len(counted) == 2 * len(names)
    bench.clock.advance(6)
    bench.engine.tick()
    answers(bench)
    assert [stored(bench, f"soon-{number}") for number in names] == [0] * len(names)
    assert counted.count == 2 * len(names)


def test_a_tick_reads_nothing_itself(bench: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is due: a read that hangs would stand in the way of everybody."""
    waiting(bench, b"1", version=5)
    back = bench.device(5, "sub").connect(clean=False)
    answers(bench)
    back.drop()
    for name in ("fetch", "load", "depth"):
        monkeypatch.setattr(bench.queues, name, None)
    bench.clock.advance(4000)
    bench.engine.tick()
    assert far(bench).questions


def test_a_queue_is_consumed_when_it_is_known_where_its_poison_goes(ruled: Harness) -> None:
    queues = far(ruled)
    assert list(queues.consumed) == ["DOWN"]
    queues.consumed.clear()
    queues.away = True
    ruled.kill()
    assert not queues.consumed
    answers(ruled)
    queues.away = False
    ruled.clock.advance(11)
    answers(ruled)
    assert list(queues.consumed) == ["DOWN"]
    (source,) = ruled.consumers.sources.values()
    assert source.backout == Backout(3, "POISON")


def test_who_waits_for_queues_of_new_rules_is_told_when_all_have_been_asked_about(ruled: Harness) -> None:
    """A reload says that it is over: what is published from then on reaches the rules."""
    told: list[str] = []
    ruled.consumers.when_open(lambda: told.append("at once"))
    assert told == ["at once"]
    far(ruled).away = True
    ruled.kill()
    ruled.consumers.when_open(lambda: told.append("answered"))
    assert told == ["at once"]
    far(ruled).away = False
    answers(ruled)
    assert told == ["at once", "answered"]
    ruled.clock.advance(60)
    assert told == ["at once", "answered"]


def test_a_queue_manager_that_does_not_answer_is_not_waited_for_without_end(ruled: Harness) -> None:
    told: list[str] = []
    far(ruled).away = True
    ruled.kill()
    ruled.consumers.when_open(lambda: told.append("told"))
    ruled.clock.advance(6)
    assert told == ["told"]
    answers(ruled)
    assert told == ["told"]


def test_what_a_disconnect_puts_back_is_there_for_the_next_pubrel(ruled: Harness) -> None:
    device = ruled.device(4, "dev").connect(clean=False)
    device.publish("up/1", b"once", 2, 1)
    ruled.queues.refusing["Q"] = 2085
    device.ack(p.PUBREL, 1)
    assert device.wire.closed
    answers(ruled)
    ruled.queues.refusing.clear()
    back = ruled.device(4, "dev").connect(clean=False)
    answers(ruled)
    back.take()
    back.ack(p.PUBREL, 1)
    assert kinds(back) == [p.PUBCOMP]
    assert ruled.queues.depth("Q") == 1
    assert ruled.queues.depth("MQGATE.STAGED") == 0
