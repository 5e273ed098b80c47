"""A request of the administration API as its endpoints see it, and their answers. Nothing of HTTP is loaded for this,
so that commands on a stopped queue manager can use the endpoints too and still start quickly."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.ports.people import NOBODY, OPERATOR, VIEWER, Caller

__all__ = [
    "KEPT", "MAX_BODY", "OPERATOR", "VIEWER", "Act", "Answered", "Call", "Endpoint", "Later", "Problem", "Reply",
    "Stream", "endpoint",
]  # fmt: skip

MAX_BODY = 6 << 20
"""The longest body of any operation: a message of 4 MiB, the MAXMSGL of a queue unless somebody raises it, in
Base64."""
LONGEST_NUMBER = 100
"""The most digits of a number: Python converts some thousands."""
KEPT = 64 << 10
"""How much of a body is kept unless an endpoint says otherwise."""


class Problem(Exception):
    """An error answer; `detail` says what to do."""

    def __init__(self, status: int, title: str, detail: str, **more: object) -> None:
        super().__init__(detail)
        self.status = status
        self.body = {"title": title, "status": status, "detail": detail, **more}


class Act(NamedTuple):
    """A request, for the audit trail."""

    caller: Caller
    address: str
    action: str
    """Method and path of the operation, with its parameters in braces."""
    place: dict[str, str]
    """The values of the parameters in the path."""
    arguments: dict[str, Any]
    """The values of query and body."""
    status: int
    answer: object = None


@dataclass(slots=True)
class Call:
    """One request."""

    path: dict[str, str]
    query: dict[str, str]
    body: dict[str, Any]
    role: str
    peer: str = ""
    caller: Caller = NOBODY
    cookie: Callable[[str], str] = lambda _name: ""

    def number(self, name: str, default: int, most: int) -> int:
        """A number in the query, or the default, at most `most`. Raises Problem if it is not a number."""
        text = self.query.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER):
            raise Problem(400, "Bad request", f"{name} has to be a number")
        return min(int(text), most)


@dataclass(slots=True)
class Stream:
    """Server-sent events: `begin(send)` starts them and returns a function that stops them."""

    begin: Callable[[Callable[[str, object], None]], Callable[[], None]]


Answered = Callable[[tuple[int, object] | Exception], None]
"""Called with status and answer, or with the error."""


@dataclass(slots=True)
class Later:
    """An answer that is made elsewhere: `begin(answered)` starts that."""

    begin: Callable[[Answered], None]
    is_wanted: Callable[[], bool] = lambda: True
    """Whether the client still waits for it."""


@dataclass(slots=True)
class Reply:
    """An answer with headers, and the caller that it has identified."""

    body: object
    cookies: list[str] = field(default_factory=list)
    location: str = ""
    caller: Caller | None = None


@dataclass(slots=True)
class Endpoint:
    """A method and path of the API."""

    method: str
    pattern: re.Pattern[str]
    role: str
    handle: Callable[[Call], tuple[int, object]]
    path: str = ""
    """The path as in the document, with its parameters in braces."""
    most: int = KEPT
    """The longest body that is accepted."""
    audited: bool = False
    """Whether requests are in the audit trail, as all are except for GET."""
    browsed: bool = False
    """Whether people come here by following a link, so that a refusal is a page for them."""


def endpoint(
    method: str, path: str, role: str, handle: Callable[[Call], tuple[int, object]], *, most: int = KEPT,
    audited: bool = False, browsed: bool = False,
) -> Endpoint:  # fmt: skip
    """An endpoint; `/queues/{queue}` matches one path segment, percent-encoded."""
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
    return Endpoint(method, re.compile(pattern + r"\Z"), role, handle, path, most, audited, browsed)
