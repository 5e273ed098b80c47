"""Keys of a provider: fetched early, asked for when unknown but not often, kept while it is away or lies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from jwt.algorithms import RSAAlgorithm
from key_server import KeyServer, new_key, published, signed
from schedulers import ManualScheduler

from gateway.access.key_sets import ALGORITHMS, MAX_KEYS, FetchedKeys, NoKeySet, keys_of
from gateway.access.tokens import Claimed, Issuer, NotBelieved
from gateway.config.identity import Jwt
from gateway.config.units import Contradictions

A, B = new_key(), new_key()


class Fetching:
    """Keys of a server, with a clock that the test sets."""

    def __init__(self, server: KeyServer, **more: object) -> None:
        self.server, self.clock, self.told = server, ManualScheduler(), list[str]()
        settings = Jwt(**{"jwks_url": f"{server.url}/keys", "timeout": 20, **more})  # type: ignore[arg-type]
        self.keys = FetchedKeys(settings, None, self.clock, lambda _provider, why: self.told.append(why))
        self.issuer = Issuer(settings, self.keys)

    def settle(self, count: int) -> None:
        """Wait until this many fetches have ended."""
        self.clock.run_until(lambda: len(self.told) >= count, 60)

    def advance_past_one(self, seconds: float) -> None:
        """Let time pass in which one fetch begins; it ends afterwards, as its retries would otherwise begin in that
        time too."""
        self.server.free.clear()
        self.clock.advance(seconds)
        self.server.free.set()

    def said(self, token: bytes, fetches: int | None = None) -> Claimed | NotBelieved:
        """The answer about a token, once `fetches` fetches have ended."""
        answers: list[Claimed | NotBelieved] = []
        self.issuer.check(token, answers.append)
        if fetches is not None:
            assert not answers, "it waits for keys"
            self.settle(fetches)
        return answers[0]

    def believes(self, token: bytes, fetches: int | None = None) -> bool:
        return isinstance(self.said(token, fetches), Claimed)


@pytest.fixture
def server() -> Iterator[KeyServer]:
    with KeyServer() as running:
        running.publishes(("a", A))
        yield running


@pytest.fixture
def fetching(server: KeyServer) -> Iterator[Fetching]:
    one = Fetching(server)
    one.keys.start()
    one.settle(1)
    yield one
    one.keys.close()


def test_tokens_wait_for_the_first_keys(server: KeyServer) -> None:
    one, answers = Fetching(server), list[object]()
    server.free.clear()
    one.keys.start()
    for _ in range(3):
        one.issuer.check(signed(A, "a"), answers.append)
    assert answers == []
    server.free.set()
    one.settle(1)
    assert [type(answer) for answer in answers] == [Claimed] * 3
    assert server.asked == ["/keys"]
    one.keys.close()


def test_keys_that_rotate_are_fetched_for_the_token_that_names_them(fetching: Fetching) -> None:
    assert fetching.believes(signed(A, "a"))
    fetching.server.publishes(("b", B))
    assert fetching.believes(signed(B, "b"), fetches=2), "they were fetched a moment ago, because that was due"
    assert not fetching.believes(signed(A, "a")), "it was taken away"


def test_a_key_that_is_not_there_is_asked_for_once_a_minute(fetching: Fetching) -> None:
    assert not fetching.believes(signed(B, "made-up"), fetches=2)
    for _ in range(3):
        said = fetching.said(signed(B, "made-up"))
        assert isinstance(said, NotBelieved)
        assert said.found == "none"
    fetching.clock.time += 61
    assert not fetching.believes(signed(B, "made-up"), fetches=3)
    assert not fetching.believes(signed(B, "made-up"))
    assert len(fetching.server.asked) == 3


def test_a_new_key_is_found_however_many_name_made_up_ones(fetching: Fetching) -> None:
    """Devices give up when a token is refused as wrong; and the issuer is not asked for each token."""
    answers: list[Claimed | NotBelieved] = []
    for number in range(300):
        fetching.issuer.check(signed(B, f"made-up-{number}"), answers.append)
    fetching.settle(2)
    fetching.server.publishes(("a", A), ("b", B))
    for number in range(300, 600):
        fetching.issuer.check(signed(B, f"made-up-{number}"), answers.append)
    devices: list[Claimed | NotBelieved] = []
    fetching.issuer.check(signed(B, "b"), devices.append)
    fetching.clock.advance(4.9)
    assert (len(answers), devices) == (300, [])
    fetching.advance_past_one(0.2)
    fetching.settle(3)
    assert isinstance(devices[0], Claimed)
    assert [said.found for said in answers if isinstance(said, NotBelieved)] == ["none"] * 600
    assert len(fetching.server.asked) == 3


def test_keys_that_are_not_there_are_remembered_within_bounds(
    fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.access.key_sets.MAX_UNKNOWN", 2)
    answers: list[Claimed | NotBelieved] = []
    for name in "cde":
        fetching.issuer.check(signed(B, name), answers.append)
    fetching.settle(2)
    for name in "ed":
        fetching.issuer.check(signed(B, name), answers.append)
    assert len(answers) == 5
    fetching.issuer.check(signed(B, "c"), answers.append)
    assert len(answers) == 5, "it was forgotten, and is asked for"


def test_a_token_of_a_new_key_that_cannot_be_fetched_is_not_a_wrong_one(fetching: Fetching) -> None:
    """Devices give up when a token is refused as wrong."""
    fetching.server.paths["/keys"] = lambda request: request.give({}, 503)
    fetching.clock.time += 61
    assert not fetching.believes(signed(B, "b"), fetches=2)
    for token, found in ((signed(B, "b"), "unavailable"), (signed(B, "a"), "none")):
        said = fetching.said(token)
        assert isinstance(said, NotBelieved)
        assert said.found == found
    assert fetching.believes(signed(A, "a"))


def test_a_token_without_identifier_is_tried_with_all_and_one_with_another_with_none(fetching: Fetching) -> None:
    assert fetching.believes(signed(A, None))
    assert not fetching.believes(signed(A, "other"), fetches=2)


@pytest.mark.parametrize(("control", "refresh", "at"), [
    ("", 900, 720), ("max-age=300", 900, 240), ("max-age=86400", 900, 720), ("max-age=1", 900, 48),
    ("no-store", 900, 48), ("max-age=99999999999999999999", 900, 720),
])  # fmt: skip
def test_they_are_fetched_again_before_their_time_ends(server: KeyServer, control: str, refresh: int, at: int) -> None:
    server.publishes(("a", A), **({"Cache_Control": control} if control else {}))
    one = Fetching(server, refresh=refresh)
    one.keys.start()
    one.settle(1)
    one.clock.advance(at - 1)
    assert len(server.asked) == 1
    one.advance_past_one(2)
    one.settle(2)
    assert (one.told, one.keys.age) == (["", ""], 0.0)
    one.keys.close()


@pytest.mark.parametrize("answer", [
    {"keys": []}, {}, [], "keys", {"keys": "a"}, {"keys": [None, 7, {}]}, {"keys": [published(A, "a", use="enc")]},
    {"keys": [published(B)] * (MAX_KEYS + 1)}, {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}]},
])  # fmt: skip
def test_a_provider_that_lies_changes_nothing(fetching: Fetching, answer: object) -> None:
    fetching.server.paths["/keys"] = lambda request: request.give(answer)
    fetching.clock.advance(721)
    fetching.settle(2)
    assert fetching.told[0] == ""
    assert fetching.told[1].startswith(fetching.server.url)
    assert fetching.believes(signed(A, "a"))


def test_they_are_kept_through_an_outage_and_not_for_ever(server: KeyServer) -> None:
    one = Fetching(server, keep="1h")
    one.keys.start()
    one.settle(1)
    server.paths["/keys"] = lambda request: request.give({}, 503)
    for number in range(2, 5):  # it is asked again, soon and then later
        one.advance_past_one(721 if number == 2 else 61)
        one.settle(number)
        assert one.believes(signed(A, "a"))
    one.clock.time += 4600
    said = one.said(signed(A, "a"))
    assert isinstance(said, NotBelieved)
    assert said.found == "unavailable", "it is no wrong token: it can come again"
    server.publishes(("a", A))
    one.advance_past_one(61)
    one.settle(5)
    assert one.believes(signed(A, "a"))
    one.keys.close()


def test_what_stands_behind_the_address_of_a_provider_is_not_told(server: KeyServer) -> None:
    for path in ("/away?key=planted", "/empty?key=planted"):
        server.paths["/empty?key=planted"] = lambda request: request.give({"keys": []})
        fetching = Fetching(server, jwks_url=f"{server.url}{path}")
        fetching.keys.start()
        fetching.settle(1)
        assert fetching.told[0].startswith(server.url + path.partition("?")[0]), fetching.told
        assert "planted" not in fetching.told[0] + fetching.keys.provider


def test_a_provider_that_was_never_there_is_asked_later_and_later(server: KeyServer) -> None:
    server.paths.clear()
    one = Fetching(server)
    one.keys.start()
    one.settle(1)
    said = one.said(signed(A, "a"))
    assert isinstance(said, NotBelieved)
    assert said.found == "unavailable"
    for count, pause in ((2, 2), (3, 4), (4, 8), (5, 16), (6, 32), (7, 60), (8, 60)):
        one.clock.advance(pause - 0.5)
        assert len(server.asked) == count - 1
        one.advance_past_one(1)
        one.settle(count)
    one.keys.close()


def test_those_that_wait_are_bounded_and_answered_at_the_end(
    server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.access.key_sets.MAX_WAITING", 2)
    server.free.clear()
    one, answers = Fetching(server), list[Claimed | NotBelieved]()
    one.keys.start()
    for _ in range(3):
        one.issuer.check(signed(A, "a"), answers.append)
    assert [answer.found for answer in answers if isinstance(answer, NotBelieved)] == ["busy"]
    one.keys.close()
    assert len(answers) == 3


def test_discovery_leads_to_the_keys(server: KeyServer) -> None:
    server.discovered()
    one = Fetching(server, jwks_url=None, issuer=server.url)
    one.keys.start()
    one.settle(1)
    assert one.believes(signed(A, "a", iss=server.url))
    assert not one.believes(signed(A, "a", iss="https://evil.example"))
    assert not one.believes(signed(A, "a"))
    one.keys.close()


@pytest.mark.parametrize(("issuer", "jwks_uri", "why"), [
    ("https://evil.example", None, "that of the issuer"), (None, "http://login.example/keys", "not https"),
    (None, "file:///etc/keys.json", "not https"), (None, "https://10.0.0.1/keys", "private"), (None, "", "not https"),
])  # fmt: skip
def test_a_configuration_that_leads_elsewhere_is_refused(
    server: KeyServer, issuer: str | None, jwks_uri: str | None, why: str
) -> None:
    server.discovered(jwks_uri, issuer)
    one = Fetching(server, jwks_url=None, issuer=server.url)
    one.keys.start()
    one.settle(1)
    assert why in one.told[0]
    one.keys.close()


def test_keys_that_are_too_weak_too_large_or_private_are_passed_over() -> None:
    weak = RSAAlgorithm.to_jwk(generate_private_key(65537, 1024).public_key(), as_dict=True)
    large = {**weak, "n": "x" * 2000}
    private = {**published(A), "d": "AAAA"}
    good = published(B, "b")
    found = keys_of({"keys": [weak, large, private, {**good, "key_ops": ["encrypt"]}, {**good, "alg": "ES256K"}, good]})
    assert [key.key_id for key in found.all] == ["b"]
    with pytest.raises(NoKeySet, match="2048"):
        keys_of({"keys": [weak]})


@pytest.mark.parametrize("odd", [
    {"kty": []}, {"kty": {"a": 1}}, {"key_ops": 5}, {"key_ops": True}, {"key_ops": "verify"}, {"alg": "none"}, {"x": 5},
    {"use": []},
])  # fmt: skip
def test_a_key_that_is_none_does_not_spoil_the_others(odd: dict[str, object]) -> None:
    found = keys_of({"keys": [{**published(A, "a"), **odd}, published(B, "b")]})
    assert [key.key_id for key in found.all] == ["b"]


def test_members_that_are_null_are_not_there() -> None:
    """Some issuers write all members that a key can have."""
    written = {**dict.fromkeys(("use", "key_ops", "alg", "d", "x", "y", "crv", "x5c")), **published(A, "a")}
    assert keys_of({"keys": [{**written, "alg": None}]}).by_id["a"].algorithms == ALGORITHMS


@pytest.mark.parametrize("settings", [
    {}, {"jwks_url": "http://login.example/keys"}, {"jwks_url": "ftp://127.0.0.1/"}, {"jwks_url": "https://"},
    {"jwks_url": "https://user:pw@login.example/"}, {"jwks_url": "https://[/"}, {"jwks_url": "https://a b/"},
    {"issuer": "plain name"}, {"issuer": "https://login.example?x=1"}, {"jwks_file": "f", "jwks_url": "https://a.b/"},
    {"jwks_file": "f", "user_claim": "{a"}, {"jwks_file": "f", "client_id_claim": "{}"},
])  # fmt: skip
def test_settings_that_say_where_no_key_can_come_from(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"Wrong|address|keys|protected|issuer|template") as caught:
        Jwt(**settings)  # type: ignore[arg-type]
    assert isinstance(caught.value.errors()[0]["ctx"]["error"], Contradictions)  # type: ignore[attr-defined]
