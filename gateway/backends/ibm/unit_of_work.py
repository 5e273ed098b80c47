"""A unit of work on one connection: apply it, check that every put arrived, replace the marker, commit.

The marker decides what a commit whose answer was lost has done. Each unit takes the connection's last marker and puts a
new one, so that afterwards exactly one of the two is on the marker queue: the new one if it was committed, the old one
if it was backed out, and neither while the queue manager still has the unit open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.backends.ibm.connection import MARKER_EXPIRY, Connection, messages_of
from gateway.backends.ibm.structures import get_options, match_md, msg_id_of
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.batch import Puts, Takes, Token, Unit
from gateway.ports.state_queues import MARKERS, PREFIX

if TYPE_CHECKING:
    from gateway.backends.ibm._calls import Marker as Calls

_BROWSE = mq.MQGMO_BROWSE_FIRST | mq.MQGMO_NO_WAIT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_NO_PROPERTIES
_BY_KEY = get_options(_BROWSE | mq.MQGMO_ACCEPT_TRUNCATED_MSG, mq.MQMO_MATCH_CORREL_ID)
_BY_ID = get_options(_BROWSE | mq.MQGMO_ACCEPT_TRUNCATED_MSG, mq.MQMO_MATCH_MSG_ID)


def marker_key(number: int, instance: str) -> bytes:
    """Returns the key of the marker of one of a gateway's connections."""
    return b"worker" + number.to_bytes(2, "big") + bytes.fromhex(instance)


TAKEN_OVER = "another gateway has taken over from this one, which was not heard of in time"


class Superseded(Exception):
    """Another gateway has taken over from this one, which must not commit anything any more."""


class Marker:
    """The marker of one connection: its key, and the MsgIds of the last two."""

    def __init__(self, key: bytes, *, fence: bool = False) -> None:
        """`fence`: the marker stays until another gateway takes it, after which this one commits nothing any more."""
        self.key = key
        self.fence = fence
        self._expiry = -1 if fence else MARKER_EXPIRY
        self.settled: bytes | None = None
        """The MsgId of the marker that is certain to be on the queue."""
        self.offered: bytes | None = None
        """The MsgId of the marker in the unit that is being committed; None if no unit is in doubt."""

    def settle(self, committed: bool) -> None:
        """Note the outcome of the unit."""
        if committed:
            self.settled = self.offered
        self.offered = None

    def advance(self, connection: Connection, expiry: int = 0) -> None:
        """Replace the marker within the open unit. Raises Superseded if another gateway has taken it."""
        gone, offered = connection.exchange(MARKERS, self.key, self.settled, expiry or self._expiry)
        if gone and self.fence:
            raise Superseded(TAKEN_OVER)
        self.offered = offered

    def calls(self, connection: Connection) -> Calls:
        """Returns what `advance` does in the form of the carrier, which is given the MsgIds separately."""
        return connection.marker(MARKERS, self.key, self._expiry, self.fence)

    def begin(self, connection: Connection) -> None:
        """Put the first marker of a new connection if no unit is in doubt. Visible markers of earlier connections are
        removed; one that is held by a unit of work not yet backed out expires. The first one expires even with `fence`:
        nobody knows of it if the gateway is killed before the others hear of it. The first unit of work replaces it, or
        a worker that has none does within a day."""
        connection.input(MARKERS)  # kept open: a gateway that starts recognises by it that another one is running
        if self.fence and self.settled is not None:
            return  # it is on the queue, or this gateway is superseded
        self.settled = self.offered = None
        try:
            while (found := find_marker(connection, self.key)) is not None:
                connection.take(Takes(MARKERS, self.key, [found]))
                connection.session.commit()
            self.advance(connection, MARKER_EXPIRY)
            connection.session.commit()
        except MQError:
            self.offered = None  # nothing is in doubt: it was not part of a unit
            raise
        self.settle(committed=True)

    def remove(self, connection: Connection) -> None:
        """Remove the marker at the end of the worker, when everything is committed."""
        if self.settled is not None and not self.fence:
            connection.take(Takes(MARKERS, self.key, [self.settled]))
            connection.session.commit()
            self.settled = None

    def verdict(self, connection: Connection) -> bool | None:
        """Whether the unit in doubt was committed; None while the queue manager still has it open."""
        if self.offered is not None and _is_there(connection, self.offered):
            return True
        return False if self.settled is not None and _is_there(connection, self.settled) else None


def find_marker(connection: Connection, key: bytes) -> bytes | None:
    """Returns the MsgId of a marker with this key, if one can be seen."""
    answer = _look(connection, match_md(correl_id=key), _BY_KEY())
    return None if answer is None else msg_id_of(answer)


def _is_there(connection: Connection, marker: bytes) -> bool:
    return _look(connection, match_md(marker), _BY_ID()) is not None


def _look(connection: Connection, md: bytes, options: bytes) -> bytes | None:
    session = connection.session
    answer = session.mqget(session.handle, connection.browse(MARKERS), md, options, 0)
    if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
        return None
    if answer[-2] == mq.MQCC_FAILED:
        raise MQError(int(answer[-1]), f"looking at {MARKERS}")
    found: bytes = answer[1]
    return found


def apply(connection: Connection, unit: Unit, *, asynchronous: bool, can_status: bool) -> list[list[Token]]:
    """Make the unit's calls; returns the MsgIds of each run of puts. MQError carries in `puts` which run failed, if one
    did."""
    tokens: list[list[Token]] = []
    for index, puts in enumerate(unit.puts):
        if puts.placed:  # out of syncpoint, before the unit
            tokens.append(list(puts.tokens))
            continue
        try:
            tokens.append(connection.put_run(puts, asynchronous and (puts.persistent or can_status)))
        except MQError as error:
            raise PutFailed(error, index) from None
    for moves in unit.moves:
        connection.move(moves, asynchronous)
    for takes in unit.takes:
        connection.take(takes)
    for replace in unit.replaces:
        connection.replace(replace)
    return tokens


class PutFailed(MQError):
    """A run of puts of a unit was refused; `puts` is its index."""

    def __init__(self, error: MQError, index: int) -> None:
        super().__init__(error.reason, str(error), error.comp_code)
        self.puts = index


def has_volatile_puts(units: Sequence[Unit]) -> bool:
    """Whether an asynchronous put could fail without the commit failing: MQCMIT answers for persistent ones only."""
    return any(not puts.persistent and not puts.placed for unit in units for puts in unit.puts)


def can_be_carried(unit: Unit, can_status: bool) -> bool:
    """Whether a `Carrier` can make all calls of a unit: it consists of puts under syncpoint, and needs no MQSTAT before
    the commit."""
    if unit.takes or unit.moves or unit.replaces:
        return False
    for puts in unit.puts:  # noqa: SIM110 -- for every unit of devices
        if not puts.syncpoint or not (puts.persistent or not can_status):
            return False
    return True


def waits(puts: Puts) -> bool:
    """Whether a run has rows that are to be put out of syncpoint."""
    return not puts.syncpoint and puts.placed < len(puts.heads)


def is_placed(unit: Unit) -> bool:
    """Whether nothing is left to be committed: everything in the unit was out of syncpoint, and has been put."""
    return not (unit.takes or unit.moves or unit.replaces) and all(puts.placed for puts in unit.puts)


def taken_by(takes: Takes) -> int:
    """Returns how many messages leave their queue: a message of an application may be several segments."""
    return len(takes.tokens) if takes.queue.startswith(PREFIX) else sum(map(messages_of, takes.tokens))


def rows_of(unit: Unit) -> int:
    """Returns how many uncommitted messages the unit makes."""
    if not (unit.takes or unit.moves or unit.replaces) and len(unit.puts) == 1:  # what devices send
        return len(unit.puts[0].heads) if unit.puts[0].syncpoint else 0
    rows = sum(len(puts.heads) for puts in unit.puts if puts.syncpoint) + sum(map(taken_by, unit.takes))
    return rows + sum(2 * len(moves.tokens) for moves in unit.moves) + 2 * len(unit.replaces)
