"""People at the admin port of a running gateway: roles of routes, users, sessions, tokens, attacks."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import gateway_template
import pytest
from certificates import Authority
from gateways import TREE, RunningGateway

from gateway.mq import mqmd, pcf
from gateway.mq.headers import dlh
from gateway.people.people import THREADS

ROLES = ["viewer", "operator", "administrator"]
DOCUMENT = json.loads(Path("gateway/net/static/openapi.json").read_text())
ROUTES = [
    (method.upper(), path, operation["x-role"])
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method in {"get", "put", "post", "delete"}
]
PASSWORD = "correct horse battery"


class Answer(NamedTuple):
    status: int
    body: Any
    cookies: list[str]


class Port:
    """The admin port, asked by anybody."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway = gateway
        self.own = (gateway.directory / "data" / "admin.token").read_text().strip()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """An answer; `token` and `cookie` are headers of their own."""
        sent = {name.replace("_", "-"): value for name, value in headers.items() if name != "token"}
        if "token" in headers:
            sent["Authorization"] = f"Bearer {headers['token']}"
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.admin, timeout=60)
        try:
            connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            text = b"" if "event-stream" in (answer.getheader("content-type") or "") else answer.read()
            cookies = answer.headers.get_all("set-cookie") or []
            return Answer(answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text, cookies)
        finally:
            connection.close()

    def user(self, name: str, role: str = "viewer") -> None:
        """One more."""
        made = self.ask("POST", "/users", {"name": name, "role": role, "password": PASSWORD}, token=self.own)
        assert made.status == 201, made

    def signed_in(self, name: str, password: str = PASSWORD, **headers: str) -> tuple[Answer, dict[str, str]]:
        """The answer, and the headers that a page sends then."""
        answer = self.ask("POST", "/session", {"user": name, "password": password}, **headers)
        if answer.status != 200:
            return answer, {}
        cookie = answer.cookies[0].partition(";")[0]
        return answer, {"cookie": cookie, "X_Form_Token": answer.body["form_token"]}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    settings = "security: {guesses: {per_user: 8, per_address: 1000, within: 1h}}\n"
    with RunningGateway(tmp_path_factory.mktemp("people"), settings=settings) as gateway:
        yield Port(gateway)


@pytest.fixture(scope="module")
def tokens(port: Port) -> dict[str, str]:
    """A token of a user of each role."""
    found = {}
    for role in ROLES:
        port.user(f"walker-{role}", role)
        made = port.ask("POST", f"/users/walker-{role}/tokens", {"scope": role, "days": 1}, token=port.own)
        found[role] = made.body["token"]
    return found


@pytest.mark.parametrize(("method", "path", "needed"), ROUTES)
def test_every_route_is_for_its_role_and_those_above(
    port: Port, tokens: dict[str, str], method: str, path: str, needed: str
) -> None:
    """A query that no route knows: who may ask is told 400, and nothing is done."""
    address = re.sub(r"\{\w+\}", "nothing", path) + "?no_such_parameter=1"
    answers = [
        port.ask(method, address).status,
        *(port.ask(method, address, token=tokens[role]).status for role in ROLES),
    ]
    allowed = 0 if needed == "none" else 1 + ROLES.index(needed)
    assert answers == [401 if n == 0 and allowed else 403 if n < allowed else 400 for n in range(4)], path


def test_the_walk_has_met_every_route_of_the_gateway() -> None:
    told = {
        (found[1], found[2])
        for file in Path("gateway/app/api").glob("*.py")
        for found in re.finditer(r'endpoint\(\s*"(\w+)", "(/[^"]+)", ', file.read_text())
    }
    assert told == {(method, path) for method, path, _ in ROUTES}


def test_who_signs_in_has_a_cookie_that_no_script_and_no_other_site_sends(port: Port) -> None:
    port.user("ann", "operator")
    answer, page = port.signed_in("ann")
    assert answer.status == 200
    assert re.fullmatch(r"mqgate_session=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", answer.cookies[0])
    me = port.ask("GET", "/me", cookie=page["cookie"]).body
    assert (me["name"], me["role"], me["method"]) == ("ann", "operator", "password")
    assert me["form_token"] == answer.body["form_token"]
    gone = port.ask("DELETE", "/session", **page)
    assert gone.status == 204
    assert "Max-Age=0" in gone.cookies[0]
    assert port.ask("GET", "/me", cookie=page["cookie"]).status == 401


def test_a_form_of_another_site_changes_nothing(port: Port) -> None:
    port.user("formy", "operator")
    _, page = port.signed_in("formy")
    _, other = port.signed_in("formy")
    for token in ({}, {"X_Form_Token": ""}, {"X_Form_Token": other["X_Form_Token"]}, {"X_Form_Token": "\u00ff"}):
        assert port.ask("POST", "/reload", cookie=page["cookie"], **token).status == 403
    assert port.ask("POST", "/reload", **page).status == 200
    foreign = {**page, "Origin": "https://evil.example"}
    assert port.ask("POST", "/reload", **foreign).status == 403


def test_no_session_is_one_that_somebody_else_has_chosen(port: Port) -> None:
    port.user("fixed")
    chosen = "mqgate_session=" + "A" * 43
    answer, page = port.signed_in("fixed", cookie=chosen)
    assert answer.status == 200
    assert page["cookie"] != chosen
    assert port.ask("GET", "/me", cookie=chosen).status == 401
    _, again = port.signed_in("fixed", cookie=page["cookie"])
    assert again["cookie"] != page["cookie"]
    assert port.ask("GET", "/me", cookie=page["cookie"]).status == 401  # the old one has ended
    assert port.ask("GET", "/me", cookie=f"{again['cookie']}; {page['cookie']}").status == 401  # whose is it?


def test_a_change_of_role_password_or_state_signs_out(port: Port) -> None:
    port.user("changing", "operator")
    secret = PASSWORD
    for change in ({"role": "viewer"}, {"password": "another long one"}, {"disabled": True}):
        _, page = port.signed_in("changing", secret)
        assert port.ask("GET", "/me", cookie=page["cookie"]).status == 200
        assert port.ask("PUT", "/users/changing", change, token=port.own).status == 200
        assert port.ask("GET", "/me", cookie=page["cookie"]).status == 401
        secret = change.get("password", secret)
    assert port.signed_in("changing", secret)[0].status == 401
    assert port.ask("PUT", "/users/changing", {"disabled": False}, token=port.own).status == 200
    _, page = port.signed_in("changing", secret)
    assert port.ask("DELETE", "/users/changing", token=port.own).status == 204
    assert port.ask("GET", "/me", cookie=page["cookie"]).status == 401


def test_a_file_that_others_write_is_read_on_reload_and_signs_out_too(port: Port) -> None:
    port.user("filed", "operator")
    _, page = port.signed_in("filed")
    file = port.gateway.directory / "data" / "admin.users"
    kept = file.read_text()
    file.write_text("{}")
    refused = port.ask("POST", "/reload", token=port.own)
    assert refused.status == 422
    assert str(file) in json.dumps(refused.body)
    assert port.ask("GET", "/me", cookie=page["cookie"]).status == 200
    document = json.loads(kept)
    next(one for one in document["users"] if one["name"] == "filed")["role"] = "viewer"
    file.write_text(json.dumps(document))
    assert port.ask("POST", "/reload", token=port.own).status == 200
    assert port.ask("GET", "/me", cookie=page["cookie"]).status == 401


def test_guesses_that_come_together_are_bounded_too(port: Port) -> None:
    port.user("stormed")
    with ThreadPoolExecutor(14) as threads:
        answers = list(threads.map(lambda n: port.signed_in("stormed", f"wrong {n}")[0].status, range(14)))
    assert set(answers) == {401, 429}
    assert answers.count(401) <= 8 + THREADS + 1, "those under way when the bound was reached"


def test_guesses_are_bounded_for_users_that_exist_and_for_others_alike(port: Port) -> None:
    port.user("guessed")
    for name in ("guessed", "nobody-there"):
        answers = [port.signed_in(name, f"wrong number {n}")[0] for n in range(9)]
        assert [one.status for one in answers] == [401] * 8 + [429]
        assert len({json.dumps(one.body) for one in answers[:8]}) == 1
        assert port.signed_in(name)[0].status == 429
    assert (
        len({json.dumps(port.signed_in(name, "short")[0].body["title"]) for name in ("guessed", "nobody-there")}) == 1
    )


def test_a_token_acts_for_its_user_as_far_as_its_scope(port: Port) -> None:
    port.user("robot", "operator")
    assert port.ask("POST", "/users/robot/tokens", {"scope": "administrator", "days": 1}, token=port.own).status == 409
    made = port.ask("POST", "/users/robot/tokens", {"scope": "viewer", "days": 1, "note": "x"}, token=port.own).body
    assert port.ask("GET", "/me", token=made["token"]).body["name"] == "robot"
    assert port.ask("POST", "/reload", token=made["token"]).status == 403
    listed = json.dumps(port.ask("GET", "/users", token=port.own).body)
    assert made["id"] in listed
    secret = made["token"].split("_", 2)[2]
    assert secret not in listed
    assert secret not in (port.gateway.directory / "data" / "admin.users").read_text()
    assert port.ask("DELETE", f"/users/robot/tokens/{made['id']}", token=port.own).status == 204
    assert port.ask("GET", "/me", token=made["token"]).status == 401
    brief = port.ask("POST", "/users/robot/tokens", {"scope": "viewer", "days": 1e-9}, token=port.own).body
    assert port.ask("GET", "/me", token=brief["token"]).status == 401  # it has ended


def test_a_wrong_token_is_nobodys_whatever_cookie_comes_with_it(port: Port) -> None:
    port.user("both")
    _, page = port.signed_in("both")
    assert port.ask("GET", "/me", token="wrong", cookie=page["cookie"]).status == 401


@pytest.mark.parametrize("body", [
    {"user": "ann"}, {"user": "ann", "password": 1}, {"user": "ann", "password": "x" * 1001}, {"user": ["ann"]},
    {"user": "a" * 257, "password": "x"}, {"user": "ann", "password": "x", "role": "administrator"}, [],
])  # fmt: skip
def test_what_is_no_sign_in_is_not_looked_at(port: Port, body: object) -> None:
    assert port.ask("POST", "/session", body).status == 400


def test_a_stranger_sends_no_long_body(port: Port) -> None:
    assert port.ask("POST", "/session", {"user": "ann", "password": "x" * 100_000}).status == 413


def test_short_passwords_and_second_users_are_refused_in_words(port: Port) -> None:
    port.user("twice")
    short = port.ask("POST", "/users", {"name": "shorty", "role": "viewer", "password": "123456789"}, token=port.own)
    assert short.status == 400
    assert "password" in short.body["detail"]
    again = port.ask("POST", "/users", {"name": "twice", "role": "viewer"}, token=port.own)
    assert again.status == 409


def mqgate(port: Port, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    words, environ = ("admin", *arguments, "--data", port.gateway.directory / "data"), {"PYTHONPATH": TREE}
    return gateway_template.run(*words, text=typed, env=os.environ | environ)


def test_commands_do_the_same(port: Port) -> None:
    done = mqgate(port, "user", "add", "carol", "--role", "operator", typed=PASSWORD + "\n")
    assert done.returncode == 0, done.stderr
    assert port.signed_in("carol")[0].status == 200
    made = mqgate(
        port, "token", "add", "carol", "--scope", "operator", "--days", "2", "--note", "nightly"
    ).stdout.strip()
    assert port.ask("POST", "/reload", token=made).status == 200
    assert made.split("_")[1] in mqgate(port, "user", "list").stdout
    assert mqgate(port, "token", "remove", "carol", made.split("_")[1]).returncode == 0
    assert port.ask("GET", "/me", token=made).status == 401
    assert mqgate(port, "user", "change", "carol", "--role", "viewer").returncode == 0
    assert port.signed_in("carol")[0].body["role"] == "viewer"
    assert mqgate(port, "user", "disable", "carol").returncode == 0
    assert port.signed_in("carol")[0].status == 401
    assert mqgate(port, "user", "enable", "carol").returncode == 0
    assert mqgate(port, "user", "remove", "carol").returncode == 0
    again = mqgate(port, "user", "remove", "carol")
    assert again.returncode == 1
    assert "there is no user carol" in again.stderr


def test_behind_tls_the_cookie_is_for_tls_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("admin")
    settings = f"admin: {{tls: {{certificate: {certificate.name}, key: {key.name}}}}}\n"
    with RunningGateway(tmp_path, settings=settings) as gateway:
        port = Port(gateway)
        done = mqgate(port, "user", "add", "ann", typed=PASSWORD + "\n")
        assert done.returncode == 0, done.stderr
        import ssl

        context = ssl.create_default_context(cafile=authority.path)
        connection = http.client.HTTPSConnection("localhost", gateway.admin, timeout=60, context=context)
        connection.request("POST", "/api/v1/session", json.dumps({"user": "ann", "password": PASSWORD}))
        answer = connection.getresponse()
        assert answer.status == 200
        assert (answer.getheader("set-cookie") or "").endswith("; SameSite=Strict; Secure")
        connection.close()


def trail(port: Port, action: str, user: str) -> list[dict[str, Any]]:
    """Records of what a user has done, as soon as there are some."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = port.ask("GET", "/audit", token=port.own).body["items"]
        wanted = [one for one in found if one["action"] == action and one["user"] == user]
        if wanted:
            return wanted
        time.sleep(0.05)
    raise AssertionError(f"nothing is known of {action}")


def test_what_people_do_is_on_the_queue_and_in_the_log(port: Port) -> None:
    port.user("audited", "operator")
    _, page = port.signed_in("audited")
    port.signed_in("audited", "a wrong password")
    assert port.ask("POST", "/queues/MQGATE.DEFAULT/messages", {"text": "hush-hush"}, **page).status == 201
    cleared = port.ask("DELETE", "/queues/MQGATE.DEFAULT/messages?confirm=MQGATE.DEFAULT", **page)
    assert cleared.body == {"removed": 1}
    [one] = trail(port, "DELETE /api/v1/queues/{queue}/messages", "audited")
    assert (one["user"], one["method"], one["role"], one["address"]) == ("audited", "password", "operator", "127.0.0.1")
    assert (one["on"], one["count"], one["succeeded"]) == ({"queue": "MQGATE.DEFAULT"}, {"removed": 1}, True)
    signed = [(one["user"], one["status"]) for one in trail(port, "POST /api/v1/session", "audited")]
    assert ("audited", 200) in signed  # of refused ones there are only so many in a minute
    everything = json.dumps(port.ask("GET", "/audit", token=port.own).body) + port.gateway.log
    for secret in (PASSWORD, "hush-hush", "a wrong password", port.own, page["X_Form_Token"]):
        assert secret not in everything
    line = next(one for one in port.gateway.log.splitlines() if "DELETE /api/v1/queues/MQGATE.DEFAULT" in one)
    assert json.loads(line)["user"] == "audited"
    listed = mqgate_audit(port, "--user", "audited", "--action", "*/queues/*")
    assert "removed=1" in listed


def mqgate_audit(port: Port, *arguments: str) -> str:
    words = "audit", *arguments, "--data", port.gateway.directory / "data"
    done = gateway_template.run(*words, env={**os.environ, "PYTHONPATH": TREE, "COLUMNS": "250"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nobody_reads_or_changes_the_trail_as_a_queue(port: Port, tokens: dict[str, str]) -> None:
    for token in (tokens["operator"], port.own):
        assert port.ask("DELETE", "/queues/MQGATE.AUDIT/messages?confirm=MQGATE.AUDIT", token=token).status == 403
        assert port.ask("POST", "/queues/MQGATE.AUDIT/messages", {"text": "{}"}, token=token).status == 403
        assert port.ask("GET", "/queues/MQGATE.AUDIT/messages", token=token).status == 403
        assert port.ask("DELETE", "/queues/MQGATE.AUDIT/messages/1", token=token).status == 403
    assert port.ask("GET", "/audit", token=tokens["operator"]).status == 403


COMMAND_QUEUE = "SYSTEM.ADMIN.COMMAND.QUEUE"


def escaped(mqsc: str) -> bytes:
    """MQSC as a PCF command: Escape (38)."""
    return pcf.build(pcf.Message(command=38, parameters=[pcf.integer(1017, 1), pcf.string(3014, mqsc)]))


def test_what_needs_an_administrator_is_not_had_by_putting_a_message(port: Port, tokens: dict[str, str]) -> None:
    """MQSC by the command server, state of the gateway's own: put, moved there, replayed there."""
    command = {"base64": base64.b64encode(escaped("DEFINE QLOCAL(BY.COMMAND)")).decode(), "format": "MQADMIN"}
    dead = dlh.build(2051, COMMAND_QUEUE, "", mqmd.build(format="MQADMIN"), put_date="20260101", put_time="00000000")
    dead += escaped("DEFINE QLOCAL(BY.COMMAND)")
    assert port.ask("POST", "/mqsc", {"text": "DEFINE QLOCAL(ORDINARY)"}, token=port.own).status == 200
    letter = {"base64": base64.b64encode(dead).decode(), "format": "MQDEAD"}
    one, boss = {"token": tokens["operator"]}, {"token": port.own}
    for queue in (COMMAND_QUEUE, "MQGATE.USERS", "MQGATE.SESSIONS"):
        assert port.ask("POST", f"/queues/{queue}/messages", command, **one).status == 403
        assert port.ask("POST", "/dlq/replay", {"to": queue}, **one).status == 403
    assert port.ask("DELETE", "/queues/MQGATE.SESSIONS/messages/1", **one).status == 403
    assert port.ask("GET", "/queues/MQGATE.USERS/messages", **one).status == 403
    assert port.ask("GET", "/queues/MQGATE.USERS/messages/1", token=tokens["viewer"]).status == 403
    assert port.ask("POST", "/queues/ORDINARY/messages", command, **one).status == 201
    assert port.ask("POST", "/queues/ORDINARY/move", {"to": COMMAND_QUEUE}, **one).status == 403
    assert port.ask("POST", "/queues/SYSTEM.DEAD.LETTER.QUEUE/messages", letter, **one).status == 201
    (failed,) = port.ask("POST", "/dlq/replay", {"destination": COMMAND_QUEUE}, **one).body["failed"]
    assert failed["reason"] == 2035
    assert port.ask("GET", "/queues/BY.COMMAND", **one).status == 404
    assert port.ask("POST", "/dlq/replay", {"destination": COMMAND_QUEUE}, **boss).body["done"] == 1
    assert port.ask("GET", "/queues/BY.COMMAND", **one).status == 200
    assert port.ask("POST", "/dlq/replay", {"to": "MQGATE.AUDIT"}, **boss).status == 403
