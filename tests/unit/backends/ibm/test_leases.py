"""Which gateways are found to have stopped, and which are not."""

from __future__ import annotations

from gateway.backends.ibm.leases import Entry, Lease, Roster, decode, decode_message, encode

A, B, C = ("aa" * 12, "bb" * 12, "cc" * 12)
SECONDS = 9.0


def _leases(number: int, *instances: str) -> dict[str, Lease]:
    return {instance: Lease(b"%d" % number) for instance in instances}


def test_an_entry_comes_back_as_it_was_written() -> None:
    for entry in (Entry(A, b"token", 5), Entry(A, b"token", 5, B)):
        assert decode(b"token", encode(entry, "host")) == entry
    for data in (b"", b"[]", b"{}", b"null", b'{"instance":"zz","workers":1}', b'{"instance":"aa","workers":"x"}',
                 b'{"instance":"aa","workers":1e999}', b"[" * 100_000):  # fmt: skip
        assert decode(b"token", data) is None


def test_a_message_that_is_none() -> None:
    assert decode_message(b'{"kind":"hello","from":"aa"}') == {"kind": "hello", "from": "aa"}
    for data in (b"", b"[]", b'{"kind":"hello"}', b'{"kind":1,"from":"aa"}', b'{"kind":"hello","from":"xx"}', b"\xff",
                 b"[" * 100_000):  # fmt: skip
        assert decode_message(data) is None


def test_a_lease_that_is_not_renewed_ends() -> None:
    roster = Roster(A, SECONDS)
    entries = [Entry(A, b"a"), Entry(B, b"b"), Entry(C, b"c")]
    dead = []
    for number in range(5):
        beats = _leases(number, A, C) | _leases(0, B)
        dead.append([entry.instance for entry in roster.expired(entries, beats, number * 3.0, number * 3.0)])
    assert dead == [[], [], [], [B], [B]]


def test_how_long_a_lease_has_lain_there_is_known() -> None:
    roster = Roster(A, SECONDS)
    for number in range(3):
        roster.expired(
            [Entry(A, b"a"), Entry(B, b"b"), Entry(C, b"c")],
            _leases(number, A, C) | _leases(0, B),
            number * 3.0,
            number * 3.0,
        )
    assert roster.ages(7.0) == {B: 7.0, C: 1.0}


def test_a_lease_that_cannot_be_seen_is_not_renewed_either() -> None:
    roster = Roster(A, SECONDS)
    dead = [
        roster.expired([Entry(B, b"b")], _leases(0, B) if number == 0 else {}, number * 3.0, number * 3.0)
        for number in range(4)
    ]
    assert dead == [[], [], [], [Entry(B, b"b")]]


def test_one_that_ends_in_order_is_not_waited_for() -> None:
    assert Roster(A, SECONDS).expired([Entry(B, b"b")], {B: Lease(b"1", ended=True)}, 0.0, 0.0) == [Entry(B, b"b")]


def test_a_gateway_with_a_successor_has_no_lease() -> None:
    roster = Roster(A, SECONDS)
    for number in range(9):
        assert roster.expired([Entry(B, b"b", 3, successor=C)], {}, number * 3.0, number * 3.0) == []


def test_after_an_outage_nobody_is_judged_by_it() -> None:
    """All leases are old then; only the time since this gateway has looked again counts."""
    roster = Roster(A, SECONDS)
    entries, beats = [Entry(B, b"b")], _leases(0, B)
    assert roster.expired(entries, beats, 0.0, 0.0) == []
    assert roster.expired(entries, beats, 3.0, 3.0) == []
    roster.interrupted()
    assert roster.expired(entries, beats, 60.0, 60.0) == []
    assert roster.expired(entries, beats, 63.0, 63.0) == []
    assert roster.expired(entries, beats, 66.0, 66.0) == []
    assert roster.expired(entries, beats, 69.0, 69.0) == entries


def test_one_that_slept_itself_judges_nobody() -> None:
    roster = Roster(A, SECONDS)
    entries, beats = [Entry(B, b"b")], _leases(0, B)
    assert roster.expired(entries, beats, 0.0, 0.0) == []
    assert roster.expired(entries, beats, 100.0, 100.0) == []


def test_an_entry_in_somebodys_open_unit_of_work_still_counts() -> None:
    roster = Roster(A, SECONDS)
    entry = Entry(B, b"b")
    assert roster.known([entry], 0.0) == [entry]
    assert roster.known([], 8.0) == [entry]
    assert roster.known([], 18.0) == []
    assert roster.known([entry], 19.0) == [entry]
    roster.forget(B)
    assert roster.known([], 19.0) == []


def test_a_lease_counts_from_when_it_was_seen() -> None:
    """A look takes long if much is on the queue, or if the queue manager commits slowly."""
    roster = Roster(A, SECONDS)
    entries, beats = [Entry(B, b"b")], _leases(0, B)
    for began in (0.0, 3.0, 6.0, 9.0, 11.9, 12.1):
        roster.heard(began)
        roster.heard(began + 1.5)
        assert roster.expired(entries, beats, began, began + 3.0) == (entries if began > 12.0 else [])


def test_a_look_that_takes_long_finds_the_dead_while_it_is_answered() -> None:
    roster = Roster(A, SECONDS)
    entries, beats = [Entry(B, b"b")], _leases(0, B)
    found = []
    for began in range(0, 60, 10):
        for answer in range(began, began + 10):
            roster.heard(float(answer))
        found.append(roster.expired(entries, beats, float(began), began + 9.0) == entries)
    assert found == [False, False, True, True, True, True]


def test_what_the_queue_manager_does_not_answer_judges_nobody() -> None:
    roster = Roster(A, SECONDS)
    entries, beats = [Entry(B, b"b")], _leases(0, B)
    for began in range(0, 60, 10):
        roster.heard(float(began))
        assert roster.expired(entries, beats, float(began), began + 9.0) == []
