"""gateway.broker.sessions.looks: a session whose record cannot be seen, or names another gateway, is not begun anew."""

from __future__ import annotations

from typing import Any

import pytest
from broker_harness import Device
from several_brokers import Estate, Node

from gateway.mqtt import packets as p
from gateway.mqtt import reasons, writer
from gateway.ports.state_queues import SESSIONS
from gateway.session.record import decode_json, encode_json

Row = tuple[int, tuple[int, bytes, bytes, bytes]]


@pytest.fixture
def estate() -> Estate:
    """Two gateways; a client has a session at the first one and is away."""
    made = Estate()
    first, _ = made.start(), made.start()
    device = first.bench.device(5, "moves").connect(clean=False)
    made.settle(0.5)
    device.subscribe("news", 1)
    made.settle(0.5)
    device.drop()
    made.settle(0.5)
    return made


def nodes(estate: Estate) -> list[Node]:
    return list(estate.nodes.values())


def hide(estate: Estate) -> list[Row]:
    """A unit of work has got the records of sessions: they are not seen until it is backed out."""
    rows = list(estate.rows[SESSIONS].items())
    estate.rows[SESSIONS].clear()
    return rows


def forgotten(estate: Estate) -> list[Row]:
    """The gateway that has the session does not know it any more, and its record is not seen."""
    rows, engine = hide(estate), nodes(estate)[0].bench.engine
    session = engine.sessions.get("moves")
    assert session is not None
    engine.ownership._forget(session)
    return rows


def owned_by(rows: list[Row], owner: str) -> list[Row]:
    """The rows with another owner in their records."""
    return [
        (token, (priority, key, md, encode_json(decode_json(data) | {"owner": owner})))
        for token, (priority, key, md, data) in rows
    ]


def given(estate: Estate) -> tuple[Device, list[Row]]:
    """The client comes to the second gateway, and is given its session; the record is hidden before it is read."""
    first, second = nodes(estate)
    device = second.bench.device(5, "moves").connect(clean=False)
    while second.commit():
        second.turn()
    assert first.hear()
    while first.commit():
        first.turn()
    return device, hide(estate)


def connacks(device: Device) -> list[tuple[int, bool]]:
    return [(packet[1].reason, packet[1].session_present) for packet in device.take() if packet[0] >> 4 == 2]


def missed(node: Node) -> list[Any]:
    return [one for one in node.bench.defects or () if one.what == "session"]


def test_a_session_that_was_given_is_waited_for_until_its_record_is_seen(estate: Estate) -> None:
    device, rows = given(estate)
    estate.settle(2.0)
    assert connacks(device) == []
    estate.rows[SESSIONS].update(rows)
    estate.settle(1.0)
    assert connacks(device) == [(0, True)]


def test_a_client_is_refused_if_the_session_that_was_given_is_not_found_and_has_it_when_it_is(estate: Estate) -> None:
    _, second = nodes(estate)
    second.bench.defects = []
    device, rows = given(estate)
    estate.settle(10.0)
    assert connacks(device) == [(reasons.SERVER_UNAVAILABLE, False)]
    assert len(missed(second)) == 1
    estate.rows[SESSIONS].update(rows)
    again = second.bench.device(5, "moves").connect(clean=False)
    estate.settle(1.0)
    assert connacks(again) == [(0, True)]
    nodes(estate)[0].bench.device(5, "says").connect().publish("news", b"heard", 1, 1)
    estate.settle(1.0)
    assert [packet[4] for packet in again.take() if packet[0] >> 4 == 3] == [b"heard"]


def test_the_record_that_names_this_gateway_counts_whatever_else_is_there_of_the_client(estate: Estate) -> None:
    first, _ = nodes(estate)
    device, rows = given(estate)
    older = [(token - 1_000_000, row) for token, row in owned_by(rows, first.instance)]
    estate.rows[SESSIONS].update(older + rows)
    estate.settle(1.0)
    assert connacks(device) == [(0, True)]


@pytest.mark.parametrize("comes_back", [False, True])
def test_no_session_is_begun_while_a_record_names_a_gateway_that_does_not_know_it(
    estate: Estate, *, comes_back: bool
) -> None:
    second = nodes(estate)[1]
    second.bench.defects = []
    rows = forgotten(estate)
    estate.rows[SESSIONS].update(rows)
    device = second.bench.device(5, "moves").connect(clean=False)
    estate.settle(2.0)
    assert connacks(device) == []
    if comes_back:
        estate.rows[SESSIONS].update(owned_by(rows, second.instance))
    estate.settle(6.0)
    assert connacks(device) == [(0, True) if comes_back else (reasons.SERVER_UNAVAILABLE, False)]
    assert len(missed(second)) == (0 if comes_back else 1)


@pytest.mark.parametrize("late", [False, True])
def test_the_gateway_that_a_record_names_is_told_and_gives_the_session_when_its_client_comes_again(
    estate: Estate, *, late: bool
) -> None:
    """`late`: it was given to that gateway, and the record came to be seen only after the looks for it had ended."""
    first, second = nodes(estate)
    second.bench.defects = first.bench.defects = []
    if late:
        device, rows = given(estate)
        estate.settle(10.0)
        here, there = first, second
    else:
        rows, here, there = forgotten(estate), second, first
    estate.rows[SESSIONS].update(rows)
    device = here.bench.device(5, "moves").connect(clean=False)
    estate.settle(10.0)
    assert connacks(device) == [(reasons.SERVER_UNAVAILABLE, False)]
    assert there.bench.engine.sessions.get("moves") is not None
    again = here.bench.device(5, "moves").connect(clean=False)
    estate.settle(1.0)
    assert connacks(again) == [(0, True)]
    there.bench.device(5, "says").connect().publish("news", b"heard", 1, 1)
    estate.settle(1.0)
    assert [packet[4] for packet in again.take() if packet[0] >> 4 == 3] == [b"heard"]


def test_a_gateway_that_is_told_wrongly_that_a_record_names_it_takes_nothing(estate: Estate) -> None:
    first, second = nodes(estate)
    rows = owned_by(forgotten(estate), second.instance)
    estate.rows[SESSIONS].update(rows)
    second.bench.engine.ownership._write(first.instance, {"kind": "named", "client": "moves"})
    second.bench.engine.context.flush()
    estate.settle(10.0)
    assert first.bench.engine.sessions.get("moves") is None
    again = second.bench.device(5, "moves").connect(clean=False)
    estate.settle(1.0)
    assert connacks(again) == [(0, True)]


STRANGER = "ee" * 12
"""A gateway of which nothing is known: its entry is gone, and nobody takes over from it."""


def test_a_session_of_a_gateway_that_nobody_knows_is_taken_in(estate: Estate) -> None:
    """No other gateway will ever act for it."""
    first, second = nodes(estate)
    second.bench.defects = []
    rows = forgotten(estate)
    estate.rows[SESSIONS].update(owned_by(rows, STRANGER))
    device = second.bench.device(5, "moves").connect(clean=False)
    estate.settle(2.0)
    assert connacks(device) == [], "its owner may still be seen"
    estate.settle(6.0)
    assert connacks(device) == [(0, True)]
    assert missed(second) == []
    assert [decode_json(row[3])["owner"] for row in estate.rows[SESSIONS].values()] == [second.instance]
    first.bench.device(5, "says").connect().publish("news", b"heard", 1, 1)
    estate.settle(1.0)
    assert [packet[4] for packet in device.take() if packet[0] >> 4 == 3] == [b"heard"]


def test_a_gateway_that_starts_alone_has_all_sessions_and_what_they_have_staged(estate: Estate) -> None:
    """Nobody knows whose they were: what told it is gone."""
    first, second = nodes(estate)
    device = first.bench.device(5, "stages").connect(clean=False)
    estate.settle(0.5)
    device.publish("news", b"once", 2, 7)
    estate.settle(0.5)
    estate.kill(first)
    estate.kill(second)
    estate.dead.clear()
    rows = list(estate.rows[SESSIONS].items())
    older = [(token - 1_000_000, row) for token, row in owned_by(rows, STRANGER)]
    estate.rows[SESSIONS] = dict(older + rows)
    alone = estate.start()
    assert [decode_json(row[3])["owner"] for row in estate.rows[SESSIONS].values()] == 2 * [alone.instance]
    again = alone.bench.device(5, "moves").connect(clean=False)
    device = alone.bench.device(5, "stages").connect(clean=False)
    estate.settle(0.5)
    assert connacks(again) == connacks(device) == [(0, True)]
    device.send(writer.encode_acks(p.PUBREL, [7]))
    estate.settle(0.5)
    assert [packet[4] for packet in again.take() if packet[0] >> 4 == 3] == [b"once"]


def test_clients_that_come_together_are_looked_for_together(estate: Estate) -> None:
    """Each question waits for those before it; what connected devices need is not to wait for thousands."""
    first, second = nodes(estate)
    devices = [second.bench.device(5, f"new {number}").connect(clean=False) for number in range(200)]
    asked = 0
    while any([second.commit(), first.hear(), first.commit(), second.hear()]):
        second.turn()
        asked = max(asked, len(second.queues.questions))
    assert asked == 1
    estate.settle(1.0)
    assert [connacks(device) for device in devices] == 200 * [[(0, False)]]


def test_a_client_of_whom_nothing_is_stored_begins_a_session(estate: Estate) -> None:
    device = nodes(estate)[1].bench.device(5, "new").connect(clean=False)
    estate.settle(0.5)
    assert connacks(device) == [(0, False)]
