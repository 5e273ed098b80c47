"""A file that belongs to somebody else, in one line."""

from __future__ import annotations

import errno
import os
from io import UnsupportedOperation
from pathlib import Path
from typing import Any

import click


def denied(error: PermissionError) -> str:
    """The file or directory that may not be used, and what to do."""
    what = "run this as the user whose it is, or with `sudo`, or name another one"
    return f"{error.filename}: permission denied: {what}"


NO_MORE_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def failed(error: OSError) -> str:
    """What the system has refused, and of which file; without one it was the output."""
    if isinstance(error, PermissionError) and error.filename is not None:
        return denied(error)
    if isinstance(error, UnsupportedOperation):
        return "the standard input is closed"
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"the output cannot be written: {error.strerror}" if error.errno in NO_MORE_WRITTEN else str(error)


class DataDirectory(click.Path):
    """A directory that need not be there. PermissionError where it is and may not be looked into: click would take
    that for wrong use, and what looks for files there for a directory without any."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Its name."""
        found = os.fsdecode(super().convert(value, param, ctx))
        if Path(found).is_dir() and not os.access(found, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), found)
        return found


DATA_DIRECTORY = DataDirectory(file_okay=False, readable=False)
"""Of the option `--data`."""
