"""What MQTT's bytes are wrapped in on a socket: a PROXY header before them, TLS, WebSocket frames, or all of these.

A wrapping knows its link and what it does to the bytes; sockets and the broker belong to the hub. If the peer has ended
the connection, or has done what it may not do, the wrapping says so in `link.over`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gateway.net.frames import frame
from gateway.net.handshakes import Handshakes
from gateway.net.proxy import ProxyReader
from gateway.net.stops import Stop
from gateway.net.tls_session import Session, Step

if TYPE_CHECKING:
    from gateway.net.hub_socket import HubSocket
    from gateway.net.websocket import WebSocketServer


BROKEN_OFF_BY_CLIENT = "the client broke off the handshake; it may not know the authority"


class Wrapping(Protocol):
    """The wrapping of one connection."""

    def unwrap(self, data: bytes) -> bytes:
        """MQTT's bytes in what the peer has sent; what has to be answered is sent."""

    def wrap(self, data: bytes) -> bytes:
        """MQTT's bytes as the peer expects them; empty if it is too early or too late for them."""

    def goodbye(self) -> bytes:
        """What has to be sent before the connection is closed."""

    def lost(self) -> None:
        """The peer is gone without having ended the connection."""


class ProxyWrapping:
    """A PROXY header; what follows it is in another wrapping or in none."""

    __slots__ = ("inner", "link", "named", "reader")

    def __init__(self, link: HubSocket, reader: ProxyReader, inner: Wrapping | None, named: Callable[[], bool]) -> None:
        self.link = link
        self.reader = reader
        self.inner = inner
        self.named = named
        """Called when the header has said who the client is; returns whether that client may stay."""

    def unwrap(self, data: bytes) -> bytes:
        """The bytes after the header."""
        link = self.link
        try:
            rest = self.reader.feed(data)
        except ValueError as error:
            link.malformed(f"PROXY: {error}")
            return b""
        if rest is None:
            return b""
        link.peer = self.reader.peer or link.peer
        link.wrapping = self.inner
        if not self.named():
            link.over = ""
            return b""
        return self.inner.unwrap(rest) if self.inner is not None and rest else rest

    def wrap(self, data: bytes) -> bytes:
        """Empty: nothing is sent before the header is complete."""
        del data
        return b""

    def goodbye(self) -> bytes:
        """Empty, like `wrap`."""
        return b""

    def lost(self) -> None:
        """Does nothing: this is what checks for an open port look like."""


class WebSocketWrapping:
    """WebSocket frames, after a handshake; `session` is that of TLS around it."""

    __slots__ = ("link", "server", "session")

    def __init__(self, link: HubSocket, server: WebSocketServer, session: Session | None = None) -> None:
        self.link = link
        self.server = server
        self.session = session

    def unwrap(self, data: bytes) -> bytes:
        """The payload of the frames; pings and Close are answered."""
        server = self.server
        established = server.established
        answer, payload, over = server.receive(data)
        if answer:
            self.link.answer(answer if self.session is None else self.session.encrypt(answer))
        if over and server.fault and not established:
            self.link.malformed(server.fault)
        elif over:
            self.link.over = server.fault
        elif self.session is None and server.frames is not None:
            self.link.inward, self.link.outward = server.frames.whole, frame
        return payload

    def wrap(self, data: bytes) -> bytes:
        """The bytes as one binary frame."""
        return self.server.send(data)

    def goodbye(self) -> bytes:
        """The bytes of a Close frame."""
        return self.server.close()

    def lost(self) -> None:
        """Does nothing: the broker reports the lost connection."""


class TlsWrapping:
    """TLS, in which there is MQTT or a WebSocket. The handshake is done by threads, and the link is not read
    meanwhile."""

    __slots__ = ("_begun", "established", "handshakes", "inner", "link", "session", "shaken")

    def __init__(
        self, link: HubSocket, session: Session, inner: Wrapping | None, handshakes: Handshakes,
        shaken: Callable[[HubSocket, str | None], None],
    ) -> None:  # fmt: skip
        self.link = link
        self.session = session
        self.inner = inner
        self.handshakes = handshakes
        self.shaken: Callable[[HubSocket, str | None], None] | None = shaken
        """Called when the handshake is done (with None) or has failed (with the reason)."""
        self.established = False
        self._begun = False

    def unwrap(self, data: bytes) -> bytes:
        """Decrypt, or continue the handshake."""
        link = self.link
        if not self.established:
            link.stop(Stop.WRAPPING, stopped=True)
            self.handshakes.add(self.session, data, self._proceed, begun=self._begun)
            self._begun = True
            return b""
        plain, answer, end = self.session.decrypt(data)
        return self._decrypted(plain, answer, end)

    def _decrypted(self, plain: bytes, answer: bytes, end: str | None) -> bytes:
        link = self.link
        if answer:
            link.answer(answer)
        if plain and self.inner is not None:
            plain = self.inner.unwrap(plain)
        if end is not None and link.over is None:
            link.over = end and f"TLS: {end}"
        return plain

    def _proceed(self, step: Step) -> None:
        """Take the result of a step that a thread has done; a defect from here on concerns this connection alone."""
        if not self.link.closed:
            self.link.hub.take_in(self.link, partial(self._stepped, *step))

    def _stepped(self, done: bool, answer: bytes, plain: bytes, end: str | None) -> bytes:
        link, shaken = self.link, self.shaken
        failed = end is not None and not done
        if answer:
            link.answer(answer)
        if done or failed:
            self.established, self.shaken = done, None
            if shaken is not None:
                shaken(link, None if done else end)
        if failed:
            link.over = ""
        elif done and self.inner is None:
            link.inward, link.outward = self.session.whole, self.session.encrypt
        link.stop(Stop.WRAPPING, stopped=False)
        return self._decrypted(plain, b"", None if failed else end)

    def lost(self) -> None:
        """Report a handshake that had begun: many clients send nothing about a certificate that they do not accept."""
        shaken, self.shaken = self.shaken, None
        if self._begun and shaken is not None:
            shaken(self.link, BROKEN_OFF_BY_CLIENT)

    def wrap(self, data: bytes) -> bytes:
        """The bytes as records."""
        if self.inner is not None:
            data = self.inner.wrap(data)
        return self.session.encrypt(data) if self.established else b""

    def goodbye(self) -> bytes:
        """What the inner wrapping has to send at the end, and close_notify."""
        if not self.established:
            return b""
        last = b"" if self.inner is None else self.inner.goodbye()
        return self.session.encrypt(last) + self.session.close()
