"""What is read ahead of a queue: each message once, in order, fresh, within bounds; who waits is told."""

from __future__ import annotations

from gateway.backends.ibm.watcher import AHEAD, AHEAD_BYTES, Ahead
from gateway.mq import mqmd
from gateway.ports.batch import Stored

MD = mqmd.build()


def _stored(number: int, key: bytes = b"", data: bytes = b"x") -> Stored:
    token = b"%024d" % number
    return Stored(token, MD[:48] + token + key.ljust(24, b"\0") + MD[96:], data)


def _numbers(page: list[Stored]) -> list[int]:
    return [int(stored.token) for stored in page]


class Told:
    """Counts how often it was said that something is there."""

    def __init__(self) -> None:
        self.times = 0
        self.ahead = Ahead(self._arrived)

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
    told.ahead.add(_stored(1), 0)  # the unit of work that takes it is under way
    assert told.ahead.take(b"", 9, 0) == []
    told.ahead.add(_stored(1), 0)  # it stayed on its queue: here it is again
    assert _numbers(told.ahead.take(b"", 9, 0)) == [1]


def test_keys_do_not_mix_and_keep_their_order() -> None:
    told = Told()
    for number, key in enumerate((b"a", b"b", b"a", b"b", b"a")):
        told.ahead.add(_stored(number, key), 0)
    assert _numbers(told.ahead.take(b"b", 9, 0)) == [1, 3]
    assert _numbers(told.ahead.take(b"a", 2, 0)) == [0, 2]
    assert _numbers(told.ahead.take(b"a", 2, 0)) == [4]


def test_what_waited_too_long_is_read_again_because_its_mark_may_have_gone() -> None:
    told = Told()
    told.ahead.lifetime = 3.0
    told.ahead.add(_stored(1), 0)
    told.ahead.add(_stored(2), 2)
    assert _numbers(told.ahead.take(b"", 9, 4)) == [2]
    assert told.ahead.stale
    told.ahead.add(_stored(1), 5)
    assert _numbers(told.ahead.take(b"", 9, 5)) == [1]


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
