"""Giving back the leases of a run that has ended. Spark ends the process that plans without telling it, and the next
driver on another host would have to wait until the lease has run out."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from gateway.errors import MqgateError
from gateway.pipeline.jobs.sources import Input, check_apart
from gateway.pipeline.jobs.status import groups_of
from gateway.pipeline.journal.groups import is_dead
from gateway.pipeline.source import http_access
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.queue_access import QueueAccess

PATIENCE = 2.0
"""Seconds to wait until the process that planned is gone; a lease that is not given back by then runs out."""
PAUSE = 0.05
TIMEOUT = 5.0
"""Seconds for which a gateway that does not answer holds up the end of a run, which has nothing else to do."""


def give_back(inputs: Sequence[Input]) -> None:
    """Give back the leases that ended processes of this host hold. Those of a source that cannot be asked are left to
    run out."""
    for each in inputs:
        with suppress(MqgateError, OSError, ValueError):
            _give_back(each)


def _give_back(each: Input) -> None:
    held = next((one for one in groups_of(each, TIMEOUT) if one["name"] == each.group and one["owner"]), None)
    if held is None or held["expires"] < time.time():
        return
    until = time.monotonic() + PATIENCE
    while not is_dead(held["owner"], socket.gethostname()):
        if time.monotonic() > until:
            return
        time.sleep(PAUSE)
    access_to(each, TIMEOUT).release(each.group, held["epoch"])


def reader_of(inputs: Sequence[Input]) -> dict[str, Any] | None:
    """The first of the groups as which another driver reads, as far as gateways tell for how long; None if each is
    free."""
    here = socket.gethostname()
    for each in inputs:
        for group in groups_of(each):
            owner, left = group["owner"], group.get("left", 0.0)  # gateways of earlier releases do not tell it
            if group["name"] == each.group and owner and left > 0 and not is_dead(owner, here):
                return group
    return None


def journals_of(inputs: Sequence[Input]) -> dict[str, str]:
    """The journal of each stream, by the name that it got when it was made; without those that do not tell it. Raises
    WrongOption if one has two, or if two sources read the same messages of one."""
    found = {each.stream: access_to(each).journal(each.source.queue) for each in inputs}
    check_apart(inputs, found)
    return {stream: journal for stream, journal in found.items() if journal}


def access_to(each: Input, timeout: float = http_access.TIMEOUT) -> QueueAccess:
    """The access to the source's queue manager, which keeps its cursors."""
    source = each.source
    options = Options(path=source.path, url=source.url, token_file=source.token_file, ca_file=source.ca_file)
    return http_access.access_by(options, timeout)
