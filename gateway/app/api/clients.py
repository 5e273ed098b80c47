"""Devices, connected or known by their session; kick and purge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gateway.app.api.held_back import explained, is_held_back, waiting_for
from gateway.app.api.sliced import sliced
from gateway.broker.engine import Engine
from gateway.mqtt import reasons
from gateway.mqtt.topics import split_shared
from gateway.net.calls import OPERATOR, VIEWER, Call, Endpoint, Problem, endpoint
from gateway.observe.client_history import ClientHistory
from gateway.ports.state_queues import OUT
from gateway.session.publication import Publication
from gateway.session.session import NEVER, Plain, Session
from gateway.session.staged_run import StagedRun

PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5.0"}


def client_endpoints(engine: Engine, why: Callable[[str], str], history: ClientHistory) -> list[Endpoint]:
    """Returns the endpoints of this module. `why` says why a queue refuses messages."""
    views = ClientViews(engine, why, history)
    return [
        endpoint("GET", "/clients", VIEWER, views.listing),
        endpoint("GET", "/clients/{client_id}", VIEWER, views.show),
        endpoint("GET", "/clients/{client_id}/history", VIEWER, views.past),
        endpoint("DELETE", "/clients/{client_id}", OPERATOR, views.purge),
        endpoint("DELETE", "/clients/{client_id}/connection", OPERATOR, views.kick),
    ]


class ClientViews:
    """Devices as the API shows them."""

    def __init__(self, engine: Engine, why: Callable[[str], str], history: ClientHistory) -> None:
        self._engine = engine
        self._why = why
        self._history = history

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /clients. Other requests do not wait while a hundred thousand are looked at."""
        wanted, state = call.query.get("search", "").lower(), call.query.get("state")
        user, listener = call.query.get("user"), call.query.get("listener")
        after, limit = call.query.get("after", ""), call.number("limit", 50, 500)
        total, page = 0, list[str]()

        def is_wanted(one: Session) -> bool:
            return (
                wanted in one.client_id.lower()
                and self._in_state(one, state)
                and user in {None, one.user}
                and (listener is None or (one.connection is not None and one.connection.link.listener == listener))
            )

        def steps() -> Iterator[None]:
            nonlocal total, page
            for some in self._engine.sessions.portions():
                names = [one.client_id for one in some if is_wanted(one)]
                total += len(names)
                page = sorted([*page, *(name for name in names if name > after)])[: limit + 1]
                yield

        def answer() -> object:
            found = map(self._engine.sessions.get, page[:limit])  # one may have ended meanwhile
            following = page[limit - 1] if len(page) > limit else None
            return {"items": [self._row(one) for one in found if one], "total": total, "next": following}

        return 200, sliced(self._engine, steps(), answer)

    def _in_state(self, session: Session, state: str | None) -> bool:
        if state == "held_back":
            return is_held_back(self._engine, session.connection)
        return state is None or (session.connection is not None) == (state == "connected")

    def _session(self, call: Call) -> Session:
        session = self._engine.sessions.get(call.path["client_id"])
        if session is None:
            raise Problem(404, "Not found", "no session with this client identifier")
        return session

    def _row(self, session: Session) -> dict[str, object]:
        connection = session.connection
        wall = time.time() - time.monotonic()
        return {
            "client_id": session.client_id,
            "connected": connection is not None,
            "user": session.user,
            "listener": connection.link.listener if connection else None,
            "protocol": PROTOCOLS.get(session.version, "3.1.1"),
            "peer": connection.link.peer if connection else None,
            "since": round(wall + connection.connected_at, 3) if connection else _left_at(session),
            "ends": round(session.ends_at, 3) if not connection and session.ends_at else None,
            "keep_alive": int(connection.keep_alive / 1.5) if connection else 0,
            "clean_start": not session.durable,
            "session_expiry_seconds": None if session.expiry == NEVER else session.expiry,
            "subscriptions": len(session.subscriptions),
            "in_doubt_in": len(session.inbound)
            + (connection.inbound_pending + connection.uncompleted if connection else 0),
            "in_doubt_out": len(session.outflow.inflight),
            "queued": max(session.stored - len(session.outflow.inflight), session.outflow.queued),
            "received": session.received,
            "sent": session.delivered,
            "paused": is_held_back(self._engine, connection),
        }

    def show(self, call: Call) -> tuple[int, object]:
        """GET /clients/{client_id}."""
        session = self._session(call)
        incoming = [
            {"direction": "in", "packet_id": packet_id, "qos": 2, "state": "staged", "topic": _topic(one),
             "queue": None, "msg_id": None, "since": None}
            for packet_id, one in session.inbound.items()
        ]  # fmt: skip
        incoming += [
            {"direction": "in", "packet_id": one.packet_id, "qos": one.qos, "state": "held back", "topic": one.topic,
             "queue": one.queue, "msg_id": None, "since": None}
            for one in waiting_for(self._engine, session.connection)
        ]  # fmt: skip
        outgoing = [
            {"direction": "out", "packet_id": item.packet_id, "qos": item.qos,
             "state": "released" if item.released else "sent", "topic": item.publication.topic.decode(),
             "queue": OUT if item.token is not None else None, "msg_id": None, "since": None}
            for item in session.outflow.items()
        ]  # fmt: skip
        subscriptions = [
            {
                "filter": name,
                "qos": one.options.qos,
                "no_local": one.options.no_local,
                "retain_as_published": one.options.retain_as_published,
                "retain_handling": one.options.retain_handling,
                "identifier": one.identifier or None,
                "share": split_shared(name)[0] or None,
            }
            for name, one in session.subscriptions.items()
        ]
        will = session.will
        shown = None
        if will is not None:
            delay = will.properties.get(0x18, 0)
            shown = {"topic": will.topic, "qos": will.qos, "retain": will.retain, "length": len(will.payload),
                     "delay_seconds": delay}  # fmt: skip
        return 200, {
            **self._row(session),
            "subscription_list": subscriptions,
            "in_doubt": [*incoming, *outgoing],
            "held_back": explained(self._engine, session.connection, self._why),
            "will": shown,
            "certificate": None,
        }

    def past(self, call: Call) -> tuple[int, object]:
        """GET /clients/{client_id}/history; also for clients that were never admitted."""
        events = self._history.of(call.path["client_id"])
        if not events and self._engine.sessions.get(call.path["client_id"]) is None:
            raise Problem(404, "Not found", "nothing is known about this client identifier since the gateway started")
        return 200, {
            "items": [
                {"event": one.event, "text": one.text, "first": one.first, "last": one.last, "count": one.count,
                 "fields": {name: str(value) for name, value in one.fields.items()}}
                for one in events
            ]
        }  # fmt: skip

    def kick(self, call: Call) -> tuple[int, object]:
        """DELETE /clients/{client_id}/connection."""
        session = self._session(call)
        if session.connection is None:
            raise Problem(404, "Not found", "the device is not connected")
        self._engine.context.refuse(
            session.connection, reasons.ADMINISTRATIVE_ACTION, "administrative", "disconnected by an operator"
        )
        self._engine.flush()
        return 204, None

    def purge(self, call: Call) -> tuple[int, object]:
        """DELETE /clients/{client_id}: discard the session with its queued messages and its will."""
        session = self._session(call)
        self._engine.wills.drop(session)
        if session.connection is not None:
            self._engine.context.refuse(
                session.connection, reasons.ADMINISTRATIVE_ACTION, "administrative", "purged by an operator"
            )
        if self._engine.sessions.get(session.client_id) is session:
            self._engine.endings.end_when_read(session)
        self._engine.flush()
        return 204, None


def _topic(staged: Publication | Plain | StagedRun) -> str:
    return (staged[0] if isinstance(staged, tuple) else staged.topic).decode()


def _left_at(session: Session) -> float | None:
    """Returns when its connection ended; None for a session that never expires, whose time is not recorded."""
    expires = session.ends_at and session.expiry != NEVER
    return round(session.ends_at - session.expiry, 3) if expires else None
