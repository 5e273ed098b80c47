"""Puts out of syncpoint (MQPMO_NO_SYNCPOINT): made before the units of a batch, not undone with them."""

from __future__ import annotations

from collections.abc import Callable

from gateway.backends.ibm.connection import STALE_HANDLES, TOPIC_PREFIX, Connection
from gateway.backends.ibm.unit_of_work import is_placed, waits
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.ports.batch import MQMD_LENGTH, Failure, Outcome, Puts, Unit

_UNKNOWN = 1 << 40


class NoSyncpointPuts:
    """The puts out of syncpoint of one worker, made in its thread."""

    def __init__(self, finished: Callable[[Unit, Outcome], None], *, can_status: bool) -> None:
        self._finished = finished
        self._can_status = can_status
        self._longest: dict[str, int] = {}
        """Message data that queues take, as far as it is known."""

    def place(self, connection: Connection, batch: list[Unit]) -> bool:
        """Put all runs of the batch that are out of syncpoint. Units that are complete or refused by this leave
        `batch`. False: there was no such run."""
        beside = [puts for unit in batch for puts in unit.puts if waits(puts)]
        unconfirmed = []
        failures: dict[int, Failure] = {}
        for puts in beside:
            try:
                if self._place_run(connection, puts):
                    unconfirmed.append(puts)
            except MQError as error:
                if action_for(error.reason) is Action.RECONNECT:
                    raise
                failures[id(puts)] = Failure(-1, error.reason, explain(error.reason, str(error)))
        if unconfirmed:
            self._confirm(connection, unconfirmed)
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
            return connection.place(puts, can_status=self._can_status and self._fits(connection, puts))
        except MQError as error:
            if error.reason not in STALE_HANDLES:
                raise
        connection.forget_objects()
        self._longest.clear()
        return connection.place(puts, can_status=self._can_status and self._fits(connection, puts))

    def _fits(self, connection: Connection, puts: Puts) -> bool:
        """Whether every message of a run fits its queue, as far as that is known. One that does not is put
        synchronously, so that its rule learns of the refusal."""
        if puts.queue_manager or puts.queue.startswith(TOPIC_PREFIX):
            return True
        longest = self._longest.get(puts.queue)
        if longest is None:
            longest = self._longest[puts.queue] = _longest_on(connection, puts.queue)
        return max(map(len, puts.heads)) - MQMD_LENGTH + max(map(len, puts.bodies)) <= longest

    @staticmethod
    def _confirm(connection: Connection, unconfirmed: list[Puts]) -> None:
        """Ask MQSTAT what became of runs that were put asynchronously. Failed messages are lost, as QoS 0 may be; the
        next puts to the queue are synchronous."""
        lost, reason, queue = connection.session.asynchronous_status()
        if not lost:
            return
        connection.distrust()
        for puts in sorted(unconfirmed, key=lambda puts: puts.queue != queue):
            share = min(lost, len(puts.heads) - puts.lost)
            puts.lost, puts.lost_reason = puts.lost + share, reason
            lost -= share


def _longest_on(connection: Connection, queue: str) -> int:
    """MAXMSGL of a queue and of its queue manager; a remote or cluster queue has none here, and not everybody may
    ask."""
    found = [_UNKNOWN]
    for name in (queue, ""):
        try:
            found.append(int(connection.session.inquire(name, mq.MQIA_MAX_MSG_LENGTH)))
        except MQError as error:
            if action_for(error.reason) is Action.RECONNECT:
                raise
    return min(found)
