"""Decisions about CONNECT that need no password to be hashed; the others are met on a running gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from schedulers import ManualScheduler

from gateway.access import gatekeeper
from gateway.access.gatekeeper import Gatekeeper
from gateway.config.load import load_settings
from gateway.errors import ConfigurationError
from gateway.mqtt import client
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Connect
from gateway.ports.access import Verdict


class Link:
    """A connection as far as identity goes."""

    def __init__(self, certificate_user: str | None = None) -> None:
        self.certificate_user = certificate_user
        self.listener, self.peer, self.closed = "plain", "10.0.0.1:1", False


class Live:
    """A connection that was accepted for a user."""

    def __init__(self, link: Link, user: str | None) -> None:
        self.link, self.user = link, user


def keeper(directory: Path, security: str) -> Gatekeeper:
    file = directory / "settings.yaml"
    file.write_text(f"listeners: [{{name: plain, port: 0}}]\nsecurity: {security}\n")
    return Gatekeeper(load_settings(str(file), {}, {}), ManualScheduler())


def decide(
    access: Gatekeeper, user: str | None = None, password: bytes | None = None, *, link: Link | None = None, **more: Any
) -> Verdict:
    connect: Connect = client.connect(5, more.get("client_id", "c1"))
    connect.username, connect.password = user, password
    verdicts: list[Verdict] = []
    access.authenticate(connect, link or Link(), verdicts.append)  # type: ignore[arg-type]
    return verdicts[0]


def test_a_name_that_nothing_proves_is_nobodys(tmp_path: Path) -> None:
    access = keeper(tmp_path, "{anonymous: true}")
    assert decide(access, "admin", b"anything") == Verdict(0)
    assert decide(access) == Verdict(0)


def test_a_certificate_without_one_name_lets_nobody_in(tmp_path: Path) -> None:
    access = keeper(tmp_path, "{anonymous: true}")
    assert decide(access, link=Link("")).reason == 0x87
    assert decide(access, link=Link("device-7")).user == "device-7"
    assert decide(access, link=Link(None)) == Verdict(0)


@pytest.mark.parametrize(("client_id", "reason"), [("device-7", 0), ("", 0), ("device-8", 0x85)])
def test_the_certificates_name_is_the_client_identifier(tmp_path: Path, client_id: str, reason: int) -> None:
    access = keeper(tmp_path, "{certificate_client_id: true}")
    verdict = decide(access, link=Link("device-7"), client_id=client_id)
    assert verdict.reason == reason
    assert verdict.client_id == (None if reason else "device-7")


def test_with_naming_off_a_certificate_is_no_identity(tmp_path: Path) -> None:
    access = keeper(tmp_path, "{anonymous: true, certificate_user: none}")
    assert decide(access, link=Link("device-7")) == Verdict(0)


def test_too_many_checks_at_once_are_told_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = keeper(tmp_path, "{anonymous: false, authenticator: 'os.path:join'}")
    monkeypatch.setattr("gateway.access.attempts.MAX_PENDING", 0)
    assert decide(access, "alice", b"x").reason == 0x89


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        keeper(tmp_path, "{users: {alice: {password_file: alice}}}")


def test_what_cannot_be_read_leaves_the_old_list_in_force(tmp_path: Path) -> None:
    (tmp_path / "acl.yaml").write_text(
        '[{user: "*", anonymous: true, allow: ["a/#"]}, {anonymous: true, allow: ["a/#"]}]'
    )
    access = keeper(tmp_path, "{anonymous: true, acl: acl.yaml}")
    settings = load_settings(str(tmp_path / "settings.yaml"), {}, {})
    assert access.may_publish("plain", "c1", None, "a/b")
    (tmp_path / "acl.yaml").write_text("nonsense")
    with pytest.raises(ConfigurationError):
        access.prepare(settings)
    assert access.may_publish("plain", "c1", None, "a/b")
    (tmp_path / "acl.yaml").write_text("[]")
    use = access.prepare(settings)
    assert access.may_publish("plain", "c1", None, "a/b"), "prepared is not in force"
    use()
    assert not access.may_publish("plain", "c1", None, "a/b")


def test_nobody_becomes_somebody_else_by_authenticating_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alice").write_text("pw\n")
    access = keeper(tmp_path, "{users: {alice: {password_file: alice}}}")

    class Proven:
        """An exchange that was won by alice."""

        user = "alice"

        def finish(self, message: bytes) -> bytes:
            return b"v=" + message

    for user, certificate, reason in (("alice", None, 0), ("bob", None, 0x87), (None, "bob", 0x87), (None, None, 0)):
        link = Link(certificate)
        monkeypatch.setitem(access._exchanges, link, Proven())  # type: ignore[arg-type]
        verdicts: list[Verdict] = []
        access.exchange(Live(link, user), b"proof", verdicts.append)
        assert verdicts[0].reason == reason, (user, certificate)


def test_exchanges_that_are_never_finished_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "alice").write_text("pw\n")
    access = keeper(tmp_path, "{users: {alice: {password_file: alice}}}")
    monkeypatch.setattr(gatekeeper, "MAX_EXCHANGES", 10)
    for _ in range(100):
        connect = client.connect(5, "c1")
        connect.properties = {prop.AUTHENTICATION_METHOD: "SCRAM-SHA-256", prop.AUTHENTICATION_DATA: b"n,,n=alice,r=x"}
        access.authenticate(connect, Link(), lambda _verdict: None)  # type: ignore[arg-type]
    assert len(access._exchanges) <= 10


def test_a_listener_that_others_reach_is_not_opened_by_a_reload_that_waits_for_a_restart(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text("pw\n")
    file = tmp_path / "settings.yaml"
    text = "listeners: [{name: plain, port: 0, bind: 0.0.0.0}]\nsecurity: {users: {alice: {password_file: alice}}}\n"
    file.write_text(text)
    access = Gatekeeper(load_settings(str(file), {}, {}), ManualScheduler())
    assert decide(access).reason == 0x87
    file.write_text(text.replace("0.0.0.0", "127.0.0.1"))
    access.prepare(load_settings(str(file), {}, {}))()
    assert decide(access).reason == 0x87, "it is still bound to all addresses"
    file.write_text(text.replace("0.0.0.0", "0.0.0.0, anonymous: true"))
    access.prepare(load_settings(str(file), {}, {}))()
    assert decide(access).reason == 0
