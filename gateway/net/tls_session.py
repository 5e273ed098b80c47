"""TLS of one connection without its socket: bytes in, bytes out; compiled if there was a compiler at installation.

The Python form is the `ssl` module with its memory BIOs. The compiled form (`_tls.c`) takes less time and memory.
"""

from __future__ import annotations

import contextlib
import math
import ssl
import time
from collections.abc import Callable
from typing import Any, Protocol

LONGEST = 64 << 10
BROKEN_OFF = "the handshake was broken off"
MOST_UPDATES, UPDATES_SECONDS = 32, 10
"""How often a peer may change its keys in so many seconds: each time takes as long as ten records of data."""
TOO_MANY_UPDATES = "too many key updates"
HANDSHAKE, KEY_UPDATE = 22, 24
ENDED = "it resumes a session whose certificate, authority or revocation list has expired since"

Step = tuple[bool, bytes, bytes, str | None]
"""The result of a step of a handshake: whether it is done, what is to be sent, what the client sent after it, and why
the connection is over (None: it goes on; empty: the peer has ended it)."""


class Session(Protocol):
    """The TLS session of one connection."""

    def whole(self, data: bytes, /) -> bytes | None:
        """What was sent, if nothing has to be answered and the connection goes on, as is nearly always so; None:
        `decrypt` of the same data says what has to be done."""

    def decrypt(self, data: bytes, /) -> tuple[bytes, bytes, str | None]:
        """(what was sent, what has to be sent, why the connection is over: None if it is not, empty if the peer has
        ended it)."""

    def encrypt(self, data: bytes, /) -> bytes:
        """The data as records; empty before the handshake is done, or after an error."""

    def close(self) -> bytes:
        """The bytes of the alert close_notify."""

    def certificate(self) -> bytes:
        """The peer's certificate in DER form; empty if it has shown none."""

    def resumed(self) -> bool:
        """Whether the handshake has resumed an earlier session."""

    def version(self) -> str:
        """The protocol version, as OpenSSL names it."""


class Updates:
    """How often the peer of a session has changed its keys of late."""

    __slots__ = ("_count", "_since")

    def __init__(self) -> None:
        self._count = 0
        self._since = 0.0

    @property
    def too_many(self) -> bool:
        """Whether it has done so without end."""
        return self._count > MOST_UPDATES

    def add(self) -> None:
        """It does so once more."""
        now = time.monotonic()
        if now - self._since >= UPDATES_SECONDS and not self.too_many:
            self._since, self._count = now, 0
        self._count += 1


def _heard(tls: Any, direction: str, _version: Any, content: int, message: int, _data: bytes, /) -> None:
    """Look at a message of TLS."""
    if direction == "read" and content == HANDSHAKE and message == KEY_UPDATE:
        tls.updates.add()


class PythonSession:
    """`Session` with the `ssl` module."""

    __slots__ = ("_established", "_failed", "_incoming", "_kept", "_outgoing", "_tls", "_until", "_updates")

    def __init__(self, context: ssl.SSLContext, until: float = math.inf) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._updates = vars(self._tls)["updates"] = Updates()
        self._established = self._failed = False
        self._until = until
        """An earlier session is not resumed after this time."""
        self._kept: tuple[bytes, bytes, str | None] | None = None
        """What `whole` could not return."""

    def step(self, data: bytes) -> Step:
        """Continue the handshake."""
        self._incoming.write(data)
        plain, end = b"", None
        try:
            self._tls.do_handshake()
            self._established = not self._ended()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            end = self._fail(error)
        else:
            self._failed = not self._established
            end = None if self._established else ENDED
        if self._established and self._incoming.pending:
            plain, end = self._read()
        return self._established, self._outgoing.read(), plain, end

    def _ended(self) -> bool:
        """Whether an earlier session was resumed, in which nothing is verified, and its certificate has expired."""
        if not self._tls.session_reused:
            return False
        shown: dict[str, Any] = self._tls.getpeercert() or {}
        ends = ssl.cert_time_to_seconds(shown["notAfter"]) if shown else math.inf
        return time.time() >= min(ends, self._until)

    def decrypt(self, data: bytes, /) -> tuple[bytes, bytes, str | None]:
        """(what was sent, what has to be sent, why the connection is over)."""
        kept, self._kept = self._kept, None
        if kept is not None:
            return kept
        if not self._established or self._failed:
            return b"", b"", ""
        self._incoming.write(data)
        plain, end = self._read()
        return plain, self._outgoing.read(), end

    def whole(self, data: bytes, /) -> bytes | None:
        """What was sent, if nothing has to be answered and the connection goes on; None: `decrypt` says what has to be
        done."""
        if self._kept is None:
            self._kept = self.decrypt(data)
        plain, answer, end = self._kept
        if answer or end is not None:
            return None
        self._kept = None
        return plain

    def _read(self) -> tuple[bytes, str | None]:
        parts: list[bytes] = []
        end = None
        try:
            while True:
                piece = self._tls.read(LONGEST)
                if not piece:
                    end = ""
                    break
                parts.append(piece)
                if not self._incoming.pending and not self._tls.pending():
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            end = ""
        except ssl.SSLError as error:
            end = self._fail(error)
        if end is None and self._updates.too_many:
            self._failed, end = True, TOO_MANY_UPDATES
        return b"".join(parts), end

    def _fail(self, error: ssl.SSLError) -> str:
        self._failed = True
        return (error.reason or BROKEN_OFF).lower().replace("_", " ")

    def encrypt(self, data: bytes, /) -> bytes:
        """The data as records."""
        if not self._established or self._failed or not data:
            return b""
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            self._fail(error)
        return self._outgoing.read()

    def close(self) -> bytes:
        """The bytes of the alert close_notify."""
        if not self._established or self._failed:
            return b""
        with contextlib.suppress(ssl.SSLError):  # the peer's alert has not arrived yet
            self._tls.unwrap()
        return self._outgoing.read()

    def certificate(self) -> bytes:
        """The peer's certificate in DER form; empty if it has shown none."""
        return self._tls.getpeercert(binary_form=True) or b""

    def resumed(self) -> bool:
        """Whether the handshake has resumed an earlier session."""
        return bool(self._tls.session_reused)

    def version(self) -> str:
        """The protocol version, as OpenSSL names it."""
        return self._tls.version() or ""


class PythonContext:
    """What all connections of a listener share. Raises ValueError or OSError if a file cannot be used. If clients show
    certificates there are no tickets, because nothing is verified in a resumed session and `ssl` does not check whether
    it is still good. In TLS 1.2, clients without tickets can still resume a session by its identifier; each of those is
    checked."""

    def __init__(
        self, certificate: str, key: str, ciphers: str, only_1_3: bool, client_ca: str | None, required: bool,
        crl: str | None, until: int, /,
    ) -> None:  # fmt: skip
        context: Any = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context: ssl.SSLContext = context
        context._msg_callback = _heard  # noqa: SLF001 -- nothing else in the module tells of updates of keys
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if only_1_3 else ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_ciphers(ciphers)
        context.num_tickets = 1
        context.load_cert_chain(certificate, key, _no_password)
        self._until = math.inf
        if client_ca is None:
            return
        self._until = until
        context.load_verify_locations(client_ca)
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        if crl is not None:
            context.load_verify_locations(crl)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def session(self) -> PythonSession:
        """The session of a new connection."""
        return PythonSession(self._context, self._until)


def _no_password() -> str:
    raise ValueError("its key is encrypted with a password")


def python_handshakes(steps: list[tuple[Any, bytes]], /) -> list[Step]:
    """Continue several handshakes."""
    return [session.step(data) for session, data in steps]


new_context: Callable[..., Any] = PythonContext
handshakes: Callable[[list[tuple[Any, bytes]]], list[Step]] = python_handshakes
with contextlib.suppress(ModuleNotFoundError):
    import gateway.net._tls as compiled_tls

    new_context, handshakes = compiled_tls.Context, compiled_tls.handshakes


def compiled() -> bool:
    """Whether the compiled form is used."""
    return handshakes is not python_handshakes
