"""A journal as it was at one moment, copied beside the process that writes it; and put back.

`take` maps the segments with a shared lock, so that their owner does not use them again, and copies what the youngest
header lists, and the youngest itself up to its last committed frame. Frames are written one after the other, so that
this is a state that a crash could have left: consistent across queues and sessions. It needs no answer from the
gateway, which may be running, hanging, or stopped.

A backup is written into `DIR.partial`, which is renamed to DIR when all of it is on disk: a DIR is whole.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_128

from gateway.errors import StoreCorrupt, StoreUnavailable
from gateway.queue_manager.journal import failpoint
from gateway.queue_manager.journal.commit_mark import committed
from gateway.queue_manager.journal.decode import frame_at
from gateway.queue_manager.journal.files import DIRECTORY_MODE, FILE_MODE, sync_directory
from gateway.queue_manager.journal.layout import BLOCK, FrameFlag, header_area, padded
from gateway.queue_manager.journal.lock import DirectoryLock
from gateway.queue_manager.journal.mapped_segments import MappedSegment, files_in
from gateway.queue_manager.journal.recovery import (
    Progress,
    cut_off,
    frame_beyond,
    frames_in,
    hole,
    refuse_strangers,
)
from gateway.queue_manager.journal.segment import NAMES, Listed, SegmentHeader, read_header, segment_path
from gateway.version import VERSION

MANIFEST = "backup.json"
FORMAT = 1
INCOMPLETE = "restore.incomplete"
"""While this file is in a directory its journal is being replaced, and is not opened."""
_COPYING, _MOVED = "copied", "moved"
_SUFFIX = ".restoring"
_STEP = 4 << 20
_ATTEMPTS, _PAUSE = 50, 0.02


class File(NamedTuple):
    """One segment of a backup."""

    name: str
    size: int
    """The size of the segment; what is beyond `bytes` is zeros, and takes no room."""
    bytes: int
    checksum: str
    """XXH3-128 of these bytes."""


class Manifest(NamedTuple):
    """The contents of backup.json."""

    version: str
    """The version of the program that made the backup."""
    taken: float
    sequence: int
    """The sequence of the last frame."""
    files: tuple[File, ...]

    @property
    def bytes(self) -> int:
        """The bytes that the files take."""
        return sum(file.bytes for file in self.files)


class _Part(NamedTuple):
    segment: MappedSegment
    header: SegmentHeader
    end: int
    last_sequence: int


# ---- taking


def take(directory: Path, target: Path, progress: Progress | None = None) -> Manifest:
    """Copy the journal of a directory to `target`, which must not exist yet, or be empty; returns the manifest. Raises
    StoreUnavailable or StoreCorrupt."""
    if not directory.is_dir():
        raise StoreUnavailable(f"{directory}: no such directory; name the gateway's data directory")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreUnavailable(f"{target}: it exists already; name a directory that does not")
    partial = target.with_name(target.name + ".partial")
    claim = -1
    try:
        parts = _pinned(directory)
        claim = _claimed(partial)
        for left in partial.iterdir():  # of a backup that was interrupted
            left.unlink()
        _check_room(partial, sum(part.end for part in parts))
        manifest = _copied(parts, partial, progress)
        if target.exists():
            target.rmdir()
        partial.rename(target)
        sync_directory(target.parent)
    except BaseException as error:
        if claim >= 0:
            _given_up(partial, claim)
        if isinstance(error, OSError):
            raise StoreUnavailable(f"{error.filename or partial}: {error.strerror}: there is no backup") from error
        raise
    finally:
        if claim >= 0:
            os.close(claim)
    return manifest


def _given_up(partial: Path, claim: int) -> None:
    """Remove what has been written of a backup that failed: it takes room and is of no use."""
    with suppress(OSError):
        if os.path.samestat(partial.stat(), os.fstat(claim)):
            for left in partial.iterdir():
                left.unlink()
            partial.rmdir()


def _claimed(partial: Path) -> int:
    """The descriptor of the directory into which a backup is written, locked: the files of two backups would be taken
    for one."""
    partial.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    claim = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = partial.exists() and os.path.samestat(partial.stat(), os.fstat(claim))  # it may have become a backup
    except OSError as error:
        free = error.errno != errno.EWOULDBLOCK  # NFS cannot lock a directory
    if not free:
        os.close(claim)
        raise StoreUnavailable(
            f"{partial}: another backup is being written there: let it end, or name another directory"
        )
    return claim


def _pinned(directory: Path) -> list[_Part]:
    """The segments in use, oldest first, locked. One may be used again while they are being locked: then it is tried
    once more."""
    wrong = ""
    for _ in range(_ATTEMPTS):
        found: list[tuple[MappedSegment, SegmentHeader]] = []
        wrong = ""
        for slot in files_in(directory):
            with suppress(OSError, ValueError):  # it has just gone, or is just being made
                segment = MappedSegment(directory, slot, pinned=True)
                header, damaged = read_header(segment.data, segment.size)
                if header is not None:
                    found.append((segment, header))
                elif damaged:
                    wrong = f"both copies of the header of {segment_path(directory, slot).name} are damaged"
        if not found and not wrong:
            raise StoreUnavailable(f"{directory}: no journal here that was ever written; there is nothing to save")
        if not wrong:
            refuse_strangers((segment_path(directory, header.slot), header) for _, header in found)
            newest = max(found, key=lambda each: each[1].serial)
            chosen = {header.serial: (segment, header) for segment, header in found}
            if all(listed.serial in chosen for listed in newest[1].listed):
                parts = [_listed(directory, *chosen[listed.serial], listed) for listed in newest[1].listed]
                return [*parts, _youngest(directory, *newest)]
            wrong = "segments that the youngest one lists are missing"
        time.sleep(_PAUSE)
    raise StoreCorrupt(
        f"{directory}: {wrong}; `mqgate journal check` says which, `mqgate journal salvage` reads the rest"
    )


def _listed(directory: Path, segment: MappedSegment, header: SegmentHeader, listed: Listed) -> _Part:
    """An older segment, each frame of it checked: no backup is made of a damaged journal."""
    end, sequence = _end(segment, header, listed)
    if (end, sequence) != (listed.blocks * BLOCK, listed.last_sequence):
        raise StoreCorrupt(
            f"{segment_path(directory, header.slot)}: damaged at byte {end}: it is not copied into a backup; "
            "`mqgate journal salvage` reads what is left"
        )
    return _Part(segment, header, end, sequence)


def _youngest(directory: Path, segment: MappedSegment, header: SegmentHeader) -> _Part:
    """The youngest segment up to the last committed frame; where nobody tells that, up to its last whole one. If one
    behind that is whole too, the gateway has gone on writing meanwhile; or one between was damaged, and never becomes
    whole."""
    path = segment_path(directory, header.slot)
    if cut := cut_off(segment.size, header):
        raise StoreCorrupt(f"{path}: {cut}; `mqgate journal salvage` reads what is left")
    for attempt in count(1):
        last = _committed(directory)
        end, sequence = _end(segment, header, None, last)
        if last is None and (last := _committed(directory)) is not None:  # somebody has opened it meanwhile
            end, sequence = _end(segment, header, None, last)
        beyond = frame_beyond(segment.data, end, header, sequence)
        if beyond is None or frame_at(segment.data, end, header.salt, sequence + 1) is not None:
            break
        if attempt == _ATTEMPTS:
            raise StoreCorrupt(f"{path}: {hole(end, sequence, beyond)}")
        time.sleep(_PAUSE)
    return _Part(segment, header, end, sequence)


def _committed(directory: Path) -> int | None:
    try:
        return committed(directory)
    except OSError:  # all that is whole is taken, as of a store of an earlier release
        return None


def _end(
    segment: MappedSegment, header: SegmentHeader, listed: Listed | None, last: int | None = None
) -> tuple[int, int]:
    """Where the whole frames end, up to the last that counts, and the number of that one."""
    end, sequence = 2 * header_area(segment.size), header.first_sequence - 1
    for offset, frame in frames_in(segment.data, end, header, listed):
        if last is not None and frame.sequence > last:
            break
        end, sequence = offset + padded(frame.length), frame.sequence
    return end, sequence


def _copied(parts: list[_Part], partial: Path, progress: Progress | None) -> Manifest:
    total, done = sum(part.end for part in parts), 0
    files: list[File] = []
    sequence = 0
    while parts:
        segment, header, end, sequence = parts.pop(0)
        path = segment_path(partial, header.slot)
        checksum = _write(path, segment.size, (segment.data[at : min(at + _STEP, end)] for at in range(0, end, _STEP)))
        files.append(File(path.name, segment.size, end, checksum))
        done += end
        del segment  # its lock goes with it
        if failpoint.armed:
            failpoint.reach("backup.file")
        if progress is not None:
            progress(done, total)
    manifest = Manifest(VERSION, time.time(), sequence, tuple(files))
    record = {"format": FORMAT, **manifest._asdict(), "files": [file._asdict() for file in files]}
    _write(partial / MANIFEST, 0, [json.dumps(record, indent=1).encode()])
    sync_directory(partial)
    return manifest


def _write(path: Path, size: int, pieces: Iterable[bytes | memoryview]) -> str:
    """Write a file of `size` that begins with the pieces, durably; returns the checksum of the pieces."""
    checksum = xxh3_128()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb", buffering=0, closefd=False) as file:
            for piece in pieces:
                view = memoryview(piece)
                checksum.update(view)
                while view:
                    view = view[file.write(view) :]
            if size > file.tell():
                file.truncate(size)
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)
    return checksum.hexdigest()


def _check_room(directory: Path, needed: int) -> None:
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    if free < needed:
        raise StoreUnavailable(f"{directory}: {needed} bytes are needed there and {free} are free: make room")


# ---- putting back


def read_manifest(backup: Path) -> Manifest:
    """The manifest of a backup. Raises StoreUnavailable if there is none."""
    try:
        record = json.loads((backup / MANIFEST).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise StoreUnavailable(
                f"{backup}: it was made by release {record['version']} in format {record['format']}, this one reads "
                f"{FORMAT}: restore it with that release or a later one"
            )
        files = tuple(File(**file) for file in record["files"])
        return Manifest(record["version"], record["taken"], record["sequence"], files)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreUnavailable(
            f"{backup}: no backup here ({error}); one that was interrupted is called {backup.name}.partial"
        ) from error


def restore(backup: Path, directory: Path, progress: Progress | None = None, *, replace: bool = False) -> Path | None:
    """Put a backup back as the journal of a directory. Returns where the journal that was there has been moved, with
    `replace`. What was there stays as it is until the copy is complete and checked."""
    manifest = read_manifest(backup)
    lock = DirectoryLock(directory)
    try:
        return _restored(backup, manifest, directory, progress, replace=replace)
    except OSError as error:
        raise StoreUnavailable(f"{error.filename or directory}: {error.strerror}: nothing was restored") from error
    finally:
        lock.release()


def _restored(
    backup: Path, manifest: Manifest, directory: Path, progress: Progress | None, *, replace: bool
) -> Path | None:
    begun = _begun(directory)
    present = sorted(directory.glob(NAMES))
    if present and begun is None and not replace:
        raise StoreUnavailable(
            f"{directory}: there is a journal already: name another directory, or give --replace to have it moved aside"
        )
    for left in directory.glob(NAMES + _SUFFIX):
        left.unlink()
    _check_room(directory, manifest.bytes)
    _copy_back(backup, manifest, directory, progress)
    if begun is None or begun[0] == _COPYING:
        aside = begun[1] if begun is not None else _unused(directory)
        _note(directory, _COPYING, aside)
        _move_aside(present, aside)
    else:
        aside = begun[1]
        for path in present:  # of the attempt that was interrupted
            path.unlink()
    _note(directory, _MOVED, aside)
    if failpoint.armed:
        failpoint.reach("restore.moved")
    for file in manifest.files:
        (directory / (file.name + _SUFFIX)).rename(directory / file.name)
        if failpoint.armed:
            failpoint.reach("restore.renamed")
    sync_directory(directory)
    (directory / INCOMPLETE).unlink()
    sync_directory(directory)
    return aside if aside.exists() else None


def _copy_back(backup: Path, manifest: Manifest, directory: Path, progress: Progress | None) -> None:
    done = 0
    for file in manifest.files:
        with (backup / file.name).open("rb") as source:
            pieces = (source.read(min(_STEP, file.bytes - at)) for at in range(0, file.bytes, _STEP))
            checksum = _write(directory / (file.name + _SUFFIX), file.size, pieces)
        if checksum != file.checksum:
            raise StoreCorrupt(
                f"{backup / file.name}: damaged: its checksum is not that in {MANIFEST}; take another one"
            )
        if failpoint.armed:
            failpoint.reach("restore.file")
        done += file.bytes
        if progress is not None:
            progress(done, manifest.bytes)
    _leave_open(directory / (manifest.files[-1].name + _SUFFIX))


def _leave_open(youngest: Path) -> None:
    """Remove the closing frame of a store that was closed when it was copied, so that it goes on as after a crash: with
    numbers, and so MsgIds, that no message has which came after the backup."""
    with youngest.open("r+b") as file:
        with mmap.mmap(file.fileno(), 0) as mapped, memoryview(mapped) as data:
            header = read_header(data, len(data))[0]
            frames = list(frames_in(data, 2 * header_area(len(data)), header, None)) if header else []
            if frames and frames[-1][1].flags & FrameFlag.CLOSE:
                data[frames[-1][0] : frames[-1][0] + BLOCK] = bytes(BLOCK)
                mapped.flush()
        os.fsync(file.fileno())


def _unused(directory: Path) -> Path:
    """Where the present journal is moved: never to where an earlier restore in the same second has moved one, whose
    files have the same names."""
    name = f"replaced-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    return next(path for path in map(directory.joinpath, names) if not path.exists())


def _move_aside(present: list[Path], aside: Path) -> None:
    if present:
        aside.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    for file in present:
        file.rename(aside / file.name)
        if failpoint.armed:
            failpoint.reach("restore.aside")
    if present:
        sync_directory(aside)


def _note(directory: Path, step: str, aside: Path) -> None:
    fresh = directory / (INCOMPLETE + ".new")
    _write(fresh, 0, [json.dumps({"step": step, "aside": aside.name}).encode()])
    fresh.rename(directory / INCOMPLETE)
    sync_directory(directory)


def _begun(directory: Path) -> tuple[str, Path] | None:
    """How far a restore has come that did not end; None if there is none."""
    path = directory / INCOMPLETE
    if not path.exists():
        return None
    record = json.loads(path.read_text(encoding="utf-8"))
    return record["step"], directory / record["aside"]


def refuse_half_restored(directory: Path) -> None:
    """Raise StoreUnavailable if a restore did not end."""
    if (directory / INCOMPLETE).exists():
        raise StoreUnavailable(f"{directory}: a restore has not ended: run `mqgate restore` once more")


def refuse_backup(directory: Path) -> None:
    """Raise StoreUnavailable if the directory is a backup: whatever works on it would write into it."""
    if (directory / MANIFEST).exists():
        raise StoreUnavailable(
            f"{directory} is a backup: restore it to a directory of its own, `mqgate restore {directory} --data NEW`, "
            "and name that"
        )
