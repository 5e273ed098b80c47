"""The JSON API, and the page beneath and beside it: tokens, roles, checks of Host and Origin, security headers.

Endpoints are plain functions of a `Call`. They answer with JSON, with a `Stream` of server-sent events, or with `Later`
if the answer is made elsewhere. What does not match openapi.json is refused before it reaches them. This module knows
HTTP, but not what the endpoints do.
"""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, unquote

from twisted.internet.interfaces import IPushProducer
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request
from zope.interface import implementer

from gateway.mqtt.json_text import read_json
from gateway.net.calls import KEPT, MAX_BODY, Act, Call, Endpoint, Later, Problem, Reply, Stream
from gateway.net.contract import Unfit, shipped
from gateway.net.guard import Guard, check_host, cookie_of
from gateway.net.http import Bounded, nothing, only_read, problem
from gateway.net.refusal_page import refusal_page
from gateway.ports.link import plain_address
from gateway.ports.people import PUBLIC, VIEWER, Caller

MAX_UNREAD = 1 << 20
"""Bytes of events that wait for a reader before its stream ends: a trace may run for an hour."""
MAX_VALUES = 50_000
"""How many values one request may have: the objects made of them are many times as large as their text."""


@dataclass(slots=True)
class _Asked:
    """What is known of a request."""

    method: str
    caller: Caller
    peer: str
    endpoint: Endpoint | None = None
    call: Call | None = None


class Api(Bounded):
    """Everything below /api/v1."""

    isLeaf = True

    def __init__(self, endpoints: list[Endpoint], guard: Guard) -> None:
        super().__init__()
        self._endpoints = endpoints
        self._guard = guard
        self._contract = shipped()

    def most(self, request: Request, method: str, path: str) -> int | None:
        """The longest body that `_dispatch` would accept, as far as the headers tell; None: it would refuse the
        request."""
        found = [one for one in self._endpoints if one.method == method and one.pattern.match(path)]
        try:
            check_host(request, self._guard.hosts, method)
            if found:
                self._guard.check(request, self._guard.caller_of(request), found[0].role, method)
        except Problem:
            return None
        return found[0].most if found else None

    def render(self, request: Request) -> Any:
        """Answer a request."""
        peer = plain_address(str(getattr(request.getClientAddress(), "host", "")))
        asked = _Asked(request.method.decode("latin-1"), self._guard.caller_of(request), peer)
        try:
            found = self._dispatch(request, asked)
        except Exception as error:  # noqa: BLE001 -- told apart in `_outcome`; a variable for it would make a cycle
            status, answer = self._outcome(request, error, asked)
            return _written(request, status, answer, asked)
        if isinstance(found, tuple) and isinstance(found[1], Later):
            return self._later(request, found[1], asked)
        status, answer = self._outcome(request, found, asked)
        if isinstance(answer, Stream):
            return _stream(request, answer, lambda: self._guard.caller_of(request)[:3] == asked.caller[:3])
        return _written(request, status, answer, asked)

    def _outcome(self, request: Request, found: tuple[int, object] | Exception, asked: _Asked) -> tuple[int, object]:
        """Status and answer, recorded in the audit trail if the request belongs there."""
        if isinstance(found, Problem):
            found = found.status, found.body
        elif isinstance(found, Exception):  # the error is in the log, but not in the answer
            self._guard.on_defect(found, asked.peer)
            found = 500, Problem(500, "Defect", "the gateway ran into a defect: see `defect` in the log").body
        status, answer = found
        known, call = asked.endpoint, asked.call
        if asked.method != "GET" or status in {401, 403, 421} or (known is not None and known.audited):
            what = f"/api/v1{known.path}" if known is not None else request.path.decode("latin-1")
            caller = answer.caller if isinstance(answer, Reply) and answer.caller is not None else asked.caller
            told = {} if call is None else {**call.query, **call.body}
            body = answer.body if isinstance(answer, Reply) else answer
            place = {} if call is None else call.path
            self._guard.audit(Act(caller, asked.peer, f"{asked.method} {what}", place, told, status, body))
        return found

    def _later(self, request: Request, later: Later, asked: _Asked) -> int | bytes:
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)  # noted if the client does not wait for the answer
        later.is_wanted = lambda: not gone

        def answered(found: tuple[int, object] | Exception) -> None:
            status, answer = self._outcome(request, found, asked)
            if not gone:
                body = _written(request, status, answer, asked)
                request.setHeader("content-length", str(len(body)))
                request.write(body)
                request.finish()

        try:
            later.begin(answered)
        except Exception as error:  # noqa: BLE001 -- as in `render`: it has not begun
            status, answer = self._outcome(request, error, asked)
            return _written(request, status, answer, asked)
        return int(NOT_DONE_YET)

    def _dispatch(self, request: Request, asked: _Asked) -> tuple[int, object]:
        check_host(request, self._guard.hosts, asked.method)
        # Twisted has already decoded postpath; a client identifier may contain a slash, so the raw path is matched.
        raw = request.path.split(b"/")
        path = "/" + b"/".join(raw[len(raw) - len(request.postpath or ()) :]).decode("latin-1")
        found = [(one, match) for one in self._endpoints if (match := one.pattern.match(path))]
        if not any(one.role == PUBLIC for one, _ in found):
            self._guard.check(request, asked.caller, VIEWER, asked.method)
        if not found:
            raise Problem(404, "Not found", f"there is nothing at {path}")
        for one, match in found:
            if one.method == asked.method:
                self._guard.check(request, asked.caller, one.role, asked.method)
                asked.endpoint = one
                arguments = {name: _named(value) for name, value in match.groupdict().items()}
                asked.call = self._call(request, one, arguments, asked)
                return one.handle(asked.call)
        request.setHeader("allow", ", ".join(sorted({one.method for one, _ in found})))
        raise Problem(405, "Method not allowed", f"{asked.method} is not offered at {path}")

    def _call(self, request: Request, one: Endpoint, arguments: dict[str, str], asked: _Asked) -> Call:
        """The request, checked against the document. Raises Problem."""
        query = parse_qs(request.uri.partition(b"?")[2].decode("latin-1"), keep_blank_values=True)  # not the body's
        body = _body(request, one.method)
        try:
            self._contract.check_query(one.method, one.path, query)
            self._contract.check_body(one.method, one.path, body)
        except Unfit as error:
            raise Problem(400, "Bad request", str(error)) from error
        return Call(
            arguments, {name: values[-1] for name, values in query.items()}, body or {}, asked.caller.role, asked.peer,
            asked.caller, partial(cookie_of, request),
        )  # fmt: skip


def _named(part: str) -> str:
    """The name that a part of a path stands for. `.` and `..` do not reach us as such, however they are encoded (RFC
    3986, 5.2.4; browsers take `%2e` for a dot), so clients write `;` before them, which an encoded name never has."""
    return part[1:] if part in {";.", ";.."} else unquote(part)


def _body(request: Request, method: str) -> dict[str, Any] | None:
    if method in {"GET", "DELETE"}:
        return None
    content: Any = request.content
    raw = content.read(MAX_BODY + 1)
    if len(raw) > MAX_BODY:
        raise Problem(413, "Too long", f"a request has at most {MAX_BODY} bytes")
    if not raw.strip():
        return None
    if len(raw) > KEPT and _values(raw) > MAX_VALUES:
        raise Problem(413, "Too long", f"a request has at most {MAX_VALUES} values")
    try:
        value = read_json(raw)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "Bad request", f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Problem(400, "Bad request", "the body has to be a JSON object")
    return value


def _values(raw: bytes) -> int:
    """About how many values a JSON text has, without making them: the longest bodies are mostly one text."""
    pieces = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    texts = pieces.count(b'"') // 2
    if texts > MAX_VALUES:
        return texts
    between = b"".join(pieces.split(b'"')[::2])
    return texts + sum(map(between.count, (b",", b"[", b"{")))


def _written(request: Request, status: int, answer: object, asked: _Asked) -> bytes:
    """Write status and headers; returns the body."""
    request.setResponseCode(status)
    if isinstance(answer, Reply):
        for cookie in answer.cookies:
            request.responseHeaders.addRawHeader(b"set-cookie", cookie.encode("ascii"))
        if answer.location:
            request.setHeader("location", answer.location)
        answer = answer.body
    if status == 401:
        request.setHeader("www-authenticate", "Bearer")
    if status in {204, 302}:
        return b""
    if status >= 400 and asked.endpoint is not None and asked.endpoint.browsed and _is_browser(request):
        request.setHeader("content-type", "text/html; charset=utf-8")
        said: Any = answer
        return refusal_page(status, str(said["title"]), str(said["detail"]))
    request.setHeader("content-type", "application/problem+json" if status >= 400 else "application/json")
    return json.dumps(answer, ensure_ascii=False, default=str).encode("utf-8", "replace")


def _is_browser(request: Request) -> bool:
    return "text/html" in (request.getHeader("accept") or "")


def _stream(request: Request, stream: Stream, still: Callable[[], bool]) -> int:
    """Begin a stream of events. `still`: whether the caller is still known; the stream ends when that is no longer
    so."""
    request.setHeader("content-type", "text/event-stream")
    request.write(b": open\n\n")
    unread = _Unread()
    request.registerProducer(unread, streaming=True)

    def send(event: str, data: object) -> None:
        transport: Any = request.transport
        if not still():
            request.loseConnection()
            return
        written = f"event: {event}\ndata: {json.dumps(data, default=str)}\n\n".encode()
        if unread.is_full(len(written)) and transport is not None:
            transport.abortConnection()
            return
        request.write(written)

    stop = stream.begin(send)
    request.notifyFinish().addBoth(lambda _: stop())
    return int(NOT_DONE_YET)


@implementer(IPushProducer)
class _Unread:
    """What piles up for a reader of a stream while it reads nothing."""

    def __init__(self) -> None:
        self._paused = False
        self._bytes = 0

    def is_full(self, more: int) -> bool:
        """Whether there is no room for so many bytes more; counts them."""
        self._bytes += more if self._paused else 0
        return self._bytes > MAX_UNREAD

    def pauseProducing(self) -> None:
        """As much waits as Twisted likes to."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The client has read it."""
        self._paused, self._bytes = False, 0

    def stopProducing(self) -> None:
        """The client has disconnected: `notifyFinish` says so, too."""


class Static(Resource):
    """The page: files of the package, without directory listings; nothing else can be reached."""

    isLeaf = True

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard
        self._cache: dict[str, bytes] = {}

    def render(self, request: Request) -> bytes:
        """Answer with a file, or with the page itself."""
        refused = only_read(request)
        if refused is not None:
            return refused
        try:
            check_host(request, self._guard.hosts, "GET")
        except Problem as wrong:
            return problem(request, wrong.status, str(wrong))
        if not request.postpath:  # without the slash, relative addresses in the page would lead out of this folder
            request.setResponseCode(302)
            request.setHeader("location", "admin/")
            return b""
        path = "/".join(segment.decode("latin-1") for segment in request.postpath) or "index.html"
        if not re.fullmatch(r"(views/)?[a-z_]+\.(html|js|css|svg|json)", path):
            return nothing(request)
        data = self._cache.get(path)
        if data is None:
            found = files("gateway.net").joinpath("static", *path.split("/"))
            if not found.is_file():
                return nothing(request)
            data = self._cache[path] = found.read_bytes()
        kind = "text/javascript" if path.endswith(".js") else mimetypes.guess_type(path)[0] or "text/plain"
        request.setHeader("content-type", f"{kind}; charset=utf-8" if "svg" not in kind else kind)
        return data
