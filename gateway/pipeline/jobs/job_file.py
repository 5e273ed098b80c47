"""Reads a job file: YAML to `Job`, every error at once with file, line and column. The only place that opens it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config.findings import describe
from gateway.config.source import read_yaml
from gateway.errors import ConfigurationError, Finding
from gateway.pipeline.jobs.job import Job


def parse_job(name: str, text: str) -> Job:
    """The job in `text`; raises ConfigurationError with all findings."""
    document = read_yaml(name, text)
    if document.findings:
        raise ConfigurationError(document.findings)
    if not isinstance(document.value, dict):
        raise ConfigurationError([Finding(name, 1, 1, "this is not a job", "begin with `version: 1` and `name:`")])
    try:
        return Job.model_validate(document.value)
    except ValidationError as error:
        raise ConfigurationError(describe(error, document, Job)) from error


def read_job(file: Path) -> Job:
    """The job in `file`. Relative paths in it are relative to the file."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Finding(str(file), 1, 1, f"cannot be read: {error}", "give a UTF-8 file")]) from error
    return _beside(file.resolve().parent, parse_job(str(file), text))


def _beside(folder: Path, job: Job) -> Job:
    """The job with its relative paths resolved beside the file, so that it runs the same from everywhere."""
    source = job.source.model_copy(
        update={name: _resolved(folder, getattr(job.source, name)) for name in ("path", "token_file", "ca_file")}
    )
    changed: dict[str, Any] = {"source": source, "warehouse": _resolved(folder, job.warehouse)}
    if job.checkpoint:
        changed["checkpoint"] = _resolved(folder, job.checkpoint)
    return job.model_copy(update=changed)


def _resolved(folder: Path, path: str) -> str:
    if not path or "://" in path:
        return path
    return os.path.normpath(folder / Path(path).expanduser())


def job_schema() -> str:
    """The JSON Schema of a job file, for editors."""
    return json.dumps(Job.model_json_schema(by_alias=True), indent=2)
