"""Named places where a crash test may kill the process: MQGATE_FAILPOINT=journal.before-write:3 dies at the third pass.
Several are separated by commas. Without the variable `armed` is empty, and callers on hot paths do not call `reach`.
Gateways that share sessions use it as well; names are `<part>.<place>`.

The journal's: journal.before-header, journal.after-header (a segment comes into use), journal.before-write,
journal.after-write, journal.after-apply (a frame), journal.carry (survivors are about to be written again),
journal.recycle (a segment is free). Of backups: backup.file, restore.file (a file was copied), restore.aside (a file of
the earlier journal was moved), restore.moved, restore.renamed, restore.messages (salvaged messages are about to be put
back). Those of gateways that share sessions: owners.before-inherit, owners.after-inherit (before and after the sessions
of a gateway that is gone are taken over), owners.signing, owners.slice, owners.taken-over (its sessions are),
owners.asked, owners.answered (for one session), owners.receiving, owners.received. target.committed: a target has
committed its part of a batch, and the rest is about to be. target.dealt-with: messages got from a target are dealt with
where the state is, and their unit of work there is about to be committed. target.taken: it is.
"""

from __future__ import annotations

import os
import signal


def parse(text: str) -> dict[str, int]:
    """Parse `name[:pass]`, separated by commas; returns name -> passes left."""
    wanted: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = item.partition(":")
        wanted[name] = int(count or 1)
    return wanted


armed = parse(os.environ.get("MQGATE_FAILPOINT", ""))


def reach(name: str) -> None:
    """Note that the process has come to the place `name`: kill it without any clean-up if that was asked for."""
    if armed and name in armed:
        armed[name] -= 1
        if armed[name] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
