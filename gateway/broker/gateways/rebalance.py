"""Evening out connections over the gateways because an operator has asked for it: each gateway that has more than its
share hands some back, a few at a time, and their devices come back through the load balancer. Pure.

Only devices whose sessions go along are disconnected, each at most once; so it comes to an end, wherever the load
balancer sends them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from gateway.broker.context import Context
from gateway.broker.gateways.census import Gateway
from gateway.broker.gateways.session_moves import SessionMoves
from gateway.broker.sessions.endings import Endings
from gateway.ports.ownership import Message
from gateway.session.connection import ONLINE, Connection

MOST_RATE = 10_000
_STEP = 0.05
"""Seconds between two steps."""
_TEXT = "connections are evened out over the gateways"


class Share(NamedTuple):
    """How many connections one gateway has, and how many it is to hand back."""

    gateway: Gateway
    connections: int
    hands_back: int


class Plan(NamedTuple):
    """How connections are evened out."""

    keep: int
    """The share of each gateway."""
    shares: list[Share]
    unheard: list[str]
    """Gateways that have not reported yet how many connections they have: they get no share."""


def plan_for(gateways: Iterable[Gateway]) -> Plan:
    """The plan for these gateways."""
    known, unheard = list[tuple[Gateway, int]](), list[str]()
    for one in gateways:
        connections = one.figures.get("clients/connected")
        if one.heard is None or connections is None:
            unheard.append(one.name or one.instance)
        else:
            known.append((one, connections))
    keep = -(-sum(connections for _, connections in known) // (len(known) or 1))
    shares = [Share(one, connections, max(0, connections - keep)) for one, connections in known]
    return Plan(keep, shares, unheard)


class Rebalance:
    """This gateway's part in evening out connections."""

    def __init__(
        self, context: Context, endings: Endings, moves: SessionMoves, peers: Callable[[], Collection[str]],
        write: Callable[[str, Message], None],
    ) -> None:  # fmt: skip
        self.context = context
        self.endings = endings
        self.moves = moves
        self.peers = peers
        self.write = write
        self.told: Callable[[str], None] = lambda _text: None
        """Writes a line to the log; set by whoever has one."""
        self.keep = 0
        """This gateway's share while connections are handed back."""
        self.handed_back = 0
        self._rate = 0.0
        self._began = 0.0
        self._candidates: deque[Connection] = deque()
        self._looked_at: set[Connection] = set()
        """Connections of which something was unread when it was their turn; one that keeps sending is not looked at
        twice."""
        self._running = False

    def ask(self, plan: Plan, rate: float) -> None:
        """Have every gateway that has more than its share begin."""
        for share in plan.shares:
            if share.hands_back and not share.gateway.own and share.gateway.instance in self.peers():
                self.write(share.gateway.instance, {"kind": "rebalance", "keep": plan.keep, "rate": rate})
        if any(share.gateway.own and share.hands_back for share in plan.shares):
            self.begin(plan.keep, rate)

    def ask_to_stop(self) -> None:
        """Have every gateway stop handing connections back."""
        for peer in self.peers():
            self.write(peer, {"kind": "rebalance", "keep": 0, "rate": 0})
        self.stop()

    def on_message(self, message: Message) -> None:
        """Begin or stop, as another gateway was asked to have it done."""
        keep, rate = int(message["keep"]), float(message["rate"])
        if rate > 0:
            self.begin(keep, min(rate, MOST_RATE))
        else:
            self.stop()

    def begin(self, keep: int, rate: float) -> None:
        """Hand back `rate` connections a second until this gateway has no more than its share."""
        self.keep, self._rate = keep, rate
        self._began, self.handed_back = self.context.scheduler.monotonic(), 0
        self._candidates = deque(self.context.connections)
        self._looked_at.clear()
        self.told(f"connections are handed back, {rate:g} a second, until {keep} are left: {_TEXT}")
        if not self._running:
            self._running = True
            self._step()

    def stop(self) -> None:
        """Hand nothing back any more."""
        self._candidates.clear()

    def movable(self) -> int:
        """How many of this gateway's connections have a session that goes along."""
        return sum(map(self.can_move, self.context.connections))

    def can_move(self, connection: Connection) -> bool:
        """Whether the device finds its session at another gateway: the session is stored, and nothing of it is under
        way that only this gateway has. What a queue refuses is waited for here."""
        if connection.state != ONLINE or not connection.connack_sent:
            return False
        session = connection.session
        stays = session.unconfirmed or session.ended or self.moves.is_unsettled(session)
        return bool(session.durable and session.expiry and not stays and not self.endings.parking.withholds(connection))

    def _step(self) -> None:
        context = self.context
        context.now = context.scheduler.now()
        online = sum(one.state == ONLINE for one in context.connections)
        due = 1 + int((context.scheduler.monotonic() - self._began) * self._rate) - self.handed_back
        due, going, unread = min(due, online - self.keep), self._candidates, list[Connection]()
        while due > 0 and going:
            connection = going.popleft()
            if self.can_move(connection):
                if connection not in self._looked_at and not self.endings.is_heard(connection):
                    unread.append(connection)  # it may have sent something at QoS 0, which it would not send again
                    continue
                self.endings.hand_back(connection, "administrative", _TEXT)
                self.handed_back += 1
                due, online = due - 1, online - 1
        self._looked_at.update(unread)
        going.extend(unread)
        context.flush()
        if going and online > self.keep and not context.draining:  # one that stops hands all of them back anyway
            context.scheduler.later(_STEP, self._step)
            return
        self._running = False
        going.clear()
        self._looked_at.clear()
        self.told(f"{self.handed_back} connections were handed back, {online} are left: {_TEXT}")
