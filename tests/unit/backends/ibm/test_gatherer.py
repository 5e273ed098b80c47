"""What the gatherer remembers of segments and groups, and for how long; the queue manager is a table of answers."""

from __future__ import annotations

from typing import Any

from gateway.backends.ibm.gatherer import Gatherer, same_group, token_of
from gateway.mq import mqmd

NO_MSG, OK = (2, 2033), (0, 0)
SEGMENT, LAST_SEGMENT, IN_GROUP, LAST_IN_GROUP = 2, 4, 8, 16


class Session:
    """Answers a get by GroupId and MsgSeqNumber with what is complete there."""

    handle = 1

    def __init__(self) -> None:
        self.whole: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}
        self.asked = 0

    def mqget(self, _hconn: int, _handle: int, md: bytes, _options: bytes, length: int) -> tuple[Any, ...]:
        self.asked += 1
        found = self.whole.get((md[mqmd.GROUP_ID], mqmd.number(md, mqmd.AT_MSG_SEQ_NUMBER)))
        if found is None:
            return (b"", md, b"", 0, *NO_MSG)
        head, data = found
        return (data[:length], head, b"", len(data), *OK)


class Connection:
    """A connection, as far as the gatherer uses it."""

    def __init__(self) -> None:
        self.session = Session()

    def open_browse(self, _queue: str) -> int:
        return 7


def part(group: bytes, offset: int = 0, *, sequence: int = 1, flags: int = SEGMENT) -> bytes:
    return mqmd.build(group_id=group, offset=offset, msg_seq_number=sequence, msg_flags=flags)


def made(*, groups: bool = False, interval: float = 5.0) -> tuple[Gatherer, Session]:
    gatherer, connection = Gatherer(groups=groups), Connection()
    gatherer.begin(connection, "Q")  # type: ignore[arg-type]
    gatherer.interval, gatherer.lifetime = interval, interval * 0.6
    return gatherer, connection.session


def name(number: int) -> bytes:
    return b"%d" % number + bytes(24 - len(str(number)))


def test_whoever_has_the_beginning_has_the_whole() -> None:
    gatherer, session = made()
    session.whole[name(1), 1] = (part(name(1), flags=LAST_SEGMENT), b"whole")
    assert gatherer.seen(part(name(1), 16), 16, 0.0) == []
    assert session.asked == 0  # another gateway's, or its beginning is still to be seen
    [whole] = gatherer.seen(part(name(1)), 2, 0.0)
    assert (whole.data, whole.token) == (b"whole", token_of(name(1), 1, 3))
    assert gatherer.seen(part(name(1), 32, flags=LAST_SEGMENT), 1, 0.1) == []
    assert session.asked == 1


def test_what_was_given_is_remembered_for_a_while_only() -> None:
    gatherer, session = made()
    for number in range(500):
        session.whole[name(number), 1] = (part(name(number), flags=LAST_SEGMENT), b"w")
        assert gatherer.seen(part(name(number)), 1, number / 100)
    gatherer.due(6.0)
    assert len(gatherer._given) == 500
    gatherer.due(60.0)
    assert not gatherer._given
    assert not gatherer._waiting


def test_what_waits_is_looked_for_again_while_its_mark_lasts_and_then_seen_anew() -> None:
    gatherer, session = made()
    assert gatherer.seen(part(name(1)), 16, 0.0) == []
    session.whole[name(1), 1] = (part(name(1), flags=LAST_SEGMENT), b"w")
    [(marked, [whole])] = gatherer.due(1.5)
    assert (marked, whole.data) == (0.0, b"w")
    assert gatherer.seen(part(name(2)), 16, 2.0) == []
    session.whole[name(2), 1] = (part(name(2), flags=LAST_SEGMENT), b"w")
    assert gatherer.due(6.0) == []  # the mark may be another gateway's by now
    assert not gatherer.restart_cursor
    gatherer.due(7.5)
    assert gatherer.restart_cursor
    assert gatherer.seen(part(name(2)), 16, 8.0)


def test_what_is_not_seen_again_is_not_counted_and_forgotten() -> None:
    gatherer, _ = made()
    gatherer.seen(part(name(1), 16), 16, 0.0)  # its beginning is another gateway's
    gatherer.due(15.0)
    assert gatherer.incomplete.number == 0
    for now in (0.0, 6.0, 12.0):
        gatherer.seen(part(name(2)), 16, now)
    gatherer.due(16.5)
    assert (gatherer.incomplete.number, gatherer.incomplete.group_id) == (1, name(2))
    gatherer.due(60.0)
    assert gatherer.incomplete.number == 0


def test_groups_are_whole_only_with_their_last_message() -> None:
    gatherer, session = made(groups=True)
    first, second = part(name(1), flags=IN_GROUP), part(name(1), sequence=2, flags=IN_GROUP | LAST_IN_GROUP)
    assert not gatherer.alone(first)
    assert gatherer.seen(second, 1, 0.0) == []
    session.whole |= {(name(1), 1): (first, b"1"), (name(1), 2): (second, b"2")}
    members = gatherer.seen(first, 1, 0.0)
    assert [one.data for one in members] == [b"1", b"2"]
    assert same_group(members[0].token, members[1].token)
    assert not same_group(members[0].token, b"a MsgId".ljust(24, b"\0"))
    gatherer.groups = False
    assert gatherer.alone(first)
