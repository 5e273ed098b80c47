"""Who is found dead, and who is not."""

from __future__ import annotations

from gateway.backends.ibm.leases import Beat, Entry, Roll, decode, decode_letter, encode

A, B, C = ("aa" * 12, "bb" * 12, "cc" * 12)
SECONDS = 9.0


def _beats(number: int, *instances: str) -> dict[str, Beat]:
    return {instance: Beat(b"%d" % number) for instance in instances}


def test_an_entry_comes_back_as_it_was_written() -> None:
    for entry in (Entry(A, b"token", 5), Entry(A, b"token", 5, B)):
        assert decode(b"token", encode(entry, "host")) == entry
    for data in (b"", b"[]", b"{}", b"null", b'{"instance":"zz","workers":1}', b'{"instance":"aa","workers":"x"}'):
        assert decode(b"token", data) is None


def test_a_letter_that_is_none() -> None:
    assert decode_letter(b'{"kind":"hello","from":"aa"}') == {"kind": "hello", "from": "aa"}
    for data in (b"", b"[]", b'{"kind":"hello"}', b'{"kind":1,"from":"aa"}', b'{"kind":"hello","from":"xx"}', b"\xff"):
        assert decode_letter(data) is None


def test_a_lease_that_is_not_renewed_ends() -> None:
    roll = Roll(A, SECONDS)
    entries = [Entry(A, b"a"), Entry(B, b"b"), Entry(C, b"c")]
    dead = []
    for number in range(5):
        beats = _beats(number, A, C) | _beats(0, B)
        dead.append([entry.instance for entry in roll.dead(entries, beats, number * 3.0)])
    assert dead == [[], [], [], [B], [B]]


def test_a_lease_that_cannot_be_seen_is_not_renewed_either() -> None:
    roll = Roll(A, SECONDS)
    dead = [roll.dead([Entry(B, b"b")], _beats(0, B) if number == 0 else {}, number * 3.0) for number in range(4)]
    assert dead == [[], [], [], [Entry(B, b"b")]]


def test_one_that_ends_in_order_is_not_waited_for() -> None:
    assert Roll(A, SECONDS).dead([Entry(B, b"b")], {B: Beat(b"1", over=True)}, 0.0) == [Entry(B, b"b")]


def test_heritage_has_no_lease() -> None:
    roll = Roll(A, SECONDS)
    for number in range(9):
        assert roll.dead([Entry(B, b"b", 3, heir=C)], {}, number * 3.0) == []


def test_after_an_outage_nobody_is_judged_by_it() -> None:
    """All leases are old then; only from the time on that this gateway looks again does it count."""
    roll = Roll(A, SECONDS)
    entries, beats = [Entry(B, b"b")], _beats(0, B)
    assert roll.dead(entries, beats, 0.0) == []
    assert roll.dead(entries, beats, 3.0) == []
    roll.interrupted()
    assert roll.dead(entries, beats, 60.0) == []
    assert roll.dead(entries, beats, 63.0) == []
    assert roll.dead(entries, beats, 66.0) == []
    assert roll.dead(entries, beats, 69.0) == entries


def test_one_that_slept_itself_judges_nobody() -> None:
    roll = Roll(A, SECONDS)
    entries, beats = [Entry(B, b"b")], _beats(0, B)
    assert roll.dead(entries, beats, 0.0) == []
    assert roll.dead(entries, beats, 100.0) == []


def test_an_entry_in_somebodys_open_unit_of_work_still_counts() -> None:
    roll = Roll(A, SECONDS)
    entry = Entry(B, b"b")
    assert roll.known([entry], 0.0) == [entry]
    assert roll.known([], 8.0) == [entry]
    assert roll.known([], 18.0) == []
    assert roll.known([entry], 19.0) == [entry]
    roll.forget(B)
    assert roll.known([], 19.0) == []
