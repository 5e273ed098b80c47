"""gateway.broker.gateways.from_others: what others have put for a gateway, and for one that is no more."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device
from several_brokers import Estate, Node, SharedQueues

from gateway.backends.ibm.unit_of_work import rows_of
from gateway.broker.gateways import from_others
from gateway.broker.gateways.forwarded import Forwarded, decode_forwarded, encode_forwarded
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.batch import MQMD_LENGTH, Stored, Unit
from gateway.ports.ownership import WHO_GETS_IT, forward_key
from gateway.ports.state_queues import FORWARD, OUT
from gateway.session.publication import Publication
from gateway.session.record import decode_publication


def payloads(packets: list[Any]) -> list[bytes]:
    return [packet[4] for packet in packets if packet[0] >> 4 == p.PUBLISH]


def at(node: Node, name: str) -> Device:
    device = node.bench.device(5, name)
    device.connect(clean=False)
    return device


def test_qos_0_comes_at_most_once_also_when_the_successor_is_killed() -> None:
    estate = Estate()
    first, second, third = estate.start(), estate.start(), estate.start()
    hears, sender = at(first, "hears"), at(third, "says")
    estate.settle(0.5)
    hears.subscribe("news", 1)
    estate.settle(0.5)
    estate.kill(first)
    for number in range(20):
        sender.publish("news", b"%d" % number)
    while third.commit():
        third.turn()
    assert len(estate.rows[FORWARD]) == 20
    hears = at(second, "hears")
    estate.condemn(first.instance, second)
    before: list[Any] = []
    for _ in range(300):  # it ends in the middle: as soon as something has come, or when all has been read
        any(node.commit() or node.hear() or node.answer() for node in (second, third))
        for node in (second, third):
            node.turn()
            node.bench.clock.advance(0.001)
        before += hears.take()
        if payloads(before):
            break
    estate.kill(second)
    hears = at(third, "hears")
    estate.condemn(second.instance, third)
    estate.settle()
    got = payloads(before) + payloads(hears.take())
    assert len(got) == len(set(got)), "some of it twice"


class ManyPut:
    """Reads of a queue on which several processes put, as IBM MQ answers them: it has no positions but those of a
    cursor, and that goes with its handle. What lies behind a message that is gone is found out by the identifiers,
    whose order is that of the messages of one process alone; and a commit may land while a reader goes through the
    queue."""

    def __init__(self, node: Node, owner: str, order: list[str]) -> None:
        """Of what lies for that owner; `order`: that of the identifiers of those who put it."""
        self.node, self.key, self.order = node, forward_key(owner), order
        self.fetch = node.queues.fetch
        node.queues.fetch = self.read  # type: ignore[method-assign]
        self.known: dict[Any, tuple[int, Any]] = {}

    def read(self, queue: str, key: bytes, limit: int, after: Any = None) -> list[Stored]:
        if key != self.key:
            return self.fetch(queue, key, limit, after)
        seen = self.fetch(queue, key, 1)
        self.node.bench.engine.flush()
        self.node.queues.commit()
        seen += [one for one in self.fetch(queue, key, 1000) if one.token not in {first.token for first in seen}]
        self.known |= {one.token: (self.order.index(decode_forwarded(one.data).origin), one.token) for one in seen}
        places = [one.token for one in seen]
        if after in places:
            return seen[places.index(after) + 1 :][:limit]
        return [one for one in seen if after is None or self.known[one.token] > self.known[after]][:limit]


@pytest.mark.parametrize("page", [2, 3, 4, 500])
@pytest.mark.parametrize("turned", [False, True])
def test_what_several_gateways_have_left_for_one_that_is_no_more_is_handed_over_once(
    monkeypatch: pytest.MonkeyPatch, page: int, *, turned: bool
) -> None:
    monkeypatch.setattr(from_others, "PAGE", page)
    estate = Estate()
    first, heir, third = estate.start(), estate.start(), estate.start()
    hears, senders = at(first, "hears"), [at(heir, "says-0"), at(third, "says-1")]
    estate.settle(0.5)
    hears.subscribe("news", 2)
    estate.settle(0.5)
    estate.kill(first)
    for number in range(10):
        senders[number % 2].publish("news", b"%d" % number, 1, 1 + number)
        estate.settle(0.1)
    assert len(estate.rows[FORWARD]) == 10
    order = [heir.instance, third.instance]
    ManyPut(heir, first.instance, order[::-1] if turned else order)
    hears = at(heir, "hears")
    estate.condemn(first.instance, heir)
    for _ in range(60):
        for node in (heir, third):  # what is read is read as early as can be
            while node.answer() or node.commit() or node.hear() or node.look_ahead():
                node.turn()
            node.bench.clock.advance(0.05)
    assert payloads(hears.take()) == [b"%d" % number for number in range(10)]
    assert not estate.rows[FORWARD]


@pytest.mark.parametrize("are_early", [False, True], ids=["", "beside an earlier release"])
@pytest.mark.parametrize("unread", [["b" * 24], ["b" * 24, "c" * 24]], ids=["one", "two"])
def test_an_earlier_release_can_read_what_is_put_for_sessions_that_are_unread(
    unread: list[str], *, are_early: bool
) -> None:
    """It knows nothing of sessions that may be one or the other's, and takes each to be the one's."""
    estate = Estate()
    node = estate.start()
    moves = node.bench.engine.ownership.moves
    moves.unread_here = lambda: {*unread}
    moves.to_others.all_read = lambda reads: not are_early or reads < WHO_GETS_IT
    left = Forwarded(Publication(b"news", b"x", 1, False), "d" * 24, 5, ["a" * 24], direct=True, left="a" * 24)
    moves.to_others.put([node.instance], left)
    node.bench.engine.flush()
    estate.settle(0.5)
    rows = [(key, decode_forwarded(data)) for _, key, _, data in estate.rows[FORWARD].values()]
    told = unread if len(unread) > 1 and not are_early else []
    assert [key for key, _ in rows] == [forward_key(gateway) for gateway in unread]
    assert [one for _, one in rows] == [left._replace(publication=one.publication, whose=told) for _, one in rows]


def test_what_was_put_aside_for_one_session_is_for_no_other_wherever_gateways_end() -> None:
    """Both had moved on from the first when that was killed, and what it had put aside for the one lies unread at the
    second, where they were last; the other got it at the first."""
    estate = Estate()
    first, second, heir = estate.start(), estate.start(), estate.start()
    names = ("one", "other")
    for name in names:
        hears = at(first, name)
        estate.settle(0.5)
        hears.subscribe("news", 2)
        estate.settle(0.5)
    for name in names:
        at(second, name)
    for _ in range(10):
        for node in (first, second):
            while any([node.commit(), node.hear(), node.answer()]):
                pass
    estate.kill(first)
    estate.condemn(first.instance, heir)
    estate.kill(second)
    aside = Forwarded(
        Publication(b"news", b"x", 2, False), "d" * 24, 1, [first.instance], direct=True, client="one", epoch=1,
        left=first.instance,
    )  # fmt: skip
    prefix, body = encode_forwarded(aside)
    row = 0, forward_key(second.instance), bytes(MQMD_LENGTH), prefix + body
    estate.rows.setdefault(FORWARD, {})[next(estate.tokens)] = row
    devices = {name: at(heir, name) for name in names}
    estate.condemn(second.instance, heir)
    estate.settle()
    assert {name: payloads(device.take()) for name, device in devices.items()} == {"one": [b"x"], "other": []}
    assert not estate.rows[FORWARD]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_comes_for_stored_sessions_is_taken_by_and_by(monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    """As much in one unit of work as the queue manager commits."""
    monkeypatch.setattr(SharedQueues, "most_rows", 40, raising=False)
    units = list[int]()
    submit = SharedQueues.submit
    monkeypatch.setattr(
        SharedQueues, "submit", lambda of, unit, done: (units.append(rows_of(unit)), submit(of, unit, done))
    )
    estate = Estate()
    first, second = estate.start(), estate.start()
    for number in range(9):
        away = at(first, f"away-{number}")
        away.subscribe("news/#", 2)
        estate.settle(0.2)
        away.drop()
    sender = at(second, "says")
    estate.settle(0.5)
    for number in range(1, 61):
        sender.publish(f"news/{number % 2}", b"%d" % number, qos, number)
    estate.settle(1)
    if qos == 2:
        sender.send(writer.encode_acks(p.PUBREL, list(range(1, 61))))
    estate.settle(2)
    for number in range(9):
        back = at(first, f"away-{number}")
        estate.settle(1)
        assert sorted(payloads(back.take()), key=int) == [b"%d" % one for one in range(1, 61)]
    assert max(units) <= 40


@pytest.mark.parametrize("topics", [1, 2])  # one run, and publications by themselves
@pytest.mark.parametrize("payload", [500, 3000])
def test_a_commit_makes_copies_of_so_many_bytes_of_what_comes_from_others(topics: int, payload: int) -> None:
    estate, many, most, stored = Estate(), 8, 10_000, list[int]()
    first, second = estate.start(), estate.start()
    context = first.bench.engine.context
    context.most_copied, submit = most, context.submit
    readers, sender = [at(first, f"reader-{one}") for one in range(many)], at(second, "says")
    for reader in readers:
        reader.subscribe("news/#", 2)
    estate.settle()
    for reader in readers:
        reader.drop()

    def noted(unit: Unit, *rest: Any) -> None:
        stored.append(sum(len(body) for puts in unit.puts if puts.queue == OUT for body in puts.bodies))
        submit(unit, *rest)

    context.submit = noted
    for number in range(1, 25):
        sender.publish(f"news/{number % topics}", b"%03d" % number + bytes(payload - 3), 1, number)
    while second.commit():
        second.turn()
    estate.settle()
    assert not estate.rows[FORWARD]
    assert sum(stored) >= 24 * many * payload
    assert max(stored) <= max(most, payload * many) + payload * many
    got: dict[bytes, list[bytes]] = {}
    for _, key, _, data in estate.rows[OUT].values():
        got.setdefault(key, []).append(decode_publication(data)[0].payload[:3])
    in_order = sorted(range(1, 25), key=lambda number: number % topics)  # on each topic
    for each in got.values():
        assert sorted(map(int, each), key=lambda number: number % topics) == in_order
    assert len(got) == many
