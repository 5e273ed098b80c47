"""Managed users on a state queue: a record for each user and role, read at the start, changed in units of work.

Gateways that share the queue notice each other's changes by one more record, the version, which every change replaces
in its unit of work. It is looked at every two seconds, and if it differs from before, everything is read again. The
same is done after own changes, once these have come to rest, because one of another gateway may lie beneath. While a
unit of work is open, nobody else sees the records that it replaces: the version is replaced first, so that a reader
that does not see it does not take any user for removed. Two gateways that make changes at the same moment leave two
versions, of which a unit of work replaces one. So a user counts as removed only if as many messages can be seen as the
queue holds (its depth includes those of open units of work).
"""

from __future__ import annotations

import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from gateway.access.managed import ManagedUsers, Role, User, role_of, user_of
from gateway.broker.engine import Engine
from gateway.errors import MQError
from gateway.mqtt import reasons
from gateway.mqtt.json_text import read_object
from gateway.observe import logs
from gateway.ports.batch import Stored, Token
from gateway.ports.state_queues import USERS, rows_of
from gateway.session.connection import ONLINE, Connection

log = logs.get("mqgate")
LOOK_SECONDS = 2.0
LONGEST_COMMIT = 30.0
"""Seconds after which an own change that is not committed yet no longer prevents looking at those of others."""
AGAIN_SECONDS, AGAIN_AT_MOST, TRIES, TRIES_OF_NEW = 0.05, 0.8, 30, 6
"""When to look again for a user that another gateway is changing: after a time that doubles up to the second value, and
at most this often. In all this is longer than a commit on a disk that hangs. A user that need not exist is not waited
for as long, because another gateway may be importing thousands."""
AT_ONCE = 500
"""How many users are looked for together: thousands of devices may use their tokens in the same minute."""
VERSION = sha256(b"version").digest()[:24]


class _Found(NamedTuple):
    """What is stored."""

    stored: dict[bytes, User | Role]
    """The last record of each key."""
    superseded: list[tuple[bytes, Token]]
    """Records before the last one of their key, which another gateway put at the same moment."""
    disabled: dict[bytes, User]
    """Users that are disabled by one of the superseded records, and not by the last one."""
    seen: bytes
    """The version; empty if there is none, or somebody is about to replace it."""
    is_all: bool
    """Whether it is certain that nothing is missing."""


class UserStore:
    """Stores managed users and roles, and brings changes into force for connected clients."""

    def __init__(self, engine: Engine, managed: ManagedUsers) -> None:
        self._engine, self.managed = engine, managed
        self._version = b""
        """The version of which everything is known."""
        self._own = self._rested = b""
        """The version of our last change; and that one, if it was still there at the next look."""
        self._changes = self._committed = 0
        """How many changes we have made, and how many of them are on the queue."""
        self._changed_at = 0.0
        self._unseen = 0
        """At how many consecutive looks the version was not there."""
        self._waiting: deque[tuple[list[str], Callable[[], None], bool]] = deque()
        """Changes that are to be made: of which users, the change, and whether these need not exist."""
        self._asked = False
        """Whether the users of the next changes are being read."""
        managed.on_claimed = lambda user: engine.context.scheduler.soon(lambda: self._claimed(user))

    def start(self) -> None:
        """Read everything before anybody connects; then look for changes of others."""
        found = self._load()
        self._version = found.seen
        self._use(found)
        if self._engine.context.remote_reads is not None:
            self._later()

    # -- changes --

    def change(
        self, users: Iterable[User] = (), roles: Iterable[Role] = (), *, gone: Iterable[User | Role] = (),
        done: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Bring these into force and store them; `done` is called when that is committed."""
        users, roles, gone = [one._replace(changed=time.time()) for one in users], list(roles), list(gone)
        batch = self._engine.context.batch
        self._own = secrets.token_bytes(16)
        batch.replace(USERS, VERSION, self._own)
        stored: list[User | Role] = [*users, *roles]
        for one in stored:
            batch.replace(USERS, key_of(one), json.dumps(_record(one), separators=(",", ":")).encode())
        for one in gone:
            batch.replace(USERS, key_of(one), None)
        self._changes, self._changed_at = self._changes + 1, self._engine.context.clock.monotonic()

        def committed() -> None:
            self._committed += 1
            done()
            self._next_change()

        batch.after.append(committed)
        self.managed.put(users, roles)
        self.managed.remove(
            [one.name for one in gone if isinstance(one, User)], [one.name for one in gone if isinstance(one, Role)]
        )
        self._enforce({one.name for one in (*users, *gone) if isinstance(one, User)}, everybody=bool(roles or gone))
        self._engine.flush()

    def when_current(self, users: Iterable[str], change: Callable[[], None], *, new: bool = False) -> None:
        """Call `change` when it is known what other gateways have made of these users. `new`: they are expected not to
        exist, which needs no proof."""
        if self._engine.context.remote_reads is None:
            change()
            return
        self._waiting.append((list(users), change, new))
        self._next_change()

    def _next_change(self) -> None:
        if not self._waiting or self._asked or self._is_under_way():
            return
        wanted: dict[str, bool] = {}
        count = 0
        for names, _, new in self._waiting:
            if count and len(wanted) + len(names) > AT_ONCE:
                break
            for name in names:
                wanted[name] = wanted.get(name, False) or not new or name in self.managed.users
            count += 1
        self._asked = True
        self._read_again(wanted, count, 0)

    def _read_again(self, wanted: dict[str, bool], count: int, tries: int) -> None:
        context = self._engine.context
        context.ask(partial(self._newest, wanted), partial(self._current, wanted, count, tries + 1))

    def _newest(self, wanted: dict[str, bool]) -> _Found:
        """Returns the records of some users. `wanted` says for each whether it takes a proof that there is none."""
        seen, rows = self._seen(), self._engine.context.queue_manager
        found = self._read([(key, row) for key in map(_user_key, wanted) for row in rows_of(rows, USERS, key)])
        found = found._replace(seen=seen, is_all=bool(seen) and self._seen() == seen)
        if found.is_all and any(proof and _user_key(name) not in found.stored for name, proof in wanted.items()):
            return self._load_while(seen)
        return found

    def _current(self, wanted: dict[str, bool], count: int, tries: int, found: _Found | MQError) -> None:
        """The users of the next `count` changes have been read: make the changes. If nothing could be read, they are
        made to what is known."""
        if not isinstance(found, MQError):
            missing = [name for name in wanted if _user_key(name) not in found.stored]
            is_certain = found.is_all or not (found.seen or self._version or self._own)  # or there never was any
            most = TRIES if any(wanted[name] for name in missing) else TRIES_OF_NEW
            if missing and not is_certain and tries < most:  # another gateway is changing or removing it
                wait = min(AGAIN_SECONDS * 2 ** (tries - 1), AGAIN_AT_MOST)
                self._engine.context.scheduler.later(wait, lambda: self._read_again(wanted, count, tries))
                return
            self._use(found, of=missing)
        try:
            for _ in range(count):  # each to the result of the one before it
                self._waiting.popleft()[1]()
        finally:
            self._asked = False
        self._next_change()

    def _is_under_way(self) -> bool:
        """Whether an own change is not committed yet: what is read now would undo it."""
        waited = self._engine.context.clock.monotonic() - self._changed_at
        return self._committed < self._changes and waited < LONGEST_COMMIT

    def _claimed(self, claim: User) -> None:
        """A token has set a password: change only that, whatever else has changed meanwhile."""
        self.when_current([claim.name], partial(self._store_claim, claim, self._engine.context.clock.monotonic()))

    def _store_claim(self, claim: User, at: float) -> None:
        user = self.managed.claimed(claim)
        if user is not None:
            self.change([user])
            return
        for connection in list(self._engine.connections):  # another gateway has let somebody in by it before
            publisher, auth = connection.publisher, connection.auth
            by_it = publisher.user == claim.name and auth is not None and auth.method == self.managed.name
            if by_it and (connection.state != ONLINE or connection.connected_at >= at):
                self._end(connection, "the token was used at another gateway")

    def _end(self, connection: Connection, why: str) -> None:
        if connection.state == ONLINE:
            self._engine.context.refuse(connection, reasons.NOT_AUTHORIZED, "not_authorized", why)
        else:  # it waits for its session
            self._engine.connacks.refuse(connection, reasons.NOT_AUTHORIZED, why)

    def _enforce(self, changed: set[str], *, everybody: bool) -> None:
        """Disconnect those that may no longer be connected, and apply the current rights to the others."""
        engine = self._engine
        for connection in list(engine.connections):
            publisher = connection.publisher
            if connection.auth is None or publisher.user not in changed:
                continue
            why = self.managed.refuses(publisher.user, publisher.client_id)
            if not why and publisher.user not in self.managed.users and connection.auth.method == "managed":
                why = "the user has been removed"
            if why:
                self._end(connection, why)
            elif not everybody and connection.state == ONLINE:
                engine.in_flight.check_rights_of(publisher.client_id)
        if everybody:
            engine.in_flight.check_rights()

    # -- the queue --

    def _load(self) -> _Found:
        """Returns everything that is stored."""
        return self._read(self._engine.context.queue_manager.load(USERS))

    def _load_while(self, seen: bytes, *, is_gone: bool = False) -> _Found:
        """Returns everything that is stored while this is the version. Nothing is missing if nobody has replaced the
        version meanwhile and no message is hidden in a unit of work. `is_gone`: there is no version, and no change can
        be in progress any more."""
        queue_manager = self._engine.context.queue_manager
        depth = queue_manager.depth(USERS)
        rows = list(queue_manager.load(USERS))
        is_whole = depth == len(rows) == queue_manager.depth(USERS) and (bool(seen) or is_gone) and self._seen() == seen
        return self._read(rows)._replace(seen=seen, is_all=is_whole)

    def _read(self, rows: Iterable[tuple[bytes, Stored]]) -> _Found:
        """Returns the records that were read. What cannot be read is left out and logged."""
        found: dict[bytes, User | Role] = {}
        versions: list[bytes] = []
        last: dict[bytes, Token] = {}
        superseded: list[tuple[bytes, Token]] = []
        disabled: dict[bytes, User] = {}
        for key, stored in rows:
            if key in last:
                superseded.append((key, last[key]))
            last[key] = stored.token
            if key == VERSION:
                versions.append(bytes(stored.data))
                continue
            try:
                record = read_object(bytes(stored.data))
                one = user_of(record) if record.pop("kind") == "user" else role_of(record)
            except (ValueError, KeyError, TypeError) as error:
                log.warning("user.unreadable", f"a record of {USERS} is not a user or role: {error}", key=key.hex())
                continue
            before = found.get(key)
            disabled.pop(key, None)
            if isinstance(one, User) and isinstance(before, User) and one.enabled and not before.enabled:
                one = disabled[key] = one._replace(enabled=False)
            found[key] = one
        return _Found(found, superseded, disabled, b"".join(versions), is_all=True)

    def _use(self, found: _Found, *, of: Iterable[str] | None = None) -> None:
        """Bring these into force. If they are everything that is stored, those that are missing have been removed;
        `of`: only these users, because the others were not looked for."""
        users = {one.name: self.managed.as_claimed(one) for one in found.stored.values() if isinstance(one, User)}
        roles = {one.name: one for one in found.stored.values() if isinstance(one, Role)}
        managed = self.managed
        gone = managed.users.keys() - users.keys() if of is None else managed.users.keys() & set(of)
        gone = gone if found.is_all else set()
        if of is not None or not found.is_all:
            roles = managed.roles | roles
        changed = {name for name, one in users.items() if managed.users.get(name) != one}
        others = roles != managed.roles
        managed.remove(gone, managed.roles.keys() - roles.keys())
        managed.put([users[name] for name in changed], roles.values())
        if changed or gone or others:
            self._enforce(changed | gone, everybody=others or bool(gone))
        self._tidy(found)

    def _tidy(self, found: _Found) -> None:
        """Remove superseded records, so that nothing reappears when the last record is removed, and write what has been
        made from several records."""
        context = self._engine.context
        for key, token in found.superseded:
            if token not in context.being_taken(USERS, key):
                context.batch.take(USERS, key, token)
        if found.disabled:
            self.change(found.disabled.values())

    def _later(self) -> None:
        self._engine.context.scheduler.later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        context, changes = self._engine.context, self._changes
        self._next_change()
        if self._is_under_way():
            self._later()
            return
        is_gone = self._unseen * LOOK_SECONDS >= LONGEST_COMMIT
        context.ask(lambda: self._newer(is_gone=is_gone), lambda found: self._looked(found, changes))

    def _newer(self, *, is_gone: bool) -> tuple[_Found | None, bytes]:
        """Returns what is stored, if it has to be read again, and the version that was on the queue before. `is_gone`:
        the version could not be seen for longer than a change takes; somebody may have cleared the queue."""
        seen = self._seen()
        if seen == self._version or (seen == self._own and seen != self._rested):
            return None, seen
        return self._load_while(seen, is_gone=is_gone), seen

    def _seen(self) -> bytes:
        """Returns the versions on the queue, one after the other: there are several if gateways have made changes at
        the same moment. Empty if there is none, or somebody is about to replace it."""
        return b"".join(bytes(row.data) for row in rows_of(self._engine.context.queue_manager, USERS, VERSION))

    def _looked(self, answer: tuple[_Found | None, bytes] | MQError, changes: int) -> None:
        """The queue was looked at. `changes`: how many own changes there were when that began; the answer does not
        include later ones."""
        if not isinstance(answer, MQError):
            found, seen = answer
            self._unseen = 0 if seen else self._unseen + 1
            if found is None and changes == self._changes:
                self._rested = seen
            elif found is not None and changes == self._changes:
                self._version = seen if found.is_all else self._version
                self._use(found)
        self._later()


def _user_key(name: str) -> bytes:
    return key_of(User(name))


def key_of(one: User | Role) -> bytes:
    """Returns the key of a record."""
    return sha256(f"{_kind(one)}:{one.name}".encode()).digest()[:24]


def _kind(one: User | Role) -> str:
    return "user" if isinstance(one, User) else "role"


def _record(one: User | Role) -> dict[str, Any]:
    return {"kind": _kind(one), **one._asdict()}
