"""gateway.broker.sessions.left_over: sessions of gateways that are no more, taken over while devices come."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.broker.sessions import left_over
from gateway.broker.sessions.left_over import LeftOver, Orphan
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.ports.batch import Stored

ROWS = 20
MAPPING = """
version: 1
to_mqtt:
  - {name: down, queue: DOWN, topic: other, qos: 1}
"""


def orphan(client: str) -> Orphan:
    return Orphan(b"", Stored(b"", b"", b""), {"client": client})


def test_those_of_clients_that_wait_come_first() -> None:
    left = LeftOver()
    left.begin(["a"])
    assert left.may_have("anyone", ["a"]), "it is not known yet"
    for client in ("1", "2", "3"):
        left.found(orphan(client))
    left.all_found()
    assert [left.may_have(client, ["a"]) for client in ("2", "4")] == [True, False]
    assert left.may_have("4", ["a", "b"]), "another one has ended meanwhile"
    order: list[str] = []
    while some := left.next(["4", "3"] if order else ["2"]):
        left.taken(some[0])
        order.append(some[0].record["client"])
    assert order == ["2", "3", "1"]
    assert not left.may_have("1", ["a"])


@pytest.mark.parametrize("many", [3, 250])
@pytest.mark.parametrize("read", [1, 5, 16])
def test_of_those_that_wait_who_waits_longest_comes_first(many: int, read: int) -> None:
    """`read`: so many are, of those that come next."""
    left = LeftOver()
    left.begin(["a"])
    for client in reversed(range(many)):
        left.found(orphan(f"{client}"))
    left.all_found()
    waiting, order = [f"{client}" for client in range(many)], list[str]()
    while some := left.next(waiting):
        for one in some[:read]:
            left.taken(one)
            order.append(one.record["client"])
            waiting.remove(order[-1])
    assert order == [f"{client}" for client in range(many)]


class Takeover:
    """A gateway that has ended with ten sessions, its heir, and another one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, last: str = "news", **more: Any) -> None:
        monkeypatch.setattr(left_over, "PAGE", 3)
        self.estate = Estate()
        first, self.heir, self.other = (self.estate.start(**more) for _ in range(3))
        for number in range(10):
            device = first.bench.device(5, f"s{number}").connect(clean=False)
            self.estate.settle(0.3)
            device.subscribe(last if number == 9 else "news", 1)
            self.estate.settle(0.3)
            device.disconnect()
        sender = first.bench.device(5, "says").connect()
        self.estate.settle(0.3)
        for number in range(1, ROWS + 1):
            sender.publish("news", b"%d" % number, 1, number)
        self.estate.settle()
        self.estate.kill(first)
        self.first = first

    def condemn(self) -> None:
        self.estate.condemn(self.first.instance, self.heir)
        self.estate.changed()  # all see that it has an heir

    def come(self, node: Node, name: str) -> Device:
        return node.bench.device(5, name).connect(clean=False)

    def step(self) -> None:
        """What there is to do, but one read."""
        for node in list(self.estate.nodes.values()):
            while node.commit() or node.hear():
                node.turn()
            node.answer()
            node.turn()
            node.bench.clock.advance(0.001)

    def until_connected(self, *devices: Device) -> list[list[Any]]:
        """What each has got when the last one is connected."""
        got: list[list[Any]] = [[] for _ in devices]
        for _ in range(2000):
            self.step()
            for found, device in zip(got, devices, strict=True):
                found += device.take()
            if all(got):
                break
        assert all(found and found[0][0] >> 4 == p.CONNACK for found in got)
        return got

    def left(self) -> int:
        return 10 - self.heir.bench.engine.context.counters.mqtt_sessions_taken_over


@pytest.mark.parametrize("late", [False, True])
def test_devices_do_not_wait_until_all_is_taken_over(monkeypatch: pytest.MonkeyPatch, *, late: bool) -> None:
    """One whose session is there waits for that alone, others for none: at the heir and at another gateway. `late`:
    they come when it is under way."""
    takeover = Takeover(monkeypatch)
    if late:
        takeover.condemn()
        while takeover.left() > 8:
            takeover.step()
    devices = [
        takeover.come(takeover.heir, "s9"), takeover.come(takeover.heir, "new"), takeover.come(takeover.other, "else"),
    ]  # fmt: skip
    if not late:
        takeover.condemn()
    got = takeover.until_connected(*devices)
    assert takeover.left() > 3
    assert [found[0][1].session_present for found in got] == [True, False, False]
    takeover.estate.settle()
    assert takeover.left() == 0
    bodies = [packet[4] for packet in got[0][1:] + devices[0].take() if packet[0] >> 4 == p.PUBLISH]
    assert bodies == [b"%d" % number for number in range(1, ROWS + 1)]


def test_a_gateway_that_begins_meanwhile_lets_nobody_in_before_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know what those want who are not read yet, nor in which shared subscriptions they are."""
    takeover = Takeover(monkeypatch)
    takeover.condemn()
    late = takeover.estate.start(settle=False)
    while takeover.left() > 8:
        takeover.step()
    device, early = takeover.come(late, "new"), takeover.come(takeover.other, "else")
    takeover.until_connected(early)
    assert takeover.left() > 3
    while takeover.left():
        takeover.step()
        assert not device.take()
    ((packet, connack, *_),) = takeover.until_connected(device)[0]
    assert (packet >> 4, connack.reason) == (p.CONNACK, 0)


def test_what_a_gateway_that_begins_meanwhile_consumes_reaches_members_that_nobody_has_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does not know of their shared subscription; what is on the queue stays there until it does."""
    takeover = Takeover(monkeypatch, last="$share/some/other", mapping=MAPPING)
    takeover.condemn()
    late = takeover.estate.start(settle=False, mapping=MAPPING)
    while takeover.left() > 8:
        takeover.step()
    late.queues.arrive("DOWN", (mqmd.build(persistence=1), b"from a queue"))
    while takeover.left():
        takeover.step()
    takeover.estate.settle()
    late.queues.consumed["DOWN"]()
    takeover.estate.settle()
    member = takeover.come(takeover.heir, "s9")
    takeover.estate.settle()
    assert [packet[4] for packet in member.take() if packet[0] >> 4 == p.PUBLISH] == [b"from a queue"]
    assert not takeover.estate.rows.get("DOWN")


def test_sessions_for_which_little_is_stored_are_read_and_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands are taken over, and each read is a way to the queue manager and back."""
    takeover = Takeover(monkeypatch)
    monkeypatch.setattr(left_over, "PAGE", 500)
    takeover.condemn()
    left = [takeover.left()]
    while left[-1] and len(left) < 500:
        takeover.step()
        left.append(takeover.left())
    assert {*left} == {10, 0}


def test_sessions_with_much_are_not_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others would wait for all of them in one turn: what is stored, and very many filters."""
    takeover = Takeover(monkeypatch)
    manager = takeover.heir.queues
    orphans = [orphan(f"s{number}") for number in range(10)]
    assert len(left_over.begin_several(manager, orphans)) == 1
    monkeypatch.setattr(left_over, "PAGE", 2 * ROWS)
    assert len(left_over.begin_several(manager, orphans)) == 2
    monkeypatch.setattr(left_over, "PAGE", 500)
    long = [one._replace(stored=Stored(b"", b"", bytes(12_000))) for one in orphans]
    assert [len(left_over.begin_several(manager, some)) for some in (orphans, long)] == [10, 3]


def test_what_was_received_of_a_session_is_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 65,535 of its publications between PUBREC and PUBREL."""
    estate, looked_at = Estate(), list[Stored]()
    first, second = estate.start(), estate.start()
    device = first.bench.device(5, "s").connect(clean=False)
    estate.settle()
    for number in range(1, 12):
        device.publish("a", b"%d" % number, 2, number)
    estate.settle()
    device.drop()
    monkeypatch.setattr(left_over, "PAGE", 3)
    read_staged = left_over.read_staged

    def counted(stored: Stored) -> Any:
        looked_at.append(stored)
        return read_staged(stored)

    monkeypatch.setattr(left_over, "read_staged", counted)
    begun = left_over._begin(second.queues, "s", wills=False)
    reads = left_over.left_by_pages(second.bench.engine.context, {"client": "s"}, Stored(b"", b"", b""), begun)
    steps = [len(looked_at) for _ in reads]
    assert steps == [3, 6, 9]
    back = second.bench.device(5, "s").connect(clean=False)
    estate.settle()
    assert len(looked_at) == 22
    for number in range(1, 12):
        back.ack(p.PUBREL, number)
    estate.settle()
    answers = [(packet[0] >> 4, packet[1]) for packet in back.take()[1:]]
    assert answers == [(p.PUBCOMP, number) for number in range(1, 12)]
    assert not estate.rows["MQGATE.STAGED"]


def test_a_session_of_which_something_staged_cannot_be_read_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    estate = Estate()
    first, second = estate.start(), estate.start()
    second.bench.defects = []
    device = first.bench.device(5, "s").connect(clean=False)
    estate.settle()
    device.publish("a", b"staged", 2, 1)
    estate.settle()
    device.drop()
    ((token, (priority, key, md, _)),) = estate.rows["MQGATE.STAGED"].items()
    estate.rows["MQGATE.STAGED"][token] = priority, key, md, b"damaged"
    back = second.bench.device(5, "s").connect(clean=False)
    estate.settle()
    assert [one.what for one in second.bench.defects] == ["session"]
    ((first_byte, connack),) = back.take()
    assert (first_byte >> 4, connack.reason, connack.session_present) == (p.CONNACK, 0, False)
