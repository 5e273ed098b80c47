"""Runs of a batch that are put out of syncpoint: before its units of work, and there whatever becomes of those."""

from __future__ import annotations

from collections.abc import Callable

from gateway.backends.ibm.connection import STALE_HANDLES, Connection
from gateway.backends.ibm.reasons import Action, action_for, explain
from gateway.backends.ibm.work import is_placed, waits
from gateway.errors import MQError
from gateway.ports.batch import Failure, Outcome, Puts, Unit


class Placing:
    """Used by one worker, in its thread."""

    def __init__(self, finished: Callable[[Unit, Outcome], None], *, can_status: bool) -> None:
        self._finished = finished
        self._can_status = can_status

    def place(self, connection: Connection, batch: list[Unit]) -> bool:
        """What is out of syncpoint goes first, and stays whatever becomes of the units. A unit that is through or
        refused with that leaves `batch`. False: there is no such thing."""
        beside = [puts for unit in batch for puts in unit.puts if waits(puts)]
        unheard = []
        failures: dict[int, Failure] = {}
        for puts in beside:
            try:
                if self._place_run(connection, puts):
                    unheard.append(puts)
            except MQError as error:
                if action_for(error.reason) is Action.RECONNECT:
                    raise
                failures[id(puts)] = Failure(-1, error.reason, explain(error.reason, str(error)))
        if unheard:
            self._hear(connection, unheard)
        units, batch[:] = list(batch), [] if beside else batch
        for unit in units if beside else ():
            failed = [failures[id(puts)]._replace(puts=at) for at, puts in enumerate(unit.puts) if id(puts) in failures]
            if failed or is_placed(unit):
                self._finished(unit, Outcome(failed))
            else:
                batch.append(unit)
        return bool(beside)

    def _place_run(self, connection: Connection, puts: Puts) -> bool:
        try:
            return connection.place(puts, can_status=self._can_status)
        except MQError as error:
            if error.reason not in STALE_HANDLES:
                raise
        connection.forget_objects()
        return connection.place(puts, can_status=self._can_status)

    @staticmethod
    def _hear(connection: Connection, unheard: list[Puts]) -> None:
        """What became of runs that were put asynchronously: those that failed are gone, as QoS 0 may be; the next ones
        wait for their answers."""
        lost, reason, queue = connection.session.asynchronous_status()
        if not lost:
            return
        connection.distrust()
        for puts in sorted(unheard, key=lambda puts: puts.queue != queue):
            share = min(lost, len(puts.heads) - puts.lost)
            puts.lost, puts.lost_reason = puts.lost + share, reason
            lost -= share
