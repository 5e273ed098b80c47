"""gateway.broker.sessions.claims: CONNECTs that wait until it is known where the client's session is."""

from __future__ import annotations

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.broker.context import MOST_REPLACED
from gateway.broker.gateways import from_others
from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.state_queues import FORWARD, SESSIONS


@pytest.mark.parametrize("again", [False, True])
def test_who_came_early_waits_for_the_session_alone_and_not_for_all_that_its_gateway_has_left(
    monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    """As one who comes when the session has been read. `again`: the client has given up once, and come back."""
    monkeypatch.setattr(from_others, "PAGE", 3)
    estate = Estate()
    first, second = estate.start(), estate.start()
    hears = first.bench.device(5, "hears")
    hears.connect(clean=False)
    estate.settle(0.5)
    hears.subscribe("news", 1)
    sender = second.bench.device(5, "says")
    sender.connect()
    estate.settle(0.5)
    estate.kill(first)
    for number in range(1, 21):
        sender.publish("news", b"%d" % number, 1, number)
    while second.commit():
        second.turn()
    assert len(estate.rows[FORWARD]) == 20
    device = second.bench.device(5, "hears")
    device.connect(clean=False)
    if again:
        device.drop()
        device = second.bench.device(5, "hears")
        device.connect(clean=False)
    estate.settle(0.5)
    assert not device.take(), "it is not known where its session is"
    estate.condemn(first.instance, second)
    found = []
    for _ in range(200):
        second.commit() or second.hear() or second.answer()
        second.turn()
        found = device.take()
        if found:
            break
        second.bench.clock.advance(0.001)
    assert found[0][0] >> 4 == p.CONNACK
    assert found[0][1].session_present
    assert len(estate.rows[FORWARD]) > 10, "most of what is left is still to be read"
    estate.settle()
    got = [packet[4] for packet in found[1:] + device.take() if packet[0] >> 4 == p.PUBLISH]
    assert got == [b"%d" % number for number in range(1, 21)]


def with_a_will(estate: Estate, node: Node) -> tuple[Device, Device]:
    """A client that would leave a will, and one that would get it."""
    moves = node.bench.device(5, "moves")
    moves.connect(clean=False, will=p.Will("wills", b"gone", 1, retain=False))
    mourner = node.bench.device(5, "mourner").connect()
    mourner.subscribe("#", 1)
    estate.settle(0.5)
    mourner.take()
    return moves, mourner


def test_what_a_client_had_sent_to_another_gateway_is_read_there_first() -> None:
    estate = Estate()
    first, second = estate.start(), estate.start()
    older, mourner = with_a_will(estate, first)
    older.wire.waits = True
    newer = second.bench.device(5, "moves")
    newer.connect(clean=False)
    estate.settle(0.2)
    assert not older.wire.closed
    older.wire.waits = False
    older.publish("news", b"the last")
    older.disconnect()
    estate.settle(0.5)
    assert newer.take()[0][1].session_present
    estate.settle()
    assert [packet[4] for packet in mourner.take() if packet[0] >> 4 == p.PUBLISH] == [b"the last"], "and no will"


def test_one_that_sends_on_there_does_not_keep_it_from_coming() -> None:
    estate = Estate()
    first, second = estate.start(), estate.start()
    older = first.bench.device(5, "moves")
    older.connect(clean=False)
    estate.settle(0.5)
    older.wire.waits = True
    newer = second.bench.device(5, "moves")
    newer.connect(clean=False)
    estate.settle(1.5)
    assert older.wire.closed
    assert newer.take()[0][1].session_present


@pytest.mark.parametrize("slow", [False, True])
def test_what_a_gateway_has_put_off_of_a_client_is_taken_before_another_gets_its_session(*, slow: bool) -> None:
    """`slow`: nothing of it is taken before a commit returns."""
    estate = Estate()
    first, second = estate.start(), estate.start()
    older, mourner = with_a_will(estate, first)
    said = writer.encode_publish(5, b"news", b"the last", 0) + writer.encode_disconnect(5, p.Disconnect())
    for number in range(slow * 2 * MOST_REPLACED):
        first.bench.engine.context.batch.replace(SESSIONS, b"%024d" % number, None)
        if number == MOST_REPLACED - 1:
            first.bench.engine.flush()
    first.bench.engine.put_off.add_data(older.connection, said, slow=True)
    first.queues.on_message({"kind": "ask", "from": second.instance, "client": "moves", "number": 0})
    for _ in range(slow * 20):
        first.bench.clock.advance(0.05)
        assert not older.wire.closed
    estate.settle()
    assert [packet[4] for packet in mourner.take() if packet[0] >> 4 == p.PUBLISH] == [b"the last"], "and no will"


def test_who_has_waited_for_what_was_put_off_does_not_get_a_session_that_has_moved_meanwhile() -> None:
    estate = Estate()
    first, second = estate.start(), estate.start()
    older = first.bench.device(5, "moves").connect(clean=False)
    estate.settle(0.5)
    put_off = first.bench.engine.put_off
    put_off.add_data(older.connection, b"\xc0\x00", slow=True)
    again = first.bench.device(5, "moves").connect(clean=False)
    elsewhere = second.bench.device(5, "moves").connect(clean=False)
    while second.commit():
        pass
    while first.hear():
        pass
    estate.settle()
    owners = [node for node in (first, second) if node.bench.engine.sessions.get("moves") is not None]
    assert len(owners) == 1
    assert [device.wire.closed for device in (again, elsewhere)].count(False) == 1
