"""Retained messages and the tree of their topics: shown, searched, cleared."""

from __future__ import annotations

import base64
from functools import partial

from gateway.app.api.sliced import sliced
from gateway.broker.engine import Engine
from gateway.broker.publish.topic_tree import Branch, branches, with_text
from gateway.net.calls import OPERATOR, VIEWER, Answered, Call, Endpoint, Later, Problem, endpoint
from gateway.session.publication import Publication

PREVIEW, SHOWN = 80, 65_536
"""Bytes of a payload that are shown in a listing, and of one message."""


def retained_endpoints(engine: Engine) -> list[Endpoint]:
    """Returns the endpoints of this module."""
    views = RetainedViews(engine)
    return [
        endpoint("GET", "/topics", VIEWER, views.tree),
        endpoint("GET", "/retained", VIEWER, views.search),
        endpoint("GET", "/retained/{topic}", VIEWER, views.show),
        endpoint("DELETE", "/retained/{topic}", OPERATOR, views.clear),
    ]


class RetainedViews:
    """The gateway's retained messages as the API shows them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def tree(self, call: Call) -> tuple[int, object]:
        """GET /topics: one level. `under` ends with a slash, because a level may be empty."""
        under = call.query.get("under")
        if under is not None and not under.endswith("/"):
            raise Problem(400, "Bad request", "`under` must be a topic followed by a slash")
        limit, found = call.number("limit", 50, 500), list[Branch]()
        topic = None if under is None else under[:-1]
        steps = branches(self._engine.retained, topic, call.query.get("after"), limit, found)

        def answer() -> object:
            page = found[:limit]
            items = [
                {
                    "name": one.name, "topic": one.topic, "below": one.below,
                    "retained": None if one.retained is None else _row(one.retained),
                }
                for one in page
            ]  # fmt: skip
            return {"items": items, "next": page[-1].name if len(found) > limit else None}

        return 200, sliced(self._engine, steps, answer)

    def search(self, call: Call) -> tuple[int, object]:
        """GET /retained."""
        limit, found = call.number("limit", 50, 500), list[Publication]()
        steps = with_text(self._engine.retained, call.query.get("search", ""), limit, found)

        def answer() -> object:
            return {
                "items": [_row(one) for one in found[:limit]],
                "more": len(found) > limit,
                "total": self._engine.retained.count,
            }

        return 200, sliced(self._engine, steps, answer)

    def _found(self, call: Call) -> Publication:
        found = self._engine.retained.find(call.path["topic"])
        if found is None:
            raise Problem(404, "Not found", "nothing is retained on this topic")
        return found

    def show(self, call: Call) -> tuple[int, object]:
        """GET /retained/{topic}."""
        found = self._found(call)
        text, encoded = _payload(found.payload[:SHOWN])
        return 200, {**_row(found), "text": text, "base64": encoded, "truncated": len(found.payload) > SHOWN}

    def clear(self, call: Call) -> tuple[int, object]:
        """DELETE /retained/{topic}: like an empty retained publication, but nothing is sent to anybody."""
        if self._engine.sys_topics.is_own(call.path["topic"]):
            raise Problem(409, "Not cleared", "the gateway itself publishes this topic, and will soon do so again")
        found, context = self._found(call), self._engine.context

        def begin(answered: Answered) -> None:
            context.now = context.scheduler.now()
            self._engine.retained.keep(Publication(found.topic, b"", 0, retain=True))
            context.batch.after.append(partial(answered, (204, None)))
            self._engine.flush()

        return 204, Later(begin)


def _row(one: Publication) -> dict[str, object]:
    return {
        "topic": one.topic.decode(),
        "qos": one.qos,
        "length": len(one.payload),
        "preview": one.payload[:PREVIEW].decode("utf-8", "replace"),
        "client_id": one.client_id or None,
        "expires": one.expires or None,
    }


def _payload(data: bytes) -> tuple[str | None, str | None]:
    """Returns the payload as text or in base64; the other is None."""
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()
