"""Queues: list, show, browse with every header decoded, put, remove, clear."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import re
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any

from gateway.app.api.pages_of_messages import Pages, Work
from gateway.errors import HeaderError, MQError, Refused
from gateway.mq import mqmd
from gateway.mq.constants.md import MQMT_DATAGRAM, MQMT_REQUEST
from gateway.mq.constants.mqrc import MQRC_OBJECT_DAMAGED
from gateway.mq.headers import chain, rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mq.reason_policy import Action, action_for
from gateway.net.calls import MAX_BODY, OPERATOR, VIEWER, Answered, Call, Endpoint, Later, Problem, endpoint
from gateway.ports.batch import Puts, Takes, Unit
from gateway.ports.inspection import Inspects, QueueRow, Seen, is_last
from gateway.ports.people import ADMINISTRATOR, allows
from gateway.ports.state_queues import AUDIT, COMMANDS, DEFAULT, PREFIX, USERS, holds_state
from gateway.queue_manager.inspection import correl_id_of, hex_of

PREVIEW = 80
LOOKED_AT = 500
"""The most messages that one request searches."""
MOVED_AT_ONCE = 100
SHOWN = 65_536
"""The most bytes of a body that are shown."""
WHOLE_BYTES = 4 << 20
"""A page of decoded messages ends with the one that brings it to this many bytes, because an answer is made in
memory."""
_SYSTEM = "SYSTEM."
_NOT_FOUND = frozenset({2085, 2033, 2052})
_STATUS = dict.fromkeys(_NOT_FOUND, 404) | {2192: 503, 2102: 503}


def problem_of(error: MQError) -> Problem:
    """Returns an MQ reason as an answer of the API."""
    away = action_for(error.reason) is Action.RECONNECT
    status = _STATUS.get(error.reason, 503 if away else 409)
    return Problem(status, "The queue manager refuses", str(error), reason=error.reason)


RulesNow = Callable[[], Callable[[str], list[str]]]


def _no_rules(_queue: str) -> list[str]:
    return []


RatesOf = Callable[[str], tuple[float, float] | None]
"""Returns the messages per second put to a queue and got from it."""
InSlices = Callable[[str, Callable[[], Iterator[None]]], None]
"""Has named work done a little at a time, so that devices are served in between."""


def queue_endpoints(
    inspection: Inspects | None,
    rules: RulesNow = lambda: _no_rules,
    rates: RatesOf = lambda _queue: None,
    in_slices: InSlices | None = None,
) -> list[Endpoint]:
    """Returns the endpoints of this module. `rules` is asked at each request which rules name a queue. `in_slices` is
    set where the same thread serves devices."""
    views = QueueViews(inspection, rules, rates, in_slices)
    return [
        endpoint("GET", "/queues", VIEWER, views.listing),
        endpoint("GET", "/queues/{queue}", VIEWER, views.show),
        endpoint("GET", "/queues/{queue}/messages", VIEWER, views.browse),
        endpoint("POST", "/queues/{queue}/messages", OPERATOR, views.put, most=MAX_BODY),
        endpoint("DELETE", "/queues/{queue}/messages", OPERATOR, views.clear),
        endpoint("POST", "/queues/{queue}/move", OPERATOR, views.move, most=1 << 20),
        endpoint("POST", "/queues/{queue}/remove", OPERATOR, views.remove_some),
        endpoint("GET", "/queues/{queue}/messages/{token}", VIEWER, views.message),
        endpoint("DELETE", "/queues/{queue}/messages/{token}", OPERATOR, views.remove),
    ]


def answered(work: Work, in_slices: InSlices | None, name: str) -> tuple[int, object]:
    """Returns the answer now, or a promise of it: a queue may hold a hundred thousand messages, and there may be as
    many queues."""
    if in_slices is None:
        try:
            while True:
                next(work)
        except StopIteration as over:
            found: tuple[int, object] = over.value
            return found

    def begin(told: Answered) -> None:
        def steps() -> Iterator[None]:
            try:
                found = yield from work
            except Exception as error:  # noqa: BLE001 -- distinguished where it is answered
                told(error)
            else:
                told(found)

        in_slices(name, steps)

    return 200, Later(begin)


def _is_like(name: str, wanted: str) -> bool:
    """Whether a name contains this text, or matches a generic name: no queue name has an asterisk."""
    return fnmatch.fnmatchcase(name, wanted) if "*" in wanted else wanted in name


class QueueViews:
    """Queues as the API shows them, over an inspection of the queue manager."""

    what = "queues"
    """What the log calls this work if it takes long."""

    def __init__(
        self,
        inspection: Inspects | None,
        rules: RulesNow = lambda: _no_rules,
        rates: RatesOf = lambda _queue: None,
        in_slices: InSlices | None = None,
    ) -> None:
        self._inspection = inspection
        self._rules = rules
        self._rates = rates
        self._in_slices = in_slices
        self._numbers = count(1)
        self._pages = in_slices and Pages(in_slices, f"pages of {self.what}")

    def _answered(self, work: Work) -> tuple[int, object]:
        return answered(work, self._in_slices, f"{self.what} {next(self._numbers)}")

    def _page(self, call: Call, work: Work) -> tuple[int, object]:
        """The answer with many whole messages."""
        return self._answered(work) if self._pages is None else (200, self._pages.later(call, work))

    @property
    def inspection(self) -> Inspects:
        """The view of the queue manager. Raises Problem if there is none."""
        if self._inspection is None:
            raise Problem(503, "Not offered", "queues of an IBM MQ queue manager are shown by its own tools")
        return self._inspection

    def token(self, text: str) -> Any:
        """Returns a token from the text in which a listing showed it. Raises Problem if there is no such token."""
        try:
            if re.fullmatch("[0-9A-Fa-f]{1,48}", text):
                return self.inspection.token(text)
        except ValueError:
            pass
        raise Problem(404, "Not found", "tokens come from a listing")

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /queues."""
        return self._answered(self._list(call))

    def _list(self, call: Call) -> Work:
        wanted = call.query.get("search", "").lower()
        everything = call.query.get("all", "") in {"true", "1"}
        after, limit = call.query.get("after", ""), call.number("limit", 50, 500)
        rows = list[QueueRow]()
        try:
            for row in self.inspection.queues():
                if _is_like(row.name.lower(), wanted) and (everything or role_of(row) not in {"state", "system"}):
                    rows.append(row)
                yield
        except MQError as error:
            raise problem_of(error) from error
        page = [row for row in rows if row.name > after][:limit]
        following = page[-1].name if page and page[-1] is not rows[-1] else None
        rules_of = self._rules()
        items = [shown(row, rules_of(row.name), self._rates(row.name)) for row in page]
        return 200, {"items": items, "total": len(rows), "next": following}

    def show(self, call: Call) -> tuple[int, object]:
        """GET /queues/{queue}."""
        row = self._row(call)
        return 200, {**shown(row, self._rules()(row.name), self._rates(row.name)), "attributes": row.attributes}

    def _row(self, call: Call) -> QueueRow:
        try:
            return self.inspection.queue(call.path["queue"])
        except MQError as error:
            raise problem_of(error) from error

    def browse(self, call: Call) -> tuple[int, object]:
        """GET /queues/{queue}/messages."""
        _not_the_trail(call)
        _not_the_hashes(call)
        limit, row = call.number("limit", 50, 500), self._row(call)
        after = call.query.get("after")
        text, property_ = call.query.get("text", ""), call.query.get("property", "")
        if text or property_:
            return self._search(row, limit, after, lambda seen: _has(seen, text, property_))
        if _is_true(call, "decoded"):
            return self._page(call, self._decoded(row, limit, after, whole=_is_true(call, "whole")))
        page = self._browsed(row.name, limit, after)
        following = None if is_last(page, limit) else str(page[-1].token)
        return 200, {"items": [summary(seen) for seen in page], "total": row.depth, "next": following}

    def _browsed(self, name: str, limit: int, after: str | None) -> list[Seen]:
        try:
            return self.inspection.browse(name, limit, self.token(after) if after else None)
        except MQError as error:
            raise problem_of(error) from error

    def _decoded(self, row: QueueRow, limit: int, after: str | None, *, whole: bool) -> Work:
        """Decode the messages of a page in steps; returns the answer."""
        page = self._browsed(row.name, limit, after)
        items, size = list[dict[str, object]](), 0
        for seen in page:
            if size >= WHOLE_BYTES:
                break
            items.append({**summary(seen), **decoded(seen, whole=whole)})
            size += len(seen.data)
            yield
        last = len(items) == len(page) and is_last(page, limit)
        return 200, {"items": items, "total": row.depth, "next": None if last else items[-1]["token"]}

    def _search(
        self, row: QueueRow, limit: int, after: str | None, wanted: Callable[[Seen], bool]
    ) -> tuple[int, object]:
        """Returns those of the next messages that are wanted; `next` continues after what was looked at, whether found
        or not."""
        page = self._browsed(row.name, LOOKED_AT, after)
        found, last = [], None
        for seen in page:
            if wanted(seen):
                found.append(summary(seen))
            last = seen
            if len(found) == limit:
                break
        whole = (last is None or last is page[-1]) and is_last(page, LOOKED_AT)
        return 200, {"items": found, "total": row.depth, "next": None if whole or last is None else str(last.token)}

    def move(self, call: Call) -> tuple[int, object]:
        """POST /queues/{queue}/move: move each message to another queue unchanged, in one unit of work with its
        removal."""
        name, to = call.path["queue"], str(call.body["to"])
        check_put(call.role, to)
        for queue in (name, to):
            if queue.startswith(PREFIX) and queue != DEFAULT:
                raise Problem(409, "Not allowed", f"{queue} holds the gateway's own state")
        if name == to:
            raise Problem(400, "Bad request", "`to` must be another queue")
        return self._answered(self._move(name, to, [str(token) for token in call.body.get("tokens", ())]))

    def _move(self, name: str, to: str, tokens: list[str]) -> Work:
        done, failed = 0, list[dict[str, object]]()
        try:
            for seen in self._chosen(name, tokens) if tokens else self.inspection.browse(name, MOVED_AT_ONCE):
                problem = self._moved(name, to, seen)
                done += problem is None
                if problem is not None:
                    failed.append({"token": str(seen.token), "reason": problem.reason, "text": str(problem)})
                yield
        except MQError as error:
            raise problem_of(error) from error
        return 200, {"matched": done + len(failed), "done": done, "failed": failed}

    def _chosen(self, name: str, tokens: list[str]) -> Iterator[Seen]:
        """Yields messages one at a time, because together they may be long."""
        for one in tokens:
            yield self.inspection.message(name, self.token(one))

    def _moved(self, name: str, to: str, seen: Seen) -> MQError | None:
        if seen.damaged:
            return MQError(MQRC_OBJECT_DAMAGED, seen.damaged)
        if seen.locked:
            return MQError(2042, "somebody has it in a unit of work")
        persistent = mqmd.number(seen.md, mqmd.AT_PERSISTENCE) == 1
        priority = max(0, mqmd.number(seen.md, mqmd.AT_PRIORITY))
        puts = Puts(to, priority=priority, persistent=persistent, heads=[seen.md], bodies=[seen.data])
        outcome = self.inspection.commit(Unit([puts], [Takes(name, b"", [seen.token])]))
        return MQError(outcome.failures[0].reason, outcome.failures[0].text) if outcome.failures else None

    def message(self, call: Call) -> tuple[int, object]:
        """GET /queues/{queue}/messages/{token}."""
        _not_the_trail(call)
        _not_the_hashes(call)
        try:
            seen = self.inspection.message(call.path["queue"], self.token(call.path["token"]))
            return 200, decoded(seen, whole=_is_true(call, "whole"))
        except MQError as error:
            raise problem_of(error) from error

    def put(self, call: Call) -> tuple[int, object]:
        """POST /queues/{queue}/messages."""
        _not_the_trail(call)
        check_put(call.role, call.path["queue"])
        head, body, persistent, priority = new_message(call.body)
        puts = Puts(call.path["queue"], priority=priority, persistent=persistent, heads=[head], bodies=[body])
        outcome = self.inspection.commit(Unit([puts]))
        if outcome.failures:
            failure = outcome.failures[0]
            raise problem_of(MQError(failure.reason, failure.text))
        # A message for another queue manager, or for subscribers, is not on a queue here, so it has no MsgId to report;
        # one with a copy for a STREAMQ is put in the same way.
        msg_id = self.inspection.msg_id_of(puts.tokens[0], head) if puts.tokens else ""
        return 201, {"msg_id": msg_id, "queue": call.path["queue"]}

    def remove(self, call: Call) -> tuple[int, object]:
        """DELETE /queues/{queue}/messages/{token}."""
        if not self._removed(call, [call.path["token"]]):
            raise Problem(409, "Not removed", "somebody has the message in a unit of work, or it is gone")
        return 204, None

    def remove_some(self, call: Call) -> tuple[int, object]:
        """POST /queues/{queue}/remove: remove messages in one unit of work, except those that others have or have
        taken."""
        return 200, {"removed": self._removed(call, [str(token) for token in call.body["tokens"]])}

    def _removed(self, call: Call, tokens: list[str]) -> int:
        _not_the_trail(call)
        if holds_state(_as_taken(call.path["queue"])) and not allows(call.role, ADMINISTRATOR):
            raise Problem(403, "Not allowed", f"{call.path['queue']} holds the gateway's own state")
        try:
            return self.inspection.remove(call.path["queue"], [self.token(token) for token in tokens])
        except MQError as error:
            raise problem_of(error) from error

    def clear(self, call: Call) -> tuple[int, object]:
        """DELETE /queues/{queue}/messages?confirm=QUEUE."""
        _not_the_trail(call)
        name = call.path["queue"]
        if call.query.get("confirm") != name:
            raise Problem(400, "Not confirmed", "repeat the queue's name in `confirm`")
        if name.startswith(PREFIX) and name != DEFAULT:
            raise Problem(409, "Not allowed", "this queue holds the gateway's own state; purge clients instead")
        return self._answered(self._clear(name))

    def _clear(self, name: str) -> Work:
        removed = 0
        try:
            for some in self.inspection.clear(name):
                removed += some
                yield
        except MQError as error:
            raise problem_of(error) from error
        return 200, {"removed": removed}


def _is_true(call: Call, name: str) -> bool:
    return call.query.get(name) in {"true", "1"}


def _not_the_trail(call: Call) -> None:
    """Raise Problem if the call is about the audit trail, which nobody changes here and only administrators read."""
    if _as_taken(call.path["queue"]) == AUDIT:
        raise Problem(403, "Not allowed", f"{AUDIT} is the audit trail: administrators read it with `mqgate audit`")


def _not_the_hashes(call: Call) -> None:
    """Raise Problem if the call is about the hashes of users' passwords and somebody other than an administrator
    asks."""
    if _as_taken(call.path["queue"]) == USERS and not allows(call.role, ADMINISTRATOR):
        raise Problem(403, "Not allowed", f"{USERS} holds hashes of passwords: `mqgate user list` shows the users")


def why_not_put(role: str, queue: str) -> str:
    """Returns why a person with this role may not put a message on a queue; empty if that is allowed. What is put on
    some queues does more than lie there."""
    name = _as_taken(queue)
    if name == AUDIT:
        return f"{AUDIT} is the audit trail: nobody puts anything there"
    if allows(role, ADMINISTRATOR):
        return ""
    if name == COMMANDS:
        return f"what is put on {COMMANDS} is carried out: that needs {ADMINISTRATOR}, as MQSC does"
    return f"{name} holds the gateway's own state" if holds_state(name) else ""


def check_put(role: str, queue: str) -> None:
    """Raise Problem with what `why_not_put` says."""
    why = why_not_put(role, queue)
    if why:
        raise Problem(403, "Not allowed", why)


def _as_taken(queue: str) -> str:
    """Returns a name as a queue manager takes it: it ends at a NUL, and blanks at its end are not part of it."""
    return queue.partition("\0")[0].rstrip(" ")


def role_of(row: QueueRow) -> str:
    """Returns what a queue is for."""
    if row.attributes.get("USAGE") == "XMITQ":
        return "transmission"
    if "DEAD.LETTER" in row.name:
        return "dead_letter"
    if row.name.startswith(PREFIX) and row.name != DEFAULT:
        return "state"
    return "system" if row.name.startswith(_SYSTEM) else "application"


def shown(row: QueueRow, rules: list[str], rates: tuple[float, float] | None) -> dict[str, object]:
    """Returns a queue as the API shows it."""
    attributes = row.attributes
    return {
        "name": row.name,
        "type": row.kind,
        "role": role_of(row),
        "depth": row.depth,
        "max_depth": row.max_depth,
        "oldest_seconds": None if row.oldest is None else round(max(0.0, time.time() - row.oldest), 1),
        "put_rate": rates[0] if rates else None,
        "got_rate": rates[1] if rates else None,
        "open_input": int(attributes["IPPROCS"]) if "IPPROCS" in attributes else None,
        "open_output": int(attributes["OPPROCS"]) if "OPPROCS" in attributes else None,
        "put_allowed": attributes.get("PUT", "ENABLED") == "ENABLED",
        "get_allowed": attributes.get("GET", "ENABLED") == "ENABLED",
        "target": attributes.get("TARGET") or attributes.get("RNAME") or None,
        "description": attributes.get("DESCR", ""),
        "rules": rules,
    }


def put_time_of(md: bytes) -> str:
    """Returns PutDate and PutTime in ISO 8601."""
    date, moment = mqmd.text(md, mqmd.PUT_DATE), mqmd.text(md, mqmd.PUT_TIME)
    if len(date) != 8 or len(moment) < 6:
        return ""
    return f"{date[:4]}-{date[4:6]}-{date[6:]}T{moment[:2]}:{moment[2:4]}:{moment[4:6]}.{moment[6:8] or '00'}Z"


def summary(seen: Seen) -> dict[str, object]:
    """Returns a message as a row of a table."""
    walked, _ = chain.walk_far(seen.md, seen.data)
    preview = seen.data[walked.body_at : walked.body_at + PREVIEW]
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
        "locked": seen.locked,
        "put_application": mqmd.text(seen.md, mqmd.PUT_APPL_NAME),
        "user": mqmd.text(seen.md, mqmd.USER_IDENTIFIER),
        "preview": seen.damaged or preview.decode("utf-8", "replace"),
    }


def decoded(seen: Seen, *, whole: bool = False) -> dict[str, object]:
    """Returns a message with everything decoded; malformed parts are reported, not hidden. `whole`: with its complete
    body."""
    words = chain.describe(seen.md, seen.data)
    walked, error = chain.walk_far(seen.md, seen.data)
    length = len(seen.data) - walked.body_at
    most = length if whole else SHOWN
    payload = seen.data[walked.body_at : walked.body_at + most]
    try:
        text: str | None = getincrementaldecoder("utf-8")().decode(payload, final=length <= most)
    except UnicodeDecodeError:
        text = None
    if text is not None and not all(character.isprintable() or character in "\r\n\t" for character in text[:2000]):
        text = None
    properties: dict[str, object] = {}
    try:
        from gateway.bridge.message import read_message  # a list of queues does not need it

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
            "length": length,
            "truncated": length > most,
            "text": text,
            "base64": None if text is not None else base64.b64encode(payload).decode(),
            "ccsid": walked.body.ccsid,
        },
        "error": seen.damaged or (str(error) if error is not None else None),
    }


def _has(seen: Seen, text: str, property_: str) -> bool:
    """Whether the body or an identifier contains the text, in upper or lower case, and a property has the value:
    `site=lima`, or with its folder `usr.site=lima`; without a value, whether the property exists."""
    if text and text.lower() not in _searched(seen):
        return False
    if not property_:
        return True
    from gateway.bridge.message import read_message

    name, _, value = property_.partition("=")
    try:
        folders = read_message(seen.md, seen.data).folders
    except Refused:
        return False
    return any(
        name in (key, f"{folder}.{key}") and (not value or str(_plain(found)) == value)
        for folder, one in folders.items()
        for key, found in one.pairs
    )


def _searched(seen: Seen) -> str:
    body = seen.data[chain.walk_far(seen.md, seen.data)[0].body_at :]
    return f"{hex_of(seen.md, mqmd.MSG_ID)} {correl_id_of(seen.md)} {body.decode('utf-8', 'replace')}".lower()


def _plain(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def new_message(given: dict[str, Any]) -> tuple[bytes, bytes, bool, int]:
    """Returns head, body, persistence and priority of a message that an operator puts. Raises Problem if it is not
    valid."""
    try:
        return _new_message(given)
    except (HeaderError, ValueError, TypeError, OverflowError) as error:
        raise Problem(400, "Bad request", f"no message can be made of this: {error}") from error


def _tenths(seconds: Any) -> int:
    """Returns an expiry in the unit of MQMD."""
    if seconds is None:
        return -1
    tenths = int(float(seconds) * 10)
    if not 0 <= tenths < 1 << 31:
        raise ValueError(f"expiry_seconds must be at most {(1 << 31) // 10}")
    return max(1, tenths)


def _new_message(given: dict[str, Any]) -> tuple[bytes, bytes, bool, int]:
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
        raise Problem(400, "Bad request", "priority must be 0 to 9, and correl_id at most 48 hexadecimal digits")
    form = str(given.get("format", "" if "base64" in given else "MQSTR"))
    ccsid = int(given.get("ccsid", 1208))
    expiry = _tenths(given.get("expiry_seconds"))
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
    reply_to, now = str(given.get("reply_to", "")), datetime.now(UTC)
    md = mqmd.build(
        format=outer, persistence=1 if persistent else 0, priority=priority, coded_char_set_id=ccsid,
        correl_id=correl_id.ljust(24, b"\0"), expiry=expiry,
        reply_to_q=reply_to, msg_type=MQMT_REQUEST if reply_to else MQMT_DATAGRAM,
        put_appl_name="mqgate admin", put_appl_type=6,
        put_date=now.strftime("%Y%m%d"), put_time=now.strftime("%H%M%S00"),
    )  # fmt: skip
    return md + front, body, persistent, priority
