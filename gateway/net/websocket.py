"""MQTT over WebSocket: the server's side. wsproto does the handshake, `frames` the rest. Bytes in, bytes out; no I/O.

Nothing is raised, whatever a client sends: what violates HTTP or WebSocket ends the connection, and `fault` says why.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Event, RejectConnection, RejectData, Request
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from gateway.net.frames import Frames, closing, frame, new_frames

Headers = list[tuple[bytes, bytes]]
SUBPROTOCOLS = ("mqtt", "mqttv3.1", "mqttv5")
MAX_HANDSHAKE = 16_384
KEY_LENGTH = 16
_NORMAL = 1000
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_OLD_HTTP = re.compile(rb"[^\n]* HTTP/(0\.[0-9]|1\.0)\r?\n")
_NOWHERE = urlsplit("")
_OTHERS = (  # what comes to the wrong port most often
    (b"\x10", "MQTT without WebSocket"), (b"\x16\x03", "TLS, and the listener has no `tls`"),
    (b"PROXY ", "PROXY, and the listener has no `proxy_protocol`"),
    (b"\r\n\r\n\0\r\nQUIT\n", "PROXY, and the listener has no `proxy_protocol`"),
)  # fmt: skip


class WebSocketServer:
    """The server's side of one connection. `names`: the host names that are this gateway's own; `strict`: no request
    may give another."""

    def __init__(
        self, path: str, origins: list[str], names: Iterable[str] = (), *, strict: bool = False,
        named: Callable[[Headers], bool] | None = None,
    ) -> None:  # fmt: skip
        self._named = named
        """Called if a proxy is in front, whose headers say who the client is; returns whether that client may
        connect."""
        self._path = path
        self._origins = origins
        self._names = names
        self._strict = strict
        self._head = b""
        self._handshake: WSConnection | None = None
        self.frames: Frames | None = None
        """Set once the handshake is done."""
        self._closing = self._over = False
        self.fault = ""
        """What the client did wrong, in a short text, if the connection has ended because of it."""

    @property
    def established(self) -> bool:
        """Whether the handshake is done."""
        return self.frames is not None

    def receive(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """(bytes to send, MQTT bytes, whether the connection has ended). Packets may span frames [MQTT-6.0.0-2]."""
        if self._over:  # TLS passes on what came after the end
            return b"", b"", True
        answer, rest = (b"", data) if self.established else self._shake(data)
        frames = self.frames
        if frames is None or not rest:
            return answer, b"", self._over
        payload, more, self._over = frames.feed(rest)
        if self._over and frames.fault:
            self.fault = f"WebSocket: {frames.fault}"
        if self._closing:  # after our Close nothing is sent, and nothing read
            return b"", b"", self._over
        return answer + more, payload, self._over

    def _shake(self, data: bytes) -> tuple[bytes, bytes]:
        """Continue the handshake; returns what has to be sent, and what came after the handshake."""
        begun = max(0, len(self._head) - 3)
        self._head += data
        for first, spoken in _OTHERS:
            if self._head.startswith(first):
                return self._wrong(f"not an HTTP request: the client speaks {spoken}"), b""
        end = _END_OF_HEAD.search(self._head, begun)
        if (end is None and len(self._head) > MAX_HANDSHAKE) or (end is not None and end.end() > MAX_HANDSHAKE):
            return self._wrong(f"a handshake of more than {MAX_HANDSHAKE} bytes"), b""
        if end is None:
            return (b"" if b"GET ".startswith(self._head[:4]) else self._wrong("not an HTTP request")), b""
        head, rest, self._head = self._head[: end.end()], self._head[end.end() :], b""
        connection = self._handshake = WSConnection(ConnectionType.SERVER)
        answer = b""
        try:
            connection.receive_data(head)
            for event in connection.events():
                answer = self._request(event, _OLD_HTTP.match(head)) if isinstance(event, Request) else b""
        except RemoteProtocolError as error:
            hint = error.event_hint
            asked = isinstance(hint, RejectConnection) and hint.status_code == 426  # which version would be served
            answer = self._wrong(str(error), hint) if asked else self._reject(400, str(error))
            _forget_frames(error)
        except (LocalProtocolError, ValueError) as error:  # bytes that are not text where HTTP has text
            answer = self._wrong("a header that is not text")
            _forget_frames(error)
        if not answer:
            answer = self._wrong("not a request to open a WebSocket")
        self._handshake = None
        return answer, rest

    def _request(self, request: Request, old: re.Match[bytes] | None) -> bytes:
        if self._named is not None and not self._named(request.extra_headers):
            self._over = True  # answered, because nginx skips a gateway that closes without an answer
            return self._answer(429, "connections from this address come too fast, or there are too many")
        if old is not None:  # RFC 6455 4.2.1
            return self._reject(400, f"HTTP/{old[1].decode()}: a WebSocket is opened with HTTP/1.1")
        headers = {name.lower(): value for name, value in request.extra_headers}
        origin = headers.get(b"origin", b"").decode("latin-1")
        if _split(request.target).path != self._path:
            return self._reject(404, "another path than the listener's `websocket.path`")
        if self._strict and not self._known(request.host):
            return self._reject(421, "a Host that is not in `websocket.hosts`")
        if origin and not self._welcome(origin, request.host):
            return self._reject(403, "a page whose origin is neither this gateway's nor in `websocket.origins`")
        if not _is_key(headers.get(b"sec-websocket-key", b"")):
            return self._reject(400, "a Sec-WebSocket-Key that is not 16 bytes in base64")
        chosen = next((name for name in SUBPROTOCOLS if name in request.subprotocols), None)
        if chosen is None:  # [MQTT-6.0.0-3]
            return self._reject(400, "no subprotocol of MQTT: ask for `mqtt` (Sec-WebSocket-Protocol)")
        accepted = self._say(AcceptConnection(subprotocol=chosen))  # [MQTT-6.0.0-4]
        if not accepted:
            return self._wrong("a handshake that cannot be accepted")
        self.frames = new_frames()
        return accepted

    def _welcome(self, origin: str, host: str) -> bool:
        """Whether the page is from an origin that the settings name (`*`: any), or from this gateway. A page of another
        site can have its own name resolve to this address, so the name has to be known as well."""
        if origin in self._origins or "*" in self._origins:
            return True
        return _split(origin).netloc == host and self._known(host)

    def _known(self, host: str) -> bool:
        """Whether a Host is this gateway's: a known name, or an address, which nobody can have resolve to another
        one."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        parent = name.partition(".")[2]
        return name in self._names or (bool(parent) and f"*.{parent}" in self._names) or _is_address(name)

    def _reject(self, status: int, why: str) -> bytes:
        """End the connection, refusing what is a valid request."""
        self._over, self.fault = True, f"WebSocket: {why}"
        return self._answer(status, why)

    def _answer(self, status: int, why: str) -> bytes:
        """An answer with a sentence for whoever has written the client."""
        text = f"{why}\n".encode()
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)), (b"connection", b"close")]
        head = self._say(RejectConnection(status_code=status, headers=headers, has_body=True))
        return head + self._say(RejectData(data=text))

    def _wrong(self, why: str, answer: Event | None = None) -> bytes:
        """End the connection, because of what the client did."""
        self._over, self.fault = True, self.fault or f"WebSocket: {why}"
        return self._say(answer or RejectConnection(status_code=400))

    def _say(self, event: Event) -> bytes:
        """The bytes of an event of the handshake; empty if it is too late for it."""
        try:
            return (self._handshake or WSConnection(ConnectionType.SERVER)).send(event)
        except (LocalProtocolError, ValueError):
            return b""

    def send(self, data: bytes) -> bytes:
        """MQTT's bytes as one binary frame [MQTT-6.0.0-1]."""
        return b"" if self._closing or self._over or self.frames is None else frame(data)

    def close(self) -> bytes:
        """The bytes of a Close frame."""
        if self._closing or self._over or self.frames is None:
            return b""
        self._closing = True
        return closing(_NORMAL)


def _forget_frames(error: BaseException | None) -> None:
    """Drop the frames of libraries that hold the error itself: this cycle would keep what was read until the garbage
    collector runs."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


def _is_key(text: bytes) -> bool:
    """Whether this is a nonce as clients send it (RFC 6455 4.2.1, 5). Whoever sends another has not read the RFC, or is
    not a WebSocket client."""
    try:
        return len(base64.b64decode(text, validate=True)) == KEY_LENGTH
    except ValueError:
        return False


def _split(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        return _NOWHERE


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
