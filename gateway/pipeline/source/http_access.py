"""Queues over HTTP, from a gateway's administration port or a drainer: cursors by JSON, messages as an Arrow stream.

The other side is `journal/service.py`.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from gateway.config.identity import is_loopback
from gateway.pipeline.errors import (
    DataLost,
    GatewayMissing,
    GatewayRefuses,
    LeaseHeld,
    LeaseLost,
    PipelineError,
    QueueRefuses,
    QueueUnreachable,
    WrongOption,
)
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.puts import PutTarget, joined_parts
from gateway.pipeline.source.options import Options
from gateway.pipeline.source.queue_access import BatchExtent, JournalAccess, Piece
from gateway.queue_manager.store.head_numbers import HeadNumbers

TIMEOUT = 60.0
HANDSHAKE = 10.0
"""Seconds for the TLS handshake: a port without TLS waits for the end of a line, and so would we."""
_ERRORS = {kind.__name__: kind for kind in (LeaseHeld, LeaseLost, DataLost, QueueRefuses, WrongOption)}


class StayHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a gateway sends none, and whoever did would have the token sent along, to any host."""

    def redirect_request(self, *_: Any) -> None:
        """Always None, so that the reply is an error like any other."""


class _Connection(http.client.HTTPSConnection):
    """A connection that does not wait for TLS as long as for an answer."""

    def connect(self) -> None:
        """Connect as the library does, with the shorter timeout."""
        whole, self.timeout = self.timeout, min(HANDSHAKE, self.timeout or HANDSHAKE)
        super().connect()
        self.sock.settimeout(whole)


class _Secured(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self.trusted = context

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(_Connection, req, context=self.trusted)


class HttpAddress(NamedTuple):
    """URL and credentials. The token is read from its file where it is used, and never logged."""

    url: str
    token: str
    token_file: str
    ca_file: str
    timeout: float = TIMEOUT
    """Seconds that an answer may take."""

    def open(self, method: str, path: str, query: dict[str, Any], body: Any = None) -> Any:
        """The open response. Errors of the service are raised again as their own class."""
        url = f"{self.url}/api/pipeline/{path}?{urllib.parse.urlencode(query)}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, data=data, method=method)  # noqa: S310 - http and https only, checked below
        if request.type not in ("http", "https"):
            raise WrongOption(f"option 'url' is {self.url!r}: write http://host:port or https://host:port")
        token = self._token()
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        opener = self._opener()
        try:
            return opener.open(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            raise _error_of(self.url, error) from error
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(self.url, error) from error

    def call(self, method: str, path: str, query: dict[str, Any] | None = None, body: Any = None) -> Any:
        """The response as JSON."""
        with self.open(method, path, query or {}, body) as answer:
            return json.load(answer)

    def _token(self) -> str:
        if self.token or not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            kind = GatewayMissing if isinstance(error, FileNotFoundError) else GatewayRefuses
            raise kind(
                f"the token file {self.token_file} cannot be read ({error.strerror}): name the gateway's admin token "
                "as `token_file`, and let this user read it"
            ) from error

    def _opener(self) -> urllib.request.OpenerDirector:
        """An opener that does not use a proxy of the environment for what is on this machine, nor gives it the
        token."""
        handlers: list[urllib.request.BaseHandler] = [_Secured(self._tls()), StayHere()]
        if is_loopback(urllib.parse.urlsplit(self.url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))
        return urllib.request.build_opener(*handlers)

    def _tls(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https"):
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise GatewayRefuses(f"{self.ca_file} ({error}): give a PEM file with certificates as `ca_file`") from error


def _unreachable(url: str, error: Exception) -> QueueUnreachable:
    why = getattr(error, "reason", error)  # urllib's error has the socket's in it
    if isinstance(why, ssl.SSLCertVerificationError):
        return GatewayRefuses(
            f"the certificate of {url} is not trusted here ({why.verify_message}): name the file of the "
            "certificates that it must be signed by as `ca_file`"
        )
    if isinstance(why, ssl.SSLError) or "handshake" in str(why):
        kind = GatewayRefuses if _speaks_plainly(url) else QueueUnreachable
        return kind(
            f"no TLS connection to {url} comes about ({why}): write http:// where the gateway has no `admin.tls`"
        )
    if isinstance(why, socket.gaierror) and why.errno != socket.EAI_AGAIN:
        return GatewayMissing(f"there is no host of the name in {url} ({why.strerror}): correct `url`")
    if isinstance(why, (ConnectionResetError, http.client.RemoteDisconnected)) and url.startswith("http:"):
        return QueueUnreachable(f"{url} hangs up ({why}): write https:// where the gateway has `admin.tls`")
    return QueueUnreachable(f"{url} does not answer ({why}): is the gateway running there?")


def _speaks_plainly(url: str) -> bool:
    """Whether HTTP without TLS is answered there. A reply 400 does not count: web servers and balancers in front of a
    gateway send it at a port with TLS."""
    there = urllib.parse.urlsplit(url)
    try:
        with socket.create_connection((there.hostname or "", there.port or 443), timeout=HANDSHAKE) as asked:
            asked.sendall(b"GET / HTTP/1.0\r\n\r\n")
            with asked.makefile("rb") as answer:
                said = answer.readline(64).split()
            return bool(said) and said[0].startswith(b"HTTP/") and said[1:2] != [b"400"]
    except OSError:
        return False


def _error_of(url: str, error: urllib.error.HTTPError) -> PipelineError:
    if error.code in (401, 403):
        return GatewayRefuses(
            f"{url} refuses the token: give the gateway's admin token (`token_file` of a job, "
            "--token-file, or option tokenFile of the data source)"
        )
    try:
        answer = json.loads(error.read())
        return _ERRORS.get(answer.get("kind", ""), PipelineError)(answer["error"])
    except (ValueError, KeyError, AttributeError):
        return QueueUnreachable(f"{url} answers {error.code} {error.reason}: is this a gateway's administration port?")


class HttpPiece(NamedTuple):
    """A range of message numbers that a task fetches."""

    address: HttpAddress
    queues: str
    low: int
    high: int

    def chunks(self, rows: int, heads: HeadNumbers | None = None) -> Iterator[Any]:
        """The chunks that the gateway sends, in the size that it chooses."""
        from gateway.pipeline.journal.chunks import read_stream

        del rows, heads
        query = {"queues": self.queues, "from": self.low, "to": self.high}
        with self.address.open("GET", "messages", query) as answer:
            yield from read_stream(answer)


BEYOND = 1 << 59
"""A number that no message has."""


class HttpAccess:
    """Cursors and messages through the gateway."""

    def __init__(self, options: Options, timeout: float = TIMEOUT) -> None:
        self.address = HttpAddress(options.url, options.token, options.token_file, options.ca_file, timeout)

    def acquire(self, wanted: ConsumerGroup, owner: str, ttl: float) -> ConsumerGroup:
        """Take the group's lease."""
        given = {"name": wanted.name, "queues": wanted.queues, "consume": wanted.consume, "delay": wanted.delay}
        answer = self.address.call("POST", "acquire", body={**given, "owner": owner, "ttl": ttl})
        return ConsumerGroup.from_json(answer)

    def acknowledge(self, name: str, epoch: int, cursor: int, ttl: float, *, last: bool = False) -> None:
        """Tell that everything below `cursor` has landed."""
        del last
        self.address.call("POST", "acknowledge", body={"name": name, "epoch": epoch, "cursor": cursor, "ttl": ttl})

    def release(self, name: str, epoch: int) -> None:
        """Give the lease back."""
        self.address.call("POST", "release", body={"name": name, "epoch": epoch})

    def extent(self, queues: str, low: int, rows: int | None, size: int | None = None) -> BatchExtent:
        """The extent of a batch, from the gateway's own index."""
        query = {"queues": queues, "from": low, "rows": rows or 0, "bytes": size or 0}
        answer = self.address.call("GET", "extent", query)
        return BatchExtent(answer["next"], answer["messages"])

    def next_number(self, queues: str) -> int | None:
        """The number in an extent that has no messages; gateways of earlier releases do not tell it."""
        number: int | None = self.address.call("GET", "extent", {"queues": queues, "from": BEYOND}).get("number")
        return number

    def journal(self, queues: str) -> str | None:
        """The name of the journal, told with the same extent; gateways of earlier releases do not tell it either."""
        name: str | None = self.address.call("GET", "extent", {"queues": queues, "from": BEYOND}).get("journal")
        return name

    def number_at(self, queues: str, micros: int) -> int:
        """The number of the first message at a time, which the gateway looks up in its files."""
        return int(self.address.call("GET", "since", {"queues": queues, "micros": micros})["next"])

    def count(self, queues: str, low: int, high: int) -> int:
        """How many messages are on the queues between two numbers."""
        return int(self.address.call("GET", "count", {"queues": queues, "from": low, "to": high})["messages"])

    def pieces(self, queues: str, low: int, high: int, parts: int) -> list[Piece]:
        """The range in equal parts."""
        return [HttpPiece(self.address, queues, first, end) for first, end in split_range(low, high, parts)]

    def put(self, target: PutTarget, parts: list[bytes], txn: str, batch: int) -> int:
        """Put a batch with one request, so that it is one unit of work."""
        query = {
            "queue": target.queue,
            "priority": target.priority,
            "expiry": target.expiry,
            "persistent": "true" if target.persistent else "false",
            "txn": txn,
            "batch": batch,
        }
        return int(self.address.call("POST", "put", query, joined_parts(parts))["messages"])


def split_range(low: int, high: int, parts: int) -> list[tuple[int, int]]:
    """`parts` nearly equal ranges, none of which is empty."""
    rows = high - low
    parts = max(1, min(parts, rows))
    cuts = [low + rows * part // parts for part in range(parts + 1)]
    return [(first, last) for first, last in pairwise(cuts) if last > first]


class MixedAccess:
    """Cursors through a running gateway, messages from its files."""

    def __init__(self, remote: HttpAccess, local: JournalAccess) -> None:
        self._remote, self._local = remote, local
        self.acknowledge = remote.acknowledge
        self.release = remote.release
        self.put = remote.put
        self.extent = local.extent
        self.next_number = local.next_number
        self.count = local.count
        self.number_at = local.number_at
        self.pieces = local.pieces

    def acquire(self, wanted: ConsumerGroup, owner: str, ttl: float) -> ConsumerGroup:
        """Take the group's lease, if it is one of the journal whose messages are read."""
        self.journal(wanted.queues)
        return self._remote.acquire(wanted, owner, ttl)

    def journal(self, queues: str) -> str | None:
        """The name of the journal. Raises WrongOption if that of the gateway is another one: it would purge messages by
        the numbers of others that have landed."""
        name, files = self._remote.journal(queues), self._local.journal(queues)
        if name and files and name != files:
            raise WrongOption(
                f"{self._local.folder} and {self._remote.address.url} are two queue managers, and numbers of one say "
                "nothing of the other's messages: give the data folder of that gateway as `path`, or leave `path` out"
            )
        return name or files


def access_by(options: Options, timeout: float = TIMEOUT) -> HttpAccess | JournalAccess | MixedAccess:
    """The access by the address of a gateway, by its files, or by both: then messages are read from files, and the
    gateway keeps the cursors."""
    if not options.url:
        return JournalAccess(Path(options.path))
    remote = HttpAccess(options, timeout)
    return MixedAccess(remote, JournalAccess(Path(options.path))) if options.path else remote
