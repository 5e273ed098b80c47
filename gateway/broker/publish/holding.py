"""QoS 2 in runs: several publications of one topic are staged as the messages that their rule makes of them, and the
PUBREL that releases them moves them to their queue without writing them again (design decision 3). Pure.

That is for queue managers that can move messages, for messages that say themselves what they were (`read`), and as long
as all goes well: `write_out` turns moves into puts and takes, whose failures the rules know how to handle.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from gateway.bridge.message import read_message
from gateway.broker.turn import Turn
from gateway.errors import Refused
from gateway.ports.batch import MQMD_LENGTH, Moving, Puts, Stored, Token
from gateway.ports.state_queues import STAGED
from gateway.session.held import Held
from gateway.session.publication import Publication
from gateway.session.record import decode_publication

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.moving import Move
    from gateway.broker.publish.route import Route
    from gateway.session.session import Plain, Session

_TOPIC = "topic://"
_REPORT, _EXPIRY = slice(8, 12), slice(16, 20)
_NEVER = b"\xff\xff\xff\xff"
"""Where an MQMD says whether reports are wanted and when the message expires."""
_MESSAGE = b"RFH "
"""What the data of a staged message begin with; those of a record begin with its version."""
_SAMPLE = 54_321, b"\x00RFH \xff"


class Holding:
    """See the module."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        manager = engine.queue_manager
        self._moving = manager if isinstance(manager, Moving) else None

    # -- PUBLISH --

    def takes(self, route: Route) -> bool:
        """Whether publications on this route can be staged in runs now."""
        if self._moving is None or self.engine.parking.waiting:
            return False
        if not route.holdable:  # what changes about the queue afterwards is heard when a move is refused
            movable = _can_be_held(route) and self._moving.movable(route.run[0], route.run[1])
            route.holdable = 1 if movable else -1
        return route.holdable > 0

    def add(self, session: Session, held: Held) -> None:
        """A run is staged with the open turn."""
        staged = self.engine.turn.held.staged
        entry = staged.get(session)
        if entry is None:
            entry = staged[session] = (Puts(STAGED, "", session.key), [])
        puts, several = entry
        several.append(held)
        puts.heads.extend(repeat(held.head, len(held.ids)))
        puts.bodies += held.bodies

    # -- PUBREL --

    def move(self, session: Session, move: Move) -> None:
        """Move these with the open turn."""
        moves = self.engine.turn.held.moves.setdefault(session, [])
        last = moves[-1] if moves else None
        if last is not None and last.held is move.held and last.first + last.rows == move.first:
            moves[-1] = last._replace(rows=last.rows + move.rows)
        else:
            moves.append(move)

    @staticmethod
    def let_go(held: Held, packet_id: int) -> tuple[Token | None, Plain]:
        """One of a run that goes by itself: its token, if it is stored, and what is known of it."""
        at = held.ids.index(packet_id)
        return (held.tokens[at] if held.tokens else None), held.plain(at)

    @staticmethod
    def write_out(turn: Turn, session: Session) -> None:
        """What moves of a session is put and taken instead."""
        for move in turn.held.moves.pop(session, ()):
            held = move.held
            puts = turn.run(held.run)
            turn.aim(held.run, move.policy)
            turn.contribute(held.run, move.connection)
            ids = held.ids[move.first : move.first + move.rows]
            turn.releasing(held.run).append((len(puts.heads), session, ids, list(move.tokens)))
            puts.heads.extend(repeat(held.head, move.rows))
            puts.bodies.extend(move.bodies)
            turn.taken(STAGED, session.key).extend(move.tokens)

    def write_all_out(self, turn: Turn) -> None:
        """The same of all sessions."""
        for session in list(turn.held.moves):
            self.write_out(turn, session)

    # -- commits --

    def committed(self, turn: Turn) -> None:
        """What was staged can be released."""
        for session, (puts, several) in turn.held.staged.items():
            at, tokens = 0, puts.tokens
            for held in several:
                end = at + len(held.ids)
                held.tokens, at = tokens[at:end], end
            if session.over:
                self.engine.turn.taken(STAGED, session.key).extend(tokens)

    def ended(self, session: Session) -> None:
        """The session is over: nothing that is staged for it is kept."""
        for number, one in session.inbound.items():
            if isinstance(one, Held) and one.tokens:
                self.engine.turn.take(STAGED, session.key, one.tokens[one.ids.index(number)])


def read(stored: Stored) -> tuple[Publication, int]:
    """What a message of the queue for staged publications was, and its packet identifier."""
    data = stored.data
    if not data.startswith(_MESSAGE):
        publication, packet_id, _, _ = decode_publication(data)
        return publication, packet_id
    message = read_message(stored.md, data)
    topic, client_id = message.property("mqps", "Top"), message.property("mqtt", "clientId")
    packet_id = int(message.property("mqtt", "msgId") or 0)
    payload = data[message.body_at :]
    return Publication(str(topic).encode(), payload, 2, retain=False, client_id=str(client_id)), packet_id


def _can_be_held(route: Route) -> bool:
    """Whether the messages of a route are all that has to be stored: a restart finds in them what it needs, no report
    is due when they are put, and their time does not run while they are staged."""
    queue, _, _, persistent, key, syncpoint, retain = route.run
    if not (persistent and syncpoint) or key or retain or queue.startswith(_TOPIC):
        return False
    head = route.head
    if any(head[_REPORT]) or head[_EXPIRY] != _NEVER or route.first & 1:
        return False
    number, payload = _SAMPLE
    data = head[MQMD_LENGTH:] + route.tails[number] + payload
    if not data.startswith(_MESSAGE):
        return False
    try:
        found, packet_id = read(Stored(None, head[:MQMD_LENGTH], data))
    except (Refused, ValueError):
        return False
    return (found.topic, packet_id, found.payload) == (route.wire_topic, number, payload)
