"""Opens the listeners of the settings: with names of files resolved, errors that say what to do, and warnings about
open ones."""

from __future__ import annotations

import errno
import socket

from gateway.config.admin import Admin
from gateway.config.model import Listener, Settings
from gateway.config.tls import Tls
from gateway.net import http
from gateway.net.listeners import Listeners
from gateway.net.tls import TlsContext
from gateway.observe import logs

log = logs.get("mqgate")


def bind_listeners(listeners: Listeners, settings: Settings) -> None:
    """Bind the address of every listener; nobody can connect yet. Raises OSError, which names the address that is not
    available and what to do."""
    for listener in listeners_of(settings):
        try:
            listeners.bind(listener)
        except OSError as error:
            raise _refused(listener, error) from error


def open_listeners(listeners: Listeners, settings: Settings) -> None:
    """Let clients connect to all of them."""
    for listening in listeners.all.values():
        listener = listening.settings
        try:
            listeners.open(listening)
        except OSError as error:  # another process has bound the same port at the same time
            raise _refused(listener, error) from error
        log.info("listening", f"MQTT on {listening.address}", listener=listener.name)
        for warning in warnings_about(listener, settings):
            log.warning("listener.open", warning, listener=listener.name)


def bind_admin(admin: Admin) -> socket.socket | None:
    """Bind the address of the admin port; returns None if it is switched off."""
    if admin.port is None:
        return None
    try:
        return http.bind(admin.bind, admin.port)
    except OSError as error:
        raise _cannot("admin", f"{admin.bind}:{admin.port}", error) from error


def admin_tls(settings: Settings) -> TlsContext | None:
    """Returns the TLS context of the admin port. Raises OSError if a file cannot be used."""
    resolved = resolved_admin_tls(settings)
    return None if resolved is None else TlsContext(resolved, browsers=False)


def resolved_admin_tls(settings: Settings) -> Tls | None:
    """Returns the TLS settings of the admin port with absolute names of files."""
    tls = settings.admin.tls
    return None if tls is None else _resolved_tls(settings, "admin.tls", tls)


def _refused(listener: Listener, error: OSError) -> OSError:
    return _cannot(f"listener {listener.name}", listener.unix or f"{listener.bind}:{listener.port}", error)


def _cannot(who: str, where: str, error: OSError) -> OSError:
    taken = error.errno == errno.EADDRINUSE
    hint = "stop what listens there, or give another port" if taken else "check `bind`"
    return OSError(f"{who} on {where}: {error.strerror or error}; {hint}")


def listeners_of(settings: Settings) -> list[Listener]:
    """Returns the listeners with absolute names of files; in the settings these are relative to the file that names
    them."""
    return [_resolved(settings, index, listener) for index, listener in enumerate(settings.listeners)]


def _resolved(settings: Settings, index: int, listener: Listener) -> Listener:
    key = f"listeners.{index}"
    changes: dict[str, object] = {}
    if listener.unix is not None:
        changes["unix"] = settings.resolve(listener.unix, f"{key}.unix")
    if listener.tls is not None:
        changes["tls"] = _resolved_tls(settings, f"{key}.tls", listener.tls)
    return listener.model_copy(update=changes)


def _resolved_tls(settings: Settings, key: str, tls: Tls) -> Tls:
    named = ("certificate", "key", "client_ca", "crl")
    files = {name: getattr(tls, name) for name in named}
    return tls.model_copy(
        update={name: settings.resolve(file, f"{key}.{name}") for name, file in files.items() if file is not None}
    )


def warning_about_admin(admin: Admin) -> str:
    """Returns, for the log, what is open to other hosts on the admin port; empty if nothing is."""
    if admin.local or admin.tls is not None:
        return ""
    return f"tokens on {admin.bind} are not encrypted: give `admin.tls`"


def warnings_about(listener: Listener, settings: Settings) -> list[str]:
    """Returns, for the log, what is open to other hosts on this listener."""
    if listener.local:
        return []
    found = []
    if listener.tls is None:
        found.append(f"passwords and messages on {listener.bind} are not encrypted: give the listener `tls`")
    if settings.anonymous_on(listener):
        found.append(f"clients on {listener.bind} may connect without credentials")
    return found
