"""The listeners of the settings, with their files as the process can open them."""

from __future__ import annotations

import errno

from gateway.app.site import warnings_about
from gateway.config.model import Listener, Settings, Tls
from gateway.net.listeners import Listeners
from gateway.observe import logs

log = logs.get("mqgate")


def open_listeners(listeners: Listeners, settings: Settings) -> None:
    """Listen everywhere; OSError says where that is not possible, and what to do."""
    for listener in listeners_of(settings):
        try:
            listening = listeners.open(listener)
        except OSError as error:
            where = listener.unix or f"{listener.bind}:{listener.port}"
            taken = error.errno == errno.EADDRINUSE
            hint = "stop what listens there, or give another port" if taken else "check `bind`"
            raise OSError(f"listener {listener.name} on {where}: {error.strerror or error}; {hint}") from error
        log.info("listening", f"MQTT on {listening.address}", listener=listener.name)
        for warning in warnings_about(listener, settings=settings):
            log.warning("listener.open", warning, listener=listener.name)


def listeners_of(settings: Settings) -> list[Listener]:
    """Names of files are relative to the file of settings they stand in."""
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
