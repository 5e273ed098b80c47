"""MQTT over WebSocket: the server's side, over wsproto. Bytes in, bytes and chunks out; no I/O."""

from __future__ import annotations

from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

SUBPROTOCOLS = ("mqtt", "mqttv3.1", "mqttv5")
MAX_HANDSHAKE = 16_384


class WebSocketServer:
    """One connection."""

    def __init__(self, path: str, origins: list[str]) -> None:
        self._path = path
        self._origins = origins
        self._connection = WSConnection(ConnectionType.SERVER)
        self._open = False
        self._read = 0

    def receive(self, data: bytes) -> tuple[bytes, list[bytes], bool]:
        """(bytes to send, MQTT chunks, whether the connection has ended). Packets may span frames [MQTT-6.0.0-2]."""
        self._read += len(data)
        if not self._open and self._read > MAX_HANDSHAKE:
            return b"", [], True
        out, chunks, over = b"", [], False
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                if isinstance(event, BytesMessage):
                    chunks.append(bytes(event.data))
                else:
                    answer, over = self._control(event)
                    out += answer
                    if over:
                        break
        except RemoteProtocolError as error:
            return out + self._reject(error), chunks, True
        return out, chunks, over

    def _control(self, event: object) -> tuple[bytes, bool]:
        if isinstance(event, Request):
            return self._request(event)
        if isinstance(event, Ping):
            return self._connection.send(event.response()), False
        if isinstance(event, CloseConnection):
            return self._connection.send(event.response()), True
        if isinstance(event, TextMessage):  # [MQTT-6.0.0-1]
            return self._connection.send(CloseConnection(code=1003, reason="MQTT needs binary frames")), True
        return b"", False

    def _request(self, request: Request) -> tuple[bytes, bool]:
        headers = {name.lower(): value for name, value in request.extra_headers}
        origin = headers.get(b"origin", b"").decode("latin-1")
        if urlsplit(request.target).path != self._path:
            return self._connection.send(RejectConnection(status_code=404)), True
        if origin and not self._welcome(origin, request.host):
            return self._connection.send(RejectConnection(status_code=403)), True
        chosen = next((name for name in SUBPROTOCOLS if name in request.subprotocols), None)
        if chosen is None:  # [MQTT-6.0.0-3]
            return self._connection.send(RejectConnection(status_code=400)), True
        self._open = True
        return self._connection.send(AcceptConnection(subprotocol=chosen)), False  # [MQTT-6.0.0-4]

    def _welcome(self, origin: str, host: str) -> bool:
        """Whether the page is from this host, or from one of the origins that the settings name (`*`: any)."""
        return urlsplit(origin).netloc == host or origin in self._origins or "*" in self._origins

    def _reject(self, error: RemoteProtocolError) -> bytes:
        try:
            if not self._open:
                return self._connection.send(RejectConnection(status_code=400))
            hint = error.event_hint
            return self._connection.send(hint) if hint is not None else b""
        except LocalProtocolError:
            return b""

    def send(self, data: bytes) -> bytes:
        """MQTT bytes as one binary frame [MQTT-6.0.0-1]."""
        try:
            return self._connection.send(BytesMessage(data=data))
        except LocalProtocolError:  # closed meanwhile
            return b""

    def close(self) -> bytes:
        """The closing frame."""
        try:
            return self._connection.send(CloseConnection(code=1000))
        except LocalProtocolError:
            return b""
