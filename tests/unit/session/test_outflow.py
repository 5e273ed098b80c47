"""gateway.session.outflow: packet identifiers where nearly all are in flight."""

from __future__ import annotations

import pytest

from gateway.session.outflow import Item, Outflow
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
    for number in (1, 40_000):
        del made.inflight[number]
        made.fill(0.0, out)
    assert [one.packet_id for one in stored] == [1, 40_000, 2]
    assert out == [b"\x32\x06\x00\x01a\x00\x010", b"\x32\x06\x00\x01a\x9c\x401"]


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
