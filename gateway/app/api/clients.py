"""Devices: connected, or known by their session; kick and purge."""

from __future__ import annotations

import time

from gateway.broker.engine import Engine
from gateway.mqtt import reasons
from gateway.mqtt.topics import split_shared
from gateway.net.api import OPERATOR, READ_ONLY, Call, Endpoint, Problem, endpoint
from gateway.ports.state_queues import OUT
from gateway.session.publication import Publication
from gateway.session.session import NEVER, Plain, Session
from gateway.session.staged_run import StagedRun

PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5.0"}


def client_endpoints(engine: Engine) -> list[Endpoint]:
    """The endpoints of this module."""
    views = ClientViews(engine)
    return [
        endpoint("GET", "/clients", READ_ONLY, views.listing),
        endpoint("GET", "/clients/{client_id}", READ_ONLY, views.show),
        endpoint("DELETE", "/clients/{client_id}", OPERATOR, views.purge),
        endpoint("DELETE", "/clients/{client_id}/connection", OPERATOR, views.kick),
    ]


class ClientViews:
    """Devices as the API shows them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /clients."""
        wanted, state = call.query.get("search", "").lower(), call.query.get("state")
        after, limit = call.query.get("after", ""), call.number("limit", 50, 500)
        found = sorted(
            (one for one in self._engine.sessions if wanted in one.client_id.lower() and _in_state(one, state)),
            key=lambda one: one.client_id,
        )
        page = [one for one in found if one.client_id > after][:limit]
        following = page[-1].client_id if page and page[-1] is not found[-1] else None
        return 200, {"items": [self._row(one) for one in page], "total": len(found), "next": following}

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
            "in_doubt_in": len(session.inbound) + (connection.inbound_pending if connection else 0),
            "in_doubt_out": len(session.outflow.inflight),
            "queued": max(session.stored - len(session.outflow.inflight), len(session.outflow.pending)),
            "received": session.received,
            "sent": session.delivered,
            "paused": connection is not None and self._engine.parking.withholds(connection),
        }

    def show(self, call: Call) -> tuple[int, object]:
        """GET /clients/{client_id}."""
        session = self._session(call)
        incoming = [
            {"direction": "in", "packet_id": packet_id, "qos": 2, "state": "staged", "topic": _topic(one),
             "queue": None, "msg_id": None, "since": None}
            for packet_id, one in session.inbound.items()
        ]  # fmt: skip
        outgoing = [
            {"direction": "out", "packet_id": packet_id, "qos": item.qos,
             "state": "released" if item.released else "sent", "topic": item.publication.topic.decode(),
             "queue": OUT if item.token is not None else None, "msg_id": None, "since": None}
            for packet_id, item in session.outflow.inflight.items()
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
            "will": shown,
            "certificate": None,
        }

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
    """When its connection ended; None for a session that never expires: the time is not recorded."""
    expires = session.ends_at and session.expiry != NEVER
    return round(session.ends_at - session.expiry, 3) if expires else None


def _in_state(session: Session, state: str | None) -> bool:
    return state is None or (session.connection is not None) == (state == "connected")
