"""Which gateway runs on a data folder, by what it has written there, so that errors and proposals can name it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from gateway.pipeline.errors import QueueUnreachable


class RunningGateway(NamedTuple):
    """How to reach a gateway."""

    url: str
    token_file: str


def running_gateway(folder: Path) -> RunningGateway | None:
    """The gateway that runs on a folder of this machine; None if none does, or it has no administration port."""
    try:
        found = json.loads((folder / "gateway.json").read_text(encoding="utf-8"))
        where, process = RunningGateway(found["admin"] or "", found["token_file"]), int(found["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # of another user, who runs it
    return where if where.url else None


def in_use(folder: Path) -> QueueUnreachable:
    """The error if cursors are to be kept in a store that a gateway has open."""
    there = running_gateway(folder)
    keys = f"`url: {there.url}` and `token_file: {there.token_file}`" if there else "`url` and `token_file`"
    return QueueUnreachable(
        f"a gateway is running on {folder}: add {keys} to the job's source (options url and tokenFile of a query), so "
        "that cursors are kept by it; messages are still read from the files"
    )
