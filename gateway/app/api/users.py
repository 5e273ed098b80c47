"""Managed users and roles: listed, created, changed, removed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from gateway.access.granted import NoLists, lists_of
from gateway.access.managed import TOKEN_SECONDS, Role, User, hashed, made_secret
from gateway.app.managed_users import UserStore
from gateway.net.calls import OPERATOR, VIEWER, Answered, Call, Endpoint, Later, Problem, endpoint

MAX_NAME = 256
_FINGERPRINT = re.compile(r"[0-9a-f]{64}\Z")
_HASH = re.compile(r"\$(argon2id|6|7)\$[!-~]{20,500}\Z")


def user_endpoints(store: UserStore | None) -> list[Endpoint]:
    """Returns the endpoints of this module. `store` is None if `security.managed` is not set."""
    views = UserViews(store)
    return [
        endpoint("GET", "/device-users", VIEWER, views.listing),
        endpoint("POST", "/device-users", OPERATOR, views.change, most=1 << 20),
        endpoint("GET", "/device-users/{user}", VIEWER, views.show),
        endpoint("DELETE", "/device-users/{user}", OPERATOR, views.delete),
        endpoint("GET", "/device-roles", VIEWER, views.roles),
        endpoint("PUT", "/device-roles/{role}", OPERATOR, views.put_role),
        endpoint("DELETE", "/device-roles/{role}", OPERATOR, views.delete_role),
    ]


class UserViews:
    """Users as the API shows them, never with their hashes."""

    def __init__(self, store: UserStore | None) -> None:
        self._store = store

    @property
    def _there(self) -> UserStore:
        if self._store is None:
            raise Problem(409, "Not managed", "write `managed: true` below `security` and restart the gateway")
        return self._store

    def listing(self, call: Call) -> tuple[int, object]:
        """GET /device-users."""
        users, wanted = self._there.managed.users, call.query.get("search", "").lower()
        after, limit = call.query.get("after", ""), call.number("limit", 50, 500)
        names = sorted(name for name in users if wanted in name.lower())
        page = [name for name in names if name > after][:limit]
        following = page[-1] if page and page[-1] != names[-1] else None
        return 200, {"items": [_shown(users[name]) for name in page], "total": len(names), "next": following}

    def show(self, call: Call) -> tuple[int, object]:
        """GET /device-users/{user}."""
        return 200, _shown(self._user(call.path["user"]))

    def _user(self, name: str) -> User:
        user = self._there.managed.users.get(name)
        if user is None:
            raise Problem(404, "Not found", f"there is no user {name}")
        return user

    def change(self, call: Call) -> tuple[int, object]:
        """POST /device-users: all of the request is done, or nothing."""
        store, mode = self._there, call.body.get("mode", "add")
        given = call.body["users"]
        if len({one["user"] for one in given}) < len(given):
            raise Problem(422, "Not possible", "the request names a user twice")

        def make(answered: Answered) -> None:
            users, answers = [], []
            for one in given:
                user, answer = self._changed(one, mode)
                users.append(user)
                answers.append(answer)
            self._check_certificates(users)
            store.change(users, done=lambda: answered((200, {"items": answers})))

        return 200, _to_what_is_there(store, [one["user"] for one in given], make, new=mode != "change")

    def _changed(self, one: dict[str, Any], mode: str) -> tuple[User, dict[str, str]]:
        name, answer = one["user"], {"user": one["user"]}
        old = self._there.managed.users.get(name)
        if not name.isprintable() or name != name.strip() or len(name) > MAX_NAME:
            raise Problem(422, "Not possible", f"{name!r} is not a valid user name")
        if mode == "add" and old is not None:
            raise Problem(409, "Exists", f"there is a user {name}: change it, or import with `replace`")
        if mode == "change" and old is None:
            raise Problem(404, "Not found", f"there is no user {name}")
        user = old or User(name)
        fields = {key: one[key] for key in ("role", "client_id", "enabled", "fingerprint") if key in one}
        fingerprint = str(fields.get("fingerprint", "")).lower().replace(":", "")
        if "fingerprint" in fields:
            fields["fingerprint"] = fingerprint
        if fingerprint and not _FINGERPRINT.match(fingerprint):
            raise Problem(422, "Not possible", f"the fingerprint of {name} is not a SHA-256 in hexadecimal digits")
        user = user._replace(**fields)
        secret = one.get("secret") or ("make" if old is None and not fingerprint else "keep")
        if one.get("hash"):
            if not _HASH.match(one["hash"]):
                raise Problem(422, "Not possible", f"the hash of {name} is not valid: make one with `mqgate passwd`")
            user = user._replace(password=one["hash"], token="", token_ends=0.0)
        elif secret == "make":  # noqa: S105 -- a word
            answer["password"] = made_secret()
            user = user._replace(password=hashed(answer["password"].encode()), token="", token_ends=0.0)
        elif secret == "token":  # noqa: S105
            answer["token"] = made_secret()
            ends = time.time() + float(one.get("token_seconds", TOKEN_SECONDS))
            user = user._replace(password="", token=hashed(answer["token"].encode()), token_ends=ends)
        return user, answer

    def _check_certificates(self, users: list[User]) -> None:
        """Refuse a certificate that is bound to two users: it would be unclear which of them connects with it."""
        names, holders = {one.name for one in users}, dict[str, str]()
        for one in users:
            if not one.fingerprint:
                continue
            before = self._there.managed.bound_to(one.fingerprint)
            holder = holders.setdefault(one.fingerprint, one.name if before is None or before in names else before)
            if holder != one.name:
                raise Problem(409, "Exists", f"the certificate of {one.name} is bound to {holder}")

    def delete(self, call: Call) -> tuple[int, object]:
        """DELETE /device-users/{user}."""
        store, name = self._there, call.path["user"]

        def make(answered: Answered) -> None:
            store.change(gone=[self._user(name)], done=lambda: answered((204, None)))

        return 204, _to_what_is_there(store, [name], make)

    def roles(self, _call: Call) -> tuple[int, object]:
        """GET /device-roles."""
        roles = self._there.managed.roles
        return 200, {"items": [_role(roles[name]) for name in sorted(roles)]}

    def put_role(self, call: Call) -> tuple[int, object]:
        """PUT /device-roles/{role}."""
        try:
            lists = lists_of({key: call.body.get(key, []) for key in ("publish", "subscribe")})
        except NoLists as error:
            raise Problem(422, "Not possible", str(error)) from error
        role = Role(call.path["role"], *lists)
        return _committed(partial(self._there.change, roles=[role]), _role(role))

    def delete_role(self, call: Call) -> tuple[int, object]:
        """DELETE /device-roles/{role}; refused while users have the role."""
        role = self._there.managed.roles.get(call.path["role"])
        if role is None:
            raise Problem(404, "Not found", f"there is no role {call.path['role']}")
        if any(one.role == role.name for one in self._there.managed.users.values()):
            raise Problem(409, "In use", f"users have the role {role.name}: give them another one first")
        return _committed(partial(self._there.change, gone=[role]), None, 204)


def _to_what_is_there(
    store: UserStore, names: list[str], make: Callable[[Answered], None], *, new: bool = False
) -> Later:
    """Make a change of users to what is stored now, whichever gateway changed them last. `new`: they need not exist."""

    def begin(answered: Answered) -> None:
        def current() -> None:
            try:
                make(answered)
            except Exception as error:  # noqa: BLE001 -- told apart where it is answered
                answered(error)

        store.when_current(names, current, new=new)

    return Later(begin)


def _committed(begin: Callable[..., None], answer: object, status: int = 200) -> tuple[int, object]:
    """Returns an answer that is given when the change is on the queue."""
    return 200, Later(lambda answered: begin(done=lambda: answered((status, answer))))


def _shown(user: User) -> dict[str, object]:
    return {
        "user": user.name, "enabled": user.enabled, "role": user.role or None, "client_id": user.client_id or None,
        "fingerprint": user.fingerprint or None, "password": bool(user.password),
        "token_ends": round(user.token_ends, 3) or None, "changed": round(user.changed, 3),
    }  # fmt: skip


def _role(role: Role) -> dict[str, object]:
    return {"role": role.name, "publish": list(role.publish), "subscribe": list(role.subscribe)}
