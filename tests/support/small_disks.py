"""File systems of a few MiB of their own, where the machine lets us have them; a test that cannot is skipped and says
why.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest


@contextmanager
def tmpfs(place: Path, size: str) -> Iterator[Path]:
    """A file system in memory that is full at its size."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},huge=never", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs: run as root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


class Ext4:
    """An ext4 on a loop device, which becomes read-only by itself at an error, as disks that fail do."""

    def __init__(self, place: Path, size: str) -> None:
        self.place = place
        self.image = place.with_suffix(".image")
        self.loop = ""
        place.mkdir(parents=True, exist_ok=True)
        self._run("truncate", "-s", size, str(self.image))
        self._run("mkfs.ext4", "-q", "-F", str(self.image))
        self.loop = self._run("losetup", "-f", "--show", str(self.image))
        self._run("mount", "-o", "errors=remount-ro", self.loop, str(place))

    def _run(self, *command: str) -> str:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def become_read_only(self) -> None:
        """As after an error of the device."""
        trigger = Path(f"/sys/fs/ext4/{Path(self.loop).name}/trigger_fs_error")
        if not trigger.exists():
            pytest.skip("needs /sys: mount -t sysfs sysfs /sys")
        trigger.write_text("test")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                (self.place / "probe").write_text("")
            except OSError:
                return
        raise AssertionError("the file system can still be written")

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.place)], check=False, capture_output=True)
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop], check=False, capture_output=True)
        self.image.unlink(missing_ok=True)


@contextmanager
def ext4(place: Path, size: str) -> Iterator[Ext4]:
    """See `Ext4`."""
    with _mounted(Ext4, place, size) as disk:
        yield disk


def _run(*command: str | Path) -> str:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


class FailingDevice:
    """An ext4 on a loop device over a sparse file on a small tmpfs that has no room: what is written where the file has
    a hole fails with EIO."""

    def __init__(self, directory: Path) -> None:
        self.memory, self.disk = directory / "memory", directory / "disk"
        self.memory.mkdir()
        self.disk.mkdir()
        self.image, self.ballast = self.memory / "image", self.memory / "ballast"
        self.loop = ""
        _run("mount", "-t", "tmpfs", "-o", "size=80m,huge=never", "tmpfs", self.memory)
        with self.image.open("wb") as file:
            file.truncate(64 << 20)
        _run("mkfs.ext4", "-q", "-O", "^has_journal", "-b", "4096", self.image)
        self.loop = _run("losetup", "-f", "--show", self.image).strip()
        _run("mount", self.loop, self.disk)

    def fail_writes_to(self, pattern: str) -> None:
        """Take the blocks of files that are zero from some byte on away from under them, and all the room there is;
        again until there is nothing more to take, as the files may be written meanwhile."""
        self._take_room()
        while True:
            before = self.image.stat().st_blocks
            for path in self.disk.glob(pattern):
                with suppress(FileNotFoundError):
                    self._take_blocks(path)
            if self.image.stat().st_blocks == before:
                return
            self._take_room()

    def _take_blocks(self, path: Path) -> None:
        with suppress(subprocess.CalledProcessError):  # it fails already
            _run("sync", "-f", path)
        kept = -(-len(path.read_bytes().rstrip(b"\0")) // 4096)
        for line in _run("filefrag", "-v", path).splitlines():
            extent = re.match(r"\s*\d+:\s*(\d+)\.\.\s*\d+:\s*(\d+)\.\.\s*\d+:\s*(\d+):", line)
            if extent:
                at, first, blocks = (int(each) for each in extent.groups())
                skip = min(max(kept - at, 0), blocks)
                place, length = first + skip, blocks - skip
                if length:
                    _run("fallocate", "-p", "-o", str(place * 4096), "-l", str(length * 4096), self.image)

    def _take_room(self) -> None:
        with self.ballast.open("ab", buffering=0) as file, suppress(OSError):
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


@contextmanager
def failing_device(place: Path) -> Iterator[FailingDevice]:
    """See `FailingDevice`."""
    with _mounted(FailingDevice, place) as device:
        yield device


_Disk = TypeVar("_Disk", Ext4, FailingDevice)


@contextmanager
def _mounted(kind: type[_Disk], place: Path, *about: str) -> Iterator[_Disk]:
    """The test is skipped where there is none to be had."""
    if os.geteuid() != 0:
        pytest.skip("needs the right to mount: run as root")
    disk = kind.__new__(kind)
    try:
        disk.__init__(place, *about)  # type: ignore[misc]
    except (OSError, subprocess.CalledProcessError) as error:
        disk.close()
        pytest.skip(f"no loop device with an ext4 to be had here: {error}")
    try:
        yield disk
    finally:
        disk.close()
