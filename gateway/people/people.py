"""The people of one gateway: who they are, by password, token or cookie, and changes to them.

Called in the reactor's thread. What takes long is done on threads, a few at a time; `soon` brings the answer back.
Passwords and the file have threads of their own, so that a directory or provider that does not answer holds up nobody
whom the file names.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from gateway.access.guesses import Guesses
from gateway.access.logins import Credentials, Login, NotNow
from gateway.access.passwords import Hashes, hash_password
from gateway.access.waiting_threads import WaitingThreads
from gateway.people import users as data
from gateway.people.sessions import Session, Sessions
from gateway.people.users import Token, Users
from gateway.people.users_file import UsersFile
from gateway.ports.people import NOBODY, ROLES, Caller

THREADS, MOST_WAITING = 2, 32
"""A password takes 64 MiB and a twentieth of a second."""
ELSEWHERE_THREADS = 8
"""Asking a directory or provider may take long, but no processor time."""
WRONG = "user name or password is wrong"

Answered = Callable[[Any], None]
"""Called in the reactor's thread with what was found, or with the exception that says why nothing was."""


class Directory(Protocol):
    """Knows users by their passwords. Its calls block."""

    def ask(self, who: Credentials) -> Login | NotNow | None:
        """Who this is, if the directory knows them by this password."""

    def close(self) -> None:
        """End the connections."""


class Begun(NamedTuple):
    """Where a browser is sent to sign in, and the cookie that it takes along."""

    location: str
    cookie: str


class OpenId(Protocol):
    """A provider to which browsers are sent to sign in. Its calls block."""

    @property
    def name(self) -> str:
        """The provider's name on the sign-in page."""

    def begin(self) -> Begun:
        """Begin a sign-in. Raises Refused."""

    def finish(self, query: Mapping[str, str], cookie: str) -> Caller:
        """Finish a sign-in; returns who has signed in. Raises Refused."""


class Refused(Exception):
    """A sign-in was refused. `status` is the HTTP status."""

    def __init__(self, text: str, status: int = 401) -> None:
        super().__init__(text)
        self.status = status


class SignedIn(NamedTuple):
    """What the cookie is to hold, and who has signed in."""

    cookie: str
    caller: Caller


class _Apart:
    """Asks questions on threads, a limited number at a time. The next one begins when the answer to one of those before
    it has been told, and with it counted: threads that go on while the reactor stands still would look at more guesses
    than there may be."""

    def __init__(self, most: int, name: str, soon: Callable[[Callable[[], None]], None]) -> None:
        self._threads, self._soon, self._most = WaitingThreads(most, name), soon, most
        self._waiting: deque[tuple[Callable[[], Any], Answered]] = deque()
        self._under_way = 0

    def ask(self, question: Callable[[], Any], answered: Answered) -> None:
        """Ask on a thread; `answered` gets what the question returns or raises."""
        if self._under_way + len(self._waiting) >= MOST_WAITING:
            answered(Refused("too many requests at a time: try again later", 503))
            return
        self._waiting.append((question, answered))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._under_way < self._most:
            self._under_way += 1
            self._threads.submit(partial(self._work, *self._waiting.popleft()))

    def _work(self, question: Callable[[], Any], answered: Answered) -> None:
        found: Any
        try:
            found = question()
        except Exception as error:  # noqa: BLE001 -- whoever asked is told
            found = error
        self._soon(partial(self._told, answered, found))

    def _told(self, answered: Answered, found: Any) -> None:
        self._under_way -= 1
        try:
            answered(found)
        finally:
            self._go_on()

    def close(self) -> None:
        """End the threads; what waits for them is not asked."""
        self._waiting.clear()
        self._threads.close()


class People:
    """All people of the gateway."""

    def __init__(
        self, file: UsersFile, guesses: Guesses, sessions: Sessions, secret: bytes,
        soon: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        self.file, self.guesses, self.sessions = file, guesses, sessions
        self.directory: Directory | None = None
        self.provider: OpenId | None = None
        self._secret = secret
        self._users: Users = {}
        self._hashes = Hashes({}, secret)
        self._here = _Apart(THREADS, "people", soon)
        self._elsewhere = _Apart(ELSEWHERE_THREADS, "people elsewhere", soon)

    @property
    def users(self) -> Users:
        """The users in the file."""
        return self._users

    def use(self, users: Users) -> None:
        """Put the users of the file into force. Whoever has another role or password now, or is disabled or gone, is
        signed out."""
        before, self._users = self._users, users
        self._hashes = Hashes({name: one.password for name, one in users.items() if one.password}, self._secret)
        self.sessions.end_those(lambda one: one.method == "password" and _differs(before, users, one))

    def use_others(self, provider: OpenId | None, directory: Directory | None, changed: set[str]) -> None:
        """Set the provider and the directory that know people. Whoever signed in by a method in `changed` is signed
        out."""
        before, self.directory, self.provider = self.directory, directory, provider
        if before is not None:
            before.close()
        self.sessions.end_those(lambda one: one.method in changed)

    # -- who it is --

    def of_token(self, text: str) -> Caller | None:
        """Whose token it is; None: nobody's."""
        found = data.user_of_token(self._users, text, time.time())
        return None if found is None else Caller(found[0].name, "token", found[1])

    def of_cookie(self, cookie: str) -> Caller | None:
        """Whose session it is; None: nobody's."""
        return self.sessions.caller_of(cookie, time.monotonic())

    def sign_in(self, user: str, password: str, address: str, answered: Answered) -> None:
        """Begin a session for whoever knows this password; `answered` gets SignedIn or Refused."""
        held_up = self._held_up(user, address)
        if held_up is not None:
            answered(held_up)
            return

        def told(found: Any) -> None:
            if isinstance(found, Caller) and self._still(found):
                self.guesses.right(address, user)
                answered(self.begin(found))
                return
            if isinstance(found, Refused) and found.status == 401:
                self.guesses.wrong(address, user, time.monotonic())
            answered(Refused(WRONG) if isinstance(found, Caller) else found)

        def looked(found: Any) -> None:
            if found is None and self.directory is not None:
                self._elsewhere.ask(partial(self._of_directory, self.directory, user, password, address), told)
            else:
                told(Refused(WRONG) if found is None else found)

        self._here.ask(partial(self._known, user, password, address), looked)

    def _held_up(self, user: str, address: str) -> Refused | None:
        wait = self.guesses.wait(address, user, time.monotonic())
        return Refused(f"too many wrong passwords: try again in {round(wait) + 1} s", 429) if wait > 0 else None

    def _still(self, who: Caller) -> bool:
        """Whether nothing has changed about a user meanwhile."""
        own = self._users.get(who.user)
        return who.method != "password" or (own is not None and not own.disabled and own.role == who.role)

    def _known(self, user: str, password: str, address: str) -> Caller | None:
        """Find out, on a thread, whom the file knows by this; None: it has no such user with a password. Raises
        Refused, also if others that came at the same time were wrong meanwhile."""
        self._refuse_held_up(user, address)
        if len(password) > data.LONGEST_PASSWORD:
            raise Refused(WRONG)
        own = self._hashes.verify(user, password.encode("utf-8", "replace"))
        one = self._users.get(user)
        if one is None or not one.password:
            return None
        if not own or one.disabled:
            raise Refused(WRONG)
        return Caller(user, "password", one.role)

    def _of_directory(self, directory: Directory, user: str, password: str, address: str) -> Caller:
        """Find out, on a thread, whom the directory knows by this. Raises Refused."""
        self._refuse_held_up(user, address)
        answer = directory.ask(Credentials("", user, password.encode("utf-8", "replace"), "admin"))
        if isinstance(answer, NotNow):
            raise Refused(answer.why, 503)
        role, _, name = ("" if answer is None else answer.user).partition(":")
        if role not in ROLES or not name:
            raise Refused(WRONG)
        return Caller(name, "ldap", role)

    def _refuse_held_up(self, user: str, address: str) -> None:
        held_up = self._held_up(user, address)
        if held_up is not None:
            raise held_up

    def send(self, answered: Answered) -> None:
        """Send a browser to the provider; `answered` gets Begun or Refused."""
        if self.provider is None:
            answered(Refused("no OpenID provider is set (`admin.oidc`)", 404))
        else:
            self._elsewhere.ask(self.provider.begin, answered)

    def come_back(self, query: Mapping[str, str], cookie: str, answered: Answered) -> None:
        """Handle a browser that comes back from the provider; `answered` gets SignedIn or Refused."""
        if self.provider is None:
            answered(Refused("no OpenID provider is set (`admin.oidc`)", 404))
            return
        self._elsewhere.ask(
            partial(self.provider.finish, query, cookie),
            lambda found: answered(self.begin(found) if isinstance(found, Caller) else found),
        )

    def begin(self, who: Caller) -> SignedIn:
        """Begin a session for somebody whose identity is proved."""
        cookie = self.sessions.begin(
            who.user, who.method, who.role, time.monotonic(), partial(secrets.token_urlsafe, 32)
        )
        return SignedIn(cookie, self.of_cookie(cookie) or NOBODY)

    # -- changes --

    def add(self, name: str, role: str, password: str | None, answered: Answered) -> None:
        """Add a user; `answered` gets the user."""
        self._change(lambda users: data.added(users, name, role, _hashed(password) or ""), name, answered)

    def change(
        self, name: str, role: str | None, password: str | None, disabled: bool | None, answered: Answered
    ) -> None:
        """Change role, password or state of a user, whose sessions end."""
        self._change(
            lambda users: data.changed(users, name, role=role, password=_hashed(password), disabled=disabled),
            name, answered,
        )  # fmt: skip

    def remove(self, name: str, answered: Answered) -> None:
        """Remove a user."""
        self._change(lambda users: data.removed(users, name), name, answered)

    def give_token(self, name: str, scope: str, days: float, note: str, answered: Answered) -> None:
        """Add a token; `answered` gets the token and its text, which cannot be seen again."""
        secret = secrets.token_urlsafe(32)
        token = Token(secrets.token_hex(4), data.digest_of(secret), scope, time.time() + days * 86_400, note)

        def told(found: Any) -> None:
            answered(found if isinstance(found, Exception) else (token, data.token_text(token.id, secret)))

        self._change(lambda users: data.with_token(users, name, token), name, told)

    def take_token(self, name: str, token: str, answered: Answered) -> None:
        """Remove a token."""
        self._change(lambda users: data.without_token(users, name, token), name, answered)

    def _change(self, change: Callable[[Users], Users], name: str, answered: Answered) -> None:
        def told(found: Any) -> None:
            if isinstance(found, Exception):
                answered(found)
            else:
                self.use(found)
                answered(found.get(name))

        self._here.ask(partial(self.file.change, change), told)

    def close(self) -> None:
        """End the threads; what waits for them is not done."""
        self._here.close()
        self._elsewhere.close()
        if self.directory is not None:
            self.directory.close()


def _hashed(password: str | None) -> str | None:
    if password is None:
        return None
    data.check_password(password)
    return hash_password(password.encode())


def _differs(before: Users, now: Users, session: Session) -> bool:
    """Whether the rights of the session's user have changed, or the password that began it."""
    old, new = before.get(session.user), now.get(session.user)
    if new is None or new.disabled or new.role != session.role:
        return True
    return old is not None and old.password != new.password
