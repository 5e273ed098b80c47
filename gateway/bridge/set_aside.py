"""Set-aside messages: what ran into a defect of the gateway, as a whole, behind an MQRFH2 that says what it is and why;
and how to undo that.

Identifiers, priority and context stay those of the message, as in a dead letter. The properties are in a folder of
their own, `set_aside`, so that they do not mix with those of the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gateway.errors import HeaderError
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import Scalar, folder, parse_folder

FOLDER = "set_aside"
LONGEST_TEXT = 4000
"""The longest text of a property, such as a traceback; of a longer one the end is kept."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Said = Mapping[str, str | int | bytes]
"""The properties: `what`, `whom`, `reason`, `traceback`, `queue`, `key` and more, depending on the kind."""


class Message(NamedTuple):
    """A set-aside message, to be put."""

    head: bytes
    body: bytes


class Undone(NamedTuple):
    """What a set-aside message stands for."""

    said: dict[str, Scalar]
    md: bytes
    data: bytes


def build(md: bytes, data: bytes, said: Said) -> Message:
    """The message `md + data` behind a header that says these things about it."""
    values = {name: plain_text(value) if isinstance(value, str) else value for name, value in said.items()}
    header = rfh2.build(
        [folder(FOLDER, values, content_properties=True)],
        encoding=mqmd.number(md, mqmd.AT_ENCODING),
        coded_char_set_id=mqmd.number(md, mqmd.AT_CCSID),
        format_name=md[mqmd.FORMAT],
    )
    md = mqmd.with_described(md, 546, 1208, rfh2.FORMAT)
    md = mqmd.with_persistence(mqmd.with_expiry(md, -1), 1)  # it must not go unseen
    return Message(md + header, data)


def strip(md: bytes, data: bytes) -> Undone:
    """What a set-aside message stands for. Raises HeaderError if the message is not one."""
    if md[mqmd.FORMAT] != rfh2.FORMAT:
        raise HeaderError("MQRFH2", "StrucId", 0, "not a set-aside message: it does not begin with an MQRFH2")
    header = rfh2.parse(data)
    for raw in header.folders:
        root = parse_folder(raw.decode("utf-8", "replace").rstrip(" \0"))
        if root.name == FOLDER:
            said = {child.name: child.value for child in root.children}
            restored = mqmd.with_described(md, header.encoding, header.coded_char_set_id, header.format)
            return Undone(said, restored, data[header.length :])
    raise HeaderError("MQRFH2", "NameValueData", 36, f"not a set-aside message: it has no folder {FOLDER}")


def plain_text(text: str) -> str:
    """Text that every reader accepts: without halves of surrogate pairs and control characters, and not too long."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return _CONTROL.sub("?", text)[-LONGEST_TEXT:]
