"""SCRAM-SHA-256 against the example of RFC 7677 and against wrong clients."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys

import pytest

from gateway.access import scram
from gateway.access.scram import ITERATIONS, MAX_FIRST, Exchange, ScramError, Users, salt_of

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SECRET = b"s" * 32
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
LAST = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> Users:
    """The user of the example, with the salt of the example."""
    with monkeypatch.context() as patched:
        patched.setattr(scram, "salt_of", lambda _secret, _user: SALT)
        return Users({"user": b"pencil"}, SECRET)


def test_the_example_of_rfc_7677(users: Users) -> None:
    server = Exchange()
    challenge = server.challenge(users, FIRST, NONCE)
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.finish(users, LAST) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


def test_a_wrong_proof_is_refused(users: Users) -> None:
    server = Exchange()
    server.challenge(users, FIRST, NONCE)
    with pytest.raises(ScramError):
        server.finish(users, LAST.replace(b"dHzb", b"dHzc"))


@pytest.mark.parametrize(("password", "sent"), [
    ("e\u0301t\u00e9", "\u00e9t\u00e9"), ("a\u00a0b", "a b"), ("\u2168\u00ad", "IX"),  # RFC 4013, 2.1, 2.2
    ("e\u0301t\u00e9", "e\u0301t\u00e9"), ("a,b=c ", "a,b=c "),
])  # fmt: skip
def test_a_password_is_right_prepared_by_saslprep_and_as_it_is(password: str, sent: str) -> None:
    users, server = Users({"user": password.encode()}, SECRET), Exchange()
    challenge = server.challenge(users, b"n,,n=user,r=abc", NONCE)
    without = b"c=biws,r=abc" + NONCE.encode()
    salted = hashlib.pbkdf2_hmac("sha256", sent.encode(), salt_in(challenge), ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = b"n=user,r=abc," + challenge + b"," + without
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    assert server.finish(users, without + b",p=" + proof) == b"v=" + base64.b64encode(
        hmac.digest(server_key, signed, "sha256")
    )


def test_only_keys_of_passwords_that_have_changed_are_made_again() -> None:
    before = Users({"same": b"one", "other": b"two", "gone": b"three"}, SECRET)
    users = Users({"same": b"one", "other": b"changed", "new": b"one"}, SECRET, before)
    assert users.keys("same") is before.keys("same")
    assert users.keys("other") == Users({"other": b"changed"}, SECRET).keys("other") != before.keys("other")
    assert "gone" not in users
    assert users.keys("new") == Users({"new": b"one"}, SECRET).keys("new")


def salt_in(challenge: bytes) -> bytes:
    return base64.b64decode(challenge.split(b",s=")[1].split(b",")[0])


def test_an_unknown_user_is_refused_only_at_the_end(users: Users) -> None:
    server = Exchange()
    challenge = server.challenge(users, b"n,,n=nobody,r=abc", NONCE)
    assert challenge.startswith(b"r=abc")
    assert challenge.endswith(b",i=%d" % ITERATIONS)
    proof = base64.b64encode(bytes(32))
    with pytest.raises(ScramError, match="the proof is wrong"):
        server.finish(users, b"c=biws,r=abc" + NONCE.encode() + b",p=" + proof)


def test_nobody_with_the_secret_of_unknown_users_gets_in() -> None:
    users = Users({"user": b"pencil"}, SECRET)
    server = Exchange()
    challenge = server.challenge(users, b"n,,n=nobody,r=abc", NONCE)
    [keys], without = users.keys("nobody"), b"c=biws,r=abc" + NONCE.encode()
    signature = hmac.digest(keys.stored_key, b"n=nobody,r=abc," + challenge + b"," + without, "sha256")
    with pytest.raises(ScramError):
        server.finish(
            users,
            without + b",p=" + base64.b64encode(bytes(a ^ b for a, b in zip(keys.stored_key, signature, strict=True))),
        )


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_every_name_has_a_salt_of_its_own_that_stays_the_same(user: str) -> None:
    first, other = ({"user": b"pencil"}, {"user": b"another", "third": b"x"})
    salts = {
        salt_in(Exchange().challenge(Users(one, SECRET), f"n,,n={user},r=abc".encode(), NONCE))
        for one in (first, other)
    }
    assert salts == {salt_of(SECRET, user)}, "not after a restart, nor when the users have changed"
    assert len({salt_of(SECRET, name) for name in ("user", "nobody", "somebody")}) == 3
    assert salt_of(b"t" * 32, user) != salt_of(SECRET, user)


def test_an_exchange_keeps_less_than_a_kibibyte(users: Users) -> None:
    longest = b"n,,n=" + "ü".encode() * 60 + b",r="
    longest += b"x" * (MAX_FIRST - len(longest))
    server = Exchange()
    server.challenge(users, longest, "n" * 24)
    kept = sum(sys.getsizeof(getattr(server, name)) for name in Exchange.__slots__)
    assert kept + sys.getsizeof(server) < 1024
    with pytest.raises(ScramError, match="more than"):
        Exchange().challenge(users, longest + b"x", "n" * 24)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "the first message is missing"),
        (b"n,,", "the first message needs n= and r="),
        (b"p=tls-unique,,n=u,r=x", "channel binding and authorisation identities are not offered"),
        (b"n,a=other,n=u,r=x", "channel binding and authorisation identities are not offered"),
    ],
)
def test_what_is_wrong_with_a_first_message_is_said(users: Users, message: bytes, why: str) -> None:
    with pytest.raises(ScramError, match=why):
        Exchange().challenge(users, message, "x")


@pytest.mark.parametrize(
    "message",
    [b"", b"p=tls,,n=user,r=x", b"n,,n=,r=x", b"n,,n=user,r=", b"n,,r=x", b"n,,n=user", b"n,a=x,n=u,r=x", b"\xff,,"],
)
def test_a_malformed_first_message_is_refused(users: Users, message: bytes) -> None:
    with pytest.raises(ScramError):
        Exchange().challenge(users, message, NONCE)


@pytest.mark.parametrize("message", [b"", b"c=biws", LAST.replace(b"c=biws", b"c=eSws"), LAST[:-8] + b"*"])
def test_a_malformed_last_message_is_refused(users: Users, message: bytes) -> None:
    server = Exchange()
    server.challenge(users, FIRST, NONCE)
    with pytest.raises(ScramError):
        server.finish(users, message)
