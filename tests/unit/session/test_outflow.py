"""gateway.session.outflow: packet identifiers when nearly all are in flight."""

from __future__ import annotations

import random

import pytest

from gateway.session.copies import Copies
from gateway.session.outflow import MOST_IN_FLIGHT, Item, Outflow
from gateway.session.publication import Publication

ALL = range(1, 0x10000)


def item(body: bytes, packet_id: int = 0) -> Item:
    return Item(Publication(b"a", body, 1, retain=False), 1, False, (), packet_id)


@pytest.mark.timeout(60)
def test_what_is_stored_while_all_identifiers_are_in_flight_is_given_a_free_one_when_it_is_sent_mqtt_2_2_1_4() -> None:
    made = Outflow()
    made.inflight = {number: item(b"sent", number) for number in ALL}
    made.resume_ids(65534)
    stored = [item(b"%d" % number, made.number()) for number in range(3)]
    assert [one.packet_id for one in stored] == [65535, 1, 2]
    made.offer(stored)
    out: list[bytes] = []
    assert made.fill(0.0, out) == (0, [])
    for number in range(40_000, 40_002 + len(ALL) - MOST_IN_FLIGHT):
        del made.inflight[number]
    assert made.fill(0.0, out) == (2, [])
    assert [one.packet_id for one in stored] == [40_000, 40_001, 2]
    assert out == [b"\x32\x06\x00\x01a\x9c\x400", b"\x32\x06\x00\x01a\x9c\x411"]


class Counting(dict[int, Item | Copies]):
    """What is in flight, which counts how often something was looked up in it."""

    looks = 0

    def __contains__(self, packet_id: object) -> bool:
        self.looks += 1
        return super().__contains__(packet_id)


def test_in_the_largest_window_a_free_identifier_is_found_soon_whatever_is_acknowledged() -> None:
    """It took milliseconds for each identifier if the client had not acknowledged in order."""
    made, out = Outflow(), list[bytes]()
    made.connected(5, 0xFFFF, 1000, 0)
    made.offer([item(b"x") for _ in range(70_000)])
    made.fill(0.0, out)
    counting = made.inflight = Counting(made.inflight)
    acknowledged = random.Random(1).sample(range(1, MOST_IN_FLIGHT), 5000)
    for number in acknowledged:
        assert made.acknowledged(number) is not None
        assert made.fill(0.0, out) == (1, [])
    assert len(out) == MOST_IN_FLIGHT + len(acknowledged)
    assert counting.looks < 100 * len(acknowledged)


def test_what_is_stored_is_not_given_one_that_is_in_flight_as_long_as_there_are_many_others() -> None:
    made = Outflow()
    made.inflight = {number: item(b"sent", number) for number in ALL[:30_000]}
    assert [made.number(), made.number()] == [30_001, 30_002]


def test_what_is_stored_at_qos_2_waits_for_its_identifier_mqtt5_4_3_3_1() -> None:
    made = Outflow()
    made.inflight = {1: item(b"sent", 1)}
    publication = Publication(b"a", b"next", 2, retain=False)
    made.offer([Item(publication, 2, False, (), 1, token) for token in (None, 7)])
    out: list[bytes] = []
    assert made.fill(0.0, out) == (1, []), "nobody sends again what is not stored: it may have another"
    assert (len(out), made.ready, made.fill(0.0, out)) == (1, False, (0, []))
    del made.inflight[1]
    assert (made.ready, made.fill(0.0, out)) == (True, (1, []))
    assert made.inflight[1].token == 7
