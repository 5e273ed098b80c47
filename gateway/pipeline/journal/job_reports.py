"""What running jobs report to the gateway from which they read, for its page. Kept in memory: a job reports again with
its next batch."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

MOST_JOBS = 100
"""The most jobs; beyond that the oldest is forgotten, as names are chosen by whoever has the token."""
LONGEST = 300
NUMBERS = ("rows_per_second", "last_commit")
COUNTS = ("rows", "parts", "batch")
TEXTS = ("state", "next_compaction", "detail")


class JobReports:
    """The last report of each job, by its consumer group."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def take(self, given: Mapping[str, Any]) -> None:
        """Keep a report. Raises KeyError or ValueError for what is not one."""
        report: dict[str, Any] = {"told": time.time(), "job": str(given["job"])[:LONGEST]}
        for name in (*NUMBERS, *COUNTS):
            value = given.get(name)
            report[name] = None if value is None else int(value) if name in COUNTS else float(value)
        report |= {name: str(given.get(name) or "")[:LONGEST] for name in TEXTS}
        group = str(given["group"])[:LONGEST]
        self._found[group] = report
        self._found.move_to_end(group)
        while len(self._found) > MOST_JOBS:
            self._found.popitem(last=False)

    def of(self, group: str) -> dict[str, Any] | None:
        """The last report of the job that reads as this group."""
        return self._found.get(group)
