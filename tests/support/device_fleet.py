"""Journals with device messages, as a gateway would write them, for the pipeline's tests and benchmarks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.queue_manager.journal import StoreOptions
from gateway.queue_manager.journal.store import Store
from gateway.queue_manager.store.unit import LanePuts, StoreUnit

SMALL = StoreOptions(segment_bytes=8 << 20, spare_segments=1)
EPOCH_MS = 1_790_000_000_000


def device_template(device: int, received: str | None = None) -> Any:
    """What stands in front of a device's payloads; `received` makes it differ in every message."""
    usr: list[tuple[str, Any]] = [("site", f"site{device % 7}"), ("line", device % 13)]
    if received:
        usr.append(("received", received))
    folders = [
        folder("mcd", [("Msd", "jms_bytes")]),
        folder("usr", usr),
        folder("mqps", [("Top", f"plant/site{device % 7}/dev{device:04}/telemetry")]),
    ]
    return rfh2.build_template(folders, "mqtt", [("clientId", f"dev{device:04}"), ("qos", 1)], "msgId")


def descriptor(**fields: Any) -> bytes:
    """An MQMD in front of an MQRFH2."""
    return mqmd.build(format=rfh2.FORMAT, persistence=1, user_identifier="plant", put_appl_name="mqgate", **fields)


def reading(device: int, n: int) -> bytes:
    """A payload: every device sends one a second."""
    value = {"device": f"dev{device:04}", "n": n, "ts": EPOCH_MS + n * 1000 + device, "temperature": 20 + n % 50 / 10}
    return json.dumps(value).encode()


def received_at(millis: int) -> str:
    """The time a gateway writes, some milliseconds into a day."""
    moment = datetime(2026, 11, 21, tzinfo=UTC) + timedelta(milliseconds=millis)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Fleet:
    """Devices that take turns; message i is number i // devices of device i % devices."""

    def __init__(
        self, devices: int = 100, varying: bool = False, payload: Callable[[int, int], bytes] = reading
    ) -> None:
        self.devices, self.varying, self.payload = devices, varying, payload
        self.md = descriptor()
        self.templates = [device_template(device) for device in range(devices)]
        self.sent = 0

    def message(self) -> tuple[bytes, bytes]:
        device, n = self.sent % self.devices, self.sent // self.devices
        template = self.templates[device]
        if self.varying:
            template = device_template(device, received_at(self.sent))
        self.sent += 1
        return self.md + template.head, template.tails[n % 65535 + 1] + self.payload(device, n)

    def batch(self, count: int) -> tuple[list[bytes], list[bytes]]:
        pairs = [self.message() for _ in range(count)]
        return [head for head, _ in pairs], [body for _, body in pairs]


def commit(store: Store, unit: StoreUnit) -> None:
    prepared = store.prepare(unit, time.time())
    store.write(prepared)
    store.apply(prepared)


def put(store: Store, queue: str, heads: list[bytes], bodies: list[bytes], **more: Any) -> list[int]:
    puts = LanePuts(queue, heads=heads, bodies=bodies, **more)
    commit(store, StoreUnit(puts=[puts]))
    return list(puts.tokens)


def write_journal(
    folder: Path, count: int, fleet: Fleet | None = None, queue: str = "TELEMETRY.A", frame: int = 100
) -> Fleet:
    """Put `count` messages in frames of `frame` and close the store."""
    fleet = fleet or Fleet()
    store = Store.open(folder, clock=time.time, options=SMALL)
    for begin in range(0, count, frame):
        put(store, queue, *fleet.batch(min(frame, count - begin)))
    store.close()
    return fleet
