"""Who may connect and who may do what: CONNAUTH with CHCKCLNT, users of the settings, authority records.

Administrators (the queue manager itself, the user its process runs as, and those the settings name) may always do
everything; so may every user while there are no authority records at all. A user with records may do what they grant. A
user without records may not use objects that records of others cover, and may not administer.
"""

from __future__ import annotations

import hmac
import json
import os
import pwd
from collections.abc import Callable, Iterable, Mapping, Sequence

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.local_queue import INPUT
from gateway.queue_manager.store.unit import StoreUnit

AUTHORITY_STATE = b"authority/"
CHECK_NONE, CHECK_ADMINISTRATORS, CHECK_REQUIRED = 1, 2, 3
RIGHTS = frozenset({
    "ALTUSR", "BROWSE", "CHG", "CLR", "CONNECT", "CRT", "CTRL", "CTRLX", "DLT", "DSP", "GET", "INQ", "PASSALL",
    "PASSID", "PUB", "PUT", "RESUME", "SET", "SETALL", "SETID", "SUB", "SYSTEM",
})  # fmt: skip
GROUPS_OF_RIGHTS = {
    "ALL": RIGHTS,
    "ALLADM": frozenset({"CHG", "CLR", "CRT", "DLT", "DSP", "CTRL", "CTRLX"}),
    "ALLMQI": frozenset({"ALTUSR", "BROWSE", "CONNECT", "GET", "INQ", "PASSALL", "PASSID", "PUB", "PUT", "RESUME",
    "SET", "SETALL", "SETID", "SUB"}),
    "NONE": frozenset(),
}  # fmt: skip
_ADMINISTERING = frozenset({"CHG", "CLR", "CRT", "CTRL", "CTRLX", "DLT"})
OWN_USER = "mqgate"
"""The user that the queue manager's own connections run as."""
_RIGHTS_OF_OPEN = (
    (INPUT, "GET"), (mq.MQOO_BROWSE, "BROWSE"), (mq.MQOO_OUTPUT, "PUT"), (mq.MQOO_INQUIRE, "INQ"), (mq.MQOO_SET, "SET"),
    (mq.MQOO_PASS_IDENTITY_CONTEXT, "PASSID"), (mq.MQOO_PASS_ALL_CONTEXT, "PASSALL"),
    (mq.MQOO_SET_IDENTITY_CONTEXT, "SETID"), (mq.MQOO_SET_ALL_CONTEXT, "SETALL"),
)  # fmt: skip

Key = tuple[str, str, str]
"""Type of object (QUEUE, TOPIC, QMGR ...), profile, user or group."""


class Authority:
    """Checks passwords and rights; keeps the authority records."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._users: dict[str, str] = {}
        self._verify: Callable[[str, str], bool] | None = None
        self._administrators = {OWN_USER, _process_user()}
        self._privileged = {OWN_USER}
        self.records: dict[Key, frozenset[str]] = {}
        for name, record in core.store.state().items():
            if name.startswith(AUTHORITY_STATE):
                kind, profile, user, rights = json.loads(record)
                self.records[kind, profile, user] = frozenset(rights)

    def set_users(
        self,
        users: Mapping[str, str],
        verify: Callable[[str, str], bool] | None,
        administrators: Iterable[str] = (),
    ) -> None:
        """Set the users of the settings, by name and password, or what verifies both; and further administrators."""
        self._users = dict(users)
        self._verify = verify
        self._privileged.update(administrators)
        self._administrators |= self._privileged

    # Connecting

    def administers(self, user: str) -> bool:
        """Whether the user is an administrator, whom no record restricts."""
        return user in self._administrators

    def is_privileged(self, user: str) -> bool:
        """Whether the user belongs to `*MQADMIN`: is an administrator by name. The user of this process is not counted:
        it administers because the socket and the journal are its own, which has nothing to do with channels."""
        return user in self._privileged

    def admit(self, user: str, password: str | None, *, through: bool = False, required: bool = False) -> str:
        """Returns the user that a connection runs as. Raises 2035 if user and password are not accepted. `through`: it
        comes through a channel, whose record may require a password (`required`) where CHCKCLNT does not require one of
        everybody."""
        check = self._check_client()
        if check is None:  # no CONNAUTH: nobody could say whether a password is right
            return user
        if check == CHECK_ADMINISTRATORS:
            required = required or (through and self.administers(user))
        required = required or check == CHECK_REQUIRED
        if not required and (password is None or check == CHECK_NONE):
            return user
        if not user or password is None or not self._accepts(user, password):
            text = f"user {user!r} or its password is not accepted" if user else "a user and its password are required"
            raise MQError(mq.MQRC_NOT_AUTHORIZED, text)
        return user

    def _check_client(self) -> int | None:
        """Returns CHCKCLNT of the object that CONNAUTH names, if it names one."""
        name = self._core.catalogue.queue_manager.text("CONNAUTH")
        information = self._core.catalogue.get("AUTHINFO", name) if name else None
        return None if information is None else information.number("CHCKCLNT")

    def _accepts(self, user: str, password: str) -> bool:
        if self._verify is not None:
            return self._verify(user, password)
        known = self._users.get(user)
        return known is not None and hmac.compare_digest(known.encode(), password.encode())

    # Rights

    def check(self, user: str, kind: str, name: str, right: str) -> None:
        """Raise 2035 unless the user has the right."""
        if self.records and right not in self.rights(user, kind, name):
            raise MQError(mq.MQRC_NOT_AUTHORIZED, f"user {user!r} has no {right} on {kind} {name!r}")

    def check_topic(self, user: str, names: Sequence[str], right: str) -> None:
        """Raise 2035 unless one of the topic objects above a topic string grants the right: records on a topic count
        for everything below it. A user without records needs the right on every one of them."""
        if not self.records:
            return
        given = [right in self.rights(user, "TOPIC", name) for name in names]
        if not (any(given) if any(one == user for _, _, one in self.records) else all(given)):
            text = f"user {user!r} has no {right} on TOPIC {names[0]!r} or a topic object above it"
            raise MQError(mq.MQRC_NOT_AUTHORIZED, text)

    def check_open(self, user: str, name: str, options: int) -> None:
        """Raise 2035 unless the user has every right that these MQOPEN options need."""
        if self.records:
            for option, right in _RIGHTS_OF_OPEN:
                if options & option:
                    self.check(user, "QUEUE", name, right)

    def rights(self, user: str, kind: str, name: str) -> frozenset[str]:
        """Returns what the user may do with an object: the record with the most specific profile counts."""
        if not self.records or user in self._administrators:
            return RIGHTS
        own = [(of, profile) for of, profile, one in self.records if one == user]
        profiles = [profile for of, profile in own if of == kind and _covers(profile, name)]
        if profiles:
            return self.records[kind, max(profiles, key=_specific), user]
        if own or any(of == kind and _covers(profile, name) for of, profile, _ in self.records):
            return frozenset()
        return RIGHTS - _ADMINISTERING

    def set_record(self, kind: str, profile: str, user: str, add: Iterable[str], remove: Iterable[str]) -> None:
        """SET AUTHREC: add rights to a record and remove others."""
        key = (kind, profile, user)
        rights = (self.records.get(key, frozenset()) | expanded(add)) - expanded(remove)
        self.records[key] = rights
        record = json.dumps([kind, profile, user, sorted(rights)]).encode()
        self._core.commit(StoreUnit(state={AUTHORITY_STATE + "/".join(key).encode(): record}))

    def delete_record(self, kind: str, profile: str, user: str) -> None:
        """DELETE AUTHREC. Raises 2085 if there is no such record."""
        key = (kind, profile, user)
        if key not in self.records:
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, f"no authority record of {user!r} for {kind} {profile!r}")
        self._remove([key])

    def forget(self, kind: str, name: str) -> None:
        """Delete the records of a deleted object's name, but not those of generic profiles."""
        gone = [key for key in self.records if key[:2] == (kind, name)]
        if gone:
            self._remove(gone)

    def _remove(self, keys: Sequence[Key]) -> None:
        for key in keys:
            del self.records[key]
        self._core.commit(StoreUnit(state={AUTHORITY_STATE + "/".join(key).encode(): None for key in keys}))


def _process_user() -> str:
    """Returns the user of this process, named as the MQI socket names the user of a program."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def expanded(rights: Iterable[str]) -> frozenset[str]:
    """Returns single rights, with ALL, ALLADM, ALLMQI and NONE expanded."""
    found: frozenset[str] = frozenset()
    for right in rights:
        found |= GROUPS_OF_RIGHTS.get(right) or frozenset({right} & RIGHTS)
    return found


def _covers(profile: str, name: str) -> bool:
    """Whether a profile covers a name: `**` stands for any number of levels, `*` for one level, `?` for one
    character."""
    if profile == name or profile in {"**", "*"}:
        return True
    if profile.endswith(".**"):
        return name.startswith(profile[:-2]) or name == profile[:-3]
    parts, levels = profile.split("."), name.split(".")
    return len(parts) == len(levels) and all(_level(part, level) for part, level in zip(parts, levels, strict=True))


def _level(part: str, level: str) -> bool:
    if part.endswith("*"):
        return level.startswith(part[:-1])
    return len(part) == len(level) and all(a in {b, "?"} for a, b in zip(part, level, strict=True))


def _specific(profile: str) -> tuple[bool, int]:
    return ("*" not in profile and "?" not in profile, len(profile))
