"""A file that belongs to somebody else, in one line."""

from __future__ import annotations


def denied(error: PermissionError) -> str:
    """The file or directory that may not be used, and what to do."""
    what = "run this as the user whose it is (`sudo -u mqgate`), or name another one"
    return f"{error.filename}: permission denied: {what}"
