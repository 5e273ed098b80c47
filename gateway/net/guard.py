"""Who may use the admin port, and from where: tokens, sessions, host names, pages of other sites."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from twisted.web.server import Request

from gateway.net.calls import Act, Problem
from gateway.ports.people import NOBODY, PUBLIC, Caller, allows

COOKIE = "mqgate_session"
FORM_TOKEN = "x-form-token"  # noqa: S105 -- the name of a header


@dataclass(slots=True)
class Guard:
    """Who may call: tokens and their callers, those whom others know, and the accepted values of Host."""

    tokens: dict[str, Caller] = field(default_factory=dict)
    """Of files."""
    hosts: frozenset[str] = frozenset()
    of_token: Callable[[str], Caller | None] = lambda _token: None
    """Whose token this is, if it is not one of `tokens`."""
    of_cookie: Callable[[str], Caller | None] = lambda _cookie: None
    """Whose session this cookie stands for."""
    audit: Callable[[Act], None] = lambda _act: None
    on_defect: Callable[[Exception, str], None] = lambda _error, _what: None

    def use(self, fresh: Guard) -> None:
        """Use the tokens and hosts of another guard from the next request on."""
        self.tokens, self.hosts = fresh.tokens, fresh.hosts

    def caller_of(self, request: Request) -> Caller:
        """Who makes a request. If its token is wrong, it is nobody, whatever cookie comes with it."""
        authorization = header(request, "authorization")
        if authorization:
            return self._of_token(authorization) or NOBODY
        cookie = cookie_of(request, COOKIE)
        return (self.of_cookie(cookie) if cookie else None) or NOBODY

    def _of_token(self, authorization: str) -> Caller | None:
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        found = None
        for token, caller in self.tokens.items():  # all of them are compared, each in constant time
            if hmac.compare_digest(token.encode(), given.strip().encode()):
                found = caller
        return found or self.of_token(given.strip())

    def check(self, request: Request, caller: Caller, needed: str, method: str) -> None:
        """Raise Problem unless this caller may do what needs this role."""
        if not allows(caller.role, needed):
            if not caller.role:
                raise Problem(401, "Not signed in", "sign in, or send a token as a bearer token")
            raise Problem(403, "Not allowed", f"{caller.user} is {caller.role}; this needs {needed}")
        given = header(request, FORM_TOKEN)
        if (
            needed != PUBLIC
            and caller.form_token
            and method != "GET"
            and not hmac.compare_digest(given.encode(), caller.form_token.encode())
        ):
            raise Problem(403, "Foreign form", f"repeat form_token of /me in the header {FORM_TOKEN}")


def header(request: Request, name: str) -> str:
    """A header as it was sent, byte for byte: Twisted's own decoding fails on what is not UTF-8."""
    found = request.requestHeaders.getRawHeaders(name.encode())
    return found[-1].decode("latin-1") if found else ""


def check_host(request: Request, hosts: frozenset[str], method: str) -> None:
    """Refuse requests with another host name, and changes requested by a page of another origin. Raises Problem."""
    host, origin = header(request, "host"), header(request, "origin")
    name = re.sub(r":\d+\Z", "", host)
    if hosts and name not in hosts:
        raise Problem(421, "Unknown host", f"add {name!r} to admin.hosts if this is the gateway's name")
    if origin and method != "GET" and origin.partition("://")[2] != host:
        raise Problem(403, "Foreign origin", "write from the gateway's own page, or without an Origin header")


def cookie_of(request: Request, name: str) -> str:
    """A cookie; empty: there is none. If there are two of one name, nobody knows who has set which, so neither
    counts."""
    text = "; ".join(one.decode("latin-1") for one in request.requestHeaders.getRawHeaders(b"cookie") or ())
    if len(re.findall(rf"(?:^|;)\s*{re.escape(name)}\s*=", text)) != 1:
        return ""
    try:
        found = SimpleCookie(text).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def cookie_text(
    name: str, value: str, *, secure: bool, same_site: str = "Strict", path: str = "/", seconds: int | None = None
) -> str:
    """The header value that sets a cookie, which scripts cannot read. `seconds`: how long the browser keeps it, if not
    only for as long as it runs."""
    parts = [f"{name}={value}", f"Path={path}", "HttpOnly", f"SameSite={same_site}"]
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    return "; ".join([*parts, "Secure"] if secure else parts)
