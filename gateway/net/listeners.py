"""Where devices connect: TCP and Unix sockets on the hub, and what MQTT is wrapped in there."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from gateway.broker.engine import Engine
from gateway.config.limits import Limits
from gateway.config.model import Listener, WebSocket
from gateway.errors import Finding
from gateway.net.admission import Admission, Listening
from gateway.net.handshakes import Handshakes
from gateway.net.hub import Hub
from gateway.net.hub_socket import HubSocket
from gateway.net.proxy import ProxyReader, verified_names
from gateway.net.rates import SendRates
from gateway.net.tls import TlsContext, end_of_der, fingerprint_of, only_name, user_of_der
from gateway.net.tls_session import Session
from gateway.net.wrapping import ProxyWrapping, TlsWrapping, WebSocketWrapping, Wrapping

BACKLOG = 4096
_WITHOUT_TLS = frozenset({"wrong version number", "http request", "https proxy request"})
"""What OpenSSL says about bytes that are not TLS."""


def _names_of_this_machine() -> set[str]:
    name = socket.gethostname().lower()
    return {name, name.partition(".")[0]}


def _tcp(settings: Listener) -> Listening:
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.bind, settings.port or 0))
    except OSError:
        sock.close()
        raise
    number = sock.getsockname()[1]
    return Listening(settings, f"{settings.bind}:{number}", sock, number=number)


def _unix(settings: Listener) -> Listening:
    """Bind a Unix socket. One that a process has left behind is removed; one at which a process listens is left
    alone."""
    path = Path(settings.unix or "")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o117)
    try:
        if path.exists() and stat.S_ISSOCK(path.stat().st_mode):
            _leave_alone(path)
            path.unlink()
        sock.bind(str(path))
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return Listening(settings, str(path), sock)


def _leave_alone(path: Path) -> None:
    """Raise OSError if somebody listens at this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


class Listeners:
    """All listeners of the process."""

    def __init__(self, reactor: Any, engine: Engine, hub: Hub, limits: Limits) -> None:
        self.reactor = reactor
        self.engine = engine
        self.hub = hub
        self.admission = Admission(engine, limits)
        hub.on_malformed = self.admission.malformed
        self.handshakes = Handshakes(engine.scheduler.soon)
        self.all = self.admission.listening
        """By name."""
        self.admin_tls: TlsContext | None = None
        """The TLS context of the admin port, whose files are read again together with those of listeners."""

    def bind(self, settings: Listener) -> Listening:
        """Bind a listener's address; nobody can connect yet. Raises OSError if that is not possible."""
        tls = None if settings.tls is None else TlsContext(settings.tls, browsers=settings.websocket is not None)
        listening = _unix(settings) if settings.unix is not None else _tcp(settings)
        listening.tls = tls
        if settings.proxy_from is not None:
            listening.proxies = tuple(ip_network(one) for one in settings.proxy_from)
        if settings.websocket is not None:
            import gateway.net.websocket  # noqa: F401 - loads its libraries now, not while the first client waits

            listening.names = frozenset({"localhost", *_names_of_this_machine(), *settings.websocket.hosts})
        self.admission.add(listening)
        return listening

    def open(self, listening: Listening) -> None:
        """Let clients connect to a listener that is bound."""
        listening.sock.listen(BACKLOG)
        name = listening.settings.name
        listening.acceptor = self.hub.listen(listening.sock, lambda link: self._accepted(listening, link), name)
        if listening.settings.tls is not None:
            listening.acceptor.busy = self.handshakes.busy

    def use_send_rates(self, rates: SendRates) -> None:
        """Set what clients may send; every client begins with full buckets."""
        self.hub.rates = rates
        for connection in self.engine.connections:
            link: Any = connection.link
            link.buckets, connection.published = None, 0

    def reload_certificates(self) -> list[Finding]:
        """Use certificates, keys and revocation lists as their files are now for new connections. If one of them cannot
        be used, all old ones stay in force. Returns what is wrong."""
        findings, ready = [], []
        named = [(f"listener `{name}`", listening.tls) for name, listening in self.all.items()]
        for name, context in [*named, ("the admin port", self.admin_tls)]:
            if context is None:
                continue
            try:
                ready.append((context, context.again()))
            except OSError as error:
                what = f"the certificate of {name} cannot be used: {error}"
                findings.append(Finding(context.settings.certificate, 1, 1, what, "repair it and reload again"))
        if not findings:
            for context, fresh in ready:
                context.take(fresh)
        return findings

    def _accepted(self, listening: Listening, link: HubSocket) -> None:
        proxied = listening.settings.proxy_protocol
        if proxied is not None and not self.admission.believes(listening, link.peer):
            link.sock.close()
            return
        named = proxied is None and listening.address_header(link.peer) is None
        connection = self.admission.take(listening, link, named=named)
        if connection is None:
            link.sock.close()
            return
        link.connection = connection
        link.on_close = lambda: self.admission.gone(listening, link)
        link.wrapping = self._wrapping(listening, link)
        self.hub.add(link)

    def _wrapping(self, listening: Listening, link: HubSocket) -> Wrapping | None:
        """What MQTT is wrapped in, from the outside: a PROXY header, TLS, WebSocket."""
        settings, tls = listening.settings, listening.tls
        wrapping: Wrapping | None = None
        session = None if tls is None else tls.session()
        if settings.websocket is not None:
            wrapping = self._web(listening, link, settings.websocket, session)
        if session is not None:
            wrapping = TlsWrapping(link, session, wrapping, self.handshakes, self._shaken)
        if settings.proxy_protocol is not None:
            reader = ProxyReader(1 if settings.proxy_protocol == "v1" else 2)
            wrapping = ProxyWrapping(link, reader, wrapping, lambda: self._named(listening, link, reader))
        return wrapping

    def _web(self, listening: Listening, link: HubSocket, web: WebSocket, session: Session | None) -> Wrapping:
        from gateway.net.forwarded import client_of
        from gateway.net.websocket import Headers, WebSocketServer

        header, tls = listening.address_header(link.peer), listening.tls

        def named(headers: Headers) -> bool:
            link.peer = client_of(header or "", headers, listening.proxies or ()) or link.peer
            return self.admission.admits_from(listening, link)

        names = listening.names if tls is None else listening.names | tls.names
        server = WebSocketServer(
            web.path, web.origins, names, strict=bool(web.hosts), named=None if header is None else named
        )
        return WebSocketWrapping(link, server, session)

    def _named(self, listening: Listening, link: HubSocket, reader: ProxyReader) -> bool:
        """Whether a connection may stay, now that its PROXY header has been read."""
        asked = listening.settings.proxy_certificate
        names = None if asked == "none" else verified_names(reader.extensions)
        if names is not None:  # other names can only be read from the certificate itself, which is not here
            link.certificate_user = only_name(names) if self.admission.certificate_user == "common_name" else ""
        elif asked == "required":
            if reader.peer:  # without it, this is a connection of the proxy itself, a health check
                self.engine.counters.mqtt_auth_failures[link.listener, "certificate"] += 1
                why = "PROXY: the client has shown no certificate that the proxy has verified"
                self.admission.refused(link.listener, link.peer, why)
            return False
        return self.admission.admits_from(listening, link)

    def _shaken(self, link: HubSocket, wrong: str | None) -> None:
        """A TLS handshake is done, or has failed for this reason: one side did not accept the certificate, the version
        or the ciphers."""
        counters = self.engine.counters
        if wrong is None:
            secure = link.wrapping
            if isinstance(secure, TlsWrapping):
                session, certificate = secure.session, secure.session.certificate()
                link.certificate_user = user_of_der(certificate, self.admission.certificate_user)
                link.certificate_fingerprint = fingerprint_of(certificate)
                link.certificate_ends = end_of_der(certificate)
                counters.tls_handshakes[link.listener, "resumed" if session.resumed() else "full"] += 1
            return
        counters.tls_handshakes[link.listener, "failed"] += 1
        if "certificate" in wrong:
            counters.mqtt_auth_failures[link.listener, "certificate"] += 1
        why = f"{wrong}; the client speaks without TLS" if wrong in _WITHOUT_TLS else wrong
        self.admission.refused(link.listener, link.peer, f"TLS: {why}")

    def stop_accepting(self) -> None:
        """Accept no new connections; open ones stay. Those that the kernel has opened already are accepted first,
        because what they have sent would be lost."""
        for listening in self.all.values():
            if listening.acceptor is not None:
                listening.acceptor.accept()
                self.hub.unlisten(listening.acceptor)
                listening.acceptor = None
            listening.sock.close()
            if listening.settings.unix is not None:
                with contextlib.suppress(OSError):
                    Path(listening.settings.unix).unlink()
