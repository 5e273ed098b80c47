"""How the gateway tells an OpenID provider who it is."""

from __future__ import annotations

import base64
from urllib.parse import parse_qsl, urlsplit

import pytest
from key_server import KeyServer, Request

from gateway.config.people import Oidc
from gateway.people.oidc import ATTEMPT_SECONDS, Attempts, Provider
from gateway.people.people import Refused

SECRET = "a secret: of 100% +/é"
IN_HEADER = "Basic " + base64.b64encode(b"mq%3Agate:a+secret%3A+of+100%25+%2B%2F%C3%A9").decode()


def signed_in(provider: Provider) -> None:
    begun = provider.begin()
    state = dict(parse_qsl(urlsplit(begun.location).query))["state"]
    provider.finish({"code": "c", "state": state}, begun.cookie)


@pytest.mark.parametrize(("methods", "secret", "header", "in_form"), [
    (None, SECRET, IN_HEADER, {}),
    (["client_secret_post", "client_secret_basic"], SECRET, IN_HEADER, {}),
    (["client_secret_post", "private_key_jwt"], SECRET, None, {"client_id": "mq:gate", "client_secret": SECRET}),
    (["none"], None, None, {"client_id": "mq:gate"}),
])  # fmt: skip
def test_the_secret_is_sent_as_the_provider_takes_it(
    methods: list[str] | None, secret: str | None, header: str | None, in_form: dict[str, str]
) -> None:
    asked: list[tuple[str | None, dict[str, str]]] = []

    def token(request: Request) -> None:
        form = dict(parse_qsl(request.rfile.read(int(request.headers["Content-Length"])).decode()))
        asked.append((request.headers["Authorization"], form))
        request.give({"error": "invalid_client"}, 401)

    with KeyServer() as server:
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        document: dict[str, object] = {"issuer": server.url} | {key: f"{server.url}/{at}" for key, at in places.items()}
        document |= {} if methods is None else {"token_endpoint_auth_methods_supported": methods}
        server.paths["/.well-known/openid-configuration"] = lambda request: request.give(document)
        server.paths["/token"] = token
        settings = Oidc.model_validate({
            "issuer": server.url, "client_id": "mq:gate", "gateway_url": "http://127.0.0.1:9160",
            "roles": [{"value": "x", "role": "viewer"}],
        })  # fmt: skip
        provider = Provider(settings, None, secret, lambda _provider, _why: None)
        with pytest.raises(Refused, match="does not answer"):
            signed_in(provider)
    ((said, form),) = asked
    assert said == header
    assert {name: value for name, value in form.items() if name.startswith("client_")} == in_form


@pytest.mark.parametrize(("changed", "keys", "why"), [
    ({"issuer": "https://other.example"}, {}, "its configuration is that of the issuer 'https://other.example'"),
    ({"token_endpoint": None}, {}, "`token_endpoint` of its configuration"),
    ({"jwks_uri": "http://id.example/keys"}, {}, "`jwks_uri` of its configuration"),
    ({}, {"keys": []}, "its key set cannot be used: it has no public key"),
])  # fmt: skip
def test_what_is_wrong_with_a_provider_is_told(changed: dict[str, object], keys: object, why: str) -> None:
    def token(request: Request) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        request.give({"id_token": "a.b.c"})

    told: list[str] = []
    with KeyServer() as server:
        document = {"issuer": server.url, "authorization_endpoint": f"{server.url}/authorize",
                    "token_endpoint": f"{server.url}/token", "jwks_uri": f"{server.url}/keys", **changed}  # fmt: skip
        server.paths["/.well-known/openid-configuration"] = lambda request: request.give(document)
        server.paths["/token"], server.paths["/keys"] = token, lambda request: request.give(keys)
        settings = Oidc.model_validate({
            "issuer": server.url, "client_id": "mq:gate", "gateway_url": "http://127.0.0.1:9160",
            "roles": [{"value": "x", "role": "viewer"}],
        })  # fmt: skip
        provider = Provider(settings, None, None, lambda _provider, said: told.append(said))
        with pytest.raises(Refused, match="see the log"):
            signed_in(provider)
    assert told[-1].startswith("oidc: ")
    assert why in told[-1]


def test_attempts_of_strangers_push_nobody_out() -> None:
    """Whoever reaches the admin port may begin a sign-in; a thousand of them ended that of somebody who was at the
    provider."""
    attempts = Attempts()
    cookie, attempt = attempts.begin(100.0)
    others = [attempts.begin(100.0) for _ in range(2000)]
    for wrong in ("", "é", attempt.nonce, others[0][1].state):
        with pytest.raises(Refused, match="another browser"):
            attempts.take(wrong, cookie, 101.0)
    assert attempts.take(attempt.state, cookie, 101.0) == attempt
    with pytest.raises(Refused, match="is over"):
        attempts.take(attempt.state, cookie, 101.0)
    late, other = others[1]
    with pytest.raises(Refused, match="is over"):
        attempts.take(other.state, late, 102.0 + ATTEMPT_SECONDS)
    with pytest.raises(Refused, match="another browser"):
        Attempts().take(other.state, late, 101.0)
