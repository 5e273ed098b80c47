"""A file that belongs to somebody else, in one line."""

from __future__ import annotations


def denied(error: PermissionError) -> str:
    """The file or directory that may not be used, and what to do."""
    what = "run this as the user whose it is (`sudo -u mqgate`), or name another one"
    return f"{error.filename}: permission denied: {what}"


def failed(error: OSError) -> str:
    """What the system has refused, and of which file; without one it was the output."""
    if isinstance(error, PermissionError) and error.filename is not None:
        return denied(error)
    what = "the output cannot be written" if error.filename is None else str(error.filename)
    return f"{what}: {error.strerror or error}"
