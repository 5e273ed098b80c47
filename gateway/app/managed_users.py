"""Managed users on a state queue: a record for each user and role, read at the start, changed in units of work.

Gateways that share the queue notice each other's changes by one record more, which every change replaces in its unit of
work: it is looked at every two seconds, and when it is another than before all are read again. So they are after own
changes too, once these have come to rest: one of another gateway may lie beneath. While a unit of work is open nobody
else sees what it replaces: that record first, so that whoever does not see it takes nobody for gone.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from gateway.access.managed import ManagedUsers, Role, User, role_of, user_of
from gateway.broker.engine import Engine
from gateway.errors import MQError
from gateway.mqtt import reasons
from gateway.mqtt.json_text import read_object
from gateway.observe import logs
from gateway.ports.state_queues import USERS
from gateway.session.connection import ONLINE

log = logs.get("mqgate")
LOOK_SECONDS = 2.0
LONGEST_COMMIT = 30.0
"""Seconds after which a change of our own that is not committed yet keeps nobody from looking at those of others."""
VERSION = sha256(b"version").digest()[:24]
_Found = dict[str, User | Role]


class UserStore:
    """Stores what is managed, and brings changes into force for clients that are connected."""

    def __init__(self, engine: Engine, managed: ManagedUsers) -> None:
        self._engine, self.managed = engine, managed
        self._version = b""
        """That of which all is known."""
        self._own = self._rested = b""
        """That of our last change; and that one, when it was still there at the next look."""
        self._changes = self._committed = 0
        """How many we have made, and how many of them are on the queue."""
        self._changed_at = 0.0
        self._unseen = 0
        """At how many looks, one after the other, the version was not there."""
        managed.on_claimed = lambda user: engine.context.scheduler.soon(lambda: self._claimed(user))

    def start(self) -> None:
        """Read all, before anybody connects; then look for changes of others."""
        found, self._version = self._load()
        self._use(found)
        if self._engine.context.remote_reads is not None:
            self._later()

    # -- changes --

    def change(
        self, users: Iterable[User] = (), roles: Iterable[Role] = (), *, gone: Iterable[User | Role] = (),
        done: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Put these into force and store them; `done` is called when that is committed."""
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

        batch.after.append(committed)
        self.managed.put(users, roles)
        self.managed.remove(
            [one.name for one in gone if isinstance(one, User)], [one.name for one in gone if isinstance(one, Role)]
        )
        self._enforce({one.name for one in (*users, *gone) if isinstance(one, User)}, everybody=bool(roles or gone))
        self._engine.flush()

    def _claimed(self, claim: User) -> None:
        """A token has set a password: that is all of the user that changes, whatever else has meanwhile."""
        user = self.managed.claimed(claim)
        if user is not None:
            self.change([user])

    def _enforce(self, changed: set[str], *, everybody: bool) -> None:
        """Those that may not be connected any more are not, and rights are those of now."""
        engine = self._engine
        for connection in list(engine.connections):
            publisher = connection.publisher
            if connection.auth is None or publisher.user not in changed:
                continue
            why = self.managed.refuses(publisher.user, publisher.client_id)
            if not why and publisher.user not in self.managed.users and connection.auth.method == "managed":
                why = "the user is no more"
            if why and connection.state == ONLINE:
                engine.context.refuse(connection, reasons.NOT_AUTHORIZED, "not_authorized", why)
            elif why:  # it waits for its session
                engine.connacks.refuse(connection, reasons.NOT_AUTHORIZED, why)
            elif not everybody and connection.state == ONLINE:
                engine.in_flight.check_rights_of(publisher.client_id)
        if everybody:
            engine.in_flight.check_rights()

    # -- the queue --

    def _load(self) -> tuple[_Found, bytes]:
        """All that is stored, by name and kind. What cannot be read is left out, and said."""
        found: _Found = {}
        version = b""
        for key, stored in self._engine.context.queue_manager.load(USERS):
            if key == VERSION:
                version = bytes(stored.data)
                continue
            try:
                record = read_object(bytes(stored.data))
                kind = record.pop("kind")
                found[kind + record["name"]] = user_of(record) if kind == "user" else role_of(record)
            except (ValueError, KeyError, TypeError) as error:
                log.warning("user.unreadable", f"a record of {USERS} is none of a user or role: {error}", key=key.hex())
        return found, version

    def _use(self, found: _Found, *, is_all: bool = True) -> None:
        """Bring these into force; those that are missing are no more, if it is all there is."""
        users = {one.name: one for one in found.values() if isinstance(one, User)}
        roles = {one.name: one for one in found.values() if isinstance(one, Role)}
        managed = self.managed
        if not is_all:
            users, roles = managed.users | users, managed.roles | roles
        gone = managed.users.keys() - users.keys()
        changed = {name for name, one in users.items() if managed.users.get(name) != one}
        others = roles != managed.roles
        managed.remove(gone, managed.roles.keys() - roles.keys())
        managed.put([users[name] for name in changed], roles.values())
        if changed or gone or others:
            self._enforce(changed | gone, everybody=others or bool(gone))

    def _later(self) -> None:
        self._engine.context.scheduler.later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        context, changes = self._engine.context, self._changes
        waited = context.clock.monotonic() - self._changed_at
        if self._committed < changes and waited < LONGEST_COMMIT:
            self._later()  # what is read now would take it back
            return
        is_gone = self._unseen * LOOK_SECONDS >= LONGEST_COMMIT
        context.ask(lambda: self._newer(is_gone=is_gone), lambda found: self._looked(found, changes))

    def _newer(self, *, is_gone: bool) -> tuple[_Found | None, bytes, bool]:
        """The version that is on the queue, and what is there if that has to be read again; whether it is certain that
        this is all. `is_gone`: the version could not be seen for longer than a change takes; somebody may have
        cleared the queue."""
        seen = self._seen()
        if seen == self._version or (seen == self._own and seen != self._rested):
            return None, seen, True
        found, _ = self._load()
        return found, seen, self._seen() == seen if seen else is_gone

    def _seen(self) -> bytes:
        """The version on the queue; empty: there is none, or somebody is about to replace it."""
        rows = self._engine.context.queue_manager.fetch(USERS, VERSION, 1)
        return bytes(rows[-1].data) if rows else b""

    def _looked(self, found: tuple[_Found | None, bytes, bool] | MQError, changes: int) -> None:
        """`changes`: how many there were when it was asked; since then there may be more, which it does not know."""
        if not isinstance(found, MQError):
            users, seen, is_all = found
            self._unseen = 0 if seen else self._unseen + 1
            if users is None and changes == self._changes:
                self._rested = seen
            elif users is not None and changes == self._changes:
                self._version = seen if is_all else self._version
                self._use(users, is_all=is_all)
        self._later()


def key_of(one: User | Role) -> bytes:
    """The key of a record."""
    return sha256(f"{_kind(one)}:{one.name}".encode()).digest()[:24]


def _kind(one: User | Role) -> str:
    return "user" if isinstance(one, User) else "role"


def _record(one: User | Role) -> dict[str, Any]:
    return {"kind": _kind(one), **one._asdict()}
