"""An MQTT client on a blocking socket, for `mqgate pub`, `sub`, `probe` and `demo`. Needs no reactor."""

from __future__ import annotations

import math
import socket
import ssl
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from gateway.errors import ProtocolError
from gateway.mqtt import client, reasons, writer
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    V5,
    Packet,
    Subscribe,
    Subscription,
)


class Device:
    """A connection to a gateway. Its methods raise OSError, TimeoutError and ProtocolError."""

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        version: int = 4,
        timeout: float = 10.0,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> None:
        self.version = version
        self.client_id = client_id
        self._socket = self._opened(host, port, timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=server_name or host)
        self._reader = client.server_reader(version)
        self._packets: deque[Packet] = deque()
        self._publications: deque[Packet] = deque()
        """Publications that arrived while something else was waited for."""
        self._unreleased: set[int] = set()
        """Packet identifiers of QoS 2 publications that were received and whose PUBREL has not arrived."""
        self._ids = 0
        self._timeout = timeout
        self._ping_every = self._ping_at = math.inf
        self._heard = True

    def _opened(self, host: str, port: int, timeout: float) -> socket.socket:
        return socket.create_connection((host, port), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Send DISCONNECT and close the socket."""
        try:
            self._socket.sendall(b"\xe0\x00")
        except OSError:
            pass
        finally:
            self._socket.close()

    def named(self, reason: int) -> str:
        """What the reason code of a CONNACK means."""
        return reasons.name(reason) if self.version == V5 else reasons.return_code_name(reason)

    def connect(self, username: str | None = None, password: bytes | None = None, keep_alive: int = 60) -> int:
        """Send CONNECT; returns the reason code of the CONNACK."""
        connect = client.connect(self.version, self.client_id, keep_alive=keep_alive)
        connect.username, connect.password = username, password
        self._send(client.encode_connect(connect))
        answer: Any = self._next(CONNACK)
        seconds = answer[1].properties.get(prop.SERVER_KEEP_ALIVE, keep_alive)  # MQTT-3.2.2-21
        self._ping_every = seconds / 2 if seconds else math.inf
        self._ping_at = time.monotonic() + self._ping_every
        return int(answer[1].reason)

    def subscribe(self, filter_: str, qos: int = 0) -> int:
        """Send SUBSCRIBE; returns the granted QoS, or the reason code of a refusal."""
        packet_id = self._id()
        self._send(client.encode_subscribe(self.version, Subscribe(packet_id, [Subscription(filter_, qos)])))
        answer: Any = self._next(SUBACK)
        return int(answer[1].reasons[0])

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> float:
        """Publish, and wait for the last acknowledgement; returns how many seconds that took."""
        started = time.perf_counter()
        packet_id = self._id() if qos else 0
        data = writer.encode_publish(self.version, topic.encode(), payload, qos, retain=retain, packet_id=packet_id)
        self._send(data)
        if qos == 1:
            self._accepted(PUBACK)
        elif qos == 2:
            self._accepted(PUBREC)
            self._send(writer.encode_acks(PUBREL, [packet_id]))
            self._accepted(PUBCOMP)
        return time.perf_counter() - started

    def receive(self, timeout: float | None = None) -> tuple[str, bytes]:
        """The next publication, which is acknowledged. `timeout`: how many seconds to wait for it at most."""
        while True:
            packet: Any = self._publications.popleft() if self._publications else self._next(PUBLISH, timeout)
            first, topic, packet_id, _, payload = packet
            if self._acknowledged(first >> 1 & 3, packet_id):
                return topic.decode(), payload

    def _acknowledged(self, qos: int, packet_id: int) -> bool:
        """Answer a publication; returns whether it is a new one."""
        if qos == 1:
            self._send(writer.encode_acks(PUBACK, [packet_id]))
        elif qos == 2:
            again = packet_id in self._unreleased
            self._unreleased.add(packet_id)
            self._send(writer.encode_acks(PUBREC, [packet_id]))
            return not again
        return True

    def _accepted(self, kind: int) -> None:
        answer: Any = self._next(kind)
        _, _, reason, block = answer
        if reason >= reasons.UNSPECIFIED_ERROR:
            text: Any = prop.decode(block, kind, from_server=True).get(prop.REASON_STRING)
            said = f" ({text})" if text else ""
            raise ProtocolError(f"the gateway refused the publication: {reasons.name(reason)}{said}", reason)

    def _id(self) -> int:
        self._ids = self._ids % 0xFFFF + 1
        return self._ids

    def _next(self, kind: int, timeout: float | None = None) -> Packet:
        until = time.monotonic() + (self._timeout if timeout is None else timeout)
        late = False
        while True:
            while self._packets:
                packet = self._packets.popleft()
                if packet[0] >> 4 == kind:
                    return packet
                self._aside(packet)
            if late:
                raise TimeoutError
            late = time.monotonic() >= until  # perhaps this process has stood still: what came meanwhile counts
            self._read(until)

    def _aside(self, packet: Any) -> None:
        """Handle a packet that arrives while another one is waited for."""
        kind = packet[0] >> 4
        if kind == PUBLISH:
            self._publications.append(packet)
        elif kind == PUBREL:
            self._unreleased.discard(packet[1])
            self._send(writer.encode_acks(PUBCOMP, [packet[1]]))
        elif kind == DISCONNECT:
            reason = packet[1].reason
            raise ProtocolError(f"the gateway closed the connection ({reasons.name(reason)})", reason)

    def _read(self, until: float) -> None:
        """Wait for bytes, and meanwhile let the gateway know that this client is alive."""
        now = time.monotonic()
        if now >= self._ping_at:
            if not self._heard and not self._come(0.0):
                raise ConnectionError("the gateway does not answer PINGREQ")
            self._send(client.encode_pingreq())
            self._heard, self._ping_at = False, now + self._ping_every
        self._come(max(0.0, min(until, self._ping_at) - now))

    def _come(self, seconds: float) -> bool:
        """Read what arrives within this time; returns False if nothing does."""
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(65_536)
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            return False
        if not data:
            raise ProtocolError("the gateway closed the connection")
        self._heard = True
        self._packets.extend(self._reader.feed(data))
        if self._reader.error is not None:
            raise self._reader.error
        return True

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._timeout)
        self._socket.sendall(data)
