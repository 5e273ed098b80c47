"""A request to a provider of identities over HTTP, on a thread: bounded in time and size, to allowed addresses only,
without proxies, cookies and, unless they are wanted, redirects.

The name is resolved once, and the connection goes to an address that was checked, so that a second answer of a name
server cannot lead elsewhere. Time is bounded as a whole: a provider that sends a byte now and then is as slow as one
that sends none.
"""

from __future__ import annotations

import errno
import io
import ipaddress
import json
import os
import select
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from gateway.access.patience import STEP, Patience
from gateway.config.identity import is_loopback
from gateway.version import VERSION

MAX_ANSWER, _HEAD = 1 << 18, 1 << 16
"""The most bytes of an answer's body, and of what comes before it and between its parts."""
MAX_REDIRECTS = 3
_REDIRECTS = {301, 302, 303, 307, 308}
_AGENT = f"mqgate/{VERSION}"


class Unanswered(Exception):
    """There is no usable answer; the text says why, and what to do about it."""


@dataclass(slots=True, frozen=True)
class Manner:
    """How a provider is asked."""

    timeout: float
    ca: str | None = None
    private_addresses: bool = False
    redirects: bool = False
    max_answer: int = MAX_ANSWER


class Answer(NamedTuple):
    """A JSON document, and how long it may be kept."""

    value: Any
    max_age: float | None = None


class _Incoming(io.RawIOBase):
    """What a socket receives, bounded in time and bytes."""

    def __init__(self, connection: socket.socket, patience: Patience, room: int) -> None:
        super().__init__()
        self._connection, self._patience, self._room = connection, patience, room

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._room <= 0:  # counts what is not the body too: lines before it, marks of chunks
            raise ValueError("it sends more than an answer may have")

        def received(seconds: float) -> int:
            self._connection.settimeout(seconds)
            return self._connection.recv_into(buffer)

        count = self._patience.call(received)
        self._room -= count
        return count


class _Readable:
    """A socket in the form that `HTTPResponse` wants."""

    def __init__(self, connection: socket.socket, patience: Patience, room: int) -> None:
        self._incoming = _Incoming(connection, patience, room)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """The bytes that arrive."""
        return io.BufferedReader(self._incoming)


def ask(
    url: str, manner: Manner, origin: str = "", body: bytes | None = None, headers: dict[str, str] | None = None
) -> Answer:
    """The JSON document at `url`; `body` is sent there, if given. `origin`: the address in the settings that led here;
    only if that is loopback itself may it lead to loopback. Blocks, so it is called on threads only. Raises
    Unanswered."""
    patience = Patience(manner.timeout)
    try:
        first = urlsplit(origin or url)
        for _ in range(MAX_REDIRECTS + 1):
            response, data = _exchange(urlsplit(url), first, manner, patience, body, headers or {})
            if response.status not in _REDIRECTS or body is not None:
                return _document(url, response, data)
            url = _redirected(url, response, manner)
    except TimeoutError as error:
        raise Unanswered(f"{shown(url)} has not answered within {manner.timeout:g} s") from error
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        raise Unanswered(f"{shown(url)}: {str(error)[:200] or type(error).__name__}") from error
    raise Unanswered(f"{shown(url)} is redirected more than {MAX_REDIRECTS} times")


def _redirected(url: str, response: HTTPResponse, manner: Manner) -> str:
    target = urljoin(url, response.getheader("Location") or "")
    if not manner.redirects:
        raise Unanswered(f"{shown(url)} redirects to {shown(target)}: write that address, or `redirects: true`")
    return target


def _document(url: str, response: HTTPResponse, data: bytes) -> Answer:
    if response.status != 200:
        raise Unanswered(f"{shown(url)} answers {response.status} {response.reason[:60]}")
    return Answer(json.loads(data), _max_age(response.getheader("Cache-Control") or ""))


def _max_age(control: str) -> float | None:
    for directive in control.lower().split(","):
        name, _, value = directive.strip().partition("=")
        if name in {"no-store", "no-cache"}:
            return 0.0
        if name == "max-age" and value.isdigit() and len(value) < 10:
            return float(value)
    return None


def _exchange(
    place: SplitResult, first: SplitResult, manner: Manner, patience: Patience,
    body: bytes | None, headers: dict[str, str],
) -> tuple[HTTPResponse, bytes]:  # fmt: skip
    """Make one request; returns the response and its body."""
    with _connected(place, first, manner, patience) as connection:
        connection.settimeout(max(STEP, patience.left))
        connection.sendall(_request(place, body, headers))
        readable: Any = _Readable(connection, patience, manner.max_answer + _HEAD)
        response = HTTPResponse(readable, method="GET" if body is None else "POST")
        response.begin()
        data = response.read(manner.max_answer + 1)
        if len(data) > manner.max_answer:
            raise Unanswered(f"the answer of {shown(place.geturl())} has more than {manner.max_answer} bytes")
        if response.length:
            raise ValueError("it ends before the length that it has announced")
        return response, data


def _request(place: SplitResult, body: bytes | None, headers: dict[str, str]) -> bytes:
    target = (place.path or "/") + (f"?{place.query}" if place.query else "")
    lines = {"Host": place.netloc.rpartition("@")[2], "User-Agent": _AGENT, "Accept": "application/json"}
    lines |= {"Connection": "close", **headers}
    if body is not None:
        lines = {"Content-Type": "application/json", **lines, "Content-Length": str(len(body))}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if any(not one.isprintable() or one == " " for one in target) or text.count("\r\n") != len(lines):
        raise ValueError("an address or a header has characters that cannot be sent")
    method = "GET" if body is None else "POST"
    return f"{method} {target} HTTP/1.1\r\n{text}\r\n".encode("ascii") + (body or b"")


def _connected(place: SplitResult, first: SplitResult, manner: Manner, patience: Patience) -> socket.socket:
    """A connection to an allowed address of the place, with TLS if its scheme says so."""
    host, secure = place.hostname or "", place.scheme == "https"
    loopback = is_loopback(host) and is_loopback(first.hostname or "")
    if place.scheme not in {"http", "https"} or not (secure or loopback):
        raise Unanswered(f"{shown(place.geturl())} is not https")
    port = place.port or (443 if secure else 80)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    allowed = [one[4] for one in found if _is_allowed(str(one[4][0]), manner, loopback=loopback)]
    if not allowed:
        raise Unanswered(f"{host} is {found[0][4][0]}, an address of a private network: `private_addresses: true`"
                         " allows it")  # fmt: skip
    connection = _first_that_answers(allowed, patience)
    if not secure:
        return connection
    try:
        context = ssl.create_default_context(cafile=manner.ca)
        return shaken(context.wrap_socket(connection, server_hostname=host, do_handshake_on_connect=False), patience)
    except BaseException:
        connection.close()
        raise


def shaken(secure: ssl.SSLSocket, patience: Patience) -> ssl.SSLSocket:
    """The connection after its handshake."""

    def handshake(seconds: float) -> None:
        secure.settimeout(seconds)
        secure.do_handshake()

    patience.call(handshake)
    return secure


def _first_that_answers(addresses: list[Any], patience: Patience) -> socket.socket:
    """A connection to the first address that answers. Each has its share of the time that is left, because a machine
    often has an IPv6 address that leads nowhere."""
    error: OSError = ConnectionError("no address")
    for tried, address in enumerate(addresses):
        part = patience.left / (len(addresses) - tried)
        own = Patience(part)
        try:
            return _connect(address, own)
        except OSError as failure:
            error = failure
        finally:
            patience.left -= part - own.left
    raise error


def _connect(address: Any, patience: Patience) -> socket.socket:
    """Connect in steps, like waiting for an answer: time in which this process stands still does not count."""
    connection = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        connection.settimeout(0)
        why = connection.connect_ex(address)
        if why == errno.EINPROGRESS:
            patience.call(partial(_writable, connection))
            why = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if why:
            raise OSError(why, os.strerror(why))  # noqa: TRY301 -- the socket is closed below
    except BaseException:
        connection.close()
        raise
    return connection


def _writable(connection: socket.socket, seconds: float) -> None:
    watched = select.poll()
    watched.register(connection, select.POLLOUT)
    if not watched.poll(seconds * 1000):
        raise TimeoutError


def _is_allowed(address: str, manner: Manner, *, loopback: bool) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return (loopback and found.is_loopback) or (found.is_global and not found.is_multicast) or manner.private_addresses


def shown(url: str) -> str:
    """An address as it may be logged: without user, password and query, and no longer than a line."""
    try:
        place = urlsplit(url)
    except ValueError:
        return "an invalid address"
    return f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}"[:200]
