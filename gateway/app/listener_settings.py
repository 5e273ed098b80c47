"""The listeners of the settings, opened: names of files resolved, errors with what to do, warnings about open ones."""

from __future__ import annotations

import errno

from gateway.config.model import Listener, Settings, Tls
from gateway.net.listeners import Listeners
from gateway.observe import logs

log = logs.get("mqgate")


def open_listeners(listeners: Listeners, settings: Settings) -> None:
    """Open every listener. OSError names the listener that cannot be opened, and what to do."""
    for listener in listeners_of(settings):
        try:
            listening = listeners.open(listener)
        except OSError as error:
            where = listener.unix or f"{listener.bind}:{listener.port}"
            taken = error.errno == errno.EADDRINUSE
            hint = "stop what listens there, or give another port" if taken else "check `bind`"
            raise OSError(f"listener {listener.name} on {where}: {error.strerror or error}; {hint}") from error
        log.info("listening", f"MQTT on {listening.address}", listener=listener.name)
        for warning in warnings_about(listener, settings):
            log.warning("listener.open", warning, listener=listener.name)


def listeners_of(settings: Settings) -> list[Listener]:
    """The listeners with absolute names of files: in the settings they are relative to the file that names them."""
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


def warnings_about(listener: Listener, settings: Settings) -> list[str]:
    """What is open to other hosts on this listener, for the log."""
    if listener.local:
        return []
    found = []
    if listener.tls is None:
        found.append(f"passwords and messages on {listener.bind} are not encrypted: give the listener `tls`")
    if settings.anonymous_on(listener):
        found.append(f"clients on {listener.bind} may connect without credentials")
    return found
