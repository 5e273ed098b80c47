"""Open handles of programs as rows, for DISPLAY QSTATUS TYPE(HANDLE), DISPLAY CONN TYPE(HANDLE) and their PCF
counterparts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from gateway.mq import constants as mq
from gateway.queue_manager.commands.display_rows import Row
from gateway.queue_manager.objects.local_queue import INPUT, LocalQueue
from gateway.queue_manager.objects.topic_names import topic_of
from gateway.queue_manager.verbs.connection_state import Connections, ConnectionState, Handle

OPEN_OPTIONS = {
    "MQOO_INPUT_AS_Q_DEF": mq.MQOO_INPUT_AS_Q_DEF, "MQOO_INPUT_SHARED": mq.MQOO_INPUT_SHARED,
    "MQOO_INPUT_EXCLUSIVE": mq.MQOO_INPUT_EXCLUSIVE, "MQOO_BROWSE": mq.MQOO_BROWSE, "MQOO_OUTPUT": mq.MQOO_OUTPUT,
    "MQOO_INQUIRE": mq.MQOO_INQUIRE, "MQOO_SET": mq.MQOO_SET,
    "MQOO_SAVE_ALL_CONTEXT": mq.MQOO_SAVE_ALL_CONTEXT, "MQOO_PASS_IDENTITY_CONTEXT": mq.MQOO_PASS_IDENTITY_CONTEXT,
    "MQOO_PASS_ALL_CONTEXT": mq.MQOO_PASS_ALL_CONTEXT, "MQOO_SET_IDENTITY_CONTEXT": mq.MQOO_SET_IDENTITY_CONTEXT,
    "MQOO_SET_ALL_CONTEXT": mq.MQOO_SET_ALL_CONTEXT,
    "MQOO_ALTERNATE_USER_AUTHORITY": mq.MQOO_ALTERNATE_USER_AUTHORITY,
    "MQOO_FAIL_IF_QUIESCING": mq.MQOO_FAIL_IF_QUIESCING,
}  # fmt: skip
OBJECT_WORDS = {mq.MQOT_Q: "QUEUE", mq.MQOT_TOPIC: "TOPIC", mq.MQOT_Q_MGR: "QMGR", mq.MQOT_NAMELIST: "NAMELIST"}


def handles_of(connections: Connections, queue: str) -> Iterator[tuple[ConnectionState, Handle]]:
    """Yields the handles of a local queue, each with its connection."""
    for connection in connections:
        for handle in connection.handles.values():
            local = local_queue(handle)
            if local is not None and local.name == queue and not local.deleted:
                yield connection, handle


def local_queue(handle: Handle) -> LocalQueue | None:
    """Returns the local queue that a handle gets from or puts to, if any."""
    return handle.queue or (handle.target.queue if handle.target is not None else None)


def queue_handle(connection: ConnectionState, handle: Handle) -> Row:
    """Returns a row of DISPLAY QSTATUS TYPE(HANDLE)."""
    local = local_queue(handle)
    gets = handle.options & INPUT
    shared = "EXCL" if local is not None and local.exclusive else "SHARED"
    return {
        "QUEUE": "" if local is None else local.name, "TYPE": "HANDLE", "APPLTAG": connection.application,
        "APPLTYPE": "USER", "BROWSE": _yes(handle, mq.MQOO_BROWSE), "CHANNEL": connection.channel,
        "CONNAME": connection.connection_name, "HSTATE": state_of(connection, handle),
        "INPUT": shared if gets else "NO", "INQUIRE": _yes(handle, mq.MQOO_INQUIRE),
        "OUTPUT": _yes(handle, mq.MQOO_OUTPUT), "PID": str(connection.process),
        "SET": _yes(handle, mq.MQOO_SET), "USERID": connection.user,
    }  # fmt: skip


def connection_row(connection: ConnectionState) -> Row:
    """Returns a row of DISPLAY CONN TYPE(CONN)."""
    since = datetime.fromtimestamp(connection.since, UTC)
    return {
        **_title(connection, "CONN"), "PID": str(connection.process), "APPLTAG": connection.application,
        "APPLTYPE": "USER", "USERID": connection.user,
        "CHANNEL": connection.channel, "CONNAME": connection.connection_name, "URTYPE": "QMGR",
        "UOWSTATE": "ACTIVE" if connection.work.open else "NONE", "UOWMSGS": str(connection.work.messages),
        "CONNDATE": f"{since:%Y-%m-%d}", "CONNTIME": f"{since:%H.%M.%S}",
    }  # fmt: skip


def _title(connection: ConnectionState, kind: str) -> Row:
    identifier = connection.connection_id.hex().upper()
    return {"CONN": identifier[-16:], "EXTCONN": identifier[:32], "TYPE": kind}


def open_objects(connection: ConnectionState) -> Iterator[Row]:
    """Yields the rows of DISPLAY CONN TYPE(HANDLE)."""
    for handle in connection.handles.values():
        local = local_queue(handle)
        name = handle.definition.name if handle.definition is not None else "" if local is None else local.name
        kind = "SUB" if handle.subscription else OBJECT_WORDS.get(handle.object_type, "QUEUE")
        row = {
            **_title(connection, "HANDLE"), "OBJNAME": handle.subscription or name, "OBJTYPE": kind,
            "OPENOPTS": ",".join(word for word, option in OPEN_OPTIONS.items() if handle.options & option),
            "HSTATE": state_of(connection, handle), "ASTATE": "NONE", "READA": "NO", "USERID": connection.user,
            "CHANNEL": connection.channel, "CONNAME": connection.connection_name,
        }  # fmt: skip
        subscription = connection.core.catalogue.get("SUB", handle.subscription) if handle.subscription else None
        if subscription is not None:
            row |= {
                "SUBNAME": subscription.name, "SUBID": str(subscription.extra.get("SUBID", "")),
                "TOPICSTR": topic_of(connection.core.catalogue, subscription), "DEST": subscription.text("DEST"),
                "DESTQMGR": subscription.text("DESTQMGR") or connection.core.name,
            }  # fmt: skip
        elif handle.topic:
            row["TOPICSTR"] = handle.topic
        yield row


def state_of(connection: ConnectionState, handle: Handle) -> str:
    """Returns HSTATE: ACTIVE while a get waits on the handle."""
    return "ACTIVE" if any(get.handle is handle for get in connection.waiting) else "INACTIVE"


def _yes(handle: Handle, option: int) -> str:
    return "YES" if handle.options & option else "NO"
