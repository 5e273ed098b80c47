"""A device that fails under a real file system, writes direct and synchronous as in production: nothing of the failed
unit of work appears later, nothing acknowledged is lost, and the store goes on when the device does.

The device is a file on a tmpfs that has no room: what is written where the file has a hole fails with EIO.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from journal_calls import commit, listed

from gateway.errors import StoreUnavailable
from gateway.queue_manager.journal import Prepared, Store, StoreOptions
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

HEAD = b"M" * 364
OPTIONS = StoreOptions(segment_bytes=1 << 20, spare_segments=3, background=False, cache_bytes=0)
BODY = 4000


def run(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


class Device:
    """An ext4 on a loop device over a sparse file on a small tmpfs."""

    def __init__(self, directory: Path) -> None:
        self.memory, self.disk = directory / "memory", directory / "disk"
        self.memory.mkdir()
        self.disk.mkdir()
        self.image, self.ballast = self.memory / "image", self.memory / "ballast"
        self.loop = ""
        run("mount", "-t", "tmpfs", "-o", "size=80m,huge=never", "tmpfs", self.memory)
        with self.image.open("wb") as file:
            file.truncate(64 << 20)
        run("mkfs.ext4", "-q", "-O", "^has_journal", "-b", "4096", self.image)
        self.loop = run("losetup", "-f", "--show", self.image).strip()
        run("mount", self.loop, self.disk)

    def fail_writes_to(self, path: Path) -> None:
        """Take the blocks of a file away from under it, and all the room there is."""
        run("sync", "-f", path)
        for line in run("filefrag", "-v", path).splitlines():
            extent = re.match(r"\s*\d+:\s*\d+\.\.\s*\d+:\s*(\d+)\.\.\s*\d+:\s*(\d+):", line)
            if extent:
                first, blocks = int(extent[1]), int(extent[2])
                run("fallocate", "-p", "-o", str(first * 4096), "-l", str(blocks * 4096), self.image)
        with self.ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def recover(self) -> None:
        """There is room again."""
        self.ballast.unlink(missing_ok=True)

    def close(self) -> None:
        self.recover()
        subprocess.run(["umount", "-l", str(self.disk)], check=False, capture_output=True)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], check=False, capture_output=True)
        subprocess.run(["umount", "-l", str(self.memory)], check=False, capture_output=True)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    if os.geteuid() != 0:
        pytest.skip("needs the right to mount: run as root")
    made = Device.__new__(Device)
    try:
        made.__init__(tmp_path)  # type: ignore[misc]
    except (OSError, subprocess.CalledProcessError) as error:
        made.close()
        pytest.skip(f"no loop device with an ext4 to be had here: {error}")
    yield made
    made.close()


def put(store: Store, body: bytes) -> Prepared:
    return store.prepare(StoreUnit(puts=[LanePuts("Q", heads=[HEAD], bodies=[body])]), 1.0)


def test_writes_that_fail_below_the_file_system(device: Device) -> None:
    path = device.disk / "store"
    store = Store.open(path, clock=lambda: 1.0, options=OPTIONS)
    commit(store, put(store, b"%0*d" % (BODY, 0)))
    spare = store.ring._spares[0]
    number = 1
    current = store.ring.current
    assert current is not None
    while current.end + 64 * 1024 < current.size:
        commit(store, put(store, b"%0*d" % (BODY, number)))
        number += 1
    expected = [b"%0*d" % (BODY, each) for each in range(number)]
    device.fail_writes_to(spare.path)

    failures: list[str] = []
    for body in range(number, number + 40):  # the rest of this segment is whole, the next one is not there
        try:
            commit(store, put(store, b"%0*d" % (BODY, body)))
            expected.append(b"%0*d" % (BODY, body))
        except StoreUnavailable as error:
            failures.append(str(error))
    assert re.search("Input/output error|No space left", failures[0])
    assert listed(store) == expected

    device.recover()
    step = store.maintain(1.0)
    if step is not None:
        commit(store, step)
    commit(store, put(store, b"after"))
    expected.append(b"after")
    first = store.fetch("Q", limit=1)[0]
    commit(store, store.prepare(StoreUnit(takes=[LaneTakes("Q", tokens=[first.token])]), 1.0))
    assert listed(store) == expected[1:]
    store.ring.close()
    assert store._lock is not None
    store._lock.release()
    store = Store.open(path, clock=lambda: 1.0, options=OPTIONS)
    assert listed(store) == expected[1:]
    store.close()
