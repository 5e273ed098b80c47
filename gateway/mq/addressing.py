"""Names a queue manager rewrites on the way: queue-manager aliases and reply-to aliases.

The second and third of the five modifications. Both are remote queue definitions (QREMOTE): one with an empty RNAME
stands for a queue manager, one whose name is asked for as a reply queue stands for another reply queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import mqmd, xqh
from gateway.mq.chain import first
from gateway.mq.header import Header

MAX_HOPS = 16
"""Aliases of aliases are followed this far; a longer way is a circle."""


class Remote(NamedTuple):
    """A QREMOTE definition: RNAME, RQMNAME, XMITQ."""

    rname: str
    rqmname: str
    xmitq: str = ""


class Route(NamedTuple):
    """Where a message goes: queue, queue manager, and the transmission queue a definition names (or nothing)."""

    queue: str
    queue_manager: str
    xmitq: str = ""


def resolved(queue: str, queue_manager: str, definitions: Mapping[str, Remote]) -> Route:
    """The names after queue-manager aliases: RQMNAME replaces the queue manager, the queue stays (RNAME is empty)."""
    xmitq = ""
    for _ in range(MAX_HOPS):
        found = definitions.get(queue_manager)
        if found is None or found.rname or found.rqmname == queue_manager:
            break
        queue_manager, xmitq = found.rqmname, found.xmitq
    return Route(queue, queue_manager, xmitq)


def through_alias(md: bytes, data: bytes, definitions: Mapping[str, Remote]) -> tuple[bytes, Route]:
    """The data of a message on a transmission queue, its MQXQH addressed anew, and where it goes now."""
    header = first(md, data)
    if header is None or header.name != "MQXQH":
        raise HeaderError("MQXQH", "StrucId", 0, f"the message is not from a transmission queue: {md[mqmd.FORMAT]!r}")
    route = resolved(header.text("RemoteQName"), header.text("RemoteQMgrName"), definitions)
    return _readdressed(header, data, route), route


def _readdressed(header: Header, data: bytes, route: Route) -> bytes:
    blank = " ".encode(header.codec)
    queue = route.queue.encode(header.codec).ljust(48, blank)
    manager = route.queue_manager.encode(header.codec).ljust(48, blank)
    return data[: xqh.REMOTE_Q_NAME.start] + queue + manager + data[xqh.REMOTE_Q_MGR_NAME.stop :]


def with_reply_address(md: bytes, own_name: str, definitions: Mapping[str, Remote]) -> bytes:
    """The descriptor as MQPUT leaves it: ReplyToQMgr filled in, or both names from a reply-to alias.

    Nothing changes without ReplyToQ, or when the program named the queue manager itself.
    """
    queue = mqmd.text(md, mqmd.REPLY_TO_Q)
    if not queue or mqmd.text(md, mqmd.REPLY_TO_Q_MGR):
        return md
    alias = definitions.get(queue)
    if alias is None:
        return mqmd.with_reply_to(md, queue, own_name)
    return mqmd.with_reply_to(md, alias.rname or queue, alias.rqmname or own_name)
