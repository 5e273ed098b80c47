"""Dead letters: by reason and destination, replayed with their original descriptor, or purged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from gateway.app.api.queues import QueueViews, problem_of, summary
from gateway.bridge import deadletter
from gateway.bridge.explain import reason_name
from gateway.bridge.message import read_message
from gateway.errors import HeaderError, MQError, Refused
from gateway.mq import dlh, mqmd
from gateway.mq.constants import name_of_reason
from gateway.net.api import OPERATOR, READ_ONLY, Call, Endpoint, Problem, endpoint
from gateway.ports.batch import Puts, Takes, Unit
from gateway.ports.inspection import Inspects, Seen

PAGE = 500
REPLAY_AT_ONCE = 100


RuleOf = Callable[[str, str | None], str | None]
"""The rule of a dead letter by its destination and topic, as the rules are now."""


def dead_letter_endpoints(
    inspection: Inspects | None,
    queue: Callable[[], str],
    rule_of: RuleOf = lambda _destination, _topic: None,
    replayed: Callable[[str | None, bool], None] = lambda _rule, _ok: None,
) -> list[Endpoint]:
    """The endpoints of this module; `queue` names the dead-letter queue, `replayed` is told what became of each."""
    views = DeadLetterViews(inspection, queue, rule_of, replayed)
    return [
        endpoint("GET", "/dlq", READ_ONLY, views.listing),
        endpoint("POST", "/dlq/replay", OPERATOR, views.replay),
        endpoint("POST", "/dlq/purge", OPERATOR, views.purge),
    ]


class DeadLetterViews(QueueViews):
    """What the API says of dead letters."""

    def __init__(
        self,
        inspection: Inspects | None,
        queue: Callable[[], str],
        rule_of: RuleOf,
        replayed: Callable[[str | None, bool], None],
    ) -> None:
        super().__init__(inspection)
        self._queue = queue
        self._rule_of = rule_of
        self._replayed = replayed

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /dlq."""
        selection: dict[str, Any] = {name: call.query[name] for name in ("queue", "destination") if name in call.query}
        if "reason" in call.query:
            selection["reason"] = call.number("reason", 0, 1 << 30)
        limit, after = call.number("limit", 50, PAGE), call.query.get("after")
        counts: Counter[tuple[int, str]] = Counter()
        items: list[dict[str, object]] = []
        total, following, behind = 0, None, after is None
        for seen, header in self._selected(selection):
            total += 1
            counts[header.reason if header else 0, header.dest_q_name if header else ""] += 1
            if not behind:
                behind = _reaches(str(seen.token), str(after))
                if str(seen.token) == after or not behind:
                    continue
            if len(items) < limit:
                items.append(self._shown(seen, header))
            else:
                following = items[-1]["token"]
        table = [
            {"reason": reason, "reason_name": reason_text(reason), "destination": destination, "count": count}
            for (reason, destination), count in counts.most_common()
        ]
        return 200, {"items": items, "total": total, "next": following, "summary": table}

    def _selected(self, selection: dict[str, Any]) -> Iterator[tuple[Seen, dlh.Dlh | None]]:
        """The selected dead letters, in order."""
        name = str(selection.get("queue") or self._queue())
        tokens = {str(token) for token in selection.get("tokens") or ()}
        after: Any = None
        while True:
            try:
                page = self.inspection.browse(name, PAGE, after)
            except MQError as error:
                raise problem_of(error) from error
            for seen in page:
                header = header_of(seen)
                if tokens and str(seen.token) not in tokens:
                    continue
                if "reason" in selection and (header is None or header.reason != int(selection["reason"])):
                    continue
                if "destination" in selection and (header is None or header.dest_q_name != selection["destination"]):
                    continue
                yield seen, header
            if len(page) < PAGE:
                return
            after = page[-1].token

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
        """POST /dlq/replay: each message back to its destination, in a unit of work with its removal."""
        selection = call.body
        limit = int(selection.get("limit") or 1 << 30)
        matched = done = 0
        failed: list[dict[str, object]] = []
        for seen, header in list(self._bounded(selection, limit)):
            matched += 1
            if selection.get("dry_run"):
                continue
            problem = self._replay_one(seen, header, str(selection.get("to") or ""))
            self._replayed(self._rule(header, _origin(seen)[0]), problem is None)
            if problem is None:
                done += 1
            else:
                failed.append({"token": str(seen.token), "reason": problem.reason, "text": str(problem)})
        return 200, {"matched": matched, "done": done, "failed": failed}

    def _bounded(self, selection: dict[str, Any], limit: int) -> Iterator[tuple[Seen, dlh.Dlh | None]]:
        for number, found in enumerate(self._selected(selection)):
            if number >= limit:
                return
            yield found

    def _replay_one(self, seen: Seen, header: dlh.Dlh | None, to: str) -> MQError | None:
        if seen.locked:
            return MQError(2042, "somebody has it in a unit of work")
        if header is None and not to:
            return MQError(2141, "it has no dead-letter header: say where to with `to`")
        _, md, data = deadletter.strip(seen.md, seen.data) if header is not None else (None, seen.md, seen.data)
        queue = to or (header.dest_q_name.strip() if header is not None else "")
        if not queue:
            return MQError(2085, "its header names no destination: say where to with `to`")
        persistent = mqmd.number(md, mqmd.AT_PERSISTENCE) == 1
        priority = max(0, mqmd.number(md, mqmd.AT_PRIORITY))
        puts = Puts(queue, priority=priority, persistent=persistent, heads=[md], bodies=[data])
        outcome = self.inspection.commit(Unit([puts], [Takes(self._queue(), b"", [seen.token])]))
        if outcome.failures:
            return MQError(outcome.failures[0].reason, outcome.failures[0].text)
        return None

    def purge(self, call: Call) -> tuple[int, object]:
        """POST /dlq/purge."""
        selection = call.body
        if not selection:
            raise Problem(400, "Nothing selected", 'say which; `{"limit": 1000000}` is all of them')
        limit = int(selection.get("limit") or 1 << 30)
        tokens = [seen.token for seen, _ in self._bounded(selection, limit)]
        done = 0
        if not selection.get("dry_run"):
            for start in range(0, len(tokens), 1000):
                done += self.inspection.remove(self._queue(), tokens[start : start + 1000])
        return 200, {"matched": len(tokens), "done": done, "failed": []}


def _reaches(token: str, after: str) -> bool:
    """Whether a listing that continues after `after` has come to it. Numbers grow, so that message may be gone; MsgIds
    have no order."""
    return token == after or (token.isdecimal() and after.isdecimal() and len(token) < 48 and int(token) > int(after))


def _origin(seen: Seen) -> tuple[str | None, str | None]:
    """Topic and client a message came from, where its headers say."""
    try:
        message = read_message(seen.md, seen.data)
    except Refused:
        return None, None
    topic, client = message.property("mqps", "Top"), message.property("mqtt", "clientId")
    return None if topic is None else str(topic), None if client is None else str(client)


def header_of(seen: Seen) -> dlh.Dlh | None:
    """The dead-letter header of a message, if it has one."""
    try:
        return deadletter.strip(seen.md, seen.data)[0]
    except HeaderError:
        return None


def reason_text(reason: int) -> str:
    """An MQRC, an MQFB or one of ours, by name."""
    return reason_name(reason) if reason >= 65_536 else name_of_reason(reason)


def _when(header: dlh.Dlh) -> str | None:
    try:
        moment = time.strptime(header.put_date + header.put_time[:6], "%Y%m%d%H%M%S")
    except ValueError:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", moment)
