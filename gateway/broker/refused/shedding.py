"""QoS 0 where there is no room: what may be lost makes way for what may not. Counted, as every loss. Pure.

Nobody waits for an answer to QoS 0, and no window of a client bounds how much of it comes. Without a limit of its own a
storm of it to one queue that refuses would take all the room there is for what waits, and stop the reading of all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.broker import accounting

if TYPE_CHECKING:
    from gateway.broker.batch import Batch
    from gateway.broker.engine import Engine
    from gateway.ports.batch import Address

PATIENCE = 10.0
"""Seconds a commit may take while nothing is read, before what was read at QoS 0 meanwhile is given up."""


def loose(batch: Batch, address: Address) -> dict[Address, set[int]]:
    """The rows that go with a run, when nobody waits for any of them; else none."""
    if address not in batch.unanswered:
        return {}
    tied = batch.tied((address,))
    answered = any(one in batch.contributors for one in tied)
    marked = any(batch.released.get(one) or batch.wills.get(one) or batch.sources.get(one) for one in tied)
    return {} if answered or marked else tied


def shed(engine: Engine, batch: Batch, address: Address, room: int) -> None:
    """Of the rows of a run for which nobody waits so many are left."""
    rows = loose(batch, address)
    if len(rows) == 1:
        rows[address] = set(range(room, len(batch.puts[address].heads)))
    elif sum(map(len, rows.values())) <= room:  # of publications with several destinations all or nothing
        return
    for one, going in rows.items():
        if going:
            accounting.dropped(engine.counters, batch, ((one, row) for row in going), "qos0_overload")
            batch.without(one, going)


def relieve(engine: Engine) -> None:
    """Nothing has been read for long because nothing can be committed: what came at QoS 0 goes, so that reading goes on
    and pings are answered."""
    running = engine.running
    if not engine.paused or engine.scheduler.monotonic() - running.started < PATIENCE:
        return
    batch = engine.batch
    for address in [address for address in batch.puts if address in batch.targets]:
        if address in batch.puts:
            shed(engine, batch, address, 0)
