"""What happens to clients, written to the log and to their history."""

from __future__ import annotations

import time

from gateway.app.reports import log_lines
from gateway.app.reports.device_events import DeviceEventQueue
from gateway.app.reports.take_overs import LINES, TakeOvers
from gateway.config.counting import counted
from gateway.observe import logs
from gateway.observe.client_history import ClientHistory
from gateway.session.connection import Connection
from gateway.session.session import Session

log = logs.get("mqgate")
PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5.0"}
WORDS = {
    "client.refused": "refused by the access list",
    "message.dropped": "a message was dropped",
    "message.dead_lettered": "a message was put on the dead-letter queue",
    "message.not_built": "a message could not be built from what the rule says",
}


class ClientLog:
    """Is told by the broker about connections and sessions, and by the reports about what was counted."""

    def __init__(self) -> None:
        self.history = ClientHistory()
        self._take_overs = TakeOvers()
        self.connections = False
        """Whether each connection is a line at `info` when it begins."""
        self.events: DeviceEventQueue | None = None
        """Where device events are put, if they are wanted."""

    def connected(self, connection: Connection) -> None:
        """A device has connected: log a line, at `info` if wanted, otherwise at `debug`. The end of a connection is
        always logged."""
        session, link = connection.session, connection.link
        about = {"peer": link.peer, "listener": link.listener, "user": session.user or None}
        protocol = PROTOCOLS.get(connection.version, "")
        self.history.add(time.time(), session.client_id, "connected", "connected", **about, protocol=protocol)
        many = self._take_overs.are_many(session.client_id, time.monotonic())
        write = log.info if self.connections and not many else log.debug
        write("connected", "connected", client_id=session.client_id, protocol=protocol, **about)
        if self.events is not None:
            self.events.add("connected", session.client_id, link.peer, listener=link.listener,
                            user=session.user or None, protocol=protocol)  # fmt: skip

    def ended(self, connection: Connection, why: str) -> None:
        """A connection has ended, or was refused."""
        log_lines.ended(connection, why, is_one_of_many=self._is_one_of_many(connection, why))
        link, said = connection.link, connection.close_reason or why
        request = connection.request
        if connection.rejected:
            if request is not None and request.client_id:
                self._note(request.client_id, "refused", said, reason=connection.rejected, peer=link.peer,
                           listener=link.listener, user=request.username)  # fmt: skip
            if self.events is not None:
                client_id, user = (request.client_id, request.username) if request is not None else ("", None)
                self.events.add("refused", client_id, link.peer, listener=link.listener, user=user,
                                reason=connection.rejected, text=said)  # fmt: skip
        elif connection.publisher.client_id:
            self._note(connection.session.client_id, "disconnected", said, reason=why, peer=link.peer)
            if self.events is not None:
                session = connection.session
                self.events.add("disconnected", session.client_id, link.peer, listener=link.listener,
                                user=session.user or None, reason=why, text=said)  # fmt: skip

    def _is_one_of_many(self, connection: Connection, why: str) -> bool:
        """Whether connections of its client end each other all the time; this is warned about once a minute."""
        times = self._take_overs.count(connection.session.client_id, time.monotonic()) if why == "taken_over" else 0
        if times == LINES + 1:
            log_lines.contended(connection, times)
        return times > LINES

    def denied(self, connection: Connection, direction: str, topic: str) -> None:
        """The access list has refused a publication or a subscription."""
        if self.events is not None:
            link, session = connection.link, connection.session
            self.events.add("denied", session.client_id, link.peer, listener=link.listener, user=session.user or None,
                            direction=direction, topic=topic)  # fmt: skip

    def not_admitted(self, listener: str, peer: str, why: str) -> None:
        """A connection was refused before its CONNECT."""
        log_lines.not_admitted(listener, peer, why)
        if self.events is not None:
            self.events.add("refused", "", peer, listener=listener, reason="not_admitted", text=why)

    def full(self, session: Session) -> None:
        """A session is full: no more is stored for a client until it acknowledges something."""
        log_lines.full(session)
        waiting = max(session.stored, session.outflow.queued)
        text = f"{counted(waiting, 'message waits', 'messages wait')} for it: no more is stored"
        self._note(session.client_id, "full", text)

    def happened(self, client_id: str, event: str, fields: dict[str, object]) -> None:
        """Note, in the history of a client, something that a counter has counted."""
        about = {name: value for name, value in fields.items() if name != "client_id"}
        self._note(client_id, event, WORDS.get(event, event), **about)

    def _note(self, client_id: str, event: str, text: str, **fields: object) -> None:
        self.history.add(time.time(), client_id, event, text, **fields)
