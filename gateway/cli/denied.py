"""Reports in one line that a file belongs to somebody else."""

from __future__ import annotations

import errno
import os
from io import UnsupportedOperation
from pathlib import Path
from typing import Any

import click


def denied(error: PermissionError) -> str:
    """Returns which file or directory may not be used, and what to do."""
    what = "run this as its owner or with `sudo`, or name another one"
    return f"{error.filename}: permission denied: {what}"


NO_MORE_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def failed(error: OSError) -> str:
    """Returns what the system has refused, and for which file; without a file it was the output."""
    if isinstance(error, PermissionError) and error.filename is not None:
        return denied(error)
    if isinstance(error, UnsupportedOperation):
        return "the standard input is closed"
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"the output cannot be written: {error.strerror}" if error.errno in NO_MORE_WRITTEN else str(error)


class DataDirectory(click.Path):
    """A directory that need not exist. Raises PermissionError if it exists and may not be read: click would report
    wrong use, and a search for files there would find a directory without any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the directory's name."""
        found = os.fsdecode(super().convert(value, param, ctx))
        if Path(found).is_dir() and not os.access(found, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), found)
        return found


DATA_DIRECTORY = DataDirectory(file_okay=False, readable=False)
"""The type of the option `--data`."""
