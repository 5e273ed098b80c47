"""Dead letters: listed by reason and destination, replayed with their original descriptor, or purged."""

from __future__ import annotations

import fnmatch
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import chain as joined
from typing import Any, NamedTuple

from gateway.app.api import set_aside, through_rules
from gateway.app.api.pages_of_messages import Work
from gateway.app.api.queues import (
    WHOLE_BYTES,
    InSlices,
    QueueViews,
    check_put,
    decoded,
    problem_of,
    summary,
    why_not_put,
)
from gateway.bridge import deadletter
from gateway.bridge.explain import reason_name
from gateway.bridge.message import read_message
from gateway.config.counting import counted
from gateway.errors import HeaderError, MQError, Refused
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.mq.constants import name_of_reason
from gateway.mq.headers import chain, dlh
from gateway.net.calls import OPERATOR, VIEWER, Call, Endpoint, Problem, endpoint
from gateway.ports.batch import Puts, Takes, Unit
from gateway.ports.inspection import Inspects, Seen, is_last
from gateway.ports.state_queues import SET_ASIDE
from gateway.routing.table import Table

PAGE = 500
REPLAY_AT_ONCE = 100


RuleOf = Callable[[str, str | None], str | None]
"""Returns the rule of a dead letter by its destination and topic, according to the current rules."""


def _is_like(destination: str, pattern: str) -> bool:
    """Whether a destination is this one, or matches a generic name."""
    return destination == pattern or fnmatch.fnmatchcase(destination.strip(), pattern)


def dead_letter_endpoints(
    inspection: Inspects | None,
    queue: Callable[[], str],
    rule_of: RuleOf = lambda _destination, _topic: None,
    replayed: Callable[[str | None, bool], None] = lambda _rule, _ok: None,
    replays: set_aside.Replays = set_aside.OFFLINE,
    in_slices: InSlices | None = None,
    table: Callable[[], Table] | None = None,
) -> list[Endpoint]:
    """Returns the endpoints of this module. `queue` names the dead-letter queue, `replayed` is called with what became
    of each, `replays` puts back what is set aside. `in_slices` is set where the same thread serves devices. `table`:
    the rules in force, where there are any."""
    views = DeadLetterViews(inspection, queue, rule_of, replayed, replays, in_slices, table)
    return [
        endpoint("GET", "/dlq", VIEWER, views.listing),
        endpoint("POST", "/dlq/replay", OPERATOR, views.replay, most=1 << 20),
        endpoint("POST", "/dlq/purge", OPERATOR, views.purge, most=1 << 20),
    ]


class DeadLetterViews(QueueViews):
    """Dead letters as the API shows them."""

    what = "dead letters"

    def __init__(
        self,
        inspection: Inspects | None,
        queue: Callable[[], str],
        rule_of: RuleOf,
        replayed: Callable[[str | None, bool], None],
        replays: set_aside.Replays,
        in_slices: InSlices | None = None,
        table: Callable[[], Table] | None = None,
    ) -> None:
        super().__init__(inspection, in_slices=in_slices)
        self._table = table
        self._queue = queue
        self._rule_of = rule_of
        self._replayed = replayed
        self._replays = replays

    def _name(self, selection: dict[str, Any]) -> str:
        """Returns the queue that a call is about: the dead-letter queue, or that of set-aside messages."""
        name = str(selection.get("queue") or self._queue())
        if name not in {self._queue(), SET_ASIDE}:
            raise Problem(404, "Not a dead-letter queue", f"`queue` is {self._queue()} or {SET_ASIDE}")
        return name

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /dlq."""
        work = self._listed(call)
        return self._page(call, work) if _is_whole(call) else self._answered(work)

    def _listed(self, call: Call) -> Work:
        selection: dict[str, Any] = {
            name: call.query[name] for name in ("queue", "destination", "text") if name in call.query
        }
        if "reason" in call.query:
            selection["reason"] = call.number("reason", 0, 1 << 30)
        limit, after = call.number("limit", 50, PAGE), call.query.get("after")
        alone = call.query.get("counts") == "false"
        whole = _is_whole(call)
        if alone and after is not None and _is_number(after):
            selection["after"], after = after, None
        counts: Counter[tuple[int, str, str]] = Counter()
        aside = self._name(selection) == SET_ASIDE
        items: list[dict[str, object]] = []
        total, size, following, behind = 0, 0, None, after is None
        for found in self._selected(selection):
            yield
            if found is None:
                continue
            seen, header = found
            if alone and (len(items) == limit or size >= WHOLE_BYTES):
                following = items[-1]["token"] if items else None
                break
            total += 1
            if aside:
                said = set_aside.undone(seen).said
                counts[0, set_aside.reason_of(said), set_aside.destination_of(said)] += 1
            else:
                reason = header.reason if header else 0
                counts[reason, reason_text(reason), header.dest_q_name if header else ""] += 1
            if not behind:
                behind = _reaches(str(seen.token), str(after))
                if str(seen.token) == after or not behind:
                    continue
            if len(items) < limit:
                item = self._aside(seen) if aside else self._shown(seen, header)
                items.append({**item, **decoded(seen, whole=True)} if whole else item)
                size += len(seen.data) if whole else 0
            else:
                following = items[-1]["token"]
        table = [
            {"reason": reason, "reason_name": name, "destination": destination, "count": count}
            for (reason, name, destination), count in counts.most_common()
        ]
        return 200, {"items": items, "total": total, "next": following, "summary": table}

    def _selected(self, selection: dict[str, Any]) -> Iterator[tuple[Seen, dlh.Dlh | None] | None]:
        """Yields the selected dead letters in order, and None for each that is not selected."""
        name = self._name(selection)
        tokens = {str(token) for token in selection.get("tokens") or ()}
        after: Any = self.token(str(selection["after"])) if "after" in selection else None
        while True:
            try:
                page = self.inspection.browse(name, PAGE, after)
            except MQError as error:
                raise problem_of(error) from error
            for seen in page:
                header = header_of(seen)
                wanted = not tokens or str(seen.token) in tokens
                if wanted and "reason" in selection and name != SET_ASIDE:
                    wanted = header is not None and header.reason == int(selection["reason"])
                if wanted and "destination" in selection:
                    wanted = _is_like(self._destination(name, seen, header), str(selection["destination"]))
                if wanted and "text" in selection:
                    wanted = _mentions(seen, str(selection["text"]))
                yield (seen, header) if wanted else None
            if is_last(page, PAGE):
                return
            after = page[-1].token

    @staticmethod
    def _destination(name: str, seen: Seen, header: dlh.Dlh | None) -> str:
        if name == SET_ASIDE:
            return set_aside.destination_of(set_aside.undone(seen).said)
        return header.dest_q_name if header is not None else ""

    def _aside(self, seen: Seen) -> dict[str, object]:
        """Returns a set-aside message as the API shows it."""
        found = set_aside.shown(seen)
        rule = self._rule_of("", found["topic"]) if found["topic"] else None
        return {**summary(seen), "queue": SET_ASIDE, **found, "rule": rule, "dead_since": None}

    def _rule(self, header: dlh.Dlh | None, topic: str | None) -> str | None:
        return self._rule_of(header.dest_q_name.strip() if header is not None else "", topic)

    def _shown(self, seen: Seen, header: dlh.Dlh | None) -> dict[str, object]:
        topic, client = _origin(seen)
        return {
            **summary(seen),
            "queue": self._queue(),
            "reason": header.reason if header else 0,
            "reason_name": reason_text(header.reason) if header else "no dead-letter header",
            "destination": header.dest_q_name if header else "",
            "destination_manager": header.dest_q_mgr_name if header else "",
            "rule": self._rule(header, topic),
            "topic": topic,
            "client_id": client,
            "dead_since": _when(header) if header else None,
        }

    def replay(self, call: Call) -> tuple[int, object]:
        """POST /dlq/replay: put each message back to its destination, in one unit of work with its removal."""
        check_put(call.role, str(call.body.get("to") or ""))
        return self._answered(self._replay(call))

    def _replay(self, call: Call) -> Work:
        selection = call.body
        limit = int(selection.get("limit") or 1 << 30)
        matched = done = 0
        failed: list[dict[str, object]] = []
        tokens = yield from self._bounded(selection, limit)
        waiting = list[_Letter]()
        for token in tokens:  # one by one, because together the messages may be long
            yield
            matched += 1
            if selection.get("dry_run"):
                continue
            found = self._letter(token, selection, call.role)
            if isinstance(found, _Letter) and found.joins(waiting):
                waiting.append(found)
                continue
            done += yield from self._put_back(waiting, failed)
            waiting = []
            if isinstance(found, _Letter):
                waiting.append(found)
            elif found is None:
                done += 1
            else:
                failed.append(_failure(token, found))
        done += yield from self._put_back(waiting, failed)
        return 200, {"matched": matched, "done": done, "failed": failed}

    def _letter(self, token: Any, selection: dict[str, Any], role: str) -> _Letter | MQError | None:
        """Returns what puts a message back, or why it cannot be put back; None for one that was set aside and has just
        been put back."""
        try:
            seen = self.inspection.message(self._name(selection), token)
        except MQError as error:
            return error
        to = str(selection.get("to") or "")
        if self._name(selection) == SET_ASIDE:
            return self._replay_aside(seen, to)
        header = header_of(seen)
        rule = self._rule(header, _origin(seen)[0])
        try:
            unit = self._unit_of(seen, header, to, role, through_rules=bool(selection.get("through_rules")))
        except MQError as error:
            self._replayed(rule, False)  # noqa: FBT003 - a call without keywords
            return error
        return _Letter(token, unit, rule, len(seen.data))

    def _put_back(self, letters: list[_Letter], failed: list[dict[str, object]]) -> Generator[None, None, int]:
        """Put back letters together, in one unit of work, or each alone if that is refused, so that none keeps the
        others back; devices are served in between. Returns how many are on their destination."""
        if len(letters) > 1:
            puts, takes = [
                list(joined.from_iterable(parts)) for parts in zip(*(one.parts for one in letters), strict=True)
            ]
            if not self.inspection.commit(Unit(puts, takes)).failures:
                for letter in letters:
                    self._replayed(letter.rule, True)  # noqa: FBT003 - a call without keywords
                return len(letters)
        done = 0
        for letter in letters:
            yield
            problem = self._committed(letter.unit)
            self._replayed(letter.rule, problem is None)
            done += problem is None
            if problem is not None:
                failed.append(_failure(letter.token, problem))
        return done

    def _bounded(self, selection: dict[str, Any], limit: int) -> Generator[None, None, list[Any]]:
        """Returns, in steps, the tokens of at most `limit` of the selected messages."""
        tokens: list[Any] = []
        if selection.get("tokens") and not {"reason", "destination", "text"} & selection.keys():
            for text in selection["tokens"]:  # these need not be looked for
                yield
                if len(tokens) >= limit:
                    break
                with suppress(MQError):
                    tokens.append(self._token_of(self._name(selection), self.token(str(text))))
            return tokens
        for found in self._selected(selection):
            if len(tokens) >= limit:
                break
            if found is not None:
                tokens.append(found[0].token)
            yield
        return tokens

    def _token_of(self, name: str, token: Any) -> Any:
        """Returns the token of a message that is there, even if damaged: it can be purged, and the answer says why it
        cannot be put back."""
        try:
            return self.inspection.message(name, token).token
        except MQError as error:
            if error.reason != mq.MQRC_OBJECT_DAMAGED:
                raise
            return token

    def _unit_of(self, seen: Seen, header: dlh.Dlh | None, to: str, role: str, *, through_rules: bool) -> Unit:
        """Returns the unit of work that puts a message back and removes it. Raises MQError if it cannot be put back."""
        if seen.locked:
            raise MQError(2042, "somebody has it in a unit of work")
        takes = [Takes(self._queue(), b"", [seen.token])]
        if header is not None and (cut := deadletter.cut_bytes(header)) and (through_rules or not to):
            text = f"{counted(cut, 'byte')} of it did not fit on this queue and are lost: use `to` for the rest"
            raise MQError(mq.MQRC_TRUNCATED_MSG_FAILED, text)
        if through_rules:
            return Unit(self._puts_by_rules(seen, header), takes)
        if header is None and not to:
            raise MQError(2141, "it has no dead-letter header: say where to with `to`")
        _, md, data = deadletter.strip(seen.md, seen.data) if header is not None else (None, seen.md, seen.data)
        queue, manager = to, ""
        if header is not None and not to:
            queue, manager = header.dest_q_name.strip(), header.dest_q_mgr_name.strip()
        if not queue:
            raise MQError(2085, "its header names no destination: say where to with `to`")
        if queue == self._queue():
            text = "its destination is the dead-letter queue itself, where it would lose its header: use `to`"
            raise MQError(mq.MQRC_DLH_ERROR, text)
        if why := why_not_put(role, queue):  # an operator may have put the dead letter there
            raise MQError(mq.MQRC_NOT_AUTHORIZED, why)
        persistent = mqmd.number(md, mqmd.AT_PERSISTENCE) == 1
        priority = max(0, mqmd.number(md, mqmd.AT_PRIORITY))
        return Unit([Puts(queue, manager, priority=priority, persistent=persistent, heads=[md], bodies=[data])], takes)

    def _puts_by_rules(self, seen: Seen, header: dlh.Dlh | None) -> list[Puts]:
        if self._table is None:
            raise MQError(through_rules.DLH_ERROR, "only a running gateway has rules: start it")
        _, md, data = deadletter.strip(seen.md, seen.data) if header is not None else (None, seen.md, seen.data)
        destination = header.dest_q_name.strip() if header is not None else ""
        return through_rules.puts_of(self._table(), md, data, time.time(), destination)

    def _committed(self, unit: Unit) -> MQError | None:
        outcome = self.inspection.commit(unit)
        if not outcome.failures:
            return None
        reason, text = outcome.failures[0].reason, outcome.failures[0].text
        if reason == mq.MQRC_UNKNOWN_REMOTE_Q_MGR and unit.puts and unit.puts[0].queue_manager:
            manager = unit.puts[0].queue_manager
            text += f"; it was for queue manager {manager}: name the settings of that one, or say where to with `to`"
        return MQError(reason, text)

    def _replay_aside(self, seen: Seen, to: str) -> MQError | None:
        try:
            made = set_aside.replay(seen, to, self._replays.refusal)
        except MQError as error:
            return error
        except (ValueError, TypeError, KeyError) as error:
            return MQError(set_aside.NOTHING_TO_REPLAY, f"its properties do not say enough ({error}): use `to`")
        outcome = self.inspection.commit(made.unit)
        if outcome.failures:
            return MQError(outcome.failures[0].reason, outcome.failures[0].text)
        if made.will is not None:
            self._replays.publish(*made.will)
        return None

    def purge(self, call: Call) -> tuple[int, object]:
        """POST /dlq/purge."""
        selection = call.body
        if not selection:
            raise Problem(400, "Nothing selected", 'say which; `{"limit": 1000000}` is all of them')
        return self._answered(self._purge(selection))

    def _purge(self, selection: dict[str, Any]) -> Work:
        tokens = yield from self._bounded(selection, int(selection.get("limit") or 1 << 30))
        done = 0
        if not selection.get("dry_run"):
            for start in range(0, len(tokens), 1000):
                yield
                done += self.inspection.remove(self._name(selection), tokens[start : start + 1000])
        return 200, {"matched": len(tokens), "done": done, "failed": []}


def _is_whole(call: Call) -> bool:
    return call.query.get("counts") == "false" and call.query.get("whole") == "true"


class _Letter(NamedTuple):
    """A dead letter that can be put back."""

    token: Any
    unit: Unit
    rule: str | None
    length: int

    @property
    def parts(self) -> tuple[list[Puts], list[Takes]]:
        """What is put and what is taken."""
        return self.unit.puts, self.unit.takes

    def joins(self, others: list[_Letter]) -> bool:
        """Whether it goes into one unit of work with the others. Several messages may have the same MsgId, and a take
        on IBM MQ has to be compared with what was put; such messages are committed one at a time."""
        if not others:
            return True
        fits = len(others) < REPLAY_AT_ONCE and sum(one.length for one in others) + self.length <= WHOLE_BYTES
        return fits and _is_number(str(self.token)) and all(one.token != self.token for one in others)


def _failure(token: Any, error: MQError) -> dict[str, object]:
    return {"token": str(token), "reason": error.reason, "text": str(error)}


def _reaches(token: str, after: str) -> bool:
    """Whether a listing that continues after `after` has reached a message. Numbers grow, so the message of `after` may
    be gone; MsgIds have no order."""
    return token == after or (_is_number(token) and after.isdecimal() and int(token) > int(after))


def _is_number(token: str) -> bool:
    """Whether a token is a number of the embedded queue manager, rather than a MsgId."""
    return token.isdecimal() and len(token) < 48


def _origin(seen: Seen) -> tuple[str | None, str | None]:
    """Returns the topic and the client that a message came from, if its headers say so."""
    try:
        message = read_message(seen.md, seen.data)
    except Refused:
        return None, None
    topic, client = message.property("mqps", "Top"), message.property("mqtt", "clientId")
    return None if topic is None else str(topic), None if client is None else str(client)


def _mentions(seen: Seen, text: str) -> bool:
    """Whether topic, client or body contain this text, in upper or lower case."""
    topic, client = _origin(seen)
    wanted = text.lower()
    body = seen.data[chain.walk_far(seen.md, seen.data)[0].body_at :]
    return wanted in (topic or "").lower() or wanted in (client or "").lower() or wanted.encode() in body.lower()


def header_of(seen: Seen) -> dlh.Dlh | None:
    """Returns the dead-letter header of a message, if it has one."""
    try:
        return deadletter.strip(seen.md, seen.data)[0]
    except HeaderError:
        return None


def reason_text(reason: int) -> str:
    """Returns the name of an MQRC, an MQFB or one of our own codes."""
    return reason_name(reason) if reason >= 65_536 else name_of_reason(reason)


def _when(header: dlh.Dlh) -> str | None:
    try:
        moment = time.strptime(header.put_date + header.put_time[:6], "%Y%m%d%H%M%S")
    except ValueError:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
