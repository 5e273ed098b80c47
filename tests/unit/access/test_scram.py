"""SCRAM-SHA-256 against the example of RFC 7677 and against wrong clients."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from gateway.access.scram import Exchange, ScramError, keys_of

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
USERS = {"user": keys_of(b"pencil", SALT)}
UNKNOWN = keys_of(b"?", b"0123456789abcdef")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
LAST = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


def exchange() -> Exchange:
    return Exchange(USERS, UNKNOWN, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")


def test_the_example_of_rfc_7677() -> None:
    server = exchange()
    challenge = server.challenge(FIRST)
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert server.finish(LAST) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


def test_a_wrong_proof_is_refused() -> None:
    server = exchange()
    server.challenge(FIRST)
    with pytest.raises(ScramError):
        server.finish(LAST.replace(b"dHzb", b"dHzc"))


def test_an_unknown_user_is_refused_only_at_the_end() -> None:
    server = exchange()
    assert server.challenge(b"n,,n=nobody,r=abc").startswith(b"r=abc")
    salted = hashlib.pbkdf2_hmac("sha256", b"?", UNKNOWN.salt, UNKNOWN.iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    without = b"c=biws,r=abc%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    signed = b"n=nobody,r=abc," + server._challenge + b"," + without
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    with pytest.raises(ScramError):
        server.finish(without + b",p=" + proof)


@pytest.mark.parametrize("message", [b"", b"p=tls,,n=user,r=x", b"n,,r=x", b"n,,n=user", b"n,a=x,n=u,r=x", b"\xff,,"])
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        exchange().challenge(message)


@pytest.mark.parametrize("message", [b"", b"c=biws", LAST.replace(b"c=biws", b"c=eSws"), LAST[:-8] + b"*"])
def test_a_malformed_last_message_is_refused(message: bytes) -> None:
    server = exchange()
    server.challenge(FIRST)
    with pytest.raises(ScramError):
        server.finish(message)
