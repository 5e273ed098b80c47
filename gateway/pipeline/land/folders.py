"""Folders that jobs and options name: plain ones that every process shares, and why no others. Pure."""

from __future__ import annotations

import re

from gateway.config.units import Wrong

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/+")


def plain_folder(given: str) -> str:
    """The folder's path, also of file:///path. Wrong for what lies behind another scheme."""
    found = _SCHEME.match(given)
    if found is None:
        return given
    if found[1].lower() == "file" and (given[5:8] == "///" or given[5:7] != "//"):
        return "/" + given[found.end() :]
    raise Wrong(
        f"{given!r} is not a folder: a batch becomes visible by renaming it, and cursors rely on that, which "
        f"{found[1]}: does not give",
        "give a path on a file system that all processes share (local, NFS, CephFS, a mounted volume) and copy landed "
        'batches from there; or write the rows of format("mqqueue") with one of Spark\'s own sinks',
    )
