"""People whom an OpenID provider or a directory knows: how they sign in, and how strangers try to."""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from gateways import RunningGateway
from key_server import KeyServer, Request, new_key
from slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd

CLIENT, SECRET = "mqgate", "a-secret-of-the-client"
SETTINGS = """
admin:
  oidc:
    name: Plant login
    issuer: {issuer}
    client_id: {client}
    client_secret_file: client.secret
    gateway_url: http://127.0.0.1:9160
    roles_claim: realm_access.roles
    roles: [{{value: mq-look, role: viewer}}, {{value: mq-operate, role: operator}}]
  ldap:
    servers: ["{ldap}"]
    start_tls: false
    search_base: "{base}"
    bind_dn: "{service}"
    password_file: reader.pw
    roles: [{{group: "cn=operators,ou=groups,{base}", role: operator}}]
"""


class Provider:
    """An OpenID provider: it remembers what each code is for, and gives it once."""

    def __init__(self) -> None:
        self.server = KeyServer()
        self.key = new_key()
        self.codes: dict[str, dict[str, str]] = {}
        self.claims: dict[str, Any] = {}
        """What the next tokens say besides the usual."""
        self.token: bytes | None = None
        """What it gives instead of a token of its own."""
        url = self.server.url
        self.server.publishes(("k1", self.key))
        places = {
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
            "jwks_uri": f"{url}/keys",
        }
        document = {"issuer": url, **places}
        self.server.paths["/.well-known/openid-configuration"] = lambda request: request.give(document)
        self.server.paths["/token"] = self._token

    def lets_in(self, location: str) -> dict[str, str]:
        """What it sends the browser back with, that was sent to `location`."""
        place = urlsplit(location)
        assert f"{place.scheme}://{place.netloc}{place.path}" == f"{self.server.url}/authorize"
        asked = {name: values[0] for name, values in parse_qs(place.query).items()}
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert asked["code_challenge_method"] == "S256"
        assert asked["redirect_uri"] == "http://127.0.0.1:9160/api/v1/sign-in/answer"
        code = f"code-{len(self.codes)}-{time.monotonic_ns()}"
        self.codes[code] = asked
        return {"code": code, "state": asked["state"], "iss": self.server.url}

    def _token(self, request: Request) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        asked = self.codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        basic = f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}"
        known = request.headers["Authorization"] == basic and "client_secret" not in form
        right = asked is not None and challenge == asked["code_challenge"] and known
        if asked is None or not right or form["redirect_uri"] != asked["redirect_uri"]:
            request.give({"error": "invalid_grant"}, 400)
            return
        token = self.token or self.signed(asked["nonce"])
        request.give({"id_token": token.decode(), "access_token": "x", "token_type": "Bearer"})

    def body(self, nonce: str) -> dict[str, Any]:
        now = time.time()
        return {
            "iss": self.server.url, "aud": CLIENT, "sub": "0815", "iat": now, "exp": now + 300, "nonce": nonce,
            "preferred_username": "dora", "realm_access": {"roles": ["mq-look", "mq-operate", "else"]}, **self.claims,
        }  # fmt: skip

    def signed(self, nonce: str) -> bytes:
        return jwt.encode(self.body(nonce), self.key, "ES256", {"kid": "k1"}).encode()


class Browser:
    """Keeps cookies, follows nothing by itself."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway = gateway
        self.cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        cookie = (
            {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.admin, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1{path}", data, {**cookie, **headers})
            answer = connection.getresponse()
            text = answer.read()
            self.set = answer.headers.get_all("set-cookie") or []
            for one in self.set:
                name, _, value = one.partition(";")[0].partition("=")
                self.cookies[name] = value
                if "Max-Age=0" in one:
                    del self.cookies[name]
            return (
                answer.status,
                {key.lower(): value for key, value in answer.getheaders()},
                json.loads(text) if text[:1] == b"{" else text,
            )
        finally:
            connection.close()

    def begins(self) -> str:
        """Where it is sent to sign in."""
        status, headers, _ = self.ask("GET", "/sign-in/begin")
        assert status == 302
        return headers["location"]

    def comes_back(self, query: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        return self.ask("GET", f"/sign-in/answer?{urlencode(query)}")

    @property
    def me(self) -> Any:
        status, _, body = self.ask("GET", "/me")
        return body if status == 200 else None


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    made = Provider()
    with made.server:
        yield made


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "client.secret").write_text(SECRET + "\n")
    (folder / "reader.pw").write_text(SERVICE_PASSWORD + "\n")
    with Slapd(folder / "slapd") as directory:
        settings = SETTINGS.format(
            issuer=provider.server.url, client=CLIENT, ldap=directory.url, base=BASE, service=SERVICE
        )
        with RunningGateway(folder, settings=settings) as running:
            yield running


@pytest.fixture(autouse=True)
def usual(provider: Provider) -> None:
    provider.claims, provider.token = {}, None


@pytest.fixture
def browser(gateway: RunningGateway) -> Browser:
    return Browser(gateway)


def test_who_is_let_in_there_is_signed_in_here_with_the_highest_role(browser: Browser, provider: Provider) -> None:
    assert browser.ask("GET", "/sign-in")[2] == {"openid": "Plant login"}
    location = browser.begins()
    assert "HttpOnly; SameSite=Lax; Max-Age=600" in browser.set[0]
    status, headers, _ = browser.comes_back(provider.lets_in(location))
    assert (status, headers["location"]) == (302, "/admin/")
    assert "mqgate_sign_in" not in browser.cookies
    assert (browser.me["name"], browser.me["role"], browser.me["method"]) == ("dora", "operator", "oidc")
    form = {"X-Form-Token": browser.me["form_token"]}
    assert browser.ask("POST", "/reload", **form)[0] == 200
    assert browser.ask("PUT", "/log", {"level": "info"}, **form)[0] == 403


def test_a_code_counts_once(browser: Browser, provider: Provider, gateway: RunningGateway) -> None:
    query = provider.lets_in(browser.begins())
    kept = dict(browser.cookies)
    assert browser.comes_back(query)[0] == 302
    thief = Browser(gateway)
    thief.cookies = kept
    assert thief.comes_back(query)[0] == 401
    again = Browser(gateway)
    state = parse_qs(urlsplit(again.begins()).query)["state"][0]
    assert again.comes_back({**query, "state": state})[0] == 503  # the provider does not take it either
    assert thief.me is None
    assert again.me is None


def test_an_answer_belongs_to_the_browser_that_has_asked(
    browser: Browser, provider: Provider, gateway: RunningGateway
) -> None:
    """Somebody sends the answer to his own sign-in to another, who would work as him; and the other way round."""
    attacker = Browser(gateway)
    query = provider.lets_in(attacker.begins())
    assert browser.comes_back(query)[0] == 401  # has asked for nothing
    browser.begins()
    other = provider.lets_in(attacker.begins())
    assert browser.comes_back(other)[0] == 401  # has asked for something else
    assert browser.me is None
    assert attacker.comes_back(other)[0] == 401  # it is over: somebody has tried


@pytest.mark.parametrize("change", [
    {"state": ""}, {"state": "x" * 43}, {"code": ""}, {"iss": "https://evil.example"},
    {"code": "", "error": "access_denied"},
])  # fmt: skip
def test_an_answer_that_is_not_whole_lets_nobody_in(
    browser: Browser, provider: Provider, change: dict[str, str]
) -> None:
    query = {**provider.lets_in(browser.begins()), **change}
    assert browser.comes_back(query)[0] == 401
    assert browser.me is None


def test_who_is_not_let_in_sees_a_page_that_says_what_to_do(browser: Browser, provider: Provider) -> None:
    """To a browser: a program gets JSON. Nothing of the request is a link or markup in it."""
    html = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    answers = [
        browser.ask("GET", "/sign-in/answer?code=x&state=made-up", **html),
        browser.ask("GET", "/sign-in/answer?code=x&state=y&next=https://evil.example", **html),
    ]
    query = provider.lets_in(browser.begins())
    del query["code"]
    query["error"] = "<script src=//evil.example>"
    answers.append(browser.ask("GET", f"/sign-in/answer?{urlencode(query)}", **html))
    for status, headers, body in answers:
        assert status in {400, 401}
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert b"<script" not in body
        assert b'evil.example"' not in body
        assert body.count(b"href=") == 2
        assert b'href="/admin/"' in body
        assert b"Begin again" in body
    assert b"&lt;script src=//evil.example&gt;" in answers[2][2]
    assert isinstance(browser.ask("GET", "/sign-in/answer?code=x&state=made-up")[2], dict)


def test_where_it_leads_comes_from_no_request(browser: Browser, provider: Provider) -> None:
    for path in ("/sign-in/begin", "/sign-in/answer"):
        for name in ("redirect", "redirect_uri", "next", "return_to", "url"):
            assert browser.ask("GET", f"{path}?{name}=https://evil.example")[0] == 400
    headers = {"X-Forwarded-Host": "evil.example", "Referer": "https://evil.example/"}
    status, sent, _ = browser.ask("GET", "/sign-in/begin", **headers)
    assert status == 302
    assert "evil.example" not in sent["location"]
    status, sent, _ = browser.ask("GET", f"/sign-in/answer?{urlencode(provider.lets_in(sent['location']))}", **headers)
    assert (status, sent["location"]) == (302, "/admin/")


@pytest.mark.parametrize("claims", [
    {"nonce": "another"}, {"nonce": ""}, {"aud": "another"}, {"aud": [CLIENT, "another"]}, {"iss": "https://evil.example"},
    {"exp": 1}, {"nbf": 4_000_000_000}, {"preferred_username": ""}, {"preferred_username": ["dora"]},
    {"realm_access": {"roles": ["else"]}}, {"realm_access": {"roles": {"mq-operate": 1}}}, {"realm_access": []},
])  # fmt: skip
def test_a_token_for_something_else_lets_nobody_in(
    browser: Browser, provider: Provider, claims: dict[str, Any]
) -> None:
    provider.claims = claims
    status, _, body = browser.comes_back(provider.lets_in(browser.begins()))
    assert status == 401, body
    assert browser.me is None


def test_a_token_signed_in_another_way_lets_nobody_in(browser: Browser, provider: Provider) -> None:
    """No signature; an HMAC with the public key as its secret; a key that the token brings along; another key."""

    def token(key: Any, algorithm: str, nonce: str, **headers: Any) -> bytes:
        return jwt.encode(provider.body(nonce), key, algorithm, headers).encode()

    public = provider.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = [json.dumps({"alg": "HS256", "kid": "k1"}).encode(), b""]
    stranger = new_key()
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(stranger.public_key()))
    for way in range(5):
        location = browser.begins()
        nonce = parse_qs(urlsplit(location).query)["nonce"][0]
        if way == 0:
            provider.token = token(None, "none", nonce, kid="k1")
        elif way == 1:
            import hmac

            parts[1] = json.dumps(provider.body(nonce)).encode()
            signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
            mac = base64.urlsafe_b64encode(hmac.digest(public, signed, "sha256")).rstrip(b"=")
            provider.token = signed + b"." + mac
        elif way == 2:
            provider.token = token(stranger, "ES256", nonce, kid="k1")
        elif way == 3:
            provider.token = token(stranger, "ES256", nonce, jwk=jwk, jku="https://evil.example/keys")
        else:
            provider.token = token(SECRET * 2, "HS256", nonce, kid="k1")
        assert browser.comes_back(provider.lets_in(location))[0] == 401, way
        assert browser.me is None


def test_no_session_that_was_there_before_is_the_one_afterwards(browser: Browser, provider: Provider) -> None:
    browser.cookies["mqgate_session"] = "A" * 43
    assert browser.comes_back(provider.lets_in(browser.begins()))[0] == 302
    first = browser.cookies["mqgate_session"]
    assert first != "A" * 43
    assert browser.comes_back(provider.lets_in(browser.begins()))[0] == 302
    old = Browser(browser.gateway)
    old.cookies["mqgate_session"] = first
    assert old.me is None


def test_a_provider_that_is_silent_or_lies_is_said_to_be_away(browser: Browser, provider: Provider) -> None:
    query = provider.lets_in(browser.begins())
    kept, provider.server.paths["/token"] = provider.server.paths["/token"], lambda request: request.give([1])
    try:
        status, _, body = browser.comes_back(query)
    finally:
        provider.server.paths["/token"] = kept
    assert status == 503
    assert SECRET not in json.dumps(body) + browser.gateway.log


def test_people_of_a_directory_sign_in_with_their_passwords(browser: Browser) -> None:
    answers = [
        browser.ask("POST", "/session", {"user": user, "password": password})[0]
        for user, password in (("alice", "wrong"), ("bob", "builder"), ("alice", ""), ("al*", "wonder"))
    ]
    assert answers == [401] * 4  # bob is in no group that has a role
    status, _, body = browser.ask("POST", "/session", {"user": "alice", "password": "wonder"})
    assert status == 200, body
    assert (browser.me["name"], browser.me["role"], browser.me["method"]) == ("alice", "operator", "ldap")


def test_other_settings_sign_out_whom_they_are_about(browser: Browser, provider: Provider) -> None:
    assert browser.comes_back(provider.lets_in(browser.begins()))[0] == 302
    settings = browser.gateway.directory / "settings.yaml"
    kept = settings.read_text()
    settings.write_text(kept.replace("{value: mq-operate, role: operator}", "{value: mq-operate, role: viewer}"))
    try:
        browser.gateway.api("POST", "/reload")
        assert browser.me is None
        assert browser.comes_back(provider.lets_in(browser.begins()))[0] == 302
        assert browser.me["role"] == "viewer"
    finally:
        settings.write_text(kept)
        browser.gateway.api("POST", "/reload")


def test_who_came_from_where_is_in_the_log(browser: Browser, provider: Provider) -> None:
    assert browser.comes_back(provider.lets_in(browser.begins()))[0] == 302
    lines = [json.loads(line) for line in browser.gateway.log.splitlines() if "/sign-in/answer" in line]
    assert any(one.get("user") == "dora" and one.get("method") == "oidc" for one in lines)
    assert "code-" not in browser.gateway.log


def test_wrong_settings_are_refused_with_what_to_write(tmp_path: Path) -> None:
    from gateway.config.load import load_settings
    from gateway.errors import ConfigurationError

    good = SETTINGS.format(
        issuer="https://id.example", client=CLIENT, ldap="ldap://localhost", base=BASE, service=SERVICE
    )
    path = tmp_path / "settings.yaml"
    for old, new, says in (
        ("https://id.example", "http://id.example", "not protected on its way"),
        ("http://127.0.0.1:9160", "https://gate.example/page", "more than a host"),
        ("role: operator}}", "role: root}}", "is not allowed for `role`"),
        (f'ou=groups,{BASE}", role: operator', f'ou=groups,{BASE}", role: boss', "what people may do"),
    ):
        assert old.replace("}}", "}") in good
        path.write_text(good.replace(old.replace("}}", "}"), new.replace("}}", "}")))
        with pytest.raises(ConfigurationError, match=says):
            load_settings(str(path), {}, {})
    path.write_text(good)
    assert load_settings(str(path), {}, {}).admin.oidc is not None
