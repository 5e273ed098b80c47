"""The gateway's hot path in this process: broker and journal without sockets, measured in processor time.

What the growth of a cost and its regression are judged by: processor time of one process, against a calibration loop of
the same moment, hardly minds what else the machine does.
"""

from __future__ import annotations

import gc
import os
import time
from functools import partial
from math import inf
from pathlib import Path

from schedulers import ManualScheduler

from gateway.app.access import Providers, access_of
from gateway.app.limits import limits_of
from gateway.app.mappings import read_table
from gateway.app.memory import COLLECTED
from gateway.broker.engine import Engine
from gateway.broker.publish.router import Router
from gateway.broker.put_off import FULL_SECONDS
from gateway.config.load import load_settings
from gateway.mqtt import client, writer
from gateway.ports.counters import Counters, Names
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions
from gateway.session.connection import NEW, ONLINE, Connection


class WallClock(ManualScheduler):
    """Real time; what is to be done later is done when the bench says so."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class Sink:
    """A link that counts what it is given."""

    peer, certificate_user, certificate_ends = "inside", None, 0.0

    def __init__(self, listener: str) -> None:
        self.listener = listener
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += len(data)

    def buffered(self) -> int:
        return 0

    largest = buffered

    def unread(self) -> bool:
        return False

    def close(self) -> None:
        pass

    abort = close


class Inside:
    """Broker and embedded queue manager of one directory with these files in it."""

    def __init__(self, directory: Path, settings: str, mapping: str, objects: str) -> None:
        for name, text in (("settings.yaml", settings), ("map.yaml", mapping), ("objects.mqsc", objects)):
            (directory / name).write_text(text)
        found = load_settings(str(directory / "settings.yaml"), {}, {"listeners.0.port": 0})
        clock = WallClock()
        counters = Counters()
        table, access, limits = (
            read_table(found),
            access_of(found, clock, bytes(32), counters, Providers(counters, clock.monotonic)),
            limits_of(found),
        )
        self.clock = clock
        self.queue_manager = EmbeddedQueueManager.open(
            directory / "data", "MQGATE", clock, objects, store_options=StoreOptions("MQGATE")
        )
        rules = [route.rule.name for route in table.routes] + [rule.name for rule in table.outbound]
        self.listener = found.listeners[0].name
        counters.declare(Names((self.listener,), tuple(rules), ("MQGATE",)))
        router = Router(table, access, lambda: "auto", partial(os.urandom, 8))
        self.engine = Engine(self.queue_manager, clock, limits, router, access, counters)
        self.engine.recover()
        self.engine.flush()
        gc.freeze()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*COLLECTED)

    def close(self) -> None:
        """End the journal's threads; the collector of cycles is as it was."""
        self.queue_manager.close()
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def connect(self, client_id: str) -> Connection:
        """A device."""
        (connection,) = self.connect_all([client_id], clean=True)
        return connection

    def connect_all(self, client_ids: list[str], *, clean: bool) -> list[Connection]:
        """Devices that come at the same moment."""
        connections = []
        for client_id in client_ids:
            connection = self.engine.connected(Sink(self.listener))
            assert connection is not None
            self.engine.received_each(
                [(connection, client.encode_connect(client.connect(4, client_id, clean_start=clean)))]
            )
            connections.append(connection)
        self.settle()
        while any(one.state == NEW for one in connections):  # one turn takes some strangers
            self.clock.advance(FULL_SECONDS)
            self.settle()
        assert all(one.state == ONLINE for one in connections), "nothing is measured of clients that are refused"
        return connections

    def settle(self) -> None:
        """Commit and answer everything that was handed in."""
        self.engine.flush()
        while not self.engine.context.idle:
            self.clock.advance(0)
            time.sleep(0.0002)  # the journal writes on its own thread while the disk is slow

    def feed(self, batch: list[tuple[Connection, bytes]]) -> None:
        """What one round of the hub brings: read, committed, acknowledged."""
        self.engine.context.until = inf  # all the time it needs, also behind one that worked off what was put off
        self.engine.received_each(batch)
        self.settle()


def publications(topics: list[str], payload: bytes, qos: int = 1) -> bytes:
    """One chunk: a PUBLISH for each topic, packet identifiers from 1."""
    return b"".join(
        writer.encode_publish(4, topic.encode(), payload, qos, packet_id=number)
        for number, topic in enumerate(topics, 1)
    )


def cost(inside: Inside, batches: list[list[tuple[Connection, bytes]]], messages: int, repetitions: int = 3) -> float:
    """Microseconds of processor time of a message: the least of some repetitions over all batches."""
    least = float("inf")
    for _ in range(repetitions):
        began = time.process_time()
        for batch in batches:
            inside.feed(batch)
        least = min(least, (time.process_time() - began) / messages * 1e6)
    put_off = inside.engine.put_off
    assert not any(connection in put_off for batch in batches for connection, _ in batch), "nothing of it was taken"
    return least


def turn() -> float:
    """Microseconds of processor time of one turn of a plain loop that slices, looks up and joins: this machine now."""
    table = {b"dev/1/temp": 1}
    data = b"\x32\x50\x00\x0adev/1/temp\x00\x01" + bytes(64)
    least = float("inf")
    for _ in range(5):
        began, out = time.process_time(), []
        for _ in range(50_000):
            if table[data[4:14]]:
                out.append(data[14:16] + data[16:])  # noqa: PERF401 -- the loop is what is measured
        b"".join(out)
        least = min(least, (time.process_time() - began) / 50_000 * 1e6)
    return least
