"""Queues: list, show, browse with every header decoded, put, remove, clear."""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from gateway.bridge.message import read_message
from gateway.errors import HeaderError, MQError, Refused
from gateway.mq import chain, mqmd, rfh2
from gateway.mq.rfh2_folder import folder
from gateway.net.api import OPERATOR, READ_ONLY, Call, Endpoint, Problem, endpoint
from gateway.ports.batch import Puts, Unit
from gateway.ports.inspection import Inspects, QueueRow, Seen
from gateway.ports.state_queues import DEFAULT, PREFIX
from gateway.queue_manager.inspection import correl_id_of, hex_of

PREVIEW = 80
_SYSTEM = "SYSTEM."
_NOT_FOUND = frozenset({2085, 2033, 2052})
_STATUS = dict.fromkeys(_NOT_FOUND, 404) | {2192: 503, 2102: 503, 2059: 503, 2162: 503}


def problem_of(error: MQError) -> Problem:
    """An MQ reason as an answer of the API."""
    status = _STATUS.get(error.reason, 409)
    return Problem(status, "The queue manager refuses", str(error), reason=error.reason)


RulesNow = Callable[[], Callable[[str], list[str]]]


def _no_rules(_queue: str) -> list[str]:
    return []


def queue_endpoints(inspection: Inspects | None, rules: RulesNow = lambda: _no_rules) -> list[Endpoint]:
    """The endpoints of this module. `rules`: asked at each request which rules name a queue."""
    views = QueueViews(inspection, rules)
    return [
        endpoint("GET", "/queues", READ_ONLY, views.listing),
        endpoint("GET", "/queues/{queue}", READ_ONLY, views.show),
        endpoint("GET", "/queues/{queue}/messages", READ_ONLY, views.browse),
        endpoint("POST", "/queues/{queue}/messages", OPERATOR, views.put),
        endpoint("DELETE", "/queues/{queue}/messages", OPERATOR, views.clear),
        endpoint("GET", "/queues/{queue}/messages/{token}", READ_ONLY, views.message),
        endpoint("DELETE", "/queues/{queue}/messages/{token}", OPERATOR, views.remove),
    ]


class QueueViews:
    """What the API says of queues, over an inspection of the queue manager."""

    def __init__(self, inspection: Inspects | None, rules: RulesNow = lambda: _no_rules) -> None:
        self._inspection = inspection
        self._rules = rules

    @property
    def inspection(self) -> Inspects:
        """The view of the queue manager. Problem: there is none."""
        if self._inspection is None:
            raise Problem(503, "Not offered", "queues of an IBM MQ queue manager are shown by its own tools")
        return self._inspection

    def _token(self, text: str) -> Any:
        try:
            if re.fullmatch("[0-9A-Fa-f]{1,48}", text):
                return self.inspection.token(text)
        except ValueError:
            pass
        raise Problem(404, "Not found", "tokens come from a listing")

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /queues."""
        wanted = call.query.get("search", "").lower()
        everything = call.query.get("all", "") in {"true", "1"}
        after, limit = call.query.get("after", ""), call.number("limit", 50, 500)
        rows = [
            row
            for row in self.inspection.queues()
            if wanted in row.name.lower() and (everything or role_of(row) not in {"state", "system"})
        ]
        page = [row for row in rows if row.name > after][:limit]
        following = page[-1].name if page and page[-1] is not rows[-1] else None
        rules_of = self._rules()
        items = [shown(row, rules_of(row.name)) for row in page]
        return 200, {"items": items, "total": len(rows), "next": following}

    def show(self, call: Call) -> tuple[int, object]:
        """GET /queues/{queue}."""
        row = self._row(call)
        return 200, {**shown(row, self._rules()(row.name)), "attributes": row.attributes}

    def _row(self, call: Call) -> QueueRow:
        try:
            return self.inspection.queue(call.path["queue"])
        except MQError as error:
            raise problem_of(error) from error

    def browse(self, call: Call) -> tuple[int, object]:
        """GET /queues/{queue}/messages."""
        limit, row = call.number("limit", 50, 500), self._row(call)
        after = call.query.get("after")
        try:
            page = self.inspection.browse(row.name, limit, self._token(after) if after else None)
        except MQError as error:
            raise problem_of(error) from error
        following = str(page[-1].token) if len(page) == limit else None
        return 200, {"items": [summary(seen) for seen in page], "total": row.depth, "next": following}

    def message(self, call: Call) -> tuple[int, object]:
        """GET /queues/{queue}/messages/{token}."""
        try:
            return 200, decoded(self.inspection.message(call.path["queue"], self._token(call.path["token"])))
        except MQError as error:
            raise problem_of(error) from error

    def put(self, call: Call) -> tuple[int, object]:
        """POST /queues/{queue}/messages."""
        head, body, persistent, priority = new_message(call.body)
        puts = Puts(call.path["queue"], priority=priority, persistent=persistent, heads=[head], bodies=[body])
        outcome = self.inspection.commit(Unit([puts]))
        if outcome.failures:
            failure = outcome.failures[0]
            raise problem_of(MQError(failure.reason, failure.text))
        msg_id = self.inspection.msg_id_of(puts.tokens[0], head)
        return 201, {"msg_id": msg_id, "queue": call.path["queue"]}

    def remove(self, call: Call) -> tuple[int, object]:
        """DELETE /queues/{queue}/messages/{token}."""
        try:
            if not self.inspection.remove(call.path["queue"], [self._token(call.path["token"])]):
                raise Problem(409, "Not removed", "somebody has the message in a unit of work, or it is gone")
        except MQError as error:
            raise problem_of(error) from error
        return 204, None

    def clear(self, call: Call) -> tuple[int, object]:
        """DELETE /queues/{queue}/messages?confirm=QUEUE."""
        name = call.path["queue"]
        if call.query.get("confirm") != name:
            raise Problem(400, "Not confirmed", "repeat the queue's name in `confirm`")
        if name.startswith(PREFIX) and name != DEFAULT:
            raise Problem(409, "Not allowed", "this queue holds the gateway's own state; purge clients instead")
        try:
            return 200, {"removed": self.inspection.clear(name)}
        except MQError as error:
            raise problem_of(error) from error


def role_of(row: QueueRow) -> str:
    """What a queue is for."""
    if row.attributes.get("USAGE") == "XMITQ":
        return "transmission"
    if "DEAD.LETTER" in row.name:
        return "dead_letter"
    if row.name.startswith(PREFIX) and row.name != DEFAULT:
        return "state"
    return "system" if row.name.startswith(_SYSTEM) else "application"


def shown(row: QueueRow, rules: list[str]) -> dict[str, object]:
    """A queue as the API shows it."""
    attributes = row.attributes
    return {
        "name": row.name,
        "type": row.kind,
        "role": role_of(row),
        "depth": row.depth,
        "max_depth": row.max_depth,
        "oldest_seconds": None if row.oldest is None else round(max(0.0, time.time() - row.oldest), 1),
        "open_input": int(attributes["IPPROCS"]) if "IPPROCS" in attributes else None,
        "open_output": int(attributes["OPPROCS"]) if "OPPROCS" in attributes else None,
        "put_allowed": attributes.get("PUT", "ENABLED") == "ENABLED",
        "get_allowed": attributes.get("GET", "ENABLED") == "ENABLED",
        "target": attributes.get("TARGET") or attributes.get("RNAME") or None,
        "description": attributes.get("DESCR", ""),
        "rules": rules,
    }


def put_time_of(md: bytes) -> str:
    """PutDate and PutTime as ISO 8601."""
    date, moment = mqmd.text(md, mqmd.PUT_DATE), mqmd.text(md, mqmd.PUT_TIME)
    if len(date) != 8 or len(moment) < 6:
        return ""
    return f"{date[:4]}-{date[4:6]}-{date[6:]}T{moment[:2]}:{moment[2:4]}:{moment[4:6]}.{moment[6:8] or '00'}Z"


def summary(seen: Seen) -> dict[str, object]:
    """A message as a row of a table."""
    walked, _ = chain.walk_far(seen.md, seen.data)
    payload = walked.payload
    return {
        "token": str(seen.token),
        "msg_id": hex_of(seen.md, mqmd.MSG_ID),
        "correl_id": correl_id_of(seen.md),
        "put_time": put_time_of(seen.md),
        "format": mqmd.text(seen.md, mqmd.FORMAT),
        "body_format": walked.body.format.decode("ascii", "replace").strip(),
        "length": len(seen.data),
        "persistent": mqmd.number(seen.md, mqmd.AT_PERSISTENCE) == 1,
        "priority": mqmd.number(seen.md, mqmd.AT_PRIORITY),
        "expiry_seconds": round(seen.expiry - time.time(), 1) if seen.expiry else None,
        "backout_count": seen.backout,
        "put_application": mqmd.text(seen.md, mqmd.PUT_APPL_NAME),
        "user": mqmd.text(seen.md, mqmd.USER_IDENTIFIER),
        "preview": payload[:PREVIEW].decode("utf-8", "replace"),
    }


def decoded(seen: Seen) -> dict[str, object]:
    """A message with everything decoded; malformed parts are reported, not hidden."""
    words = chain.describe(seen.md, seen.data)
    walked, error = chain.walk_far(seen.md, seen.data)
    payload = walked.payload
    try:
        text: str | None = payload.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and not all(character.isprintable() or character in "\r\n\t" for character in text[:2000]):
        text = None
    properties: dict[str, object] = {}
    try:
        message = read_message(seen.md, seen.data)
        properties = {f"{name}.{key}": value for name, one in message.folders.items() for key, value in one.pairs}
    except Refused:
        pass
    headers: Any = words.get("headers", [])
    return {
        "token": str(seen.token),
        "descriptor": words.get("descriptor", {}),
        "headers": [
            {
                "structure": one.get("header"),
                "offset": one.get("offset"),
                "length": one.get("length"),
                "fields": {key: value for key, value in one.items() if key not in {"header", "offset", "length"}},
            }
            for one in headers
        ],
        "properties": {key: _plain(value) for key, value in properties.items()},
        "body": {
            "length": len(payload),
            "truncated": len(payload) > 65_536,
            "text": text[:65_536] if text is not None else None,
            "base64": None if text is not None else base64.b64encode(payload[:65_536]).decode(),
            "ccsid": walked.body.ccsid,
        },
        "error": str(error) if error is not None else None,
    }


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def new_message(given: dict[str, Any]) -> tuple[bytes, bytes, bool, int]:
    """(head, body, persistent, priority) of a message that an operator puts."""
    try:
        body = (
            base64.b64decode(given["base64"], validate=True)
            if "base64" in given
            else str(given.get("text", "")).encode()
        )
        correl_id = bytes.fromhex(given.get("correl_id", ""))
    except (binascii.Error, ValueError, TypeError) as error:
        raise Problem(400, "Bad request", f"base64 or correl_id: {error}") from error
    persistent, priority = bool(given.get("persistent", True)), int(given.get("priority", 0))
    if not 0 <= priority <= 9 or len(correl_id) > 24:
        raise Problem(400, "Bad request", "priority is 0 to 9, correl_id has at most 48 hexadecimal digits")
    form = str(given.get("format", "" if "base64" in given else "MQSTR"))
    ccsid = int(given.get("ccsid", 1208))
    expiry = given.get("expiry_seconds")
    properties = given.get("properties") or {}
    front = b""
    outer = form
    if properties:
        try:
            usr = folder("usr", list(properties.items()))
        except HeaderError as error:
            raise Problem(400, "Bad request", f"properties: {error}") from error
        front = rfh2.build([usr], coded_char_set_id=ccsid, format_name=form.encode().ljust(8))
        outer = "MQHRF2"
    now = datetime.now(UTC)
    md = mqmd.build(
        format=outer, persistence=1 if persistent else 0, priority=priority, coded_char_set_id=ccsid,
        correl_id=correl_id.ljust(24, b"\0"), expiry=-1 if expiry is None else max(1, int(float(expiry) * 10)),
        reply_to_q=str(given.get("reply_to", "")), put_appl_name="mqgate admin", put_appl_type=6,
        put_date=now.strftime("%Y%m%d"), put_time=now.strftime("%H%M%S00"),
    )  # fmt: skip
    return md + front, body, persistent, priority
