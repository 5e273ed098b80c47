"""Telling the gateways from which a job reads how it is doing, for their page. Nothing depends on it: what cannot be
told in time is left out, and the next batch tells again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gateway.pipeline.errors import PipelineError
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.jobs.progress import JobProgress
from gateway.pipeline.jobs.sources import Input
from gateway.pipeline.source.http_access import HttpAddress

EVERY = 5.0
"""Seconds from one report to the next of the same state."""
TIMEOUT = 2.0
"""Seconds for which a gateway that does not answer holds the job up at most, once in EVERY."""


class GatewayReports:
    """The reports of one running job."""

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        self._job = job.name
        self._clock = clock
        self._addresses = [(address_of(each), each.group) for each in job.inputs if each.source.url]
        self._told: tuple[float, str] | None = None

    def tell(self, progress: JobProgress, upkeep: Callable[[], dict[str, Any]]) -> None:
        """Report, if it is time to. `upkeep` is called only then."""
        now = self._clock()
        if not self._addresses or (self._told and self._told[1] == progress.state and now < self._told[0] + EVERY):
            return
        self._told = now, progress.state
        found = upkeep()
        report = {
            "job": self._job,
            "state": progress.state,
            "rows": progress.rows,
            "rows_per_second": progress.rows_per_second,
            "last_commit": progress.last_batch,
            "batch": progress.batch,
            "parts": sum(each["parts"] for each in found["tables"]),
            "next_compaction": found["next_compaction"],
            "detail": progress.error if progress.state in ("failed", "restarting") else "",
        }
        for address, group in self._addresses:
            with suppress(PipelineError, OSError, ValueError):
                address.call("POST", "report", body={**report, "group": group})
        self._told = self._clock(), progress.state


def address_of(each: Input) -> HttpAddress:
    """The gateway of a source."""
    source = each.source
    return HttpAddress(source.url.rstrip("/"), "", source.token_file, source.ca_file, TIMEOUT)
