"""Whether a checkpoint is this job's: one that was copied, shared or left behind says that messages are done which this
warehouse has never had, and Spark believes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gateway.pipeline.errors import WrongOption
from gateway.pipeline.jobs.sources import Input
from gateway.pipeline.land.durable import read_json
from gateway.pipeline.land.manifest import Manifest

NOT_BEGUN = "-"
"""What Spark's offset log has for a source without an offset."""


def offsets_in(checkpoint: Path, number: int, sources: int) -> list[dict[str, int] | None] | None:
    """The offsets of each source, in their order, from the offset log; None for a source that had not begun. None if
    there is no such batch."""
    try:
        lines = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return [None if line.strip() == NOT_BEGUN else json.loads(line) for line in lines[-sources:]]


def done_in(checkpoint: Path, sources: int) -> list[int]:
    """The number up to which the checkpoint's batches are done, for each source; empty if no batch is done. Raises
    WrongOption if the checkpoint is another query's."""
    done = [int(path.name) for path in checkpoint.glob("commits/*") if path.name.isdigit()]
    offsets = offsets_in(checkpoint, max(done), sources) if done else None
    if offsets is None:
        return []
    try:
        return [offset["next"] if offset else 0 for offset in offsets]
    except (KeyError, TypeError) as error:
        raise WrongOption(f"{checkpoint} is the checkpoint of another query: name another one") from error


def check_checkpoint(checkpoint: Path, inputs: Sequence[Input], manifest: Manifest, done: Sequence[int]) -> None:
    """Raise WrongOption if the checkpoint is another job's or another warehouse's: no record of the manifest is of its
    query, and it has come further (`done`, read before the manifest was) than the manifest."""
    query = str((read_json(checkpoint / "metadata") or {}).get("id", ""))
    records = [*manifest.records(), *([manifest.last] if manifest.last else [])]
    if any(record.query == query for record in records):
        return
    for each, end in zip(inputs, done, strict=False):
        if end > manifest.landed.next(each.stream):
            raise WrongOption(
                f"{checkpoint} says that all messages up to number {end} are done, and the warehouse has never had "
                "them: it is the checkpoint of another job, or the warehouse is another one. Remove it, or name "
                "another one with `checkpoint`: the manifest, and the group's cursor, say where to go on"
            )
