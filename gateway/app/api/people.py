"""People: signing in and out, users, their tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gateway.net.calls import Answered, Call, Endpoint, Later, Problem, Reply, endpoint
from gateway.net.guard import COOKIE, cookie_text
from gateway.people.people import People, Refused, SignedIn
from gateway.people.users import LONGEST_DAYS, Unfit, User
from gateway.ports.people import ADMINISTRATOR, PUBLIC, VIEWER, Caller


def people_endpoints(people: People, *, secure: bool) -> list[Endpoint]:
    """Returns the endpoints of this module. `secure`: whether the port has TLS."""
    views = PeopleViews(people, secure=secure)
    return [
        endpoint("POST", "/session", PUBLIC, views.sign_in),
        endpoint("DELETE", "/session", VIEWER, views.sign_out),
        endpoint("GET", "/sign-in", PUBLIC, views.ways),
        endpoint("GET", "/sign-in/begin", PUBLIC, views.send, browsed=True),
        endpoint("GET", "/sign-in/answer", PUBLIC, views.come_back, audited=True, browsed=True),
        endpoint("GET", "/users", ADMINISTRATOR, views.users),
        endpoint("POST", "/users", ADMINISTRATOR, views.add),
        endpoint("PUT", "/users/{name}", ADMINISTRATOR, views.change),
        endpoint("DELETE", "/users/{name}", ADMINISTRATOR, views.remove),
        endpoint("POST", "/users/{name}/tokens", ADMINISTRATOR, views.give_token),
        endpoint("DELETE", "/users/{name}/tokens/{token}", ADMINISTRATOR, views.take_token),
    ]


ATTEMPT, ATTEMPT_SECONDS, BELOW = "mqgate_sign_in", 600, "/api/v1/sign-in"
"""Name, lifetime and path of the cookie of a browser that has been sent to the provider."""


class PeopleViews:
    """People as the API shows and changes them."""

    def __init__(self, people: People, *, secure: bool) -> None:
        self._people = people
        self._secure = secure

    def sign_in(self, call: Call) -> tuple[int, object]:
        """POST /session."""
        user, password = str(call.body["user"]), str(call.body["password"])
        who = Caller(user[:64], "password", "")

        def begin(answered: Answered) -> None:
            def told(found: Any) -> None:
                if not isinstance(found, SignedIn):
                    problem = _problem(found)
                    if isinstance(problem, Problem):
                        answered((problem.status, Reply(problem.body, caller=who)))
                    else:
                        answered(problem)
                    return
                self._people.sessions.end(call.caller.session)
                answered((200, signed_in(found, secure=self._secure)))

            self._people.sign_in(user, password, call.peer, told)

        return 200, Later(begin)

    def ways(self, call: Call) -> tuple[int, object]:
        """GET /sign-in."""
        del call
        provider = self._people.provider
        return 200, {"openid": None if provider is None else provider.name}

    def send(self, call: Call) -> tuple[int, object]:
        """GET /sign-in/begin."""
        del call

        def begin(answered: Answered) -> None:
            def told(found: Any) -> None:
                if isinstance(found, Exception):
                    answered(_problem(found))
                    return
                cookie = cookie_text(
                    ATTEMPT, found.cookie, secure=self._secure, same_site="Lax", path=BELOW, seconds=ATTEMPT_SECONDS
                )  # Lax: it has to come back from the provider's page
                answered((302, Reply(None, [cookie], location=found.location)))

            self._people.send(told)

        return 302, Later(begin)

    def come_back(self, call: Call) -> tuple[int, object]:
        """GET /sign-in/answer. It always leads to the same page."""
        over = cookie_text(ATTEMPT, "", secure=self._secure, same_site="Lax", path=BELOW, seconds=0)

        def begin(answered: Answered) -> None:
            def told(found: Any) -> None:
                if isinstance(found, SignedIn):
                    self._people.sessions.end(call.caller.session)
                    reply = signed_in(found, secure=self._secure)
                    answered((302, Reply(None, [*reply.cookies, over], location="/admin/", caller=found.caller)))
                else:
                    answered(_problem(found))

            self._people.come_back(call.query, call.cookie(ATTEMPT), told)

        return 302, Later(begin)

    def sign_out(self, call: Call) -> tuple[int, object]:
        """DELETE /session."""
        self._people.sessions.end(call.caller.session)
        gone = cookie_text(COOKIE, "", secure=self._secure, seconds=0)
        return 204, Reply(None, [gone])

    def users(self, call: Call) -> tuple[int, object]:
        """GET /users."""
        del call
        items = [shown(one) for one in sorted(self._people.users.values(), key=lambda one: one.name)]
        return 200, {"items": items, "file": str(self._people.file.path)}

    def add(self, call: Call) -> tuple[int, object]:
        """POST /users."""
        body = call.body
        return self._later(201, lambda told: self._people.add(body["name"], body["role"], body.get("password"), told))

    def change(self, call: Call) -> tuple[int, object]:
        """PUT /users/{name}."""
        name, body = call.path["name"], call.body
        role, password, disabled = body.get("role"), body.get("password"), body.get("disabled")
        return self._later(200, lambda told: self._people.change(name, role, password, disabled, told))

    def remove(self, call: Call) -> tuple[int, object]:
        """DELETE /users/{name}."""
        return self._later(204, lambda told: self._people.remove(call.path["name"], told))

    def give_token(self, call: Call) -> tuple[int, object]:
        """POST /users/{name}/tokens."""
        body, name = call.body, call.path["name"]
        days, note = float(body["days"]), str(body.get("note", ""))
        if not 0 < days <= LONGEST_DAYS:
            raise Problem(400, "Bad request", f"a token is valid for at most {LONGEST_DAYS} days")

        def begin(told: Callable[[Any], None]) -> None:
            def made(found: Any) -> None:
                if isinstance(found, Exception):
                    told(found)
                else:
                    token, text = found
                    told({"id": token.id, "token": text, "scope": token.scope, "ends": token.ends})

            self._people.give_token(name, body["scope"], days, note, made)

        return self._later(201, begin)

    def take_token(self, call: Call) -> tuple[int, object]:
        """DELETE /users/{name}/tokens/{token}."""
        return self._later(204, lambda told: self._people.take_token(call.path["name"], call.path["token"], told))

    @staticmethod
    def _later(status: int, begin: Callable[[Callable[[Any], None]], None]) -> tuple[int, object]:
        def ask(answered: Answered) -> None:
            def told(found: Any) -> None:
                if isinstance(found, Exception):
                    answered(_problem(found))
                else:
                    answered((status, shown(found) if isinstance(found, User) else found))

            begin(told)

        return status, Later(ask)


def signed_in(found: SignedIn, *, secure: bool) -> Reply:
    """Returns the answer that sets the cookie."""
    caller = found.caller
    body = {"name": caller.user, "role": caller.role, "method": caller.method, "form_token": caller.form_token}
    return Reply(body, [cookie_text(COOKIE, found.cookie, secure=secure)], caller=caller)


def shown(user: User) -> dict[str, object]:
    """Returns a user without anything by which somebody could sign in as that user."""
    return {
        "name": user.name,
        "role": user.role,
        "disabled": user.disabled,
        "password": bool(user.password),
        "tokens": [
            {"id": one.id, "scope": one.scope, "ends": one.ends, "note": one.note, "over": one.ends <= time.time()}
            for one in user.tokens.values()
        ],
    }


def _problem(error: Exception) -> Exception:
    if isinstance(error, Unfit):
        title = {404: "Not found", 409: "Conflict"}.get(error.status, "Bad request")
        return Problem(error.status, title, str(error))
    if isinstance(error, Refused):
        title = {404: "Not found", 429: "Too many", 503: "Not now"}.get(error.status, "Not signed in")
        return Problem(error.status, title, str(error))
    return error
