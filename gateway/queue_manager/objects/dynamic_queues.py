"""Dynamic queues: made from models, by MQOPEN or for managed subscriptions, and deleted with the messages on them."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.attributes import LOCAL
from gateway.queue_manager.objects.catalogue import NAME, Definition
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.store.unit import LaneTakes, StoreUnit

PREFIX_LENGTH = 33
"""Characters that the name of a dynamic queue may have before the `*`."""
DISCARDED_AT_ONCE = 1000


MADE_BY = "MADE_BY"
"""Key under which a dynamic queue keeps the user whose MQOPEN made it, and who may delete it."""


def make_dynamic(core: Core, model: Definition, pattern: str, user: str = "") -> Definition:
    """Make a queue that belongs to this user from a model. Its name is the pattern, with a unique ending in place of a
    `*`."""
    name = _dynamic_name(core, pattern)
    dynamic = 3 if model.number("DEFTYPE") == mq.MQQDT_TEMPORARY_DYNAMIC else 2
    known = {attribute.keyword for attribute in LOCAL}
    given = {word: value for word, value in model.attributes.items() if word in known}
    base = {attribute.keyword: attribute.default for attribute in LOCAL}
    now = core.timestamp()
    definition = Definition("QLOCAL", name, base | given, now, now, dynamic, {MADE_BY: user})
    if dynamic == mq.MQQDT_PERMANENT_DYNAMIC:
        core.save((definition,))
    core.install(definition)
    return definition


def _dynamic_name(core: Core, pattern: str) -> str:
    prefix = pattern.rstrip()
    if prefix.endswith("*"):
        prefix = prefix[:-1]
        if len(prefix) > PREFIX_LENGTH:
            raise MQError(mq.MQRC_DYNAMIC_Q_NAME_ERROR, f"at most {PREFIX_LENGTH} characters may stand before the `*`")
        unique = core.new_identifier()[16:]
        prefix = f"{prefix}{int.from_bytes(unique, 'big') & ((1 << 60) - 1):015X}"
    if not NAME.match(prefix):
        raise MQError(mq.MQRC_DYNAMIC_Q_NAME_ERROR, f"{pattern!r} does not make a valid queue name")
    if core.catalogue.get("QUEUE", prefix) is not None:
        raise MQError(mq.MQRC_OBJECT_ALREADY_EXISTS, f"queue {prefix!r} exists already")
    return prefix


def delete_dynamic(core: Core, queue: LocalQueue) -> None:
    """Delete the queue and the messages on it."""
    while messages := core.store.fetch_around_damage(queue.name, b"", DISCARDED_AT_ONCE)[0]:
        core.commit(StoreUnit(takes=[LaneTakes(queue.name, b"", [message.token for message in messages])]))
    if queue.definition.dynamic == mq.MQQDT_PERMANENT_DYNAMIC:
        core.save((), (queue.definition,))
    core.uninstall(queue.definition)
    queue.left = partial(core.afterwards, partial(_discard_left, core, queue.name))


def _discard_left(core: Core, name: str) -> None:
    """Delete messages that were still being committed when their queue was deleted."""
    with core.entered(), suppress(MQError):  # the store cannot be written
        tokens = () if name in core.queues or core.closed else core.store.tokens(name, b"")
        if tokens:
            core.commit(StoreUnit(takes=[LaneTakes(name, b"", list(tokens))]))
            core.store.forget(name)
