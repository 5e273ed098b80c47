"""Log lines about connections, administrative acts and defects: one line each, never one a message."""

from __future__ import annotations

import os
from collections.abc import Callable

from gateway.config.counting import counted
from gateway.observe import logs
from gateway.session.connection import Connection
from gateway.session.session import Session

log = logs.get("mqgate")


def audit(peer: str, role: str, what: str, status: int) -> None:
    """Every administrative act is logged; repeated lines about refused ones are suppressed and counted."""
    if status in {401, 403, 421}:
        log.warning("audit", what, peer=peer, role=role or "none", status=status, reason=str(status))
    else:
        log.info("audit", what, peer=peer, role=role or "none", status=status)


def fatal(error: Exception) -> None:
    """End the process rather than go on with a part of it broken: what was acknowledged is committed."""
    log.exception("fatal", "a defect in the gateway: it ends and has to be started again", error)  # noqa: LOG004
    os._exit(70)


def superseded(text: str) -> None:
    """Another gateway owns this one's sessions: nothing can be committed any more, so the process ends at once."""
    log.error("superseded", f"{text}: it ends and has to be started again")
    os._exit(75)


def defect(error: Exception, peer: str) -> None:
    """A defect ended one connection; the others go on."""
    log.exception("defect", "a defect of the gateway cost this connection", error, peer=peer)  # noqa: LOG004 -- passed in


def guarded(call: Callable[[], None]) -> Callable[[], None]:
    """The call with exceptions logged: a timer goes on after one."""

    def call_and_log() -> None:
        try:
            call()
        except Exception as error:
            what = "a defect of the gateway: a part of this second's work is not done"
            log.exception("defect", what, error)  # noqa: TRY401 -- our log's own

    return call_and_log


def not_admitted(listener: str, peer: str, why: str) -> None:
    """A connection refused before its CONNECT; repeated lines are suppressed and counted."""
    log.warning("client.refused", why, listener=listener, peer=peer, reason=why)


def ended(connection: Connection, why: str) -> None:
    """The end of a connection: a warning if it was refused, for debugging only if it never sent a CONNECT."""
    link, said = connection.link, connection.close_reason or why
    if connection.rejected:
        request = connection.request
        client_id, user = (request.client_id, request.username) if request is not None else (None, None)
        log.warning(
            "client.refused", said, client_id=client_id, user=user, peer=link.peer, listener=link.listener, reason=why
        )
        return
    write = log.info if connection.publisher.client_id else log.debug
    write(
        "disconnected",
        said,
        client_id=connection.session.client_id,
        peer=link.peer,
        listener=link.listener,
        reason=why,
    )


def full(session: Session) -> None:
    """A session has reached its limit and takes no more until its client acknowledges something: a line each time."""
    waiting = max(session.stored, len(session.outflow.pending))
    waits = counted(waiting, "message waits", "messages wait")
    log.warning(
        "session.full",
        f"{waits} for this client: no more is stored for it until it acknowledges some",
        client_id=session.client_id,
        listener=session.listener,
    )
