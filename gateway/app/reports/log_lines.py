"""Log lines about connections, administrative acts and defects: one for each of these, never one for each message."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from urllib.parse import quote

from gateway.broker.refused.set_aside import Defect
from gateway.config.counting import counted
from gateway.errors import ConfigurationError
from gateway.net.calls import Act
from gateway.net.turns import Stall
from gateway.observe import logs
from gateway.ports.state_queues import SET_ASIDE
from gateway.session.connection import Connection
from gateway.session.session import Session

log = logs.get("mqgate")


def audit(act: Act) -> None:
    """Log an administrative act; repeated lines about refused ones are suppressed and counted."""
    who: dict[str, object] = {"peer": act.address, "role": act.caller.role or "none", "status": act.status}
    if act.caller.user:
        who |= {"user": act.caller.user, "method": act.caller.method}
    path = act.action
    for name, value in act.place.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    if act.status in {401, 403, 421}:
        log.warning("audit", path, **who, reason=str(act.status))
    else:
        log.info("audit", path, **who)


def admin_handshake(peer: str, why: str) -> None:
    """Log a TLS handshake on the admin port that failed; repeated ones are suppressed and counted."""
    log.warning("audit", f"TLS: {why}", peer=peer, reason="TLS")


def admin_other(peer: str, why: str) -> None:
    """Log that a client with another protocol has connected to the admin port."""
    log.warning("client.refused", why, listener="admin", peer=peer, reason="malformed")


def fatal(error: Exception) -> None:
    """End the process rather than go on with a part of it broken: what was acknowledged is committed."""
    log.exception("fatal", "a defect in the gateway: it ends and has to be started again", error)  # noqa: LOG004
    _end(70)


def superseded(text: str) -> None:
    """End the process at once, because another gateway owns this one's sessions and nothing can be committed any
    more."""
    log.error("superseded", f"{text}: it ends and has to be started again")
    _end(75)


def _end(code: int) -> None:
    """End the process after a moment, so that even a slow reader of the log gets the reason."""
    logging.shutdown()
    os._exit(code)


def defect(error: Exception, peer: str) -> None:
    """Log a defect that ended one connection; the others go on."""
    log.exception("defect", "a defect of the gateway cost this connection", error, peer=peer)  # noqa: LOG004 -- passed in


def not_reloaded(error: Exception | None) -> None:
    """Log a failed reload for which nobody waits. What is wrong with a file has been logged already."""
    if error is not None and not isinstance(error, ConfigurationError):
        log.exception("defect", "a defect of the gateway kept it from reloading", error)  # noqa: LOG004 -- passed in


def rebalanced(text: str) -> None:
    """Log that connections are handed back, or have been, so that all gateways have as many."""
    log.info("rebalance", text)


def stalled(stall: Stall) -> None:
    """Log that all clients have waited while the reactor did one thing."""
    log.warning(
        "reactor.stall",
        f"everybody waited {stall.seconds:.2f} s for {stall.doing or 'one turn of the reactor'}",
        who=stall.who or None,
        at=stall.at or None,
        duration_ms=round(stall.seconds * 1000),
        processor_ms=round(stall.processor * 1000),
    )


def stands_still(seconds: float, at: str) -> None:
    """Log that all clients are waiting, while it is not known for how long: a disk that hangs may never answer."""
    log.warning("reactor.stall", f"everybody has been waiting for {seconds:.0f} s, and still is", at=at or None)


def set_aside(one: Defect) -> None:
    """Log a defect met by something that is handled by itself: one line, with what it was and whose."""
    what = one.what.replace("_", " ")
    if one.what in {"connection", "call"}:
        text = f"a defect of the gateway cost this {what}; everything else goes on"
    elif one.kept:
        text = f"a defect of the gateway: this {what} is set aside on {SET_ASIDE}; see `mqgate dlq list --set-aside`"
    else:
        text = f"a defect of the gateway: this {what} could not be set aside and stays where it was"
    log.exception("defect", text, one.error, what=one.what, whom=one.whom)  # noqa: LOG004 -- passed in


def guarded(call: Callable[[], None]) -> Callable[[], None]:
    """Returns the call with exceptions logged, so that a timer goes on after one."""

    def call_and_log() -> None:
        try:
            call()
        except Exception as error:
            what = "a defect of the gateway: a part of this second's work is not done"
            log.exception("defect", what, error)  # noqa: TRY401 -- our log's own

    return call_and_log


def not_admitted(listener: str, peer: str, why: str) -> None:
    """Log a connection that was refused before its CONNECT; repeated lines are suppressed and counted."""
    log.warning("client.refused", why, listener=listener, peer=peer, reason=why)


def guessing(who: str) -> None:
    """Log that so many passwords were wrong that no more are checked for some time."""
    what = f"too many wrong passwords: {who}; CONNECT is refused there for some time, right or wrong"
    log.warning("guessing", what)


def identity(provider: str, why: str) -> None:
    """Log that a provider of identities does not answer as it should, or, with an empty text, that it does so again."""
    if why:
        log.warning("identity.unavailable", f"{why}; what is known stays in force", provider=provider)
    else:
        log.info("identity.available", "the provider of identities answers", provider=provider)


def contended(connection: Connection, times: int) -> None:
    """Log that connections of a client end each other."""
    text = (
        f"its connections have ended each other {times} times within a minute: two devices may have this client "
        "identifier; further ones are lines at debug, and counted in mqgate_mqtt_disconnects_total"
    )
    client_id, link = connection.session.client_id, connection.link
    log.warning("client.contended", text, client_id=client_id, peer=link.peer, listener=link.listener)


def ended(connection: Connection, why: str, *, is_one_of_many: bool = False) -> None:
    """Log the end of a connection: as a warning if it was refused, for debugging only if it never sent a CONNECT, or if
    it is one of many that end each other."""
    link, said = connection.link, connection.close_reason or why
    if connection.rejected:
        request = connection.request
        client_id, user = (request.client_id, request.username) if request is not None else (None, None)
        if request is not None and not client_id:
            said = f"{said}; it gave no client identifier"
        log.warning(
            "client.refused",
            said,
            client_id=client_id or None,
            user=user,
            peer=link.peer,
            listener=link.listener,
            reason=connection.rejected,
        )
        return
    write = log.debug if is_one_of_many or not connection.publisher.client_id else log.info
    write(
        "disconnected",
        said,
        client_id=connection.session.client_id,
        peer=link.peer,
        listener=link.listener,
        method=connection.auth.method or None if connection.auth is not None else None,
        reason=why,
    )


def full(session: Session) -> None:
    """Log that a session has reached its limit and takes no more until its client acknowledges something; one line each
    time."""
    waiting = max(session.stored, session.outflow.queued)
    waits = counted(waiting, "message waits", "messages wait")
    log.warning(
        "session.full",
        f"{waits} for this client: no more is stored for it until it acknowledges some (mqtt.max_queued)",
        client_id=session.client_id,
        listener=session.listener,
    )
