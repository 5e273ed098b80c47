"""QoS 0 where there is no room: what may be lost makes way for what may not. Counted, as every loss. Pure.

Nobody waits for an answer to QoS 0, and no window of a client bounds how much of it comes. Without a limit of its own a
storm of it to one queue that refuses would take all the room there is for what waits, and stop the reading of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker import accounting

if TYPE_CHECKING:
    from gateway.broker.engine import Engine
    from gateway.broker.turn import Run, Turn

PATIENCE = 10.0
"""Seconds a commit may take while nothing is read, before what was read at QoS 0 meanwhile is given up."""


def loose(turn: Turn, run: Run) -> dict[Run, set[int]]:
    """The rows that go with a run, when nobody waits for any of them; else none."""
    if run not in turn.unanswered:
        return {}
    tied = turn.tied((run,))
    answered = any(one in turn.contributors for one in tied)
    marked = any(turn.released.get(one) or turn.wills.get(one) or turn.sources.get(one) for one in tied)
    return {} if answered or marked else tied


def shed(engine: Engine, turn: Turn, run: Run, room: int) -> None:
    """Of the rows of a run for which nobody waits so many are left."""
    rows = loose(turn, run)
    if len(rows) == 1:
        rows[run] = set(range(room, len(turn.runs[run].heads)))
    elif sum(map(len, rows.values())) <= room:  # of publications with several destinations all or nothing
        return
    for one, going in rows.items():
        if going:
            accounting.dropped(engine.counters, turn, ((one, row) for row in going), "qos0_overload")
            turn.without(one, going)


def relieve(engine: Engine) -> None:
    """Nothing has been read for long because nothing can be committed: what came at QoS 0 goes, so that reading goes on
    and pings are answered."""
    running = engine.running
    if not engine.paused or engine.scheduler.monotonic() - running.started < PATIENCE:
        return
    turn = engine.turn
    for run in [run for run in turn.runs if run in turn.targets]:
        if run in turn.runs:
            shed(engine, turn, run, 0)
