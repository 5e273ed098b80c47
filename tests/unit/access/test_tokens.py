"""Tokens: which are accepted, which are not, and which are not even read."""

from __future__ import annotations

import base64
import hmac
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from key_server import PrivateKey, new_key, published

from gateway.access.key_sets import FixedKeys, keys_of
from gateway.access.tokens import MAX_TOKEN, Claimed, Issuer, NotBelieved, Tokens, filled
from gateway.config.identity import Jwt
from gateway.routing.acl import Lists

KEY, OTHER = new_key(), new_key()


ISSUER = "https://issuer.example"
DAY = 86_400
"""What is made when tests are collected is used when it is their turn."""


@pytest.fixture
def tokens() -> Tokens:
    return of(Jwt(jwks_file="keys.json", audience="devices", issuer=ISSUER, leeway=10.0))


def of(*settings: Jwt, key: PrivateKey = KEY) -> Tokens:
    return Tokens([Issuer(one, FixedKeys(keys_of({"keys": [published(key, "k1")]}))) for one in settings])


def claimed(tokens: Tokens, token: bytes) -> Claimed | None:
    return said if isinstance(said := answer(tokens, token), Claimed) else None


def answer(tokens: Tokens, token: bytes) -> Claimed | NotBelieved:
    said: list[Claimed | NotBelieved] = []
    tokens.check(token, said.append)
    return said[0]


def made(key: PrivateKey = KEY, without: str = "", **claims: object) -> bytes:
    now = time.time()
    body = {"sub": "d7", "aud": "devices", "iss": ISSUER, "exp": now + 60, **claims}
    body.pop(without, None)
    return jwt.encode(body, key, "ES256", {"kid": "k1"}).encode()


def test_a_token_names_its_user_until_it_expires(tokens: Tokens) -> None:
    token = made(exp=2_000_000_000, nbf=time.time() - 5, iat=time.time())
    assert claimed(tokens, token) == ("d7", 2_000_000_010.0, None, None)  # with the leeway of 10 s


def test_a_token_that_is_believed_is_believed_for_longer_than_now(tokens: Tokens) -> None:
    """Otherwise its bearer was let in and disconnected at once, again and again."""
    now = time.time()
    assert claimed(tokens, made(exp=now - 5)).expires > now


def test_an_end_that_is_no_time_is_refused(tokens: Tokens) -> None:
    assert isinstance(answer(tokens, made(exp=float("inf"))), NotBelieved)


@pytest.mark.parametrize(("said", "lists"), [
    (["a/#", "b/{client}"], Lists(("a/#", "b/{client}"), ("a/#", "b/{client}"))),
    ({"publish": ["a/+"]}, Lists(("a/+",), ())), ({"subscribe": ["#"], "publish": []}, Lists((), ("#",))),
    (None, Lists()), ([], Lists()),
])  # fmt: skip
def test_a_token_says_what_its_bearer_may_do(said: object, lists: Lists) -> None:
    settings = Jwt(jwks_file="keys.json", topics_claim="mqtt.topics")
    found = claimed(of(settings), made(without="aud", mqtt={"topics": said}))
    assert found is not None
    assert found.topics == lists


@pytest.mark.parametrize("said", ["#", [7], ["a/#/b"], {"publish": "#"}, {"all": ["#"]}, ["a\nb"], ["#"] * 101, True])
def test_a_token_whose_topics_are_none_is_refused(said: object) -> None:
    found = answer(of(Jwt(jwks_file="keys.json", topics_claim="topics")), made(without="aud", topics=said))
    assert isinstance(found, NotBelieved)
    assert found.why.startswith("its topics cannot be used: ")


def test_topics_are_made_of_claims(tokens: Tokens) -> None:
    """A claim is a part of a level: one that contains more makes no filter."""
    topics = {"publish": ["plant/{tenant}/{client}/#", "{user}/{sub}"], "subscribe": ["{tenant}", "all/#"]}
    settings = Jwt(jwks_file="keys.json", topics=topics)  # type: ignore[arg-type]
    found = claimed(of(settings), made(without="aud", tenant="lima"))
    assert found is not None
    assert found.topics == Lists(("plant/lima/{client}/#", "{user}/d7"), ("lima", "all/#"))
    for tenant in ("#", "+", "a/b", "{user}", "", None, 7):
        found = claimed(of(settings), made(without="aud", tenant=tenant))
        assert found is not None
        assert found.topics == Lists(("{user}/d7",), ("all/#",))


@pytest.mark.parametrize("topics", [
    {"topics": {"publish": ["a/#/b"]}}, {"topics": {"publish": ["a/{"]}}, {"topics": {}, "topics_claim": "t"},
])  # fmt: skip
def test_topics_that_could_be_no_filters_are_refused(topics: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"filter|template|topics"):
        Jwt(jwks_file="keys.json", **topics)  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "changes"), [
    (KEY, {"exp": time.time() - 60}), (KEY, {"nbf": time.time() + DAY}), (KEY, {"iat": time.time() + DAY}),
    (KEY, {"aud": "others"}), (KEY, {"aud": ["others", "more"]}), (KEY, {"without": "aud"}),
    (KEY, {"iss": "https://evil.example"}), (KEY, {"without": "iss"}), (KEY, {"without": "exp"}),
    (KEY, {"without": "sub"}), (KEY, {"sub": ""}), (KEY, {"exp": "soon"}), (KEY, {"aud": 7}), (OTHER, {}),
    (KEY, {"sub": "\ud800"}),
])  # fmt: skip
def test_what_is_not_valid_here_and_now_lets_nobody_in(
    tokens: Tokens, key: PrivateKey, changes: dict[str, object]
) -> None:
    token = made(key, **changes)  # type: ignore[arg-type]
    assert claimed(tokens, token) is None
    assert Tokens.is_token(token), "and it is no guess at a password"


def part(text: str) -> bytes:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=")


@pytest.mark.parametrize("header", [
    '{"alg":"none"}', '{"alg":"HS256","kid":"k1"}', '{"alg":"ES256","kid":["k1"]}', '{"alg":"ES256","kid":{}}',
    '{"alg":"ES256","x":' + "[" * 5000 + "]" * 5000 + "}", '{"a":' * 2000 + "1" + "}" * 2000, "[]", "7",
    '{"alg":"ES256","crit":["x"]}',
    '{"alg":"ES256","n":' + "9" * 6000 + "}", '{"alg":"\\ud800"}',
])  # fmt: skip
def test_a_hostile_header_is_refused_and_nothing_else(tokens: Tokens, header: str) -> None:
    for body in ('{"sub":"d7","exp":9999999999}', "[" * 3000):
        token = b".".join((part(header), part(body), b"AAAA"))
        Tokens.is_token(token)
        assert claimed(tokens, token) is None


def test_what_is_longer_than_a_token_is_none(tokens: Tokens) -> None:
    assert not Tokens.is_token(made() + b"A" * MAX_TOKEN)
    assert not Tokens.is_token(b"..")
    assert not Tokens.is_token(b"a.b.c")
    assert claimed(tokens, b"a.b.c") is None


@pytest.mark.parametrize(("changes", "why"), [
    ({"exp": time.time() - 60}, "has expired"), ({"nbf": time.time() + DAY}, "not valid yet"),
    ({"aud": "others"}, "another audience"), ({"iss": "https://evil.example"}, "another issuer"),
    ({"without": "exp"}, "lacks the claim `exp`"), ({"without": "aud"}, "lacks the claim `aud`"),
    ({"exp": "soon"}, "`exp`, `nbf` and `iat` are numbers"), ({"exp": [1]}, "are numbers"),
    ({"nbf": {}}, "are numbers"), ({"iat": "now"}, "are numbers"), ({"jti": 5}, "`jti` is text"),
    ({"exp": "soon", "key": OTHER}, "not signed"), ({"without": "sub"}, "does not name its user"),
    ({"sub": 7}, "does not name its user"),
    ({"key": OTHER}, "not signed"),
])  # fmt: skip
def test_its_bearer_is_told_what_is_wrong_with_it(tokens: Tokens, changes: dict[str, object], why: str) -> None:
    said = answer(tokens, made(**changes))  # type: ignore[arg-type]
    assert isinstance(said, NotBelieved)
    assert why in said.why


@pytest.mark.parametrize("kid", [
    "../../../../etc/passwd", "/dev/null", "k1\x00", "' OR 1=1 --", "http://127.0.0.1/k1", "", "K1", "k" * 9000,
    None, 7, ["k1"], {"k1": "k1"},
])  # fmt: skip
@pytest.mark.parametrize("more", [{}, {"jku": "http://127.0.0.1:1/keys"}, {"x5u": "http://127.0.0.1:1/c"}])
def test_what_a_header_says_of_keys_leads_nowhere(tokens: Tokens, kid: object, more: dict[str, object]) -> None:
    """An identifier is looked up among the keys, and is no path, address or statement; a key in the header is
    ignored."""
    body = {"sub": "d7", "aud": "devices", "iss": ISSUER, "exp": time.time() + 60}
    header = {"alg": "ES256", "kid": kid, **more, "jwk": published(OTHER)}
    signed = b".".join((part(json.dumps(header)), part(json.dumps(body))))
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(signed, OTHER)
    token = signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")
    assert claimed(tokens, token) is None


def test_a_public_key_is_no_secret_that_signs(tokens: Tokens) -> None:
    """Algorithm confusion: HMAC with what everybody knows of the key, and an algorithm that does not belong to the
    key."""
    pem = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    body = json.dumps({"sub": "d7", "aud": "devices", "iss": ISSUER, "exp": time.time() + 60})
    for secret in (pem, pem.strip(), json.dumps(published(KEY, "k1")).encode(), b""):
        for name, digest in (("HS256", "sha256"), ("HS512", "sha512")):
            signed = part(f'{{"alg":"{name}","kid":"k1"}}') + b"." + part(body)
            mac = base64.urlsafe_b64encode(hmac.digest(secret, signed, digest)).rstrip(b"=")
            assert claimed(tokens, signed + b"." + mac) is None
    signed = part('{"alg":"none","kid":"k1"}') + b"." + part(body)
    assert claimed(tokens, signed + b".") is None
    rsa = generate_private_key(65537, 2048)
    assert claimed(tokens, jwt.encode(json.loads(body), rsa, "RS256", {"kid": "k1"}).encode()) is None


def test_a_key_is_for_the_algorithm_it_names() -> None:
    rsa = generate_private_key(65537, 2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa.public_key()))
    issuer = Issuer(Jwt(jwks_file="f"), FixedKeys(keys_of({"keys": [{**public, "kid": "r", "alg": "PS256"}]})))
    body = {"sub": "d7", "exp": time.time() + 60}
    for algorithm, name in (("PS256", "d7"), ("RS256", None), ("PS512", None)):
        found = claimed(Tokens([issuer]), jwt.encode(body, rsa, algorithm, {"kid": "r"}).encode())
        assert (found and found.user) == name, algorithm


def test_with_several_issuers_each_is_believed_by_its_own_keys() -> None:
    settings = [Jwt(jwks_file="f", issuer=f"https://{one}.example", user_claim=one + "-{sub}") for one in "ab"]
    keys = {"a": KEY, "b": OTHER}
    tokens = Tokens([
        Issuer(one, FixedKeys(keys_of({"keys": [published(key, "k1")]})))
        for one, key in zip(settings, keys.values(), strict=True)
    ])  # fmt: skip
    for name, key in keys.items():
        for said in ("a", "b", "c"):
            found = claimed(tokens, made(key, iss=f"https://{said}.example"))
            assert (found and found.user) == (f"{name}-d7" if name == said else None)
    assert claimed(tokens, made(KEY, without="iss")) is None


def test_claims_name_user_and_client() -> None:
    settings = Jwt(jwks_file="f", user_claim="{tenant}:{device.name}", client_id_claim="cid")
    said = claimed(of(settings), made(tenant="t1", device={"name": "d1"}, cid="c-9"))
    assert said is not None
    assert said[::2] == ("t1:d1", "c-9")
    for changes in ({"cid": 7}, {"device": "d1"}, {"device": {"name": ["d1"]}}, {"tenant": ""}, {"cid": "a\x00"}):
        body = {"tenant": "t1", "device": {"name": "d1"}, "cid": "c-9", **changes}
        assert claimed(of(settings), made(**body)) is None  # type: ignore[arg-type]


def test_a_claim_that_looks_like_a_template_is_text() -> None:
    assert filled("{a}-{b}", {"a": "{b}", "b": "x"}) == "{b}-x"
    assert filled("https://x.example/user", {"https://x.example/user": "u"}) == "u", "a name with dots"
