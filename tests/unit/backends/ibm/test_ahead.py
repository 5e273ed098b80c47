"""What is read ahead of a queue: each message once, in order, freshly marked, within bounds; whoever waits is told."""

from __future__ import annotations

from gateway.backends.ibm.ahead import AHEAD, AHEAD_BYTES, FEWEST_AHEAD, Ahead, Read
from gateway.backends.ibm.gatherer import token_of
from gateway.mq import mqmd
from gateway.ports.batch import Stored

MD = mqmd.build()


def _stored(number: int, key: bytes = b"", data: bytes = b"x") -> Stored:
    token = b"%024d" % number
    return Stored(token, MD[:48] + token + key.ljust(24, b"\0") + MD[96:], data)


def _numbers(page: list[Stored]) -> list[int]:
    return [int(stored.token) for stored in page]


class Told:
    """Counts how often the arrival of something was reported."""

    def __init__(self, *, shares: bool = False) -> None:
        self.times = 0
        self.ahead = Ahead(self._arrived, shares=shares)

    def _arrived(self) -> None:
        self.times += 1


def test_arrivals_are_told_once_until_somebody_found_nothing() -> None:
    told = Told()
    for number in range(3):
        told.ahead.add(_stored(number), 0)
    assert told.times == 1
    assert _numbers(told.ahead.take(b"", 2, 0)) == [0, 1]
    told.ahead.add(_stored(3), 0)
    assert told.times == 1  # whoever got something asks again
    assert _numbers(told.ahead.take(b"", 9, 0)) == [2, 3]
    assert told.ahead.take(b"", 9, 0) == []
    told.ahead.add(_stored(4), 0)
    assert told.times == 2


def test_a_message_seen_again_is_handed_out_once_until_it_was_dealt_with() -> None:
    told = Told()
    told.ahead.add(_stored(1), 0)
    told.ahead.add(_stored(1), 0)  # its mark ran out while it waited
    assert _numbers(told.ahead.take(b"", 9, 0)) == [1]
    told.ahead.looking()
    told.ahead.add(_stored(1), 0)  # the unit of work that takes it is under way
    assert told.ahead.take(b"", 9, 0) == []
    told.ahead.looking()
    told.ahead.add(_stored(1), 0)  # it stayed on its queue: here it is again
    assert _numbers(told.ahead.take(b"", 9, 0)) == [1]


def test_what_was_being_read_when_its_unit_of_work_ended_is_not_handed_out_again() -> None:
    """The commit takes longer than a mark lasts: the message is browsed, then taken for good, then added."""
    told = Told()
    told.ahead.add(_stored(1), 0)
    assert _numbers(told.ahead.take(b"", 9, 0)) == [1]
    for number in (1, 2):
        told.ahead.looking()
        assert told.ahead.take(b"", 9, number) == []
        told.ahead.add(_stored(1), number)
        told.ahead.take(b"", 9, number)
        assert told.ahead.take(b"", 9, number) == []
        told.ahead.looking()
        told.ahead.add(_stored(2), number)
        told.ahead.take(b"", 9, number)


def test_keys_do_not_mix_and_keep_their_order() -> None:
    told = Told()
    for number, key in enumerate((b"a", b"b", b"a", b"b", b"a")):
        told.ahead.add(_stored(number, key), 0)
    assert _numbers(told.ahead.take(b"b", 9, 0)) == [1, 3]
    assert _numbers(told.ahead.take(b"a", 2, 0)) == [0, 2]
    assert _numbers(told.ahead.take(b"a", 2, 0)) == [4]


def _due(told: Told, now: float) -> list[int]:
    return _numbers([one.stored for one in told.ahead.due(now)])


def _renew(told: Told, now: float, *gone: int) -> None:
    """Read as the filling thread does, where other gateways have some of the messages."""
    for one in told.ahead.due(now):
        if int(one.stored.token[:24]) in gone:
            told.ahead.drop(one.stored.token)
        else:
            told.ahead.renewed(one.stored.token, now)
    told.ahead.in_time()


def test_what_waited_too_long_is_marked_again_and_nothing_overtakes_it() -> None:
    told = Told()
    told.ahead.lifetime = 3.0
    for number, read in ((1, 0), (2, 0), (3, 2)):
        told.ahead.add(_stored(number), read)
    assert _numbers(told.ahead.take(b"", 1, 1)) == [1]
    assert told.ahead.take(b"", 9, 4) == []
    assert told.ahead.lapsed
    assert told.ahead.room.is_set()
    told.ahead.looking()
    told.ahead.add(_stored(4), 4)
    assert told.ahead.take(b"", 9, 4) == []
    assert _due(told, 5) == [2]
    before = told.times
    _renew(told, 5)
    assert told.times == before + 1
    assert not told.ahead.lapsed
    assert _numbers(told.ahead.take(b"", 9, 5)) == [2, 3, 4]


def test_what_the_cursor_meets_again_is_marked_by_that_and_keeps_its_place() -> None:
    told = Told()
    told.ahead.lifetime = 3.0
    for number in (1, 2):
        told.ahead.add(_stored(number), 0)
    told.ahead.add(_stored(3), 4)
    told.ahead.add(_stored(1), 5)
    told.ahead.add(_stored(2), 5)
    assert _due(told, 6) == []
    assert _numbers(told.ahead.take(b"", 9, 6)) == [1, 2, 3]


def test_the_first_segment_that_the_cursor_meets_again_marks_the_whole_message() -> None:
    """Otherwise it would count as another gateway's: its first segment is marked, and the whole is not there yet."""
    told = Told()
    told.ahead.lifetime = 10
    first, second = b"%024d" % 1, b"%024d" % 2
    told.ahead.add(_stored(0), 0)
    told.ahead.add(Stored(first + second, MD, b"both"), 0)
    told.ahead.met(second, 12, 12)
    told.ahead.met(b"%024d" % 7, 12, 12)
    assert len(told.ahead.due(12)) == 2
    told.ahead.met(first, 12, 13)
    [other] = told.ahead.due(12)
    assert other.stored.token == b"%024d" % 0
    told.ahead.renewed(other.stored.token, 12)
    assert [one.data for one in told.ahead.take(b"", 9, 12)] == [b"x", b"both"]


def test_a_mark_is_as_old_as_the_call_and_lasts_as_long_as_if_it_was_made_when_that_was_answered() -> None:
    """The gateway stood still in between, so the message may be its own for longer than it may rely on."""
    told = Told()
    told.ahead.lifetime = 3.0
    told.ahead.add(_stored(1), 0)
    told.ahead.add(_stored(1), 4, answered=9)
    [due] = told.ahead.due(9)
    assert (due.marked, due.answered) == (4, 9)
    told.ahead.renewed(due.stored.token, 10, 11)
    assert (due.marked, due.answered) == (10, 11)
    assert _due(told, 13) == []


def test_what_another_gateway_has_by_then_is_dropped_and_may_come_again() -> None:
    told = Told()
    told.ahead.lifetime = 3.0
    for number in range(1, 5):
        told.ahead.add(_stored(number), 0)
    assert told.ahead.take(b"", 9, 4) == []
    _renew(told, 5, 1, 3)
    assert _numbers(told.ahead.take(b"", 9, 5)) == [2, 4]
    told.ahead.looking()
    told.ahead.add(_stored(1), 9)
    assert _numbers(told.ahead.take(b"", 9, 9)) == [1]


def test_a_page_ends_before_what_has_to_be_marked_again() -> None:
    told = Told()
    told.ahead.lifetime = 3.0
    told.ahead.add(_stored(1), 2)
    told.ahead.add(_stored(2), 0)
    told.ahead.add(_stored(3), 2)
    assert _numbers(told.ahead.take(b"", 9, 4)) == [1]
    _renew(told, 5)
    assert told.times == 1  # who got something asks again
    assert _numbers(told.ahead.take(b"", 9, 5)) == [2, 3]


def test_a_key_is_not_held_up_by_another_one() -> None:
    told = Told()
    told.ahead.lifetime = 3.0
    told.ahead.add(_stored(1, b"a"), 0)
    told.ahead.add(_stored(2, b"b"), 2)
    assert told.ahead.take(b"a", 9, 4) == []
    assert _numbers(told.ahead.take(b"b", 9, 4)) == [2]
    _renew(told, 5)
    assert _numbers(told.ahead.take(b"a", 9, 5)) == [1]


def test_a_group_is_marked_by_its_first_message() -> None:
    told = Told()
    told.ahead.lifetime = 3.0
    for group in (b"%024d" % 7, b"%024d" % 8):
        members = [Stored(token_of(group, sequence, 1), MD, b"x") for sequence in (1, 2)]
        told.ahead.add(members[0], 0, *members[1:])
    assert told.ahead.take(b"", 9, 4) == []
    due: list[Read] = told.ahead.due(5)
    assert [one.stored.token for one in due] == [token_of(b"%024d" % group, 1, 1) for group in (7, 8)]
    _renew(told, 5, 7)
    assert [one.token for one in told.ahead.take(b"", 1, 5)] == [token_of(b"%024d" % 8, n, 1) for n in (1, 2)]


def test_fewer_are_read_ahead_while_marks_run_out_and_more_when_all_are_asked_for() -> None:
    told, number, now = Told(), 0, 0.0
    told.ahead.lifetime = 3.0
    told.ahead.room.set()
    for most in (AHEAD, AHEAD // 2, AHEAD // 4):
        count = 0
        while told.ahead.room.is_set():
            told.ahead.add(_stored(number := number + 1), now)
            count += 1
        assert count == most
        assert told.ahead.take(b"", 9, now + 4) == []
        for one in told.ahead.due(now + 4):
            told.ahead.drop(one.stored.token)
        told.ahead.in_time()
        now += 5
    for _ in range(8):
        told.ahead.add(_stored(number := number + 1), now)
        told.ahead.take(b"", 9, now)
    count = 0
    while told.ahead.room.is_set():
        told.ahead.add(_stored(number := number + 1), now)
        count += 1
    assert count == AHEAD
    assert FEWEST_AHEAD < AHEAD // 4


def test_reading_ahead_is_bounded_in_messages_and_bytes() -> None:
    for data, count in ((b"", AHEAD), (b"x" * (AHEAD_BYTES // 4), 4)):
        told = Told()
        told.ahead.room.set()
        for number in range(count):
            assert told.ahead.room.is_set()
            told.ahead.add(_stored(number, data=data), 0)
        assert not told.ahead.room.is_set()
        told.ahead.take(b"", count, 0)
        assert told.ahead.room.is_set()


def test_messages_of_a_key_nobody_asks_for_keep_nobody_waiting() -> None:
    told = Told()
    told.ahead.room.set()
    told.ahead.take(b"a", 1, 0)
    for number in range(AHEAD - 1):
        told.ahead.add(_stored(number, b"gone"), 0)
    told.ahead.add(_stored(AHEAD, b"a"), 0)
    assert told.ahead.room.is_set()
    assert _numbers(told.ahead.take(b"a", 9, 0)) == [AHEAD]


def test_a_lost_connection_takes_what_was_read_with_it() -> None:
    told = Told()
    told.ahead.add(_stored(1), 0)
    told.ahead.add(_stored(2), 0)
    assert _numbers(told.ahead.take(b"", 1, 0)) == [1]
    told.ahead.forget()
    told.ahead.add(_stored(1), 0)  # handed out: its unit of work is under way
    told.ahead.add(_stored(2), 0)
    assert _numbers(told.ahead.take(b"", 9, 0)) == [2]


def test_a_key_that_is_left_takes_no_room_and_keeps_its_order_for_who_comes_back() -> None:
    told = Told()
    ahead = told.ahead
    ahead.room.set()
    for number in range(AHEAD):
        ahead.add(_stored(number, b"left"), 0)
    assert not ahead.room.is_set()
    ahead.leave(b"left")
    assert ahead.room.is_set()
    ahead.add(_stored(AHEAD, b"left"), 0)  # it was just being read
    ahead.add(_stored(AHEAD + 1, b"kept"), 0)
    assert _numbers(ahead.take(b"kept", 9, 0)) == [AHEAD + 1]
    assert ahead.due(1e9) == []  # another gateway may have what is not wanted here
    ahead.add(_stored(3, b"left"), 1)
    assert _numbers(ahead.take(b"left", 2 * AHEAD, 0)) == list(range(AHEAD + 1))


def test_what_is_left_goes_with_the_connection() -> None:
    ahead = Told().ahead
    ahead.add(_stored(1, b"left"), 0)
    ahead.leave(b"left")
    ahead.forget()
    assert ahead.take(b"left", 9, 0) == []
    ahead.add(_stored(1, b"left"), 0)
    assert _numbers(ahead.take(b"left", 9, 0)) == [1]


def test_beyond_half_of_the_room_a_key_has_its_share_and_one_with_nothing_waiting_is_always_read() -> None:
    told = Told(shares=True)
    for key in (b"held", b"busy", b"quiet"):
        told.ahead.take(key, 50, 0)
    read = 0
    while told.ahead.with_room([b"held"]):
        told.ahead.add(_stored(read, b"held"), 0)
        read += 1
    assert read == AHEAD // 2
    assert not told.ahead.room.is_set()
    while told.ahead.with_room([b"held", b"busy"]) == b"busy":
        told.ahead.add(_stored(read, b"busy"), 0)
        read += 1
    assert read == AHEAD // 2 + AHEAD // 6
    assert not told.ahead.room.is_set()
    assert told.ahead.with_room([b"held", b"busy", b"quiet"]) == b"quiet"
    assert told.ahead.room.is_set()  # all of it is read without a pause
    told.ahead.add(_stored(read, b"quiet", bytes(AHEAD_BYTES)), 0)  # no room is left for any that has something
    assert not told.ahead.with_room([b"held", b"busy", b"quiet"])
    assert told.ahead.with_room([b"other"]) == b"other"
    assert _numbers(told.ahead.take(b"quiet", 50, 0)) == [read]
    assert told.ahead.room.is_set()
    assert _numbers(told.ahead.take(b"busy", 1, 0)) == [AHEAD // 2]
    assert told.ahead.with_room([b"held", b"busy"]) == b"busy"
    told.ahead.leave(b"held")
    assert told.ahead.with_room([b"busy"]) == b"busy"
    assert _numbers(told.ahead.take(b"held", AHEAD, 0)) == list(range(AHEAD // 2))
