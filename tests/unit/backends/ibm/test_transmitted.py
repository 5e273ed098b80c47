"""Segments behind transmission headers: whose they are, and for how long; the queue manager is a list of messages."""

from __future__ import annotations

import struct
from typing import Any

import mq_segments
import pytest

from gateway.backends.ibm.connection import Connection as RealConnection
from gateway.backends.ibm.connection import ids_of, messages_of
from gateway.backends.ibm.transmitted import TransmittedSegments
from gateway.errors import MQError
from gateway.mq import mqmd, situations
from gateway.mq import transmitted_segments as segments
from gateway.mq.situations import Putter
from gateway.ports.batch import Takes

GROUP = b"g" * 24
BROWSE_NEXT = 32
QMGR = Putter("mqm", "QM1", 7, "20260102", "03040506")


class Session:
    """Browses a list of messages: by MsgId, or one after the other."""

    handle = 1

    def __init__(self, messages: list[tuple[bytes, bytes]]) -> None:
        self.messages = messages
        self.at = 0
        self.calls = 0
        self.failing = 0

    def mqget(self, _hconn: int, _handle: int, md: bytes, options: bytes, length: int) -> tuple[Any, ...]:
        self.calls += 1
        if self.failing:
            return (b"", md, b"", 0, 2, self.failing)
        wanted = md[mqmd.MSG_ID]
        said = struct.unpack_from("<i", options, 8)[0]
        found = [one for one in self.messages if wanted in (bytes(24), one[0][mqmd.MSG_ID])]
        self.at = self.at + 1 if said & BROWSE_NEXT else 0
        if self.at >= len(found):
            return (b"", md, b"", 0, 2, 2033)
        head, data = found[self.at]
        if len(data) > length and not said & 64:
            return (b"", head, b"", len(data), 1, 2080)
        return (data[:length], head, b"", len(data), 0, 0)


class Connection:
    def __init__(self, messages: list[tuple[bytes, bytes]]) -> None:
        self.session = Session(messages)

    def open_browse(self, _queue: str) -> int:
        return 7


def sent(data: bytes, size: int = 32, group: bytes = GROUP) -> list[tuple[bytes, bytes]]:
    md = mqmd.build(msg_flags=1, format="MQSTR")
    parts = mq_segments.segments(md, data, size, group_id=group)
    return [
        situations.to_transmission(*one, "T", "DEV", msg_id=group[:12] + b"%012d" % at, putter=QMGR)
        for at, one in enumerate(parts)
    ]


def made(messages: list[tuple[bytes, bytes]], interval: float = 5.0) -> tuple[TransmittedSegments, Session]:
    found, connection = TransmittedSegments(), Connection(messages)
    found.begin(connection, "X")  # type: ignore[arg-type]
    found.interval, found.lifetime = interval, interval * 0.6
    return found, connection.session


def see(collected: TransmittedSegments, message: tuple[bytes, bytes], now: float) -> list[Any]:
    part = segments.part_of(*message)
    assert part is not None
    return collected.seen(part, message[0][mqmd.MSG_ID], now)


DATA = bytes(range(100))


def test_one_cursor_sees_all_of_it() -> None:
    parts = sent(DATA)
    collected, session = made(parts)
    assert [see(collected, one, 0.0) for one in parts[:-1]] == [[], [], []]
    assert session.calls == 0
    [whole] = see(collected, parts[-1], 0.1)
    assert situations.from_transmission(whole.md, whole.data).data == DATA
    assert ids_of(whole.token) == [md[mqmd.MSG_ID] for md, _ in parts]
    assert messages_of(whole.token) == 4


def test_whoever_has_the_beginning_finds_what_others_have_marked() -> None:
    parts = sent(DATA)
    mine, _ = made([*sent(DATA, group=b"h" * 24), *parts])
    other, _ = made(parts)
    assert see(mine, parts[0], 0.0) == []
    assert [see(other, one, 0.0) for one in parts[1:]] == [[], [], []]
    [(marked, [whole])] = mine.due(1.5)
    assert (marked, whole.data[500:]) == (0.0, DATA)
    assert other.due(1.5) == []


def test_a_mark_that_has_run_out_is_not_relied_on() -> None:
    parts = sent(DATA)
    collected, _ = made(parts[:1])
    assert see(collected, parts[0], 0.0) == []
    assert collected.due(1.5) == []
    assert see(collected, parts[1], 4.0) == []
    assert not collected.restart_cursor
    assert collected.due(6.0) == []
    assert collected.restart_cursor
    for one in parts:
        see(collected, one, 6.1)


def test_what_stays_incomplete_is_counted_and_forgotten_when_it_has_gone() -> None:
    parts = sent(DATA)
    collected, _ = made(parts[:1])
    for now in (0.0, 5.0, 11.0):
        see(collected, parts[0], now)
        collected.due(now + 0.5)
    assert (collected.incomplete.number, collected.incomplete.group_id) == (1, GROUP)
    collected.due(200.0)
    assert collected.incomplete.number == 0


def test_a_segment_that_has_gone_meanwhile() -> None:
    parts = sent(DATA)
    collected, session = made(parts[:-1])
    assert [see(collected, one, 0.0) for one in parts] == [[]] * 4
    session.messages.append(parts[-1])
    [(_, [whole])] = collected.due(1.0)
    assert whole.data[500:] == DATA


def test_longer_than_a_message_may_be() -> None:
    collected, _ = made(parts := sent(DATA))
    collected.longest = 50
    *_, [whole] = [see(collected, one, 0.0) for one in parts]
    assert (len(whole.data), mqmd.number(whole.md, mqmd.AT_ORIGINAL_LENGTH)) == (551, 600)


def test_a_refusal_is_raised() -> None:
    collected, session = made(parts := sent(DATA))
    session.failing = 2009
    see(collected, parts[0], 0.0)
    with pytest.raises(MQError, match="headers"):
        collected.due(1.0)


def test_all_segments_are_taken() -> None:
    dropped: list[bytes] = []

    class Taking(RealConnection):
        def __init__(self) -> None:
            pass

        def input(self, _queue: str) -> int:
            return 3

        def _drop_one(self) -> bytes:
            return b""

        def _drop(self, _handle: int, msg_id: bytes, _key: bytes, _options: bytes, _queue: str) -> bool:
            dropped.append(msg_id)
            return True

    Taking().take(Takes("X", b"", [b"a" * 24, b"b" * 24 + b"c" * 24]))
    assert dropped == [b"a" * 24, b"b" * 24, b"c" * 24]
