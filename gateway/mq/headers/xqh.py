"""MQXQH, the header of messages on a transmission queue: their destination, and the descriptor they had."""

from __future__ import annotations

from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import layout, mqmd
from gateway.mq.headers import mde

LENGTH = 428
FORMAT = b"MQXMIT  "
REMOTE_Q_NAME, REMOTE_Q_MGR_NAME, MSG_DESC = slice(8, 56), slice(56, 104), slice(104, 428)

_CODEC = {order: layout.codec("MQXQH", 1, order) for order in "<>"}


class Xqh(NamedTuple):
    """One parsed header. `md` is the embedded descriptor as it lies there: 324 bytes in the header's byte order."""

    remote_q_name: str
    remote_q_mgr_name: str
    md: bytes


def build(remote_q_name: str, remote_q_mgr_name: str, md: bytes, *, ccsid: int = 1208) -> bytes:
    """Returns the header for the message that `md` describes, followed by an MQMDE if version 1 cannot say everything.

    The embedded descriptor then describes the MQMDE, which is native and in the queue manager's `ccsid`.
    """
    names = _name("RemoteQName", 8, remote_q_name), _name("RemoteQMgrName", 56, remote_q_mgr_name)
    embedded = mqmd.version_1(md)
    if not mde.is_needed(md):
        return _CODEC["<"].pack(b"XQH ", 1, *names, embedded)
    return _CODEC["<"].pack(b"XQH ", 1, *names, mqmd.with_described(embedded, 546, ccsid, mde.FORMAT)) + mde.build(md)


def _name(field: str, at: int, name: str) -> bytes:
    raw = name.encode()
    if len(raw) > 48:
        raise HeaderError("MQXQH", field, at, f"{name!r} is longer than 48 bytes: shorten it")
    return raw.ljust(48)


def parse(data: bytes, at: int = 0, *, order: str = "<", codec: str = "utf-8") -> Xqh:
    """Read the header at `at`."""
    if len(data) - at < LENGTH:
        raise HeaderError("MQXQH", "MsgDesc", at, f"the data ends after {len(data) - at} bytes of 428")
    _, _, queue, manager, md = _CODEC[order].unpack_from(data, at)
    return Xqh(_text(queue, codec), _text(manager, codec), md)


def _text(raw: bytes, codec: str) -> str:
    return raw.decode(codec, "surrogateescape").partition("\0")[0].rstrip(" ")
