"""Users of a directory, by LDAP: bound as the user, or searched for and then bound. The only module that imports ldap3.

Its calls block, so they are made on threads. A name that a device gives never becomes part of a filter or of a
distinguished name unescaped, and an empty password is never sent: a server takes it for an anonymous bind and accepts
it (RFC 4513, 5.1.2). Any other password that is UTF-8 is sent as it came: in CONNECT it is octets, which must not be
altered (RFC 4511, 4.2). Given text, the library would alter it, and fail for some passwords without having asked the
server.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import threading
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator
from math import ceil
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gateway.access.directory_socket import Bounded, Yielding
from gateway.access.logins import Answer, Credentials, Login, NotNow
from gateway.access.patience import Patience
from gateway.access.web import shaken
from gateway.config.extras import how_to_install
from gateway.config.identity import Ldap
from gateway.config.security import MethodName
from gateway.errors import ConfigurationError, Finding

if TYPE_CHECKING:
    import ldap3  # an extra

AT_A_TIME = MAX_IDLE = 8
"""How many questions may be asked at a time, and how many idle connections are kept for the next ones."""
IDLE_SECONDS = 60.0
AWAY_SECONDS = 30.0
"""For this long, a server that could not be reached is asked last."""
REST_SECONDS = 2.0
"""For this long after no server could be reached, nobody waits for them."""
_SOURCE = re.compile(r" \(_ssl\.c:\d+\)")
MAX_NAME = 256
_NOT_NOW = "the directory does not answer now: try again later"
_AROUND = re.compile(r"(?<!\\)\s*([,+=])\s*")
_ESCAPED = re.compile(r"((?:\\[0-9a-fA-F]{2})+)|\\(.)", re.DOTALL)
_SPECIAL = set(',+"\\<>;')
_SAID_NO = {49, 32, 34, 48, 53, 19, 50}
"""Results of a bind that are an answer: wrong, unknown, no name, not in this way, not at all, locked, and not here."""


_NOT_TOLD = {3, 4, 11, 32}
"""Results of a search that say nothing about a user: a limit of the server (time, size, or one set by an
administrator), or a base that does not exist, which with many servers may also be one that the service may not see."""


class Away(Exception):
    """No server answers as it should."""


class Limited(Exception):
    """A server does not tell what was asked about one user; about others it may."""


class Directory:
    """Users of a directory."""

    name: MethodName = "ldap"
    by_client = asked_again = False
    waits = True

    def __init__(self, settings: Ldap, ca: str | None, secret: str | None, told: Callable[[str, str], None]) -> None:
        try:
            tls = _verifying(ca, settings.timeout)
        except ImportError as error:
            what = f"a directory cannot be asked: {error}"
            fix = f"{how_to_install('ldap')}, or remove the key"
            raise ConfigurationError([Finding("security.ldap", 1, 1, what, fix)]) from error
        except OSError as error:
            what, fix = (
                f"{ca}: {error.strerror or error}",
                "give a PEM file with the certificates of authorities as `ca`",
            )
            raise ConfigurationError([Finding("security.ldap", 1, 1, what, fix)]) from error
        self._settings, self._secret, self._told, self._tls = settings, secret, told, tls
        self._away: dict[int, float] = {}
        self._idle: dict[bool, deque[tuple[ldap3.Connection, float]]] = {True: deque(), False: deque()}
        self._rests_until = 0.0
        self._closed = False
        self._free = threading.BoundedSemaphore(AT_A_TIME)
        self._working = threading.Lock()
        """Held by the thread that works on a question or an answer."""

    def ask(self, who: Credentials) -> Answer:
        """Who this is, if the directory knows the user by this password; None if not, NotNow if it cannot say."""
        user, password = who.username or "", who.password
        if not password or not _is_text(password) or not is_plain_name(user):
            return None
        try:
            if time.monotonic() < self._rests_until:
                return NotNow(_NOT_NOW)
            with self._free:
                answer = self._asked(user, password)
        except Away as error:
            self._rests_until = time.monotonic() + REST_SECONDS
            self._told(self._settings.servers[0], f"ldap: {error}")
            return NotNow(_NOT_NOW)
        except Limited as error:
            self._told(self._settings.servers[0], f"ldap: {error}")
            return NotNow(_NOT_NOW)
        self._told(self._settings.servers[0], "")
        return answer

    def _asked(self, user: str, password: bytes) -> Answer:
        settings = self._settings
        name, groups, dn = user, set[str](), self._direct_name(user)
        if settings.search_base is not None:
            found = self._with(self._find, user, service=True)
            if found is None:
                return None
            dn, name, groups = found
        if dn is None or not self._with(self._bind, dn, password, service=False):
            return None
        role = self._role(groups)
        if settings.roles and role is None:
            return None
        known_as = settings.user.replace("{role}", role or "").replace("{user}", name)
        return Login(known_as, self.name, settings.cache)

    def _direct_name(self, user: str) -> str | None:
        """The name to bind with, if it follows from the user's name. The server compares without regard to case, so
        only one spelling is accepted: otherwise a user would have several names here."""
        from ldap3.utils.dn import escape_rdn

        template = self._settings.bind_as
        if template is None or user != user.casefold() or user != unicodedata.normalize("NFKC", user):
            return None
        if "=" in template:
            return template.replace("{user}", escape_rdn(user))
        return None if set(user) & set("@\\=,/") else template.replace("{user}", user)

    def _role(self, groups: set[str]) -> str | None:
        return next((one.role for one in self._settings.roles if _canonical(one.group) in groups), None)

    # -- with a connection --

    def _find(self, connection: ldap3.Connection, user: str) -> tuple[str, str, set[str]] | None:
        """The user's entry: its distinguished name, the user name in it, and its groups; None: there is not exactly
        one."""
        from ldap3.utils.conv import escape_filter_chars

        settings = self._settings
        wanted = settings.search_filter.replace("{user}", escape_filter_chars(user))
        attributes = [settings.name_attribute, *([settings.group_attribute] if settings.roles else [])]
        entries = self._search(connection, settings.search_base or "", wanted, attributes)
        if len(entries) != 1:  # of two, neither can be meant
            return None
        dn, values = str(entries[0]["dn"]), entries[0]["attributes"]
        names = values.get(settings.name_attribute) or []
        names = names if isinstance(names, list) else [names]
        if len(names) != 1 or not is_plain_name(str(names[0])):
            return None
        groups = {_canonical(str(one)) for one in values.get(settings.group_attribute) or []}
        if settings.roles and settings.group_filter is not None:
            filter_ = settings.group_filter.replace("{dn}", escape_filter_chars(dn))
            base = settings.group_base or settings.search_base or ""
            groups |= {_canonical(str(one["dn"])) for one in self._search(connection, base, filter_, ["1.1"])}
        return dn, str(names[0]), groups

    def _search(self, connection: ldap3.Connection, base: str, filter_: str, attributes: list[str]) -> list[Any]:
        connection.search(base, filter_, attributes=attributes, size_limit=1000, time_limit=int(self._settings.timeout))
        if connection.result["result"] != 0:
            kind = Limited if connection.result["result"] in _NOT_TOLD else Away
            raise kind(f"a search below {base} ends with {connection.result['description']}")
        return [one for one in connection.response or () if one.get("type") == "searchResEntry"]

    def _bind(self, connection: ldap3.Connection, dn: str, password: bytes) -> bool:
        if connection.rebind(user=dn, password=password, authentication="SIMPLE"):
            return True
        if connection.result["result"] in _SAID_NO:
            return False
        raise Away(f"a bind ends with {connection.result['description']}")

    def _with(self, call: Callable[..., Any], *args: Any, service: bool) -> Any:
        """Make a call with a connection to the first server that answers; an idle connection may have been closed
        meanwhile."""
        from ldap3.core.exceptions import LDAPException

        connection = self._take_idle(service)
        if connection is not None:
            try:
                return self._returned(connection, self._called(call, connection, args), service)
            except (LDAPException, OSError, Away):
                _end(connection)
            except Limited:
                self._returned(connection, None, service)
                raise
        why = "no server answers"
        for index in sorted(
            range(len(self._settings.servers)), key=lambda one: self._away.get(one, 0.0) > time.monotonic()
        ):
            connection = None
            try:
                connection = self._open(index, service)
                answer = self._called(call, connection, args)
            except (LDAPException, OSError, Away) as error:
                self._away[index] = time.monotonic() + AWAY_SECONDS
                why = f"{self._settings.servers[index]}: {_words_of(error)}"
                if connection is not None:
                    _end(connection)
                continue
            except Limited:
                self._returned(connection, None, service)
                raise
            self._away.pop(index, None)
            return self._returned(connection, answer, service)
        raise Away(why)

    def _called(self, call: Callable[..., Any], connection: ldap3.Connection, args: tuple[Any, ...]) -> Any:
        with self._working, _speaking_ldap():
            return call(connection, *args)

    def _open(self, index: int, service: bool) -> ldap3.Connection:
        """A new connection, protected before anything is said, and bound as the service if it is to search."""
        import ldap3

        settings = self._settings
        dn = settings.bind_dn if service else None
        # The server object is made anew: it would keep its addresses for minutes, and for seconds pass over those that
        # did not answer, whether they answer by now or not.
        connection = ldap3.Connection(
            _server(settings.servers[index], settings, self._tls), user=dn,
            password=(self._secret or "").encode() if dn else None, receive_timeout=ceil(settings.timeout),
            authentication=ldap3.SIMPLE if dn else ldap3.ANONYMOUS, auto_referrals=False, check_names=False,
            raise_exceptions=False,
        )  # fmt: skip
        try:
            connection.open(read_server_info=False)
            if not isinstance(connection.socket, Bounded):
                connection.socket = Bounded(connection.socket, settings.timeout)
            if urlsplit(settings.servers[index]).scheme == "ldap" and settings.start_tls:
                with _speaking_ldap():
                    connection.start_tls(read_server_info=False)
            with _speaking_ldap():
                bound = not service or connection.bind(read_server_info=False)
        except BaseException:
            _end(connection)
            raise
        if not bound:
            _end(connection)
            raise Away(f"the bind of {dn or 'anonymous'} ends with {connection.result['description']}")
        connection.socket = Yielding(connection.socket, self._working)
        return connection

    def _take_idle(self, service: bool) -> ldap3.Connection | None:
        idle, now = self._idle[service], time.monotonic()
        while idle:
            try:
                connection, since = idle.pop()
            except IndexError:  # another thread was faster
                return None
            if now - since < IDLE_SECONDS:
                return connection
            _end(connection)
        return None

    def _returned(self, connection: ldap3.Connection, answer: Any, service: bool) -> Any:
        if self._closed or len(self._idle[service]) >= MAX_IDLE:
            _end(connection)
        else:
            self._idle[service].append((connection, time.monotonic()))
        return answer

    def close(self) -> None:
        """End idle connections; those under way end with their answers."""
        self._closed = True
        for idle in self._idle.values():
            while idle:
                _end(idle.pop()[0])


def _verifying(ca: str | None, timeout: float) -> ldap3.Tls:
    """TLS whose handshake verifies the server's name too. The library does that by itself, after the handshake, and
    from Python 3.12 on does not take an address for a name."""
    import ldap3

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(ca)

    class Verifying(ldap3.Tls):  # type: ignore[misc]
        def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
            host, plain = connection.server.host, connection.socket
            plain = plain.there if isinstance(plain, Bounded) else plain
            secure = context.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
            connection.socket = Bounded(shaken(secure, Patience(timeout)) if do_handshake else secure, timeout)

    return Verifying(validate=ssl.CERT_REQUIRED)


def _server(url: str, settings: Ldap, tls: ldap3.Tls) -> ldap3.Server:
    import ldap3

    place = urlsplit(url)
    secure = place.scheme == "ldaps"
    return ldap3.Server(
        place.hostname or "", port=place.port or (636 if secure else 389), use_ssl=secure, tls=tls,
        get_info=ldap3.NONE, connect_timeout=settings.timeout,
    )  # fmt: skip


@contextlib.contextmanager
def _speaking_ldap() -> Iterator[None]:
    """While a server answers. The library raises whatever it comes upon in bytes that are not LDAP: a server of another
    kind is at this address, which is no reason for whoever asks to be told nothing."""
    from ldap3.core.exceptions import LDAPException

    try:
        yield
    except (LDAPException, OSError, Away, Limited):
        raise
    except Exception as error:
        what = f"it answers with something that is not LDAP ({type(error).__name__})"
        raise Away(f"{what}: is this a directory's address?") from error


def _words_of(error: Exception) -> str:
    """What went wrong, without the tuples and the place in the source of `ssl` that ldap3 adds."""
    text = _SOURCE.sub("", str(error)).replace("\\'", "'").replace("\\\\", "\\")
    return text.strip("()\"',")[:200]


def _end(connection: ldap3.Connection) -> None:
    from ldap3.core.exceptions import LDAPException

    with contextlib.suppress(LDAPException, OSError):
        connection.unbind()


def _is_text(password: bytes) -> bool:
    try:
        password.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_plain_name(user: str) -> bool:
    """Whether a name may be looked up in a directory: printable, without spaces around it or repeated in it, and not
    too long."""
    return 0 < len(user) <= MAX_NAME and user.isprintable() and user == user.strip() and "  " not in user


def _canonical(dn: str) -> str:
    r"""A distinguished name in a form that can be compared. An escaped character can be written in two ways (RFC 4514,
    2.4), and servers differ in which one they use: `Ops\, North` of Active Directory is `Ops\2C North` of OpenLDAP."""
    return _ESCAPED.sub(_in_one_way, _AROUND.sub(r"\1", dn.strip())).casefold()


def _in_one_way(escaped: re.Match[str]) -> str:
    octets, one = escaped.groups()
    text = one if octets is None else bytes.fromhex(octets.replace("\\", "")).decode(errors="backslashreplace")
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in text)
