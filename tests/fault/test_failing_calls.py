"""A disk on which any system call fails, once or for good, while devices publish: nothing acknowledged is lost and
nothing is there twice at QoS 2, on the queue, for a session and for a reader of the journal's files, also where the
gateway is killed meanwhile.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from bridge_estate import Talker
from counted_devices import Subscriber
from failing_calls import ALWAYS, Call, FailingCalls
from gateways import RunningGateway
from long_form import in_long_form
from stubborn import Stubborn
from test_full_disk_gateway import not_ready
from waiting import until

from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.pipeline.journal.lookup import Follower

LONG = bool(os.environ.get("MQGATE_LONG"))
pytestmark = pytest.mark.timeout(3600 if LONG else 240)
MAPPING = 'version: 1\nto_mq:\n  - {name: all, topic: "q/#", queue: Q, headers: []}\n'
SETTINGS = """
queue_manager: {embedded: {objects: objects.mqsc, segment_bytes: 1MiB}}
mappings: [map.yaml]
mqtt: {max_queued: 200000}
process: {drain_timeout: 2s}
"""
ERRORS = [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EDQUOT]
DEVICES = 6
PADDING = b" " + b"x" * 4000
"""A segment holds some hundred messages."""
EVERY_FRAME = {0: {Call.WRITE}, 2: {Call.WRITE, Call.SYNC}}
"""What each frame needs, by what the disk is without."""


PARTS = 24 if LONG else 1
"""Nobody takes what is published: all of it in one journal is more than may lie there."""


def cases(without: int, part: int) -> list[tuple[Call, int, int, int, bool]]:
    """Call, error, calls before it, how often, and whether all was done nevertheless; in the short form half of them
    each."""
    found = list(itertools.product(Call, ERRORS, (0, 1, 2, 3, 5, 8), (1, ALWAYS), (False, True)))
    random.Random(1).shuffle(found)
    if LONG:
        return found[part::PARTS]
    first = {(call, most): (call, code, min(passed, 2), most, done) for call, code, passed, most, done in found}
    return list(first.values())[without // 2 :: 2]


class Retaining(Stubborn):
    """Each message is retained, in place of the one before it."""

    def _publish(self, body: str, qos: int, packet_id: int) -> None:
        again = self.sent.get(body, 0)
        self.sent[body] = again + 1
        payload = body.encode() + PADDING
        self._send(writer.encode_publish(4, self.topic, payload, qos, retain=True, packet_id=packet_id, dup=again > 0))


class Landing(threading.Thread):
    """What a pipeline that reads the journal's files beside the gateway would have landed, frame after frame."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.follower = Follower(folder)
        self.found: list[int] = []
        self.stop = threading.Event()
        self.ended = False

    def run(self) -> None:
        while not self.stop.wait(0.001):
            self.land()
        self.ended = True

    def land(self) -> None:
        self.follower.poll()
        for run in self.follower.runs("Q", self.found[-1] + 1 if self.found else 0):
            self.found += range(run.first, run.first + run.rows)

    def check(self, on_queue: int) -> None:
        """It has each message that is there, and no other."""
        self.stop.set()
        self.join(60)
        assert self.ended
        self.land()
        there = [number for run in self.follower.runs("Q", 0) for number in range(run.first, run.first + run.rows)]
        assert self.found == there, (sorted({*self.found} - {*there})[:9], sorted({*there} - {*self.found})[:9])
        assert len(there) == on_queue


def gateway_on(directory: Path, faults: FailingCalls) -> RunningGateway:
    (directory / "map.yaml").write_text(MAPPING)
    (directory / "objects.mqsc").write_text("DEFINE QLOCAL(Q) MAXDEPTH(999999999) REPLACE\n")
    gateway = RunningGateway(directory, settings=SETTINGS, environ=faults.environ)
    gateway.launch = subprocess.Popen
    return gateway


def check_withheld(gateway: RunningGateway, faults: FailingCalls, devices: list[Retaining]) -> None:
    """While no frame can be written: that is said, and nobody is told that anything was stored."""
    until(lambda: "[-] spool: " in not_ready(gateway))
    before, failed = [len(one.acked) for one in devices], faults.failed
    until(lambda: faults.failed >= failed + 2)
    assert [len(one.acked) for one in devices] == before


def go_through(
    gateway: RunningGateway, faults: FailingCalls, devices: list[Retaining], without: int, part: int
) -> None:
    def acknowledged() -> int:
        return sum(len(one.acked) for one in devices)

    for number, (call, code, passed, most, done) in enumerate(cases(without, part)):
        faults.fail(call, code, passed=passed, most=most, done=done)
        deadline = time.monotonic() + 3
        while not faults.failed and time.monotonic() < deadline:
            time.sleep(0.02)
        if most == ALWAYS and call in EVERY_FRAME[without]:
            check_withheld(gateway, faults, devices)
        killed = number % 3 == 2
        if killed:
            gateway.kill()
        faults.recover()
        if killed:
            gateway.start(port=gateway.port, admin_port=gateway.admin)
        goal = acknowledged() + 5 * DEVICES
        until(lambda goal=goal: acknowledged() > goal and not not_ready(gateway))
        assert "Traceback" not in gateway.log, (call, code, passed, most, done)


def check_retained(gateway: RunningGateway, devices: list[Retaining]) -> None:
    with Talker(gateway.port, "looks") as talker:
        talker.subscribe("q/#", 1)
        found = {bytes(packet[4].split(b" ")[0]).decode() for packet in (talker.next(p.PUBLISH) for _ in devices)}
    assert found == {one.acked[-1][0] for one in devices}


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("without", [2, *in_long_form(0)], ids=["fdatasync", "direct"])
def test_calls_that_fail_while_devices_publish(tmp_path: Path, without: int, part: int) -> None:
    faults = FailingCalls(tmp_path, f"{tmp_path}/data/", without=without)
    with gateway_on(tmp_path, faults) as gateway:
        with Talker(gateway.port, "session", clean=False) as talker:
            talker.subscribe("q/#")
        listener = Subscriber(gateway.port, "session")
        listener.start()
        devices = [Retaining(f"d{at}", f"q/d{at}", lambda: gateway.port) for at in range(DEVICES)]
        for one in devices:
            one.start()
        landing = Landing(tmp_path / "data")
        landing.start()
        try:
            go_through(gateway, faults, devices, without, part)
        finally:
            faults.recover()
            for one in devices:
                one.stop()
        for one in devices:
            one.join(60)
        gateway.kill()
        gateway.start(port=gateway.port, admin_port=gateway.admin)
        check_retained(gateway, devices)
        sent = [body for one in devices for body, _ in one.acked]
        until(lambda: len(listener.found) == len(sent))
        listener.stop.set()
        on_queue = Counter(body.split(" ")[0] for body in gateway.bodies("Q"))
        received = Counter(body.split(b" ")[0].decode() for body in listener.found.elements())
        for found in (on_queue, received):
            assert set(found) == set(sent)
            assert not [body for one in devices for body, qos in one.acked if qos == 2 and found[body] != 1]
        landing.check(on_queue.total())
        assert gateway.stop() == 0


@pytest.mark.parametrize("call", [Call.OPEN, Call.SYNC, Call.SIZE], ids=lambda call: call.name)
def test_a_gateway_that_starts_on_a_disk_that_fails_says_so(tmp_path: Path, call: Call) -> None:
    """And starts on what it left, when the disk does not fail."""
    faults = FailingCalls(tmp_path, f"{tmp_path}/data/")
    gateway = gateway_on(tmp_path, faults)
    faults.fail(call, errno.EIO, passed=1)
    try:
        with suppress(AssertionError):
            gateway.start()
        assert faults.failed
        assert "Input/output error" in gateway.log
        assert "Traceback" not in gateway.log
        assert "free disk space" not in gateway.log
        gateway.kill()
        faults.recover()
        gateway.start()
        assert not not_ready(gateway)
    finally:
        gateway.kill()
