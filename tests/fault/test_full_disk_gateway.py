"""A gateway whose disk is full: devices are told what their protocol has words for, nobody is disconnected, it starts
on the full disk after a kill, says what is wrong and since when, and goes on by itself once its queue is cleared.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError

import gateway_template
import pytest
from free_ports import free_port
from gateways import TREE, RunningGateway
from patient_device import Device
from small_disks import ext4, tmpfs

from gateway.errors import ProtocolError
from gateway.mqtt import writer

pytestmark = pytest.mark.timeout(240)
MAPPING = """
version: 1
to_mq:
  - {name: all, topic: "q/#", queue: Q}
to_mqtt:
  - {name: down, queue: DOWN, topic: down}
"""
SETTINGS = """
queue_manager: {embedded: {objects: objects.mqsc}}
mappings: [map.yaml]
process: {drain_timeout: 2s}
"""
OBJECTS = "DEFINE QLOCAL(Q) MAXDEPTH(999999999) REPLACE\nDEFINE QLOCAL(DOWN) MAXDEPTH(999999999) REPLACE\n"
QUOTA_EXCEEDED = 0x97


def gateway_in(directory: Path) -> RunningGateway:
    (directory / "map.yaml").write_text(MAPPING)
    (directory / "objects.mqsc").write_text(OBJECTS)
    made = RunningGateway(directory, settings=SETTINGS)
    made.segment_bytes = ""
    return made


def device(gateway: RunningGateway, name: str, version: int) -> Device:
    made = Device("127.0.0.1", gateway.port, name, version=version, timeout=30.0)
    assert made.connect(keep_alive=0) == 0  # it says nothing while a busy machine fills queues
    return made


def until(met: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def fill(publisher: Device, most: int = 200_000) -> int:
    """Publish by the hundred until all are refused with 0x97, and still are when maintenance has made what room it can;
    how many were accepted."""
    accepted, refusals, body = 0, 0, b"x" * 1000
    for first in range(1, most, 100):
        data = [
            writer.encode_publish(5, b"q/a", b"%d " % (first + at) + body, 1, packet_id=at + 1) for at in range(100)
        ]
        publisher._socket.sendall(b"".join(data))
        answers = [publisher._next(4)[2] for _ in range(100)]
        accepted += sum(answer < 0x80 for answer in answers)
        assert {answer for answer in answers if answer >= 0x80} <= {QUOTA_EXCEEDED}
        refusals = refusals + 1 if min(answers) >= 0x80 else 0
        if refusals == 5:
            return accepted
        time.sleep(0.2 if refusals else 0)
    raise AssertionError("the disk is not full")


def not_ready(gateway: RunningGateway) -> str:
    """What /readyz says; empty: ready."""
    try:
        gateway.get("/readyz")
    except HTTPError as error:
        return error.read().decode()
    return ""


def is_silent(quiet: Device, seconds: float) -> bool:
    quiet._socket.settimeout(seconds)
    try:
        return not quiet._socket.recv(1) and False
    except TimeoutError:
        return True
    finally:
        quiet._socket.settimeout(30.0)


def ping(one: Device) -> None:
    one._socket.sendall(b"\xc0\x00")
    one._next(13)


def command(gateway: RunningGateway, *words: str) -> str:
    run = gateway_template.run(*words, "--data", gateway.directory / "data", cwd=Path(TREE))
    assert run.returncode == 0, run.stderr
    return run.stdout


def fill_up(path: Path) -> None:
    """Take every byte that is left."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_is_said_and_left_again(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "data", "40m"):
        gateway = gateway_in(tmp_path)
        gateway.start(port=free_port(), admin_port=free_port())
        new, old = device(gateway, "new", 5), device(gateway, "old", 4)
        assert old.publish("q/a", b"before") > 0
        accepted = fill(new) + 1
        assert accepted > 10_000

        with pytest.raises(ProtocolError) as refused:
            new.publish("q/a", b"more", 1)
        assert refused.value.reason == QUOTA_EXCEEDED
        with pytest.raises(ProtocolError) as refused:
            new.publish("q/a", b"more", 2)
        assert refused.value.reason == QUOTA_EXCEEDED
        old._socket.sendall(writer.encode_publish(4, b"q/a", b"withheld", 1, packet_id=77))
        assert is_silent(old, 1.0)
        ping(old)
        late = device(gateway, "late", 5)  # connecting and subscribing go on
        assert late.subscribe("x/#", 1) == 1

        said = not_ready(gateway)
        where = re.escape(str(tmp_path / "data"))
        assert re.search(
            rf"\[-\] spool: full since \d{{4}}-.* UTC: {where}: No space left on device: .*disk-full", said
        )
        assert time.time() - 240 < gateway.metric("mqgate_spool_full_since_seconds") <= time.time()
        assert any("spool: full since" in each for each in gateway.api("GET", "/overview")["problems"])
        until(lambda: '"disk_full"' in gateway.log)

        gateway.kill()
        fill_up(tmp_path / "data" / "ballast")
        gateway.start(port=gateway.port, admin_port=gateway.admin)
        assert "Errno" not in gateway.log
        assert gateway.api("GET", "/queues/Q")["depth"] == accepted
        old, new = device(gateway, "old", 4), device(gateway, "new", 5)
        accepted += fill(new)  # what maintenance had begun before the kill may have made a little room in the segments
        old._socket.sendall(writer.encode_publish(4, b"q/a", b"withheld", 1, packet_id=77))
        with pytest.raises(ProtocolError):
            new.publish("q/a", b"more", 1)
        assert is_silent(old, 1.0)

        assert str(accepted) in command(gateway, "queue", "clear", "Q", "--yes").replace(",", "")
        (tmp_path / "data" / "ballast").unlink()
        old._next(4)  # the acknowledgement comes by itself, on the same connection
        until(lambda: not not_ready(gateway))
        assert new.publish("q/a", b"after", 1) > 0
        assert gateway.bodies("Q") == ["withheld", "after"]
        assert gateway.metric("mqgate_spool_full_since_seconds") == 0
        until(lambda: '"disk_room"' in gateway.log)
        ping(new)
        assert gateway.stop() == 0


def test_devices_empty_a_full_disk(tmp_path: Path) -> None:
    """What lies on the queue leaves it to a device, whose acknowledgements need room too."""
    with tmpfs(tmp_path / "data", "16m"):
        gateway = gateway_in(tmp_path)
        gateway.start(port=free_port(), admin_port=free_port())
        new = device(gateway, "new", 5)
        getter = device(gateway, "getter", 4)
        assert getter.subscribe("down", 1) == 1
        for at in range(900):  # none is acknowledged yet
            gateway.api("POST", "/queues/DOWN/messages", {"text": f"{at} " + "y" * 500})
        accepted = fill(new)
        with pytest.raises(HTTPError) as by_hand:
            gateway.api("POST", "/queues/DOWN/messages", {"text": "more"})
        assert "No space left on device" in by_hand.value.read().decode()
        for at in range(900):
            topic, payload = getter.receive()
            assert topic == "down"
            assert payload.startswith(b"%d " % at)
        command(gateway, "queue", "clear", "Q", "--yes")
        until(lambda: not not_ready(gateway))
        assert new.publish("q/a", b"after", 1) > 0
        assert accepted > 1000
        assert gateway.stop() == 0


def test_a_disk_that_becomes_read_only(tmp_path: Path) -> None:
    with ext4(tmp_path / "data", "48m") as disk:
        gateway = gateway_in(tmp_path)
        gateway.start()
        new, old = device(gateway, "new", 5), device(gateway, "old", 4)
        assert new.publish("q/a", b"stored", 1) > 0
        disk.become_read_only()
        old._socket.sendall(writer.encode_publish(4, b"q/a", b"not stored", 1, packet_id=77))
        until(lambda: "Read-only file system" in not_ready(gateway))
        with pytest.raises(ProtocolError) as refused:
            new.publish("q/a", b"refused", 1)
        assert refused.value.reason == QUOTA_EXCEEDED
        assert is_silent(old, 1.0)
        ping(old)
        assert "[-] spool: not writable since" in not_ready(gateway)
        gateway.kill()
        with pytest.raises(AssertionError, match="Read-only file system"):
            gateway.start()
        assert str(disk.place) in gateway.log
        assert "Traceback" not in gateway.log


def test_a_disk_that_is_too_small_is_refused_at_start(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "data", "4m"):
        gateway = gateway_in(tmp_path)
        with pytest.raises(AssertionError, match="did not start"):
            gateway.start()
        assert "a journal needs 6 MiB: 6 segments of 1 MiB" in gateway.log
        assert "Traceback" not in gateway.log
