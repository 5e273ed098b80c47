"""A file that belongs to somebody else, in one line."""

from __future__ import annotations

import errno
from io import UnsupportedOperation


def denied(error: PermissionError) -> str:
    """The file or directory that may not be used, and what to do."""
    what = "run this as the user whose it is (`sudo -u mqgate`), or name another one"
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
