"""Consecutive asynchronous puts: a descriptor is completed once for all messages that share it.

Tens of asynchronous puts arrive in one chunk and differ only in identifiers and data. Messages whose descriptors are
otherwise equal are put as columns. Anything else (topics, transmission queues, queues with a STREAMQ, groups, segments,
reports, expiry, a limit that would be reached) is left to MQPUT, message by message, which also finds out which one is
refused and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import PutOptions
from gateway.queue_manager import descriptor
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.name_resolution import Target, refreshed
from gateway.queue_manager.objects.placement import check_lengths
from gateway.queue_manager.store.unit import LanePuts, StoreUnit
from gateway.queue_manager.verbs import mqput
from gateway.queue_manager.verbs.connection_state import ConnectionState, Handle

_IDS_BEGIN, _CORREL_ID, _IDS_END = 48, 72, 96
_NOT_IN_RUNS = (
    mq.MQPMO_LOGICAL_ORDER | mq.MQPMO_NEW_MSG_ID | mq.MQPMO_NEW_CORREL_ID | mq.MQPMO_PASS_ALL_CONTEXT
    | mq.MQPMO_PASS_IDENTITY_CONTEXT
)  # fmt: skip


class _Alike(NamedTuple):
    """Messages whose descriptors differ only in their identifiers."""

    md: bytes
    """The descriptor of the first message, as it was given."""
    msg_ids: list[bytes]
    correl_ids: list[bytes]
    bodies: list[bytes]


def put_run(
    connection: ConnectionState, handle: Handle, mds: Sequence[bytes], options: PutOptions, bodies: Sequence[bytes]
) -> bool:
    """Put all messages and return True, or put none and return False; then they are to be put one by one."""
    target = handle.target
    if target is None or handle.topic or options.options & _NOT_IN_RUNS or options.properties:
        return False
    if not handle.options & mq.MQOO_OUTPUT or handle.putting.open or connection.core.quiescing:
        return False
    try:
        put = _put_alike(connection, handle, target, _alike(mds, bodies), options)
    except MQError:
        return False
    if put:
        connection.async_status.successes += len(bodies)
    return put


def _alike(mds: Sequence[bytes], bodies: Sequence[bytes]) -> list[_Alike]:
    """Group consecutive messages with the same descriptor; their order stays."""
    groups: list[_Alike] = []
    front = back = b""
    for md, body in zip(mds, bodies, strict=True):
        if md[_IDS_END:] != back or md[:_IDS_BEGIN] != front:
            front, back = md[:_IDS_BEGIN], md[_IDS_END:]
            groups.append(_Alike(md, [], [], []))
        alike = groups[-1]
        alike.msg_ids.append(md[_IDS_BEGIN:_CORREL_ID])
        alike.correl_ids.append(md[_CORREL_ID:_IDS_END])
        alike.bodies.append(body)
    return groups


def _put_alike(
    connection: ConnectionState, handle: Handle, target: Target, groups: Sequence[_Alike], options: PutOptions
) -> bool:
    mqput.check_options(options)
    target = handle.target = refreshed(connection.core, target)
    queue = target.queue
    if queue is None or target.remote or queue.deleted or queue.put_inhibited or queue.temporary or queue.stream:
        return False
    target.check_put()
    count = sum(len(group.bodies) for group in groups)
    if connection.core.depth(queue) + count > queue.max_depth:
        return False
    if options.options & mq.MQPMO_SYNCPOINT:
        connection.check_room(count)
    own = StoreUnit()
    for group in groups:
        lane = _lane(connection, handle, target, queue, group, options)
        if lane is None:
            return False
        own.puts.append(lane)
    connection.accept(own, options.options)
    return True


def _lane(
    connection: ConnectionState, handle: Handle, target: Target, queue: LocalQueue, group: _Alike, options: PutOptions
) -> LanePuts | None:
    """Returns the columns of one group; None if one of its messages needs MQPUT."""
    message, (warned, _) = mqput.completed(connection, target, group.md, options)
    no_id = descriptor.NO_ID
    if warned or message.flags or message.report or message.expiry > 0 or no_id in group.msg_ids:
        return None
    mqput.give_context(connection, message, handle, options)
    head = message.pack()
    heads = [head] * len(group.bodies)
    check_lengths(connection.core, queue, heads, group.bodies)
    priority = 0 if queue.fifo else max(0, min(9, message.priority))
    persistent = message.persistence == mq.MQPER_PERSISTENT
    correl_ids = group.correl_ids if any(one != no_id for one in group.correl_ids) else None
    if correl_ids is not None and no_id in correl_ids:
        head = head[:_CORREL_ID] + no_id + head[_IDS_END:]
        heads = [head] * len(group.bodies)
    return LanePuts(queue.name, b"", priority, persistent, heads, group.bodies, group.msg_ids, correl_ids)
