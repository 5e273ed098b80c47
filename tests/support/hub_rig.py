"""A hub over the harness: a client on a real socket that hears what it publishes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from broker_harness import Harness

from gateway.mqtt import client, writer
from gateway.mqtt.packets import Disconnect, Subscribe, Subscription, Will
from gateway.net.hub import Hub
from gateway.net.hub_socket import HubSocket
from gateway.net.reactor import HubReactor

MAPPING = """
version: 1
to_mq:
  - {name: all, topic: t, queue: Q}
  - {name: wills, topic: will, queue: WILLS}
"""
COUNT = 400
PACKET = writer.encode_publish(4, b"t", b"x" * 100, 0)
BYE = writer.encode_disconnect(4, Disconnect())


class Rig:
    """A hub with a client that hears what it publishes, and leaves without reading it."""

    def __init__(self) -> None:
        self.harness = Harness(MAPPING)
        self.hub = Hub(HubReactor(), self.harness.engine)
        self.later: list[Callable[[], None]] = []
        self.hub.later = lambda _seconds, call: self.later.append(call)  # type: ignore[method-assign]
        self.link, self.theirs = self.connection()
        connect = client.connect(4, "c", will=Will("will", b"gone", 0, retain=False))
        wanted = client.encode_subscribe(4, Subscribe(1, [Subscription("t", 0)]))
        self.theirs.sendall(client.encode_connect(connect) + wanted + PACKET)
        self.until(lambda: self.put("Q") == 1)

    def connection(self) -> tuple[HubSocket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            theirs = socket.create_connection(listening.getsockname())
            ours, _ = listening.accept()
        theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # who resets loses what the kernel has not sent
        ours.settimeout(0)
        link = HubSocket(self.hub, ours, "10.0.0.9:1", "plain")
        link.connection = self.harness.engine.connected(link)
        self.hub.add(link)
        return link, theirs

    def until(self, met: Callable[[], Any]) -> None:
        limit = time.monotonic() + 60
        while not met():
            assert time.monotonic() < limit
            self.hub.wait(0.01)
            self.harness.clock.advance(0.001)

    def put(self, queue: str) -> int:
        return len(self.harness.queues.rows.get(queue, {}))

    def leave(self) -> None:
        """Sent, and closed unread."""
        self.theirs.sendall(PACKET * COUNT + BYE)
        self.theirs.close()

    def assert_left_in_order(self) -> None:
        self.until(lambda: self.link.closed)
        assert self.put("Q") == 1 + COUNT
        assert self.harness.engine.counters.mqtt_disconnects["plain", "normal"] == 1
        assert self.put("WILLS") == 0

    def close(self) -> None:
        self.theirs.close()
        self.link.abort()
