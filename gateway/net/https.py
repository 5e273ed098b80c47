"""TLS around the connections of an HTTP site, with the sessions that listeners use.

The handshake is done by the threads of `gateway.net.handshakes`. What arrives meanwhile is kept; as the connection is
not read, that is only what the system had handed over already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.protocols.policies import ProtocolWrapper, WrappingFactory

from gateway.net.handshakes import Handshakes
from gateway.net.tls import TlsContext
from gateway.net.tls_session import Step

Failed = Callable[[str, str], None]
"""Called with the address of a client whose handshake has failed, and the reason."""


class SecureConnection(ProtocolWrapper):
    """A connection: HTTP inside, records outside."""

    transport: Any

    def __init__(self, factory: Any, wrapped: Any) -> None:
        super().__init__(factory, wrapped)
        self._site: SecureSite = factory
        self._session = factory.context.session()
        self._established = self._begun = self._with_a_thread = False
        self._kept: list[bytes] = []

    def dataReceived(self, data: bytes) -> None:
        """Decrypt, or continue the handshake."""
        if self._established:
            self._took(*self._session.decrypt(data))
        elif self._with_a_thread:
            self._kept.append(data)
        else:
            self._with_a_thread = True
            self.transport.pauseProducing()
            self._site.handshakes.add(self._session, data, self._stepped, begun=self._begun)
            self._begun = True

    def _stepped(self, step: Step) -> None:
        """Take the result of a step that a thread has done."""
        done, answer, plain, end = step
        self._with_a_thread = False
        if not self.connected:
            return
        self._established = done
        if end is not None and not done:
            self.transport.write(answer)
            peer: Any = self.getPeer()
            self._site.on_failed(str(getattr(peer, "host", "")), end)
            self.transport.loseConnection()
            return
        self.transport.resumeProducing()
        self._took(plain, answer, end)
        kept, self._kept = b"".join(self._kept), []
        if kept and self.connected:
            self.dataReceived(kept)

    def _took(self, plain: bytes, answer: bytes, end: str | None) -> None:
        if answer:
            self.transport.write(answer)
        if plain:
            super().dataReceived(plain)
        if end is not None:
            self.transport.loseConnection()

    def write(self, data: bytes) -> None:
        """Send data as records."""
        self.transport.write(self._session.encrypt(data) if self._established else b"")

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Send data as records."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Send close_notify and what is pending, and close."""
        if self._established and not self.disconnecting:
            self.transport.write(self._session.close())
        super().loseConnection()


class SecureSite(WrappingFactory):
    """An HTTP site behind TLS."""

    protocol = SecureConnection
    noisy = False

    def __init__(self, site: Any, context: TlsContext, handshakes: Handshakes, on_failed: Failed) -> None:
        super().__init__(site)
        self.context = context
        self.handshakes = handshakes
        self.on_failed = on_failed

    def buildProtocol(self, addr: Any) -> Any:
        """A protocol for a new connection; None refuses it, because the site has as many as allowed, or too many
        handshakes wait."""
        if self.handshakes.busy():
            return None
        inner = self.wrappedFactory.buildProtocol(addr)
        return None if inner is None else SecureConnection(self, inner)
