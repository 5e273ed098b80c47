"""A device that keeps every promise of the protocol: it connects again for ever and sends again until it is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gateway.mqtt import client, writer
from gateway.mqtt.client import server_reader
from gateway.mqtt.packets import CONNACK, PUBACK, PUBCOMP, PUBREC, PUBREL


class Stubborn(threading.Thread):
    """Publishes `name/number` to `topic`, QoS 1 and 2 in turn, one after the other, until `stop`."""

    def __init__(self, name: str, topic: str, port: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self.client_id = name
        self.topic = topic.encode()
        self.port = port
        self.acked: list[tuple[str, int]] = []
        """Body and QoS of what was acknowledged for good."""
        self.sent: dict[str, int] = {}
        """How often each body was sent."""
        self.resumed = 0
        """Sessions that were still there when it came back."""
        self._stopping = threading.Event()
        self._socket: socket.socket | None = None

    def stop(self) -> None:
        """No more after the one that is under way."""
        self._stopping.set()

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            self._see_through(f"{self.client_id}/{number}", 1 + number % 2, number % 0xFFFF or 1)
        self._drop()

    def _see_through(self, body: str, qos: int, packet_id: int) -> None:
        received = False
        while True:
            try:
                self._connect()
                if not received:
                    self._publish(body, qos, packet_id)
                    self._wait(PUBACK if qos == 1 else PUBREC, packet_id)
                    received = True
                if qos == 2:
                    self._send(writer.encode_acks(PUBREL, [packet_id]))
                    self._wait(PUBCOMP, packet_id)
            except OSError:
                self._drop()
                time.sleep(0.02)
            else:
                self.acked.append((body, qos))
                return

    def _publish(self, body: str, qos: int, packet_id: int) -> None:
        again = self.sent.get(body, 0)
        self.sent[body] = again + 1
        self._send(writer.encode_publish(4, self.topic, body.encode(), qos, packet_id=packet_id, dup=again > 0))

    def _connect(self) -> None:
        if self._socket is not None:
            return
        self._socket = socket.create_connection(("127.0.0.1", self.port()), 5)
        self._socket.settimeout(60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = server_reader(4)
        self._packets: list[Any] = []
        self._send(client.encode_connect(client.connect(4, self.client_id, clean_start=False)))
        answer = self._next(CONNACK)[1]
        if answer.reason:
            raise ConnectionError(f"CONNACK {answer.reason}")
        self.resumed += answer.session_present

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        self._socket.sendall(data)

    def _wait(self, kind: int, packet_id: int) -> None:
        while self._next(kind)[1] != packet_id:
            pass

    def _next(self, kind: int) -> Any:
        assert self._socket is not None
        while True:
            while self._packets:
                packet = self._packets.pop(0)
                if packet[0] >> 4 == kind:
                    return packet
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("closed")
            self._packets += self._reader.feed(data)

    def _drop(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._socket = None
