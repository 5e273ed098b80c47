"""CONNACK: it says what is committed, so it waits for that; but where a queue manager says nothing for too long, the
client is refused. Pure.

A CONNECT that was refused has changed nothing [MQTT3-3.1.4-5] [MQTT5-3.1.4-6]: the session is as it was before it, with
the will that waited then, and one that it made is gone, so that the next CONNECT does not find what its client has
never heard of. That is part of the open batch, hence behind what has not been committed yet, should that
come about after all. A client that has sent more without waiting for CONNACK is not told anything: some of that is
under way, as when a connection breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.broker.sessions import wills
from gateway.mqtt import reasons

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.mqtt.packets import Will
    from gateway.session.connection import Connection
    from gateway.session.session import Session

LEAST_SECONDS = 5.0
"""What a commit may take in any case: a short `connect_timeout` is meant for clients that are slow, not for disks."""
_NOT_STORED = "its session cannot be stored now: the queue manager does not answer; connect again later"


class Earlier(NamedTuple):
    """What a session was before a CONNECT resumed it."""

    expiry: int
    will: Will | None


def earlier(session: Session | None, older: Connection | None) -> Earlier | None:
    """To be remembered of a session that is resumed, perhaps from an older connection; None: it is made anew."""
    if session is None:
        return None
    if older is not None and not older.greeted:
        found: Earlier | None = older.earlier
        return found
    return Earlier(session.expiry, session.will)


def promised(engine: Engine, connection: Connection, connack: bytes) -> None:
    """CONNACK goes out when the open batch is committed."""
    connection.accepted_at = engine.scheduler.monotonic()
    engine.batch.reply(connection, connack)


def overdue(engine: Engine, connection: Connection, now: float) -> bool:
    """Whether a client has waited for its CONNACK for too long."""
    patience = max(engine.limits.connect_timeout, LEAST_SECONDS)
    return not connection.greeted and now - connection.accepted_at > patience


def withdraw(engine: Engine, connection: Connection) -> None:
    """Refuse a CONNECT whose unit of work has not come back."""
    _put_back(engine, connection.session, connection.earlier)
    told = not connection.eager and connection.last_read <= connection.accepted_at
    engine.connecting.refuse_connect(connection, reasons.SERVER_UNAVAILABLE, _NOT_STORED, silently=not told)


def forget(engine: Engine, connection: Connection) -> None:
    """It is gone before its CONNACK: what it would be told is not kept, however often it comes again."""
    batch = engine.batch
    if not connection.greeted and not connection.leaving:
        for data in batch.replies.pop(connection, ()):
            batch.answered[data[0] >> 4] -= 1


def _put_back(engine: Engine, session: Session, before: Earlier | None) -> None:
    wills.drop(engine, session)
    if before is None:
        session.expiry = 0  # it ends with its connection
        return
    session.expiry, session.durable = before.expiry, before.expiry > 0
    if before.will is not None:  # its delay begins anew
        wills.keep(engine, session, before.will)
