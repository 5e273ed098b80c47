"""A part of a batch as runs in a journal's files, picklable: a planned batch is cut into such pieces, and each task
reads one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gateway.pipeline.errors import DataLost
from gateway.pipeline.journal.lookup import Follower, MessageRun
from gateway.pipeline.journal.segments import SegmentUse
from gateway.queue_manager.store.head_numbers import HeadNumbers


class JournalPiece(NamedTuple):
    """Runs of messages and the uses of the segments in which they lie: picklable, read wherever the folder is."""

    folder: str
    runs: list[MessageRun]
    uses: dict[int, SegmentUse]
    backouts: dict[int, int]
    queues: str

    def chunks(self, rows: int, heads: HeadNumbers | None = None) -> Iterator[Any]:
        """Read the messages from the mapped files. Those that the journal has carried forward since the batch was
        planned are looked up again."""
        from gateway.pipeline.journal.chunks import read_chunks

        done = 0
        try:
            for chunk in read_chunks(Path(self.folder), self.runs, self.uses, rows, self.backouts, heads):
                done += chunk.rows
                yield chunk
        except DataLost:
            left = _without_first(self.runs, done)
            runs, uses = _looked_up_again(Path(self.folder), self.queues, left)
            yield from read_chunks(Path(self.folder), runs, uses, rows, self.backouts, heads)


def _without_first(runs: list[MessageRun], rows: int) -> list[MessageRun]:
    """Runs without their first `rows` messages."""
    left = []
    for run in runs:
        skip = min(rows, run.rows)
        rows -= skip
        if skip < run.rows:
            left.append(run.skipping(skip))
    return left


def _looked_up_again(
    folder: Path, queues: str, runs: list[MessageRun]
) -> tuple[list[MessageRun], dict[int, SegmentUse]]:
    follower = Follower(folder)
    follower.poll()
    low, high = runs[0].first, runs[-1].first + runs[-1].rows
    planned = sum(run.rows for run in runs)
    now = follower.runs(queues, low, high)
    missing = planned - sum(run.rows for run in now)
    if missing > 0:
        raise DataLost(
            f"{missing} of {planned} planned messages are gone from {queues}: another consumer takes messages from "
            "these queues, or they expired; give the pipeline queues of its own, or set failOnDataLoss to false"
        )
    return now, follower.uses(now)


def shares(runs: list[MessageRun], share: int) -> Iterator[list[MessageRun]]:
    """Runs in parts of `share` messages, cut within a run where necessary."""
    part: list[MessageRun] = []
    room = share
    for run in runs:
        while run.rows > room:
            part.append(run._replace(rows=room))
            run = run.skipping(room)
            yield part
            part, room = [], share
        part.append(run)
        room -= run.rows
        if room == 0:
            yield part
            part, room = [], share
    if part:
        yield part
