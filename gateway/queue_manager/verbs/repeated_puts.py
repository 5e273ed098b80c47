"""Puts of one program that differ only in identifiers and data: the descriptor is completed once for all of them.

A program nearly always puts with the descriptor and the options of its last put. What the queue manager makes of these
depends on them, on the objects and on the user. As long as all of that is the same, only identifiers and time are
filled in. Whatever needs a look at each message (reports, expiry, groups, segments, context, properties, transmission
queues, queues with a STREAMQ) is never put this way.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.mq import constants as mq
from gateway.ports.mqi import PutOptions
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import NO_ID, Descriptor
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.name_resolution import Target
from gateway.queue_manager.store.unit import LanePuts

_MSG_ID, _CORREL_ID, _IDS_END, _TIME, _TIME_END = 48, 72, 96, 304, 320
_REPEATABLE = (
    mq.MQPMO_SYNCPOINT | mq.MQPMO_NO_SYNCPOINT | mq.MQPMO_NEW_MSG_ID | mq.MQPMO_NEW_CORREL_ID
    | mq.MQPMO_DEFAULT_CONTEXT | mq.MQPMO_FAIL_IF_QUIESCING | mq.MQPMO_SYNC_RESPONSE
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class RepeatedPut:
    """A put, as far as the next one may be the same."""

    version: int
    """The version of the catalogue: any change of an object counts."""
    options: int
    user: str
    front: bytes
    back: bytes
    """The descriptor as it was given, before and behind the identifiers."""
    queue: LocalQueue
    priority: int
    persistent: bool
    longest: int
    """The most data for which no limit needs to be checked."""
    begin: bytes
    middle: bytes
    end: bytes
    """The completed descriptor: before the identifiers, between them and the time, and behind the time."""

    def message(
        self, core: Core, user: str, md: bytes, options: PutOptions, data: bytes
    ) -> tuple[bytes, LanePuts] | None:
        """Returns the completed descriptor and what is stored, if this put is the same except for identifiers and data.
        Returns None if it is not, or if the queue is full or the message too long; MQPUT then finds out which."""
        queue, asked = self.queue, self.options
        if (
            md[_IDS_END:] != self.back
            or md[:_MSG_ID] != self.front
            or options.options != asked
            or core.catalogue.version != self.version
            or options.properties
            or user != self.user
            or core.quiescing
            or len(data) > self.longest
            or core.store.depth(queue.name) + queue.uncommitted_puts >= queue.max_depth
        ):
            return None
        msg_id, correl_id = md[_MSG_ID:_CORREL_ID], md[_CORREL_ID:_IDS_END]
        if asked & mq.MQPMO_NEW_MSG_ID or msg_id == NO_ID:
            msg_id = core.new_identifier()
        if asked & mq.MQPMO_NEW_CORREL_ID:
            correl_id = core.new_identifier()
        time = descriptor.date_and_time(int(core.scheduler.now() * 100))
        made = b"".join((self.begin, msg_id, correl_id, self.middle, time, self.end))
        return made, LanePuts(queue.name, b"", self.priority, self.persistent, [made], [data])


def repeated_put(
    core: Core, user: str, target: Target, given: bytes, options: PutOptions, message: Descriptor, made: bytes
) -> RepeatedPut | None:
    """Returns what the next put may have in common with this one, whose descriptor was `given` and was completed to
    `made`. Returns None if such a put has to be looked at each time."""
    queue = target.queue
    plain = not (message.report or message.flags or message.expiry != mq.MQEI_UNLIMITED)
    if queue is None or target.remote or not plain or options.options & ~_REPEATABLE or options.properties:
        return None
    persistent = message.persistence == mq.MQPER_PERSISTENT
    longest = min(queue.max_length, core.attribute("MAXMSGL"))
    if queue.put_inhibited or queue.stream or (persistent and queue.temporary):
        return None
    return RepeatedPut(
        core.catalogue.version, options.options, user, given[:_MSG_ID], given[_IDS_END:], queue,
        0 if queue.fifo else max(0, min(9, message.priority)), persistent, longest,
        made[:_MSG_ID], made[_IDS_END:_TIME], made[_TIME_END:],
    )  # fmt: skip
