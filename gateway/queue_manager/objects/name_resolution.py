"""Queue name resolution: from the names in an object descriptor to the queue or topic that messages are put to. Pure.

Section 7, Names, of the MQI reference: aliases, remote queues, queue-manager aliases, reply-to aliases, transmission
queues.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.catalogue import Definition, valid_name
from gateway.queue_manager.objects.local_queue import LocalQueue


@dataclass(slots=True)
class Target:
    """What a name resolves to."""

    chain: tuple[Definition, ...]
    """The definitions from the name to the queue. The first gives the default priority and persistence; each may
    inhibit puts and gets."""
    queue: LocalQueue | None = None
    """The local queue, or the transmission queue."""
    topic: str = ""
    """The topic object that an alias names."""
    remote_queue: str = ""
    remote_queue_manager: str = ""
    """The names for MQXQH; empty for a local queue."""
    version: int = -1
    """The version of the catalogue when the definitions were last compared with it."""

    @property
    def remote(self) -> bool:
        """Whether messages are put on a transmission queue with an MQXQH."""
        return bool(self.remote_queue_manager)

    def resolved(self, here: str, *, local: bool) -> tuple[str, str]:
        """Returns ResolvedQName and ResolvedQMgrName: those of the destination, or (`local`: MQOO_RESOLVE_LOCAL_Q,
        MQPMO_RESOLVE_LOCAL_Q) of the queue of this queue manager that leads to it."""
        if self.remote and not local:
            return self.remote_queue, self.remote_queue_manager
        return "" if self.queue is None else self.queue.name, here

    def check_put(self) -> None:
        """Raise 2051 if a definition of the chain has PUT(DISABLED)."""
        for definition in self.chain:
            if definition.attributes.get("PUT") == 1:
                raise MQError(
                    mq.MQRC_PUT_INHIBITED, f"ALTER {definition.kind}('{definition.name}') PUT(ENABLED) allows it"
                )

    def check_get(self) -> None:
        """Raise 2016 if a definition of the chain has GET(DISABLED)."""
        for definition in self.chain:
            if definition.attributes.get("GET") == 1:
                raise MQError(
                    mq.MQRC_GET_INHIBITED, f"ALTER {definition.kind}('{definition.name}') GET(ENABLED) allows it"
                )


def resolve(core: Core, name: str, queue_manager: str = "") -> Target:
    """Resolve the names of a queue, or raise the reason code of MQOPEN. The caller makes the dynamic queue of a
    model."""
    if queue_manager in {"", core.name}:
        return _local(core, name)
    definition = core.catalogue.get("QUEUE", queue_manager)
    if definition is None:
        return _remote(core, name, queue_manager, "", ())
    if definition.kind == "QREMOTE":
        return _through_alias(core, name, definition)
    if definition.kind == "QMODEL":
        raise MQError(mq.MQRC_UNKNOWN_REMOTE_Q_MGR, f"{queue_manager!r} is a model queue, not a queue manager")
    if definition.kind == "QLOCAL" and definition.number("USAGE") == 1:
        return Target((definition,), core.queues[definition.name], "", name, queue_manager)
    return _remote(core, name, queue_manager, "", ())


def _through_alias(core: Core, name: str, alias: Definition) -> Target:
    other = alias.text("RQMNAME")
    if alias.text("RNAME"):
        text = f"{alias.name!r} is a remote queue, not a queue manager alias, which has a blank RNAME"
        raise MQError(mq.MQRC_UNKNOWN_REMOTE_Q_MGR, text)
    if other == core.name:
        return _local(core, name)
    return _remote(core, name, other, alias.text("XMITQ"), ())


def unresolved(core: Core, names: AbstractSet[str], most: int) -> tuple[dict[str, str], int]:
    """Returns the names of queues that cannot be resolved, the first `most` with what helps, and how many more there
    are."""
    found, more = dict[str, str](), 0
    for name in sorted(names - core.queues.keys()):
        if len(found) == most and core.catalogue.get("QUEUE", name) is None:
            more += 1  # there may be thousands where there are rules before there are queues
            continue
        try:
            resolve(core, name)
        except MQError as error:
            if len(found) < most:
                found[name] = str(error)
            else:
                more += 1
    return found, more


def _local(core: Core, name: str) -> Target:
    definition = core.catalogue.get("QUEUE", name)
    if definition is None:
        fix = f"DEFINE QLOCAL('{name}') makes one" if valid_name("QLOCAL", name) else "no queue can have this name"
        raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"no queue {name!r}: {fix}")
    if definition.kind == "QALIAS":
        return _alias(core, definition)
    return _end(core, definition, ())


def _alias(core: Core, alias: Definition) -> Target:
    name = alias.text("TARGET")
    if alias.number("TARGTYPE") == mq.MQOT_TOPIC:
        if core.catalogue.get("TOPIC", name) is None:
            raise MQError(
                mq.MQRC_UNKNOWN_ALIAS_BASE_Q, f"alias {alias.name!r} names topic object {name!r}, which is not defined"
            )
        return Target((alias,), topic=name)
    base = core.catalogue.get("QUEUE", name)
    if base is None:
        raise MQError(mq.MQRC_UNKNOWN_ALIAS_BASE_Q, f"alias {alias.name!r} names {name!r}, which is not defined")
    if base.kind in {"QALIAS", "QMODEL"}:
        raise MQError(mq.MQRC_ALIAS_BASE_Q_TYPE_ERROR, f"alias {alias.name!r} names {name!r}, which is a {base.kind}")
    return _end(core, base, (alias,))


def _end(core: Core, definition: Definition, chain: tuple[Definition, ...]) -> Target:
    chain = (*chain, definition)
    if definition.kind == "QLOCAL":
        return Target(chain, core.queues[definition.name])
    if definition.kind == "QMODEL":
        return Target(chain)
    name, other = definition.text("RNAME"), definition.text("RQMNAME")
    if not name:
        raise MQError(mq.MQRC_REMOTE_Q_NAME_ERROR, f"{definition.name!r} is a queue manager alias, not a queue")
    if other in {"", core.name}:  # whatever its XMITQ
        text = f"{definition.name!r} leads to this queue manager: DEFINE QALIAS('{definition.name}') TARGET('{name}')"
        raise MQError(mq.MQRC_UNKNOWN_REMOTE_Q_MGR, f"{text} does that")
    return _remote(core, name, other, definition.text("XMITQ"), chain)


def _remote(core: Core, name: str, queue_manager: str, explicit: str, chain: tuple[Definition, ...]) -> Target:
    queue = _transmission_queue(core, queue_manager, explicit)
    return Target((*chain, queue.definition), queue, "", name, queue_manager)


def _transmission_queue(core: Core, queue_manager: str, explicit: str) -> LocalQueue:
    if explicit:
        return _checked_transmission(
            core, explicit, mq.MQRC_UNKNOWN_XMIT_Q, mq.MQRC_XMIT_Q_TYPE_ERROR, mq.MQRC_XMIT_Q_USAGE_ERROR
        )
    if core.catalogue.get("QUEUE", queue_manager) is not None:
        return _checked_transmission(core, queue_manager, 0, mq.MQRC_XMIT_Q_TYPE_ERROR, mq.MQRC_XMIT_Q_USAGE_ERROR)
    default = core.catalogue.queue_manager.text("DEFXMITQ")
    if not default:
        text = f"no transmission queue {queue_manager!r}, and the queue manager has no DEFXMITQ"
        raise MQError(mq.MQRC_UNKNOWN_REMOTE_Q_MGR, text)
    return _checked_transmission(
        core, default, mq.MQRC_UNKNOWN_DEF_XMIT_Q, mq.MQRC_DEF_XMIT_Q_TYPE_ERROR, mq.MQRC_DEF_XMIT_Q_USAGE_ERROR
    )


def _checked_transmission(core: Core, name: str, unknown: int, wrong_type: int, wrong_usage: int) -> LocalQueue:
    definition = core.catalogue.get("QUEUE", name)
    if definition is None:
        raise MQError(unknown, f"transmission queue {name!r} is not defined: DEFINE QLOCAL('{name}') USAGE(XMITQ)")
    if definition.kind != "QLOCAL":
        raise MQError(wrong_type, f"transmission queue {name!r} is a {definition.kind}, not a local queue")
    if definition.number("USAGE") != mq.MQUS_TRANSMISSION:
        raise MQError(wrong_usage, f"{name!r} is not a transmission queue: ALTER QLOCAL('{name}') USAGE(XMITQ)")
    return core.queues[name]


def reply_to(core: Core, queue: str, queue_manager: str) -> tuple[str, str]:
    """Returns ReplyToQ and ReplyToQMgr as they are put: a reply-to alias replaces both; otherwise ReplyToQMgr is filled
    in."""
    if not queue or queue_manager:
        return queue, queue_manager
    definition = core.catalogue.get("QUEUE", queue)
    if definition is not None and definition.kind == "QREMOTE":
        return definition.text("RNAME"), definition.text("RQMNAME") or core.name
    return queue, core.name


_RESOLVING = ("TARGET", "TARGTYPE", "RNAME", "RQMNAME", "XMITQ")


def refreshed(core: Core, target: Target) -> Target:
    """Returns the target with the current definitions. Raises 2041 if the names now resolve differently than when it
    was opened."""
    version = core.catalogue.version
    if target.version == version:
        return target
    get = core.catalogue.get
    now = [get(old.kind, old.name) for old in target.chain]
    if all(new is old for new, old in zip(now, target.chain, strict=True)):
        target.version = version
        return target
    for new, old in zip(now, target.chain, strict=True):
        if new is None or any(new.attributes.get(word) != old.attributes.get(word) for word in _RESOLVING):
            raise MQError(mq.MQRC_OBJECT_CHANGED, f"{old.name!r} has changed since it was opened: open it again")
    return replace(target, chain=tuple(new for new in now if new is not None), version=version)
