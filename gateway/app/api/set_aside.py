"""Messages set aside on MQGATE.SET.ASIDE, as `dlq` shows them, and how each kind is replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gateway.bridge import set_aside
from gateway.broker.publish.retained import Retained
from gateway.broker.sessions.wills import REPLAYED
from gateway.errors import HeaderError, MQError
from gateway.mq import mqmd
from gateway.ports.batch import Puts, Takes, Unit
from gateway.ports.inspection import Seen
from gateway.ports.state_queues import FAN_OUT, KEYED, PREFIX, RETAINED, SESSIONS, SET_ASIDE, WILLS
from gateway.session.record import decode_json, decode_publication, encode_json, key_of
from gateway.session.registry import Registry

NOTHING_TO_REPLAY, TAKEN, NO_STATE = 2141, 2042, 2068  # MQRC_DLH_ERROR, MQRC_OBJECT_IN_USE, MQRC_SELECTOR_NOT_FOR_TYPE


class Replays(NamedTuple):
    """What replaying needs from the running gateway; a command without one leaves it to the next start."""

    refusal: Callable[[str, bytes, bytes], str]
    """Returns why a record must not go back to a state queue under a key; empty if it may."""
    publish: Callable[[bytes, dict[str, Any]], None]
    """Called when a will has been put on its state queue, under this key, to publish it now."""


OFFLINE = Replays(
    lambda queue, _key, _data: (
        "" if queue in {WILLS, FAN_OUT} or queue not in KEYED else "replay it while the gateway runs"
    ),
    lambda _key, _record: None,
)


def undone(seen: Seen) -> set_aside.Undone:
    """Returns what a message stands for; nothing is known about one that somebody else has put there."""
    try:
        return set_aside.strip(seen.md, seen.data)
    except HeaderError:
        return set_aside.Undone({}, seen.md, seen.data)


def reason_of(said: dict[str, Any]) -> str:
    """Returns what it is and why it is there, in one line."""
    return f"{said.get('what', 'unknown')}: {said.get('reason', 'no set-aside message')}".splitlines()[0]


def destination_of(said: dict[str, Any]) -> str:
    """Returns the queue that it was on, or the topic to which it was published."""
    return str(said.get("topic") or said.get("queue") or "")


def shown(seen: Seen) -> dict[str, Any]:
    """Returns what a listing shows for such a message in addition to what it shows for any."""
    said = undone(seen).said
    client = said.get("client") or (said.get("whom") if said.get("what") == "will" else None)
    return {
        "reason": 0, "reason_name": reason_of(said), "destination": destination_of(said), "destination_manager": "",
        "topic": said.get("topic"), "client_id": client,
    }  # fmt: skip


class Replay(NamedTuple):
    """How one message goes back."""

    unit: Unit
    will: tuple[bytes, dict[str, Any]] | None = None
    """Key and record of a will, which is published when the unit of work is committed."""


def replay(seen: Seen, to: str, refusal: Callable[[str, bytes, bytes], str]) -> Replay:
    """Returns the unit of work that puts a message back and takes it from the queue. Raises MQError if it cannot go
    back."""
    if seen.locked:
        raise MQError(TAKEN, "somebody has it in a unit of work")
    said, md, data = undone(seen)
    values: dict[str, Any] = dict(said)
    takes = [Takes(SET_ASIDE, b"", [seen.token])]
    queue, key = str(values.get("queue") or ""), values.get("key")
    if to or (queue and not isinstance(key, bytes) and "topic" not in values):
        return Replay(Unit([_puts(to or queue, b"", md, data)], takes))
    if "topic" in values or queue == WILLS:
        record = (_will(values, data) if "topic" in values else decode_json(data)) | {REPLAYED: True}
        queue, key, data = WILLS, key_of(f"replayed {seen.token}"), encode_json(record)
    elif not isinstance(key, bytes) or not queue.startswith(PREFIX):
        raise MQError(NOTHING_TO_REPLAY, "it only reports a defect: there is nothing to replay; purge it")
    else:
        record = {}
    why = refusal(queue, key, data)
    if why:
        raise MQError(NO_STATE, why)
    puts = _puts(queue, key, mqmd.with_correl_id(md, key), data)
    return Replay(Unit([puts], takes), (key, record) if queue == WILLS else None)


def has_session(sessions: Registry, key: bytes, data: bytes) -> bool:
    """Whether there is a session with this key. Its record says whose it is; if not, all sessions are searched."""
    client = _whose(SESSIONS, data)
    if key_of(client) == key:
        return sessions.get(client) is not None
    return any(session.key == key for session in sessions)  # perhaps in another thread


def is_retained(retained: Retained, key: bytes, data: bytes) -> bool:
    """Whether there is a retained message of this record's topic."""
    topic = _whose(RETAINED, data)
    if key_of(topic) == key:
        return retained.find(topic) is not None
    return any(key_of(one.topic) == key for one in list(retained))


def _whose(queue: str, data: bytes) -> str:
    """Returns the client or topic of a record; empty if it does not say."""
    try:
        return str(decode_json(data)["client"]) if queue == SESSIONS else decode_publication(data)[0].topic.decode()
    except Exception:  # noqa: BLE001 -- a record may have been set aside because nobody can read it
        return ""


def _puts(queue: str, key: bytes, md: bytes, data: bytes) -> Puts:
    persistent = mqmd.number(md, mqmd.AT_PERSISTENCE) == 1
    return Puts(queue, "", key, max(0, mqmd.number(md, mqmd.AT_PRIORITY)), persistent, [md], [data])


def _will(said: dict[str, Any], payload: bytes) -> dict[str, Any]:
    """Returns a publication as a will that is due at once, which is published whatever happens meanwhile."""
    block = said.get("properties") or b""
    return {
        "client": said["client"], "topic": said["topic"], "payload": payload.hex(), "qos": said["qos"],
        "retain": bool(said["retain"]), "properties": block.hex() if isinstance(block, bytes) else "", "delay": 0,
        "version": said["version"], "user": said["user"] or None, "listener": said["listener"],
    }  # fmt: skip
