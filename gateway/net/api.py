"""The JSON API and the page beneath and beside it: tokens, roles, Host and Origin checks, security headers.

Endpoints are plain functions of a `Call`; what they answer is JSON, a `Stream` of server-sent events, or `Later`, when
it is found out elsewhere. What is not as openapi.json describes it is refused before they see it. This module knows
HTTP and none of their business.
"""

from __future__ import annotations

import hmac
import json
import mimetypes
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, unquote

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from gateway.net.contract import Unfit, read_json, shipped
from gateway.net.http import MAX_BODY

READ_ONLY, OPERATOR = "read_only", "operator"
_HEADERS = {
    "content-security-policy": "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class Problem(Exception):
    """An error answer; `detail` says what to do."""

    def __init__(self, status: int, title: str, detail: str, **more: object) -> None:
        super().__init__(detail)
        self.status = status
        self.body = {"title": title, "status": status, "detail": detail, **more}


@dataclass(slots=True)
class Call:
    """One request."""

    path: dict[str, str]
    query: dict[str, str]
    body: dict[str, Any]
    role: str
    peer: str = ""

    def number(self, name: str, default: int, most: int) -> int:
        """A number of the query."""
        text = self.query.get(name)
        if text is None:
            return default
        if not text.isdigit():
            raise Problem(400, "Bad request", f"{name} has to be a number")
        return min(int(text), most)


@dataclass(slots=True)
class Stream:
    """Server-sent events: `begin(send)` starts them and answers what stops them."""

    begin: Callable[[Callable[[str, object], None]], Callable[[], None]]


Answered = Callable[[tuple[int, object] | Exception], None]
"""Called with status and answer, or with the error."""


@dataclass(slots=True)
class Later:
    """An answer that is made elsewhere: `begin(answered)` starts that."""

    begin: Callable[[Answered], None]


@dataclass(slots=True)
class Endpoint:
    """A method and path of the API."""

    method: str
    pattern: re.Pattern[str]
    role: str
    handle: Callable[[Call], tuple[int, object]]
    path: str = ""
    """As in the document, with its parameters in braces."""


@dataclass(slots=True)
class Guard:
    """Who may call: tokens by role, and the accepted values of Host."""

    tokens: dict[str, str] = field(default_factory=dict)
    """Token: role."""
    hosts: frozenset[str] = frozenset()
    audit: Callable[[str, str, str, int], None] = lambda _peer, _role, _what, _status: None
    on_defect: Callable[[Exception, str], None] = lambda _error, _what: None

    def use(self, fresh: Guard) -> None:
        """Use other tokens and hosts from the next request on."""
        self.tokens, self.hosts = fresh.tokens, fresh.hosts

    def role_of(self, authorization: str) -> str | None:
        """The role of a bearer token, compared in constant time."""
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        found = None
        for token, role in self.tokens.items():
            if hmac.compare_digest(token.encode(), given.strip().encode()):
                found = role
        return found


def endpoint(method: str, path: str, role: str, handle: Callable[[Call], tuple[int, object]]) -> Endpoint:
    """`/queues/{queue}` matches one path segment, percent-encoded."""
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)
    return Endpoint(method, re.compile(pattern + r"\Z"), role, handle, path)


class Api(Resource):
    """Everything below /api/v1."""

    isLeaf = True

    def __init__(self, endpoints: list[Endpoint], guard: Guard) -> None:
        super().__init__()
        self._endpoints = endpoints
        self._guard = guard
        self._contract = shipped()

    def render(self, request: Request) -> Any:
        """Answer a request."""
        for name, value in _HEADERS.items():
            request.setHeader(name, value)
        peer = str(getattr(request.getClientAddress(), "host", ""))
        role = self._guard.role_of(header(request, "authorization"))
        found: tuple[int, object] | Exception
        try:
            found = self._dispatch(request, role, peer)
        except Exception as error:  # noqa: BLE001 -- told apart where it is answered
            found = error
        if isinstance(found, tuple) and isinstance(found[1], Later):
            return self._later(request, found[1], role or "", peer)
        status, answer = self._outcome(request, found, role or "", peer)
        return _stream(request, answer) if isinstance(answer, Stream) else _written(request, status, answer)

    def _outcome(
        self, request: Request, found: tuple[int, object] | Exception, role: str, peer: str
    ) -> tuple[int, object]:
        """Status and answer, noted where somebody may ask for it."""
        if isinstance(found, Problem):
            found = found.status, found.body
        elif isinstance(found, Exception):  # the log has the error; the answer does not show it
            self._guard.on_defect(found, peer)
            found = 500, Problem(500, "Defect", "the log says more: look for `defect`").body
        method = request.method.decode()
        if method != "GET" or found[0] in {401, 403, 421}:
            self._guard.audit(peer, role, f"{method} {request.path.decode('latin-1')}", found[0])
        return found

    def _later(self, request: Request, later: Later, role: str, peer: str) -> int:
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)  # the client has not waited for it

        def answered(found: tuple[int, object] | Exception) -> None:
            status, answer = self._outcome(request, found, role, peer)
            if not gone:
                body = _written(request, status, answer)
                request.setHeader("content-length", str(len(body)))
                request.write(body)
                request.finish()

        later.begin(answered)
        return int(NOT_DONE_YET)

    def _dispatch(self, request: Request, role: str | None, peer: str) -> tuple[int, object]:
        check_host(request, self._guard.hosts)
        if role is None:
            raise Problem(401, "Not signed in", "send the token of admin.token_file as a bearer token")
        # Twisted has already decoded postpath; a client identifier may contain a slash, so the raw path is matched.
        raw = request.path.split(b"/")
        path = "/" + b"/".join(raw[len(raw) - len(request.postpath or ()) :]).decode("latin-1")
        method = request.method.decode()
        found = [(one, match) for one in self._endpoints if (match := one.pattern.match(path))]
        if not found:
            raise Problem(404, "Not found", f"there is nothing at {path}")
        for one, match in found:
            if one.method == method:
                if one.role == OPERATOR and role != OPERATOR:
                    raise Problem(403, "Not allowed", "this token may only read")
                arguments = {name: unquote(value) for name, value in match.groupdict().items()}
                return one.handle(self._call(request, one, arguments, role, peer))
        request.setHeader("allow", ", ".join(sorted({one.method for one, _ in found})))
        raise Problem(405, "Method not allowed", f"{method} is not offered at {path}")

    def _call(self, request: Request, one: Endpoint, arguments: dict[str, str], role: str, peer: str) -> Call:
        """The request as the document describes it (Problem)."""
        query = parse_qs(request.uri.partition(b"?")[2].decode("latin-1"), keep_blank_values=True)  # not the body's
        body = _body(request, one.method)
        try:
            self._contract.check_query(one.method, one.path, query)
            self._contract.check_body(one.method, one.path, body)
        except Unfit as error:
            raise Problem(400, "Bad request", str(error)) from error
        return Call(arguments, {name: values[-1] for name, values in query.items()}, body or {}, role, peer)


def header(request: Request, name: str) -> str:
    """A header as it came, byte for byte: Twisted's own reading fails on what is not UTF-8."""
    found = request.requestHeaders.getRawHeaders(name.encode())
    return found[-1].decode("latin-1") if found else ""


def check_host(request: Request, hosts: frozenset[str]) -> None:
    """Refuse requests under another host name, and writes from the page of another origin."""
    host, origin = header(request, "host"), header(request, "origin")
    name = re.sub(r":\d+\Z", "", host)
    if hosts and name not in hosts:
        raise Problem(421, "Unknown host", f"add {name!r} to admin.hosts if this is the gateway's name")
    if origin and request.method != b"GET" and origin.partition("://")[2] != host:
        raise Problem(403, "Foreign origin", "write from the gateway's own page, or without an Origin header")


def _body(request: Request, method: str) -> dict[str, Any] | None:
    if method in {"GET", "DELETE"}:
        return None
    content: Any = request.content
    raw = content.read(MAX_BODY + 1)
    if len(raw) > MAX_BODY:
        raise Problem(413, "Too long", f"a request has at most {MAX_BODY} bytes")
    if not raw.strip():
        return None
    try:
        value = read_json(raw)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "Bad request", f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Problem(400, "Bad request", "the body has to be a JSON object")
    return value


def _written(request: Request, status: int, answer: object) -> bytes:
    """The body; status and headers are set."""
    request.setResponseCode(status)
    if status == 401:
        request.setHeader("www-authenticate", "Bearer")
    if status == 204:
        return b""
    request.setHeader("content-type", "application/problem+json" if status >= 400 else "application/json")
    return json.dumps(answer, ensure_ascii=False, default=str).encode("utf-8", "replace")


def _stream(request: Request, stream: Stream) -> int:
    request.setHeader("content-type", "text/event-stream")
    request.write(b": open\n\n")

    def send(event: str, data: object) -> None:
        request.write(f"event: {event}\ndata: {json.dumps(data, default=str)}\n\n".encode())

    stop = stream.begin(send)
    request.notifyFinish().addBoth(lambda _: stop())
    return int(NOT_DONE_YET)


class Static(Resource):
    """The page: files of the package, no directory listing, nothing else reachable."""

    isLeaf = True

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard
        self._cache: dict[str, bytes] = {}

    def render_GET(self, request: Request) -> bytes:
        """A file, or the page itself."""
        for name, value in _HEADERS.items():
            request.setHeader(name, value)
        try:
            check_host(request, self._guard.hosts)
        except Problem as problem:
            request.setResponseCode(problem.status)
            return str(problem).encode()
        path = "/".join(segment.decode("latin-1") for segment in request.postpath or ()) or "index.html"
        if not re.fullmatch(r"(views/)?[a-z_]+\.(html|js|css|svg|json)", path):
            request.setResponseCode(404)
            return b"not found"
        data = self._cache.get(path)
        if data is None:
            found = files("gateway.net").joinpath("static", *path.split("/"))
            if not found.is_file():
                request.setResponseCode(404)
                return b"not found"
            data = self._cache[path] = found.read_bytes()
        kind = "text/javascript" if path.endswith(".js") else mimetypes.guess_type(path)[0] or "text/plain"
        request.setHeader("content-type", f"{kind}; charset=utf-8" if "svg" not in kind else kind)
        return data
