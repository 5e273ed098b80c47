"""Devices that stay in their session, whichever gateway they reach, and count what comes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress

from bridge_estate import Talker

from gateway.mqtt import packets as p
from gateway.mqtt import writer

PATIENCE = 120
"""Seconds: a machine that does other things besides is slow, and a device that gives up makes it slower."""
BROKEN = (OSError, AssertionError)
"""What a device notices of a fault."""


class Device(threading.Thread):
    """Stays in its session, through whichever gateway; `ended` when it has done what it has to do."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(daemon=True)
        self.port, self.name_ = port, name
        self.present = False
        self.connects = 0
        self.stop, self.ended = threading.Event(), threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ended.is_set():
                with suppress(*BROKEN):
                    talker = Talker(self.port, self.name_, clean=False, will=self.will(), patience=PATIENCE)
                    self.connects += 1
                    try:
                        self.live(talker)
                    finally:
                        talker.socket.close()
                time.sleep(0.05)
        except BaseException as failure:  # noqa: BLE001 -- told by whoever waits for it
            self.failure = failure
            self.ended.set()

    def will(self) -> p.Will | None:
        """What its next connection leaves."""
        return None

    def live(self, talker: Talker) -> None:
        raise NotImplementedError


class Subscriber(Device):
    """Counts what comes; at QoS 2 a message counts once between PUBLISH and PUBREL."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.found: Counter[bytes] = Counter()
        self._open: set[int] = set()

    def live(self, talker: Talker) -> None:
        while not self.stop.is_set():
            try:
                data = talker.packets or talker.reader.feed(self._read(talker))
            except TimeoutError:
                continue
            talker.packets = []
            for packet in data:
                self.take(talker, packet)
        self.ended.set()

    def _read(self, talker: Talker) -> bytes:
        talker.socket.settimeout(1)
        data = talker.socket.recv(65536)
        assert data
        return data

    def take(self, talker: Talker, packet: tuple[int, ...]) -> None:
        kind, qos = packet[0] >> 4, packet[0] >> 1 & 3
        if kind == p.PUBREL:
            self._open.discard(packet[1])
            talker.socket.sendall(writer.encode_acks(p.PUBCOMP, [packet[1]]))
        elif kind == p.PUBLISH and qos == 1:
            self.found[bytes(packet[4])] += 1
            talker.socket.sendall(writer.encode_acks(p.PUBACK, [packet[2]]))
        elif kind == p.PUBLISH:
            if packet[2] not in self._open:
                self._open.add(packet[2])
                self.found[bytes(packet[4])] += 1
            talker.socket.sendall(writer.encode_acks(p.PUBREC, [packet[2]]))
