"""A file that takes the place of an earlier one: completely, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

OPEN_ALREADY = "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def written_whole(path: Path) -> Iterator[TextIO]:
    """Yields a file that takes the place of an earlier one when all of it is on the disk: a failed attempt does not
    lose what was written before, and half a file is not taken for a complete one. It gets the permissions of the
    earlier one."""
    if any(path.is_relative_to(one) for one in OPEN_ALREADY) or (path.exists() and not path.is_file()):
        # it is open already, as /dev/stdout is, and cannot be replaced; or a terminal or a pipe
        with path.open("w", encoding="utf-8") as out:
            yield out
        return
    path = path.resolve()  # a link stays a link
    fresh = path.with_name(f"{path.name}.partial")
    try:
        with fresh.open("w", encoding="utf-8") as out:
            if path.exists():
                os.fchmod(out.fileno(), path.stat().st_mode & 0o777)
            yield out
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(path)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM:
            raise OSError(error.errno, error.strerror, str(path)) from error  # a failed write does not name the file
        raise
