"""What a run that fails leaves for `mqgate pipeline status`: whether it tries again."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_fleet import write_journal

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.run import JobRun
from gateway.pipeline.jobs.status import job_status, status_lines

JOB = """
version: 1
name: plant
source: {{queue: Q, path: {folder}/journal}}
warehouse: {folder}/lake
restart: {{from: 1ms, times: {times}}}
"""


@pytest.mark.parametrize(
    ("error", "times", "once", "states"),
    [
        (RuntimeError("a file is not there"), 2, False, ["restarting", "restarting", "failed"]),
        (RuntimeError("a file is not there"), 0, True, ["restarting", "restarting", "failed"]),
        (WrongOption("no such option"), 0, False, ["failed"]),
    ],
)
def test_one_that_gives_up_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, times: int, once: bool, states: list[str]
) -> None:
    write_journal(tmp_path / "journal", 1)
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=times))
    seen: list[str] = []
    run = JobRun(None, job, lambda progress: seen.append(progress.state))

    def start(*, once: bool) -> None:
        raise error

    monkeypatch.setattr(run, "start", start)
    with pytest.raises(type(error)):
        run.run(once=once)
    assert seen == states
    assert status_lines(job_status(job))[0] == "job plant: failed"


class EndedQuery:
    """A query that has landed everything."""

    isActive = False

    def awaitTermination(self) -> None:
        pass


def test_one_that_is_done_has_made_up_for_its_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_journal(tmp_path / "journal", 1)
    job = parse_job("job.yaml", JOB.format(folder=tmp_path, times=0))
    run, tries = JobRun(None, job), iter([RuntimeError("the gateway does not answer"), None])

    def start(*, once: bool) -> EndedQuery:
        if error := next(tries):
            raise error
        return EndedQuery()

    monkeypatch.setattr(run, "start", start)
    assert run.run(once=True).restarts == 1
    lines = status_lines(job_status(job))
    assert lines[:2] == ["job plant: done", "  restarts: 1"]
