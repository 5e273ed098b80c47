"""The audit trail: requests of people as records, without secrets and payloads. No I/O.

Records are on the queue MQGATE.AUDIT as JSON, each with an expiry, so that the queue manager itself keeps the trail
only for as long as is wanted.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from gateway.mq import mqmd
from gateway.ports.people import Caller

MOST_WAITING = 1000
"""How many records may wait for the queue manager; more are only counted."""
REFUSED_A_MINUTE = 60
"""How many refused requests become records in a minute, as anybody can send them."""
LONGEST_TEXT = 100
SECRET = {
    "password",
    "token",
    "code",
    "state",
    "form_token",
    "text",
    "base64",
    "payload",
    "properties",
    "note",
    "yaml",
    "mapping",
}
"""Arguments that are a secret or a payload: only their length is recorded."""
COUNTS = ("matched", "done", "failed", "removed")
_COMMAND = re.compile(
    r"^[ \t]{0,40}([A-Za-z]{1,30}[ \t]{1,20}[A-Za-z]{1,30}(?:[ \t]{0,20}\([^)\n]{0,60}\))?)", re.MULTILINE
)
"""Every part of the pattern is bounded, so that what follows a place is looked at only once."""
MOST_COMMANDS = 20
_LONGEST_EXPIRY = 999_999_999


def record(
    caller: Caller, address: str, action: str, place: Mapping[str, str], arguments: Mapping[str, Any], status: int,
    answer: object, now: float,
) -> dict[str, Any]:  # fmt: skip
    """The record of one request."""
    said = {key: _shown(key, value, action) for key, value in arguments.items()}
    found: dict[str, Any] = {
        "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "user": caller.user, "method": caller.method, "role": caller.role, "address": address,
        "action": action, "on": dict(place), "arguments": said, "status": status, "succeeded": status < 400,
    }  # fmt: skip
    if isinstance(answer, dict):
        counts = {key: answer[key] for key in COUNTS if isinstance(answer.get(key), int)}
        if counts:
            found["count"] = counts
        if status >= 400 and isinstance(answer.get("detail"), str):
            found["why"] = answer["detail"][:300]
    return found


def _shown(key: str, value: object, action: str) -> object:
    if action.endswith("/mqsc") and key == "text":
        commands = islice(_COMMAND.finditer(str(value)), MOST_COMMANDS + 1)
        heads = [" ".join(one[1].split()) for one in commands]
        return heads[:MOST_COMMANDS] + (["..."] if len(heads) > MOST_COMMANDS else [])
    if value is None or isinstance(value, bool | int | float):
        return value
    if key in SECRET:
        return f"({len(value)} characters)" if isinstance(value, str) else "(not kept)"
    if isinstance(value, str):
        return value if len(value) <= LONGEST_TEXT else value[:LONGEST_TEXT] + "..."
    return f"({len(value)})" if isinstance(value, list | dict) else "(not kept)"


def message_of(found: Mapping[str, Any], keep: float) -> tuple[bytes, bytes]:
    """(descriptor, body) of the message of a record that is kept for `keep` seconds."""
    body = json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")
    now = datetime.now(UTC)
    user = str(found["user"]).encode("ascii", "replace").decode()[:12]
    md = mqmd.build(
        format="MQSTR", persistence=1, coded_char_set_id=1208, put_appl_name="mqgate audit", put_appl_type=6,
        user_identifier=user, expiry=max(1, min(int(keep * 10), _LONGEST_EXPIRY)),
        put_date=now.strftime("%Y%m%d"), put_time=now.strftime("%H%M%S00"),
    )  # fmt: skip
    return md, body


class Waiting:
    """Records that wait to be put, with bounds on how many there are and how fast refused requests make new ones."""

    def __init__(self) -> None:
        self._records: deque[dict[str, Any]] = deque()
        self._refused_since, self._refused = 0.0, 0
        self.thinned = 0
        """How many became no record since the last one that did."""

    def __len__(self) -> int:
        return len(self._records)

    def add(self, found: dict[str, Any], now: float) -> None:
        """Add a record, or only count it if there is no room. `now` is of a clock that never jumps."""
        if (found["status"] in {401, 403, 421, 429} and not self._room_for_refused(now)) or len(
            self._records
        ) >= MOST_WAITING:
            self.thinned += 1
        else:
            self._records.append({**found, "thinned": self.thinned} if self.thinned else found)
            self.thinned = 0

    def take(self) -> list[dict[str, Any]]:
        """Remove and return all of them."""
        taken = list(self._records)
        self._records.clear()
        return taken

    def _room_for_refused(self, now: float) -> bool:
        if now - self._refused_since >= 60:
            self._refused_since, self._refused = now, 0
        self._refused += 1
        return self._refused <= REFUSED_A_MINUTE
