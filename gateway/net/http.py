"""The HTTP server of the admin port, and pages that are answered from memory. Knows nothing of what it serves."""

from __future__ import annotations

import json
import socket
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from http import HTTPStatus
from time import monotonic
from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger, LogPublisher
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from gateway.net.calls import MAX_BODY
from gateway.net.descriptors import connections_of_operators

Answer = tuple[int, bytes, str]
"""Status, body, content type."""
Took = Callable[[float, str, str], None]
MAX_CONNECTIONS = 500
BACKLOG = 50
TURN_SECONDS = 0.02
"""How long one turn of the reactor may spend on requests, of all connections together."""
LONG_SECONDS = 0.02
"""A request that took longer is named if the turn becomes a stall."""
MAX_HEAD = 32 << 10
"""The most bytes of a request's address and headers."""
REQUEST_SECONDS = 120
"""The longest time from the first byte of a request to its last: one that comes byte by byte would keep its connection
for ever."""
LINGER_SECONDS = 2
"""What a refused client still sends is read and thrown away until it has been silent for this long: if a connection is
closed with something unread it is reset, and the answer is lost."""
MAX_THROWN_AWAY = 16 << 20
SILENT_SECONDS = 60
"""How long a connection is kept on which nothing happens: no request, and after an answer its client has not read all
of it. Twisted looks after connections that stay open, not after those that end with their answer."""
MAX_UNREAD = 64 << 20
"""Bytes of answers that wait for their clients, of all connections together, besides the 64 KiB of each that Twisted
keeps before it says so."""
OTHER_PROTOCOLS = {
    b"\x10": "the client speaks MQTT: this is the administration port, and devices connect to a listener",
    b"\x16": "the client speaks TLS: the administration port has none without `admin.tls`",
}
"""What most often comes to the wrong port: its first byte, with which no request begins, and what is said about it.
Waiting for the end of a line that never comes would tell nobody."""
HEADERS = {
    "content-security-policy": "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
"""What restricts browsers; these are headers of every answer."""
_HEADER_LINES = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())


def problem(request: Request, status: int, detail: str) -> bytes:
    """An answer that says what is wrong, in the form that the API uses."""
    request.setResponseCode(status)
    request.setHeader("content-type", "application/problem+json")
    return _problem(status, detail)


def _problem(status: int, detail: str) -> bytes:
    return json.dumps({"title": HTTPStatus(status).phrase, "status": status, "detail": detail}).encode()


def only_read(request: Request) -> bytes | None:
    """The answer to a method other than GET and HEAD; None: the method is one of these."""
    if request.method in {b"GET", b"HEAD"}:
        return None
    request.setHeader("allow", "GET, HEAD")
    return problem(request, 405, f"{request.method.decode('latin-1')} is not offered here")


def nothing(request: Request) -> bytes:
    """The answer for an address at which there is nothing."""
    return problem(request, 404, f"there is nothing at {request.path.decode('latin-1')}")


class Folder(Resource):
    """Resources by name. Twisted's own pages would say in another form that something does not exist."""

    def getChild(self, path: bytes, request: Request) -> Resource:
        """The resource for a name that does not exist."""
        del path, request
        return _Nothing()

    def render(self, request: Request) -> bytes:
        """Answer that there is nothing: only what is in the folder can be read."""
        return nothing(request)


class _Nothing(Resource):
    isLeaf = True

    def render(self, request: Request) -> bytes:
        return nothing(request)


class _Read(Resource):
    isLeaf = True

    def render(self, request: Request) -> bytes | int:
        """Answer, or say why not."""
        refused = only_read(request)
        if refused is not None:
            return refused
        if any(request.postpath or ()):
            return nothing(request)
        return self._answered(request)

    def _answered(self, request: Request) -> bytes | int:
        raise NotImplementedError


class Page(_Read):
    """A resource whose GET is answered from memory."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        super().__init__()
        self._answer = answer

    def _answered(self, request: Request) -> bytes:
        return _headed(request, self._answer(request))


class LongPage(_Read):
    """A resource whose answer is made in steps, between which others are served."""

    def __init__(
        self, steps: Callable[[Request], Generator[None, None, Answer]], run: Callable[[Iterator[None]], None]
    ) -> None:
        super().__init__()
        self._steps = steps
        self._run = run

    def _answered(self, request: Request) -> int:
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)  # the client has not waited for it
        self._run(_finished(request, self._steps(request), gone))
        return int(NOT_DONE_YET)


def _finished(request: Request, steps: Generator[None, None, Answer], gone: list[object]) -> Iterator[None]:
    while not gone:
        try:
            next(steps)
        except StopIteration as over:
            body = _headed(request, over.value)
            request.setHeader("content-length", str(len(body)))
            request.write(body)
            request.finish()
            return
        except Exception:  # noqa: BLE001 -- as where it is answered at once
            request.processingFailed(Failure())
            return
        yield


def _headed(request: Request, answer: Answer) -> bytes:
    status, body, content_type = answer
    request.setResponseCode(status)
    request.setHeader("content-type", content_type)
    return body


class Bounded(Resource):
    """A resource that says how long a body may be before any of it is read."""

    def most(self, request: Request, method: str, path: str) -> int | None:
        """The longest body of a request of which only the headers are known, with its path below this resource; None:
        the request will be refused, so nothing of its body is kept."""
        raise NotImplementedError


class BoundedRequest(Request):
    """A request whose body is bounded: the connection ends if it is announced or sent with more. It is answered in its
    turn. Forms are not read, as no operation has one."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, parsePOSTFormSubmission=False, **named)
        self._length = 0
        self._most: int | None = None

    def gotLength(self, length: int | None) -> None:
        """All headers have arrived: who makes the request, and for what, decides how much of the body is kept."""
        channel: Any = self.channel
        self._most = channel.site.most(self, channel._command, channel._path)  # noqa: SLF001 -- public only once the body is here
        too_long = length is not None and length > self._longest
        super().gotLength(None if too_long else length)
        if too_long:
            self._refuse()

    @property
    def _longest(self) -> int:
        return MAX_BODY if self._most is None else self._most

    def handleContentChunk(self, data: bytes) -> None:
        """Take a part of the body."""
        self._length += len(data)
        if self._length > self._longest:
            self._refuse()
        elif self._most is not None:
            super().handleContentChunk(data)

    def setResponseCode(self, code: int, message: bytes | None = None) -> None:
        """Set the status, even one for which Twisted has no name."""
        super().setResponseCode(code, message or HTTPStatus(code).phrase.encode())

    def render(self, resrc: Any) -> None:
        """Set the headers of every answer, and answer. Which server this is, and which version, is not said."""
        self.responseHeaders.removeHeader(b"server")
        for name, value in HEADERS.items():
            self.setHeader(name, value)
        super().render(resrc)

    def process(self) -> None:
        """The whole request has arrived: have it answered in its turn."""
        channel: Any = self.channel
        if self.uri == b"*":  # Twisted would answer by itself, and say which server this is
            channel.refuse(400, "there is nothing at *")
        else:
            channel.site.take(self)

    def answer(self) -> None:
        """Answer, as it is this request's turn."""
        super().process()

    def _refuse(self) -> None:
        self.requestHeaders.removeHeader(b"expect")  # the client is not told to continue
        channel: Any = self.channel
        channel.refuse(413, f"a request like this one has at most {self._longest} bytes")


class Connection(HTTPChannel):
    """The connection of one client. What is not even a request is answered before the connection ends."""

    MAX_LENGTH = MAX_HEAD
    totalHeadersSize = 2 * MAX_HEAD  # never reached: `_head` is counted
    site: Any
    _log = Logger(observer=LogPublisher())
    """Twisted would log for whom it has waited too long, and keep the first 200 events for whoever reads them: each
    with its connection and what that has not read."""

    def __init__(self) -> None:
        super().__init__()
        self._head = 0
        """How many bytes the lines of the request have had so far."""
        self._begun: float | None = None
        """When the first byte of the request arrived, if the request is still incomplete."""
        self._refused = False
        self._thrown_away = 0
        self.unread = 0
        """Bytes written since the client has fallen behind."""
        self.behind_since: float | None = None
        """Since when more than Twisted likes to keep waits for the client."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request, or for the rest of one."""
        return self.transport is not None and not self._handlingRequest

    @property
    def is_sending(self) -> bool:
        """Whether its client has not read what is written, or its answer is made while it reads."""
        return self.behind_since is not None or self._requestProducer is not None

    def pauseProducing(self) -> None:
        """The client does not read as fast as is written."""
        if self.behind_since is None:
            self.behind_since = self.site.seconds()
        super().pauseProducing()

    def resumeProducing(self) -> None:
        """The client has read everything."""
        self.read_up()
        super().resumeProducing()

    def read_up(self) -> None:
        """Nothing waits for the client any more."""
        self.site.count_unread(self, -self.unread)
        self.behind_since = None

    def write(self, data: bytes) -> None:
        """Send a part of an answer."""
        super().write(data)
        if self.behind_since is not None:
            self.site.count_unread(self, len(data))

    def loseConnection(self) -> None:
        """Close when the client has read what is written, which it has to do in time."""
        if self.behind_since is None:
            self.behind_since = self.site.seconds()
        super().loseConnection()
        self.setTimeout(SILENT_SECONDS)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget what nobody will read."""
        self.read_up()
        self.site.gone(self)
        super().connectionLost(reason)

    def refuse(self, status: int, detail: str) -> None:
        """Answer, and ignore everything that this client still sends."""
        if self._refused:
            return
        self._refused = True
        title = HTTPStatus(status).phrase
        body = _problem(status, detail)
        head = f"HTTP/1.1 {status} {title}\r\nconnection: close\r\ncontent-type: application/problem+json\r\n"
        transport: Any = self.transport
        transport.write((head + _HEADER_LINES).encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        self.setTimeout(LINGER_SECONDS)

    def dataReceived(self, data: bytes) -> None:
        """Take bytes of the client."""
        begins = self._begun is None and not self._handlingRequest
        late = self._late()
        if self._refused:
            self.resetTimeout()
            self._thrown_away += len(data)
            if late or self._thrown_away > MAX_THROWN_AWAY:
                self.loseConnection()
        elif begins and data[:1] in OTHER_PROTOCOLS:
            self._refuse_other(OTHER_PROTOCOLS[data[:1]])
        elif late:
            self.refuse(408, f"a request has to be here within {REQUEST_SECONDS} seconds")
        else:
            super().dataReceived(data)

    def _refuse_other(self, why: str) -> None:
        peer: Any = self.getPeer()
        self.site.on_other(str(getattr(peer, "host", "")), why)
        self.refuse(400, why)

    def _late(self) -> bool:
        """Whether the request that is arriving has taken too long."""
        if self._handlingRequest:  # its client may send the next one meanwhile, which is not timed
            return False
        now: float = self.site.seconds()
        if self._begun is None:
            self._begun = now
        return now - self._begun > REQUEST_SECONDS

    def allContentReceived(self) -> None:
        """The request is complete."""
        self._begun = None
        super().allContentReceived()

    def lineReceived(self, line: bytes) -> bool:
        """Take a line of a request's head; returns whether no further line is to be read."""
        self._head += len(line)
        if self._head > MAX_HEAD:
            self.lineLengthExceeded(line)
        else:
            super().lineReceived(line)
        if not line:
            self._head = 0
        return self._refused

    def rawDataReceived(self, data: bytes) -> None:
        """Take a part of a body."""
        if not self._refused:
            super().rawDataReceived(data)

    def lineLengthExceeded(self, line: bytes) -> None:
        """Refuse a request whose address, or head, is too long."""
        del line
        self.refuse(431 if self._head else 414, f"address and headers have at most {MAX_HEAD} bytes")

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.refuse(400, "this is not an HTTP request")


class AdminSite(Site):
    """HTTP without an access log, with limits on the number of connections and on how long a silent one is kept."""

    protocol: Any = Connection
    displayTracebacks = False
    noisy = False

    def __init__(self, root: Resource, reactor: Any, took: Took) -> None:
        super().__init__(root, requestFactory=BoundedRequest, timeout=SILENT_SECONDS, reactor=reactor)
        self._reactor = reactor
        self.seconds: Callable[[], float] = reactor.seconds
        self._took = took
        self._open: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()
        """Connections, the oldest first."""
        self._most = min(MAX_CONNECTIONS, connections_of_operators())
        self._waiting: deque[BoundedRequest] = deque()
        self._planned = False
        self._unread = 0
        self.on_other: Callable[[str, str], None] = _no_matter
        """Called with the address of a client that speaks another protocol, and with what is said about that."""

    def most(self, request: Request, method: bytes, uri: bytes) -> int | None:
        """The longest body of a request of which only the headers are known; None: nothing of it is kept."""
        found: Any = self.resource
        rest = uri.partition(b"?")[0].split(b"/")[1:]
        while rest and not found.isLeaf and rest[0] in found.children:
            found = found.children[rest.pop(0)]
        if not isinstance(found, Bounded):
            return None
        return found.most(request, method.decode("latin-1"), "/" + b"/".join(rest).decode("latin-1"))

    def take(self, request: BoundedRequest) -> None:
        """Queue a complete request: requests are answered in order of arrival, as many in one turn as there is time
        for."""
        self._waiting.append(request)
        self._plan()

    def _answer(self) -> None:
        self._planned = False
        begun = now = monotonic()
        while self._waiting and now - begun <= TURN_SECONDS:
            request = self._waiting.popleft()
            channel: Any = request.channel
            if channel is None:  # its client has disconnected
                continue
            peer = str(getattr(request.getClientAddress(), "host", ""))
            request.answer()
            if monotonic() - now > LONG_SECONDS:
                what = f"{request.method.decode('latin-1')} {request.path.decode('latin-1')[:200]}"
                self._took(monotonic() - now, what, peer)
            now = monotonic()
        self._plan()

    def _plan(self) -> None:
        if self._waiting and not self._planned:
            self._planned = True
            self._reactor.callLater(0, self._answer)

    def buildProtocol(self, addr: Any) -> Any:
        """A protocol for a new connection; None refuses the connection."""
        if len(self._open) >= self._most and not self._make_way():
            return None
        protocol = super().buildProtocol(addr)
        self._open[protocol] = None
        return protocol

    def _make_way(self) -> bool:
        """End a connection, because there are as many as allowed; returns whether there was one: the oldest that waits
        for a request or for the rest of one, otherwise the one whose client has been behind for longest, otherwise the
        oldest that follows something. So neither strangers nor readers that do not read keep out probes."""
        victim = next((one for one in self._open if one.is_idle), None)
        if victim is None:
            victim = self._most_behind(one for one in self._open if one.is_sending)
        if victim is not None:
            self._abort(victim)
        return victim is not None

    def _most_behind(self, connections: Iterable[Any]) -> Any:
        now = self.seconds()
        return min(connections, key=lambda one: now if one.behind_since is None else one.behind_since, default=None)

    def count_unread(self, connection: Any, more: int) -> None:
        """Count bytes that wait for their client; while there are too many, who has been behind for longest ends. What
        is still made for a connection that has ended so waits for nobody."""
        if connection not in self._open:
            return
        connection.unread += more
        self._unread += more
        while self._unread > MAX_UNREAD:
            self._abort(self._most_behind(one for one in self._open if one.unread))

    def gone(self, connection: Any) -> None:
        """A connection has ended."""
        self._open.pop(connection, None)

    def _abort(self, connection: Any) -> None:
        connection.read_up()
        self.gone(connection)
        connection.transport.abortConnection()

    def log(self, request: Any) -> None:
        """Write no access log: it would be full of scrapes."""


def _no_matter(_peer: str, _why: str) -> None:
    pass


def _nobody(_seconds: float, _what: str, _who: str) -> None:
    pass


def bind(address: str, port: int) -> socket.socket:
    """Bind a socket to an address; nobody can connect yet. Raises OSError if that is not possible."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock


def listen(
    reactor: Any, root: Resource, sock: socket.socket, took: Took = _nobody,
    secured: Callable[[AdminSite], Any] = lambda site: site, other: Callable[[str, str], None] = _no_matter,
) -> IListeningPort:  # fmt: skip
    """Serve `root` on a socket that is bound. `took`: called for requests that took long, with the seconds, what was
    requested and by whom. `secured`: makes a site with TLS from the plain one. `other`: called for clients that speak
    another protocol."""
    with sock:
        sock.listen(BACKLOG)
        sock.settimeout(0)
        plain = AdminSite(root, reactor, took)
        plain.on_other = other
        site = secured(plain)
        listening: IListeningPort = reactor.adoptStreamPort(sock.fileno(), sock.family, site)
    return listening
