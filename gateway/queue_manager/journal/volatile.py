"""Rows of non-persistent batches: in memory up to a bound, beyond it in files that no restart ever reads. The files
have no name, so they vanish with the process. A file is closed when none of its batches is needed any more."""

from __future__ import annotations

import marshal
import os
import tempfile
from pathlib import Path

from gateway.queue_manager.journal.decode import Rows

FILE_BYTES = 64 << 20


class _File:
    """One file, with the number of its batches that are still needed."""

    def __init__(self, directory: Path) -> None:
        self.handle = tempfile.TemporaryFile(dir=directory, prefix="volatile-", buffering=0)  # noqa: SIM115  (closed when empty)
        self.end = 0
        self.live = 0


class VolatileRows:
    """The rows of non-persistent batches."""

    def __init__(self, directory: Path, limit: int) -> None:
        self.limit = limit
        self.size = 0
        """Bytes in memory."""
        self.full: OSError | None = None
        """Why the last attempt to write batches out failed."""
        self._directory = directory
        self._memory: dict[int, Rows] = {}
        self._spilled: dict[int, tuple[_File, int, int]] = {}
        self._file: _File | None = None

    def keep(self, batch: int, rows: Rows) -> None:
        """Keep the rows of a batch. Beyond the bound the oldest batches are written to the file."""
        self._memory[batch] = rows
        self.size += rows.size
        self.spill()

    def spill(self) -> None:
        """Write the oldest batches out until the rest is within the bound, or the disk is full."""
        self.full = None
        for batch in list(self._memory) if self.size > self.limit else ():
            if self.size <= self.limit:
                return
            try:
                self._write(batch, self._memory[batch])
            except OSError as error:
                self.full = error
                return
            self.size -= self._memory.pop(batch).size

    def _write(self, batch: int, rows: Rows) -> None:
        columns = [None if column is None else list(column) for column in rows[1:7]]
        data = marshal.dumps((rows.time, *columns, rows.size))
        file = self._file
        if file is None or file.end + len(data) > FILE_BYTES:
            file = self._file = _File(self._directory)
        done = 0
        while done < len(data):
            done += os.pwrite(file.handle.fileno(), data[done:], file.end + done)
        self._spilled[batch] = file, file.end, len(data)
        file.end += len(data)
        file.live += 1

    def get(self, batch: int) -> Rows:
        """The rows of a batch that has live messages."""
        rows = self._memory.get(batch)
        if rows is not None:
            return rows
        file, offset, length = self._spilled[batch]
        data = b""
        while len(data) < length:
            data += os.pread(file.handle.fileno(), length - len(data), offset + len(data))
        return Rows(*marshal.loads(data))  # noqa: S302  (our own, in a file nobody else can name)

    def is_spilled(self, batch: int) -> bool:
        """Whether reading the batch means reading a file."""
        return batch in self._spilled

    def drop(self, batch: int) -> None:
        """Drop a batch of which no message is needed any more."""
        rows = self._memory.pop(batch, None)
        if rows is not None:
            self.size -= rows.size
        elif batch in self._spilled:
            file, _offset, _length = self._spilled.pop(batch)
            file.live -= 1
            if not file.live:
                file.handle.close()
                if file is self._file:
                    self._file = None

    def close(self) -> None:
        """Close the files and drop all rows."""
        for file in {id(file): file for file, _offset, _length in self._spilled.values()}.values():
            file.handle.close()
        self._spilled.clear()
        self._memory.clear()
