"""Puts out of syncpoint (MQPMO_NO_SYNCPOINT): made before the units of a batch, not undone with them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from gateway.backends.ibm.connection import STALE_HANDLES, TOPIC_PREFIX, Connection
from gateway.backends.ibm.longest import limit_of, longest_on
from gateway.backends.ibm.unit_of_work import is_placed, waits
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.mq.reason_policy import TOO_LONG, Action, action_for, explain
from gateway.ports.batch import MQMD_LENGTH, Failure, Outcome, Puts, Unit

_UNKNOWN = 1 << 40
_STRUC_LENGTH = slice(8, 12)


class NoSyncpointPuts:
    """The puts out of syncpoint of one worker, made in its thread."""

    def __init__(self, finished: Callable[[Unit, Outcome], None], *, can_status: bool) -> None:
        self._finished = finished
        self._can_status = can_status
        self._longest: dict[str, int] = {}
        """The message data that queues take, as far as it is known."""

    def place(self, connection: Connection, batch: list[Unit]) -> bool:
        """Put all runs of the batch that are out of syncpoint. Units that this completes or refuses leave `batch`.
        Returns False if there was no such run."""
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
                failures[id(puts)] = refusal(connection, puts, error)
        if unconfirmed:
            self._confirm(connection, unconfirmed)
            for puts in unconfirmed:
                if puts.too_long:
                    why = f"{len(puts.too_long)} messages were refused by {puts.queue}"
                    failures[id(puts)] = refusal(connection, puts, MQError(mq.MQRC_MSG_TOO_BIG_FOR_Q, why))
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
        """Whether every message of a run fits its queue, as far as that is known. A run with one that does not is put
        synchronously, so that its rule learns of the refusal."""
        if puts.queue_manager or puts.queue.startswith(TOPIC_PREFIX):
            return True
        longest = self._longest.get(puts.queue)
        if longest is None:
            known = longest_on(connection.session.inquire, puts.queue)
            longest = self._longest[puts.queue] = _UNKNOWN if known is None else known
        return max(map(len, puts.heads)) - MQMD_LENGTH + max(map(len, puts.bodies)) <= longest

    def _confirm(self, connection: Connection, unconfirmed: list[Puts]) -> None:
        """Ask MQSTAT what became of runs that were put asynchronously. Failed messages are lost, as QoS 0 may be,
        except those that were too long, which are recognised by their length. The next puts to the queue are
        synchronous."""
        lost, reason, queue = connection.session.asynchronous_status()
        if not lost:
            return
        connection.distrust()
        for puts in sorted(unconfirmed, key=lambda puts: puts.queue != queue):
            share = min(lost, len(puts.heads) - puts.lost)
            if not share:
                break
            with suppress(MQError):  # a connection that breaks now is noticed by the next call; these are lost then
                puts.too_long = self._too_long(connection, puts, share, reason)
            lost -= share
            share -= len(puts.too_long)
            if share:
                puts.lost, puts.lost_reason = puts.lost + share, reason

    def _too_long(self, connection: Connection, puts: Puts, failed: int, reason: int) -> list[int]:
        """Returns the rows of a run, of which `failed` failed, that were refused for their length: those that are
        longer than the queue takes now. If that is not known, as for a cluster queue, these are the longest ones,
        provided that the first failure was one of length."""
        self._longest.pop(puts.queue, None)
        sizes = [_data_length(head, body) for head, body in zip(puts.heads, puts.bodies, strict=True)]
        limit = None
        if not puts.queue_manager and not puts.queue.startswith(TOPIC_PREFIX):
            limit = limit_of(connection.session.inquire, puts.queue)
        if limit is not None:
            rows = [row for row, size in enumerate(sizes) if size > limit]
            return rows if len(rows) <= failed else []
        if reason not in TOO_LONG:
            return []
        return sorted(sorted(range(len(sizes)), key=sizes.__getitem__)[-failed:])


def refusal(connection: Connection, puts: Puts, error: MQError, at: int = -1) -> Failure:
    """Returns the failure of a refused run, with what its queue takes if that was the reason: nobody has to ask for it
    later."""
    longest = None
    if error.reason in TOO_LONG and not puts.queue_manager and not puts.queue.startswith(TOPIC_PREFIX):
        with suppress(MQError):  # a connection that breaks now is noticed by the next call
            longest = longest_on(connection.session.inquire, puts.queue)
    return Failure(at, error.reason, explain(error.reason, str(error)), -1 if longest is None else longest)


def _data_length(head: bytes, body: bytes) -> int:
    """Returns the length of a message that counts for MAXMSGL, which is without properties."""
    length = len(head) - MQMD_LENGTH + len(body)
    data = head[MQMD_LENGTH:]
    if head[mqmd.FORMAT] == mq.MQFMT_RF_HEADER_2 and len(data) >= _STRUC_LENGTH.stop:
        length -= min(length, int.from_bytes(data[_STRUC_LENGTH], "little"))
    return length
