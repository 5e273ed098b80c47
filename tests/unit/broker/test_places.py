"""gateway.broker.gateways.places: which publications a session gets, or has got, from which gateway."""

from __future__ import annotations

import pytest

from gateway.broker.gateways.forwarded import Forwarded
from gateway.broker.gateways.places import Came, Place, Stay, came_of, record_of, stays_from
from gateway.session.publication import Publication
from gateway.session.record import decode_json, encode_json

HERE, THERE, OTHER = "0a" * 12, "0b" * 12, "0c" * 12


def published(origin: str, number: int, *to: str) -> Forwarded:
    return Forwarded(Publication(b"t", b"x", 1, False), origin, number, list(to), direct=True)


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (published(OTHER, 5, THERE), False),  # it had been handed over there before the session came
        (published(OTHER, 6, THERE), True),
        (published(OTHER, 6, HERE), False),
        (published(THERE, 9, HERE), False),
        (published(THERE, 10, HERE), True),  # one of its own clients', after the session had come
        (published(HERE, 1, THERE), True),
    ],
)
def test_what_a_session_gets_from_where_it_was(forwarded: Forwarded, expected: bool) -> None:
    assert Place(THERE, 9, {OTHER: 5}).has(forwarded) is expected


def test_what_an_earlier_release_has_not_said_is_taken_to_come_from_there() -> None:
    place = Place(THERE)
    assert place.has(published(OTHER, 1, THERE))
    assert place.has(published(THERE, 1, HERE))


def test_a_session_that_was_never_read_there_gets_nothing_from_there() -> None:
    assert not Place(THERE, arrived=False).has(published(OTHER, 1, THERE))


def test_how_far_a_gateway_has_sent_on_what_was_put_for_it() -> None:
    stay = Stay(THERE, {OTHER: 5})
    assert stay.has(published(OTHER, 5, THERE))
    assert not stay.has(published(OTHER, 6, THERE))
    assert not stay.has(published(OTHER, 5, HERE))
    assert not Stay(THERE, None).has(published(OTHER, 5, THERE)), "not known yet"


def test_a_record_says_it_all() -> None:
    came = Came(3, 2, 7, {OTHER: 5}, [Stay(THERE, None), Stay(OTHER, {HERE: 4})], 0.0)
    came.former, came.given_after, came.given_at, came.sent_on = THERE, 1, 2, {OTHER: 6}
    came.lefts = [Place(OTHER, 1, {})]
    record = decode_json(encode_json(record_of(came, HERE)))
    assert record["from"] == record["former"] == THERE
    assert (record["given_after"], record["given_at"], record["read"]) == (1, 2, {OTHER: 5})
    assert record["sent_on"] == {OTHER: 6}
    assert stays_from(record) == [Stay(OTHER, {HERE: 4})]
    assert [Place(*one) for one in record["lefts"]] == came.lefts
    came.stays[0] = Stay(THERE, {})
    assert record_of(came, HERE)["from"] == "", "nothing more comes from there"


def test_what_an_earlier_release_has_kept_without_knowing_it_says_nothing() -> None:
    given = {"at": HERE, "from": THERE, "arrived": False}
    assert came_of({"came": given}, HERE) == given
    assert came_of({"came": given, "after": 5}, HERE) == {}, "it was read there"
    assert came_of({"came": given | {"arrived": True}, "after": 5}, HERE) == given | {"arrived": True}
    assert came_of({"came": given | {"arrived": True}, "after": 5}, OTHER) == {}, "it was taken over there"
    assert came_of({}, HERE) == {}
