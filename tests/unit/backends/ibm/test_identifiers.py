"""gateway.backends.ibm.identifiers, and how a reader continues by them if several processes put to one queue."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from gateway.backends.ibm.identifiers import MessageIds, follows, follows_in_process
from gateway.backends.ibm.reader import _after
from gateway.ports.batch import Stored


def rows(tokens: Sequence[bytes]) -> list[Stored]:
    return [Stored(token, b"", token) for token in tokens]


def test_identifiers_of_a_process_are_in_order() -> None:
    ids = MessageIds(1.0, b"aaaa")
    made = [ids(4) for _ in range(300)]
    assert made == sorted(made)
    assert all(follows_in_process(later, earlier) for earlier, later in pairwise(made))


def test_what_is_put_after_reading_follows_what_was_read() -> None:
    """A gateway that started earlier puts for a session that comes from one that started later."""
    earlier, later = MessageIds(1.0, b"aaaa"), MessageIds(2.0, b"bbbb")
    first = later(4)
    assert not follows(earlier(4), first)
    earlier.follow(first)
    second = earlier(4)
    assert follows(second, first)
    later.follow(second)
    assert follows(later(4), second)
    assert not follows_in_process(second, first)


def test_its_own_and_strange_identifiers_change_nothing() -> None:
    ids = MessageIds(1.0, b"aaaa")
    first = ids(4)
    for token in (first, b"AMQ QM1     " + bytes(12), b"", None, 7):
        ids.follow(token)
    assert follows_in_process(ids(4), first)


@pytest.mark.parametrize("taken", [False, True])
def test_a_reader_goes_on_behind_a_message_of_one_process(taken: bool) -> None:
    ids = MessageIds(1.0, b"aaaa")
    made = [ids(4) for _ in range(6)]
    there = made[:2] + made[2 + taken :]
    found, _ = _after(iter(rows(there)), made[2], 2)
    assert [one.token for one in found] == made[3:5]


def test_a_reader_passes_over_nothing_of_another_process() -> None:
    """The one behind has a lower identifier, the one in front a higher one."""
    low, high = MessageIds(1.0, b"aaaa"), MessageIds(2.0, b"bbbb")
    front, after, behind = high(4), high(4), low(4)
    found, _ = _after(iter(rows([front, after, behind])), after, 10)
    assert [one.token for one in found] == [behind]
    found, _ = _after(iter(rows([high(4), low(4), low(4)])), low(4), 10)
    assert len(found) == 1, "it is gone: the order counts"


def test_a_reader_looks_no_further_than_it_must() -> None:
    ids = MessageIds(1.0, b"aaaa")
    made = [ids(4) for _ in range(9)]
    source = iter(rows(made))
    found, last = _after(source, made[3], 2)
    assert [one.token for one in found] == made[4:6]
    assert last is found[-1]
    assert next(source).token == made[6]
