"""Which client identifiers a user may connect with, once it is known who he is."""

from __future__ import annotations

import secrets

from gateway.access.policy import Policy
from gateway.mqtt import reasons
from gateway.mqtt.packets import Connect
from gateway.mqtt.primitives import MAX_STRING_BYTES
from gateway.ports.access import Verdict


def bound(policy: Policy, connect: Connect, certified: str | None, verdict: Verdict) -> Verdict:
    """The verdict about a user, after checking whether he may have the client identifier. If there is a certificate, he
    has to be the user it names, however else he has proved who he is."""
    if verdict.reason:
        return verdict
    if certified is not None and verdict.user != certified:
        return Verdict(reasons.NOT_AUTHORIZED, text="the proof is for another user than the certificate")
    client_id, user = connect.client_id, verdict.user or ""
    if verdict.client_id is not None:
        verdict = _equal(client_id, verdict.client_id, verdict, "the client identifier is not that of the token")
        client_id = verdict.client_id or ""
        if verdict.reason:
            return verdict
    if certified is not None and policy.certificate_client_id:
        return _equal(client_id, user, verdict, "the client identifier is not that of the certificate")
    if policy.client_ids == "any":
        return verdict
    if not user:  # an anonymous client: an identifier is made for it, and it cannot take a user's
        return verdict if not client_id else _refused("without a user name the client identifier has to be empty")
    if policy.client_ids == "equals_user":
        return _equal(client_id, user, verdict, "the client identifier has to be the user name")
    return _beginning(client_id, user, verdict)


def _equal(client_id: str, user: str, verdict: Verdict, otherwise: str) -> Verdict:
    return verdict._replace(client_id=user) if client_id in {"", user} else _refused(otherwise)


def _beginning(client_id: str, user: str, verdict: Verdict) -> Verdict:
    """The user's name, alone or followed by more after a character that is neither letter nor digit, so that `al` has
    no identifiers of `alice`."""
    if not client_id:
        made = f"{user}-{secrets.token_hex(8)}"
        too_long = len(made.encode()) > MAX_STRING_BYTES
        return (
            _refused("the user name is too long to begin a client identifier")
            if too_long
            else verdict._replace(client_id=made)
        )
    rest = client_id[len(user) :]
    if client_id.startswith(user) and not rest[:1].isalnum():
        return verdict
    return _refused("the client identifier has to begin with the user name, not followed by a letter or digit")


def _refused(text: str) -> Verdict:
    return Verdict(reasons.CLIENT_IDENTIFIER_NOT_VALID, text=text)
