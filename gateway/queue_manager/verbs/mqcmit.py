"""MQCMIT and MQBACK."""

from __future__ import annotations

from functools import partial

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager import descriptor
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.store.unit import Backout, LaneTakes, StoreUnit
from gateway.queue_manager.verbs.connection_state import ConnectionState, UnitOfWork


def commit(connection: ConnectionState) -> None:
    """MQCMIT."""
    work = connection.work
    if work.failed:
        back(connection)
        raise MQError(mq.MQRC_BACKED_OUT, "an asynchronous put of the unit of work has failed: MQSTAT says which")
    if not work.open:
        return
    unit = work.unit
    if any(queue.deleted for queue in work.puts):
        _leave_out_deleted(work)
    if len(work.taken) == 1:
        only = work.taken[0]
        unit.takes.append(LaneTakes(only.queue.name, b"", (only.token,)))
    else:
        for queue, tokens in _by_queue(work).items():
            unit.takes.append(LaneTakes(queue.name, b"", tokens))
    for taken in work.taken:
        if taken.md[descriptor.REPORT] != descriptor.NO_REPORT:
            connection.placer.confirm_delivery(taken.md, taken.data, unit)
    connection.work = UnitOfWork()
    failed = partial(_backed_out, connection, work)
    try:
        connection.settlement = connection.core.commit_call(unit, connection, failed=failed, counted=work.puts)
    except MQError as error:
        raise failed(error) from error


def _leave_out_deleted(work: UnitOfWork) -> None:
    """Leave out what was put on a temporary queue that has been deleted: only a new queue of the same name could get
    it."""
    there = {queue.name for queue in work.puts if not queue.deleted}
    gone = {queue.name for queue in work.puts if queue.deleted} - there
    work.unit.puts = [puts for puts in work.unit.puts if puts.queue not in gone]


def _backed_out(connection: ConnectionState, work: UnitOfWork, error: MQError) -> MQError:
    _return_messages(connection, work)
    return MQError(mq.MQRC_BACKED_OUT, f"the unit of work could not be stored and is backed out: {error}")


def back(connection: ConnectionState) -> None:
    """MQBACK."""
    work, connection.work = connection.work, UnitOfWork()
    for queue, rows in work.puts.items():
        queue.uncommitted_puts -= rows
    _return_messages(connection, work)


def _return_messages(connection: ConnectionState, work: UnitOfWork) -> None:
    """Return messages to their places with BackoutCount raised; one marked to skip backout stays got. The positions in
    groups and segmented messages are restored."""
    for order, before in work.orders.values():
        order.restore(before)
    unit = StoreUnit()
    skipped = [taken for taken in work.taken if taken.skip]
    for taken in work.taken:
        if not taken.skip:
            unit.backouts.append(Backout(taken.queue.name, b"", taken.token, taken.backout + 1))
    try:
        if unit:
            connection.core.commit(unit)
    except MQError:  # the store cannot be written: the messages are returned with their counts as they were
        pass
    finally:
        for queue, tokens in _by_queue(work).items():
            connection.core.unlock_messages(queue, tokens)
            connection.core.wake(queue)
    for taken in skipped:  # it is the first message of a new unit of work
        connection.core.lock_messages(taken.queue, [taken.token], connection)
        taken.skip = False
        connection.work.taken.append(taken)


def _by_queue(work: UnitOfWork) -> dict[LocalQueue, list[int]]:
    tokens: dict[LocalQueue, list[int]] = {}
    for taken in work.taken:
        tokens.setdefault(taken.queue, []).append(taken.token)
    return tokens
