"""Sessions of people at the admin port: what a cookie stands for. No I/O; the time and random texts are arguments.

Only a digest of what the cookie holds is kept. A session ends if it has not been used for some time, when it reaches
its greatest age, when its user signs out, and when the user's rights change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from gateway.ports.people import Caller

MAX_SESSIONS, MAX_OF_USER = 1000, 20


@dataclass(slots=True)
class Session:
    """The session of one person."""

    user: str
    method: str
    role: str
    form_token: str
    begun: float
    used: float


class Sessions:
    """All sessions, those that began longest ago first."""

    def __init__(self, idle: float, length: float) -> None:
        self.idle, self.length = idle, length
        self._all: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, user: str, method: str, role: str, now: float, random: Callable[[], str]) -> str:
        """Begin a session; returns what the cookie is to hold. That is always new, whatever cookie the browser had."""
        self._make_room(user, now)
        cookie = random()
        self._all[_key(cookie)] = Session(user, method, role, random(), now, now)
        return cookie

    def caller_of(self, cookie: str, now: float) -> Caller | None:
        """Whose session it is, which counts as used now; None: nobody's."""
        key = _key(cookie)
        found = self._all.get(key)
        if found is None:
            return None
        if self._over(found, now):
            del self._all[key]
            return None
        found.used = now
        return Caller(found.user, found.method, found.role, found.form_token, key)

    def end(self, key: str) -> None:
        """Sign out the session with this key."""
        self._all.pop(key, None)

    def end_those(self, which: Callable[[Session], bool]) -> int:
        """End the sessions for which `which` returns true; returns how many."""
        ended = [key for key, one in self._all.items() if which(one)]
        for key in ended:
            del self._all[key]
        return len(ended)

    def _over(self, one: Session, now: float) -> bool:
        return now - one.used > self.idle or now - one.begun > self.length

    def _make_room(self, user: str, now: float) -> None:
        self.end_those(lambda one: self._over(one, now))
        own = [key for key, one in self._all.items() if one.user == user]
        everybodys = list(self._all)
        for key in (
            own[: max(0, len(own) - MAX_OF_USER + 1)] or everybodys[: max(0, len(everybodys) - MAX_SESSIONS + 1)]
        ):
            del self._all[key]


def _key(cookie: str) -> str:
    return sha256(cookie.encode("utf-8", "replace")).hexdigest()
