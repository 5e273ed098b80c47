"""An MQTT client on a blocking socket, for `mqgate probe` and `mqgate demo`. Needs no reactor."""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from types import TracebackType
from typing import Any, Self

from gateway.errors import ProtocolError
from gateway.mqtt import client, writer
from gateway.mqtt.packets import (
    CONNACK,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    Packet,
    Subscribe,
    Subscription,
)


class Device:
    """One connection to a gateway. Errors: OSError, TimeoutError, ProtocolError."""

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
        self._socket = socket.create_connection((host, port), timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=server_name or host)
        self._reader = client.server_reader(version)
        self._packets: deque[Packet] = deque()
        self._ids = 0

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

    def connect(self, username: str | None = None, password: bytes | None = None, keep_alive: int = 60) -> int:
        """Send CONNECT. Returned is the reason code of the CONNACK."""
        connect = client.connect(self.version, self.client_id, keep_alive=keep_alive)
        connect.username, connect.password = username, password
        self._socket.sendall(client.encode_connect(connect))
        answer: Any = self._next(CONNACK)
        return int(answer[1].reason)

    def subscribe(self, filter_: str, qos: int = 0) -> int:
        """Send SUBSCRIBE. Returned is the granted QoS, or the reason code."""
        packet_id = self._id()
        self._socket.sendall(client.encode_subscribe(self.version, Subscribe(packet_id, [Subscription(filter_, qos)])))
        answer: Any = self._next(SUBACK)
        return int(answer[1].reasons[0])

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> float:
        """Publish and wait for the last acknowledgement. Returned are the seconds that took."""
        started = time.perf_counter()
        packet_id = self._id() if qos else 0
        data = writer.encode_publish(self.version, topic.encode(), payload, qos, retain=retain, packet_id=packet_id)
        self._socket.sendall(data)
        if qos == 1:
            self._accepted(PUBACK)
        elif qos == 2:
            self._accepted(PUBREC)
            self._socket.sendall(writer.encode_acks(PUBREL, [packet_id]))
            self._accepted(PUBCOMP)
        return time.perf_counter() - started

    def receive(self) -> tuple[str, bytes]:
        """The next publication; it is acknowledged."""
        packet: Any = self._next(PUBLISH)
        first, topic, packet_id, _, payload = packet
        if first & 6 == 2:
            self._socket.sendall(writer.encode_acks(PUBACK, [packet_id]))
        return topic.decode(), payload

    def _accepted(self, kind: int) -> None:
        answer: Any = self._next(kind)
        if answer[2] >= 0x80:
            raise ProtocolError("the gateway refused the publication", answer[2])

    def _id(self) -> int:
        self._ids = self._ids % 0xFFFF + 1
        return self._ids

    def _next(self, kind: int) -> Packet:
        while True:
            while self._packets:
                packet = self._packets.popleft()
                if packet[0] >> 4 == kind:
                    return packet
            data = self._socket.recv(65_536)
            if not data:
                raise ProtocolError("the gateway closed the connection")
            self._packets.extend(self._reader.feed(data))
            if self._reader.error is not None:
                raise self._reader.error
