"""Decisions about CONNECT for which no password has to be hashed; the others are tested with a running gateway."""

from __future__ import annotations

import base64
import gc
import hashlib
import hmac
import json
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from key_server import KeyServer, Request
from schedulers import ManualScheduler

from gateway.access import checks
from gateway.access.gatekeeper import Gatekeeper
from gateway.access.managed import User
from gateway.access.passwords import hash_password, write_password_file
from gateway.access.scram import Exchange, keys_of
from gateway.config.load import load_settings
from gateway.errors import ConfigurationError
from gateway.mqtt import client
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Connect
from gateway.ports.access import Verdict


class Link:
    """A connection as far as identity goes."""

    def __init__(self, certificate_user: str | None = None) -> None:
        self.certificate_user, self.certificate_fingerprint = certificate_user, ""
        self.listener, self.peer, self.closed = "plain", "10.0.0.1:1", False


class Live:
    """A connection that was accepted for a user."""

    def __init__(self, link: Link, user: str | None, exchange: object = None, client_id: str = "c1") -> None:
        self.link, self.user, self.exchange = link, user, exchange
        self.publisher = SimpleNamespace(client_id=client_id)
        self.request = client.connect(5, client_id)


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


def test_what_a_service_has_said_of_one_address_is_not_said_of_another(tmp_path: Path) -> None:
    asked: list[str] = []

    def login(request: Request) -> None:
        (one,) = json.loads(request.rfile.read(int(request.headers["Content-Length"])))["logins"]
        asked.append(one["address"])
        request.give({"logins": [{"allow": one["address"] == "10.0.0.1", "user": "alice"}]})

    with KeyServer() as service:
        service.paths["/login"] = login
        access = keeper(tmp_path, f'{{anonymous: false, webhook: {{url: "{service.url}/login", timeout: 30}}}}')
        for peer in ("10.0.0.2:1", "10.0.0.1:1", "10.0.0.2:2", "10.0.0.1:2", "[2001:db8::7]:1"):
            link, verdicts = Link(), list[Verdict]()
            link.peer, connect = peer, client.connect(5, "c1")
            connect.username, connect.password = "alice", b"pw"
            access.authenticate(connect, link, verdicts.append)  # type: ignore[arg-type]
            access._scheduler.run_until(lambda said=verdicts: bool(said), 60)  # type: ignore[attr-defined]
            assert (verdicts[0].reason == 0) is peer.startswith("10.0.0.1:"), peer
        access.close()
    assert asked == ["10.0.0.2", "10.0.0.1", "2001:db8::7"]


def test_too_many_checks_at_once_are_told_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = keeper(tmp_path, "{anonymous: false, authenticator: 'os.path:join'}")
    monkeypatch.setattr("gateway.access.checks.MAX_WAITING", 0)
    assert decide(access, "alice", b"x").reason == 0x89


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        keeper(tmp_path, "{users: {alice: {password_file: alice}}}")


def test_what_cannot_be_read_leaves_the_old_list_in_force(tmp_path: Path) -> None:
    (tmp_path / "acl.yaml").write_text('[{user: "*", allow: ["a/#"]}, {anonymous: true, allow: ["a/#"]}]')
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

    for user, certificate, reason in (("alice", None, 0), ("bob", None, 0x87), (None, "bob", 0x87), (None, None, 0)):
        live = Live(Link(certificate), user)
        verdicts: list[Verdict] = []
        access.exchange(live, b"n,,n=alice,r=x", verdicts.append)
        live.exchange = verdicts[0].exchange
        monkeypatch.setattr(Exchange, "finish", lambda _exchange, _users, message: b"v=" + message)
        access.exchange(live, b"proof", verdicts.append)
        assert verdicts[1].reason == reason, (user, certificate)


def last_of(verdict: Verdict, password: bytes) -> bytes:
    """The proof for a challenge; the first message was `n,,n=alice,r=x`."""
    nonce, salt, _ = verdict.data.split(b",")
    keys = keys_of(password, base64.b64decode(salt[2:]))
    salted = hashlib.pbkdf2_hmac("sha256", password, keys.salt, keys.iterations)
    without = b"c=biws," + nonce
    signed = b"n=alice,r=x," + verdict.data + b"," + without
    signature = hmac.digest(keys.stored_key, signed, "sha256")
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return without + b",p=" + base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))


@pytest.mark.parametrize(("after", "reason"), [("old", 0), ("new", 0x87), (None, 0x87)])
@pytest.mark.parametrize("connected", [True, False])
def test_a_proof_is_of_the_password_that_holds_when_it_comes(
    tmp_path: Path, connected: bool, after: str | None, reason: int
) -> None:
    (tmp_path / "alice").write_text("old\n")
    (tmp_path / "bob").write_text("bob\n")
    users = "alice: {password_file: alice}, bob: {password_file: bob}"
    access = keeper(tmp_path, f"{{users: {{{users}}}}}")
    live, verdicts = Live(Link(), "alice" if connected else None), list[Verdict]()
    access.exchange(live, b"n,,n=alice,r=x", verdicts.append)
    live.exchange = verdicts[0].exchange
    file = tmp_path / "settings.yaml"
    if after is None:
        file.write_text(file.read_text().replace("alice: {password_file: alice}, ", ""))
    else:
        (tmp_path / "alice").write_text(f"{after}\n")
    access.prepare(load_settings(str(file), {}, {}))()
    access.exchange(live, last_of(verdicts[0], b"old"), verdicts.append)
    assert verdicts[1].reason == reason


@pytest.mark.parametrize(("user", "reason"), [(None, 0), ("", 0), ("alice", 0), ("bob", 0x87)])
def test_scram_proves_no_other_user_than_connect_names(tmp_path: Path, user: str | None, reason: int) -> None:
    (tmp_path / "alice").write_text("pw\n")
    access = keeper(tmp_path, "{users: {alice: {password_file: alice}}}")
    live, verdicts = Live(Link(), None), list[Verdict]()
    live.request.username = user
    access.exchange(live, b"n,,n=alice,r=x", verdicts.append)
    live.exchange = verdicts[0].exchange
    access.exchange(live, last_of(verdicts[0], b"pw"), verdicts.append)
    assert verdicts[1].reason == reason


def test_what_an_exchange_needs_is_kept_with_its_connection_alone(tmp_path: Path) -> None:
    (tmp_path / "alice").write_text("pw\n")
    access = keeper(tmp_path, "{users: {alice: {password_file: alice}}}")
    gc.collect()
    of_others = sum(isinstance(one, Exchange) for one in gc.get_objects())
    for _ in range(100):
        connect = client.connect(5, "c1")
        connect.properties = {prop.AUTHENTICATION_METHOD: "SCRAM-SHA-256", prop.AUTHENTICATION_DATA: b"n,,n=alice,r=x"}
        verdicts: list[Verdict] = []
        access.authenticate(connect, Link(), verdicts.append)  # type: ignore[arg-type]
        assert verdicts.pop().reason == 0x18
    gc.collect()
    assert sum(isinstance(one, Exchange) for one in gc.get_objects()) <= of_others


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


class Threads:
    """Checks that need no thread and no time: they are done in the test's own turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.computed = 0
        monkeypatch.setattr("gateway.access.checks.WaitingThreads", lambda *_: self)

    def submit(self, call: Callable[[], None]) -> None:
        self.computed += 1
        call()


def guarded(
    directory: Path, monkeypatch: pytest.MonkeyPatch, more: str = ""
) -> tuple[Gatekeeper, ManualScheduler, Threads]:
    """A gatekeeper with a password file of cheap hashes: dev-1 to dev-9, whose passwords are pw-1 to pw-9."""
    threads = Threads(monkeypatch)
    users = {
        f"dev-{number}": hash_password(f"pw-{number}".encode(), pbkdf2=True, iterations=1) for number in range(1, 10)
    }
    write_password_file(directory / "users", users)
    (directory / "eve").write_text("evil\n")
    file = directory / "settings.yaml"
    file.write_text(
        "listeners: [{name: plain, port: 0}]\n"
        f"security: {{anonymous: false, password_file: users, users: {{eve: {{password_file: eve}}}}{more}}}\n"
    )
    clock = ManualScheduler()
    return Gatekeeper(load_settings(str(file), {}, {}), clock), clock, threads


def ask(access: Gatekeeper, clock: ManualScheduler, user: str, password: bytes, peer: str = "10.0.0.1:1") -> Verdict:
    link = Link()
    link.peer = peer
    verdicts: list[Verdict] = []
    connect = client.connect(5, "c1")
    connect.username, connect.password = user, password
    access.authenticate(connect, link, verdicts.append)  # type: ignore[arg-type]
    clock.run()
    (verdict,) = verdicts
    return verdict


def test_so_many_wrong_passwords_of_a_user_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access, clock, threads = guarded(tmp_path, monkeypatch)
    told: list[str] = []
    access.on_guessing = told.append
    answers = [ask(access, clock, "dev-1", b"guess %d" % number, f"10.0.{number}.1:1").reason for number in range(100)]
    assert answers == [0x86] * 20 + [0x9F] * 80
    assert threads.computed == 20
    assert told == ["user dev-1"]
    assert ask(access, clock, "dev-1", b"pw-1", "10.9.9.9:1").reason == 0x9F, "right or wrong, from anywhere"
    assert ask(access, clock, "dev-2", b"pw-2", "10.9.9.9:1").reason == 0, "others are not held up"
    clock.advance(31.0)
    assert ask(access, clock, "dev-1", b"pw-1", "10.9.9.9:1").reason == 0


def test_an_unknown_user_is_bounded_like_a_known_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access, clock, _ = guarded(tmp_path, monkeypatch)
    seen = [
        [ask(access, clock, user, b"%d" % number, f"{user}.example:1") for number in range(30)]
        for user in ("dev-1", "who", "eve")
    ]
    assert seen[0] == seen[1] == seen[2]


def test_a_device_that_repeats_its_wrong_password_is_no_guesser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, clock, threads = guarded(tmp_path, monkeypatch)
    assert {ask(access, clock, "dev-1", b"old").reason for _ in range(300)} == {0x86}
    assert threads.computed == 1, "nor does it cost a hash each time"
    assert ask(access, clock, "dev-1", b"pw-1").reason == 0


def test_guesses_at_many_users_from_one_address_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access, clock, threads = guarded(tmp_path, monkeypatch)
    told: list[str] = []
    access.on_guessing = told.append
    assert ask(access, clock, "dev-1", b"pw-1").reason == 0
    answers = [ask(access, clock, f"user-{number}", b"summer").reason for number in range(500)]
    assert answers == [0x86] * 200 + [0x9F] * 300
    assert threads.computed == 201
    assert told == ["address 10.0.0.1"]
    assert ask(access, clock, "dev-1", b"pw-1").reason == 0, "who has proved himself there is not held up by strangers"
    assert ask(access, clock, "dev-2", b"pw-2", "10.0.0.2:1").reason == 0, "nor are other addresses"
    assert ask(access, clock, "dev-2", b"pw-2").reason == 0x9F
    clock.advance(31.0)
    assert ask(access, clock, "dev-2", b"pw-2").reason == 0


def test_ten_thousand_devices_behind_one_address_are_not_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred of them have a wrong password, and one of them guesses at one user."""
    access, clock, _ = guarded(tmp_path, monkeypatch)
    for number in range(199 - 20):
        ask(access, clock, f"misconfigured-{number}", b"old")
    for number in range(1000):
        ask(access, clock, "dev-9", b"guess %d" % number)
    for _ in range(50):
        for number in range(199 - 20):
            ask(access, clock, f"misconfigured-{number}", b"old")
        assert all(ask(access, clock, f"dev-{number}", b"pw-%d" % number).reason == 0 for number in range(1, 9))
        assert ask(access, clock, "eve", b"evil").reason == 0


def test_a_guesser_elsewhere_locks_nobody_out_who_has_been_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, clock, _ = guarded(tmp_path, monkeypatch)
    assert ask(access, clock, "dev-1", b"pw-1", "10.0.0.7:1").reason == 0
    for number in range(100):
        ask(access, clock, "dev-1", b"guess %d" % number, "10.6.6.6:1")
    assert ask(access, clock, "dev-1", b"pw-1", "10.0.0.7:2").reason == 0
    answers = [ask(access, clock, "dev-1", b"again %d" % number, "10.0.0.7:1").reason for number in range(30)]
    assert answers == [0x86] * 20 + [0x9F] * 10, "and from here no more can be guessed than from anywhere"


def test_the_bounds_are_those_of_the_settings_and_change_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, clock, _ = guarded(tmp_path, monkeypatch, ", guesses: {per_user: 2, within: 1m}")
    assert [ask(access, clock, "dev-1", b"%d" % number).reason for number in range(3)] == [0x86, 0x86, 0x9F]
    file = tmp_path / "settings.yaml"
    file.write_text(file.read_text().replace("per_user: 2", "per_user: 0"))
    access.prepare(load_settings(str(file), {}, {}))()
    assert {ask(access, clock, "dev-1", b"%d" % number).reason for number in range(100)} == {0x86}


def test_proofs_of_scram_are_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access, _, _ = guarded(tmp_path, monkeypatch)

    def proof(user: str) -> Verdict:
        connect = client.connect(5, "c1")
        first = f"n,,n={user},r=x".encode()
        connect.properties = {prop.AUTHENTICATION_METHOD: "SCRAM-SHA-256", prop.AUTHENTICATION_DATA: first}
        verdicts: list[Verdict] = []
        access.authenticate(connect, Link(), verdicts.append)  # type: ignore[arg-type]
        challenge = verdicts[0].data
        nonce = challenge.split(b",")[0]
        access.exchange(
            Live(Link(), None, verdicts[0].exchange), b"c=biws," + nonce + b",p=" + b"A" * 43 + b"=", verdicts.append
        )
        return verdicts[1]

    for user in ("eve", "nobody"):
        assert [proof(user).reason for _ in range(25)] == [0x87] * 20 + [0x9F] * 5
    assert proof("eve").after > 0


def test_a_refusal_says_nothing_about_how_long_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, clock, threads = guarded(tmp_path, monkeypatch)

    def slow(call: Callable[[], None]) -> None:
        clock.advance(0.4)
        call()

    monkeypatch.setattr(threads, "submit", slow)
    known = ask(access, clock, "dev-1", b"wrong", "10.0.0.1:1")
    repeated = ask(access, clock, "dev-1", b"wrong", "10.0.0.2:1")
    assert known.after == pytest.approx(0.6)
    assert repeated.after == pytest.approx(1.0)


@pytest.mark.parametrize(("rule", "user", "client_id", "reason", "becomes"), [
    ("any", "eve", "line-7", 0, None), ("any", "eve", "", 0, None),
    ("equals_user", "eve", "eve", 0, "eve"), ("equals_user", "eve", "", 0, "eve"),
    ("equals_user", "eve", "eve-1", 0x85, None), ("user_prefix", "eve", "eve", 0, None),
    ("user_prefix", "eve", "eve-1", 0, None), ("user_prefix", "eve", "eve:1", 0, None),
    ("user_prefix", "eve", "everest", 0x85, None), ("user_prefix", "eve", "eve1", 0x85, None),
    ("user_prefix", "eve", "alice", 0x85, None), ("user_prefix", "eve", "", 0, "eve-"),
    ("equals_user", None, "eve", 0x85, None), ("equals_user", None, "", 0, None),
    ("user_prefix", None, "x", 0x85, None),
])  # fmt: skip
def test_client_identifiers_can_be_tied_to_users(
    tmp_path: Path, rule: str, user: str | None, client_id: str, reason: int, becomes: str | None
) -> None:
    (tmp_path / "eve").write_text("evil\n")
    access = keeper(tmp_path, f"{{anonymous: true, users: {{eve: {{password_file: eve}}}}, client_ids: {rule}}}")
    verdict = decide(access, user, b"evil" if user else None, client_id=client_id)
    assert verdict.reason == reason
    assert verdict.client_id == becomes or (becomes == "eve-" and str(verdict.client_id).startswith("eve-"))


def test_the_certificates_client_identifier_holds_for_scram_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alice").write_text("pw\n")
    access = keeper(tmp_path, "{users: {alice: {password_file: alice}}, certificate_client_id: true}")
    monkeypatch.setattr(Exchange, "finish", lambda _exchange, _users, message: b"v=" + message)
    for certificate, client_id, reason in (
        ("alice", "alice", 0),
        ("alice", "other", 0x85),
        ("bob", "alice", 0x87),
        ("", "alice", 0x87),
    ):
        connect = client.connect(5, client_id)
        connect.properties = {prop.AUTHENTICATION_METHOD: "SCRAM-SHA-256", prop.AUTHENTICATION_DATA: b"n,,n=alice,r=x"}
        verdicts: list[Verdict] = []
        access.authenticate(connect, Link(certificate), verdicts.append)  # type: ignore[arg-type]
        assert verdicts[0].reason == 0x18
        live = Live(Link(certificate), None, verdicts[0].exchange, client_id)
        access.exchange(live, b"proof", verdicts.append)
        assert verdicts[1].reason == reason


@pytest.mark.parametrize(("owner", "through", "user", "listener", "may"), [
    ("alice", "open", "alice", "closed", True), ("alice", "open", "bob", "open", False),
    ("alice", "open", None, "open", False), (None, "open", None, "open", True),
    (None, "open", "alice", "open", True), (None, "open", "alice", "closed", False),
    (None, "closed", "alice", "closed", True), (None, "gone", "alice", "closed", True),
])  # fmt: skip
def test_a_session_belongs_to_the_user_that_made_it(
    tmp_path: Path, owner: str | None, through: str, user: str | None, listener: str, may: bool
) -> None:
    """A session of an anonymous client may go to whoever could have connected without a name, or to anybody once nobody
    can."""
    (tmp_path / "alice").write_text("pw\n")
    file = tmp_path / "settings.yaml"
    file.write_text(
        "listeners: [{name: open, port: 0}, {name: closed, port: 0, anonymous: false}]\n"
        "security: {users: {alice: {password_file: alice}}}\n"
    )
    access = Gatekeeper(load_settings(str(file), {}, {}), ManualScheduler())
    assert access.may_take(owner, through, user, listener) is may


def test_an_entry_for_users_is_none_for_those_without_a_name(tmp_path: Path) -> None:
    access = keeper(tmp_path, '{anonymous: true, acl: [{user: "*", allow: ["#"]}]}')
    assert access.may_publish("plain", "c1", "alice", "a")
    assert not access.may_publish("plain", "c1", None, "a")
    assert not access.may_subscribe("plain", "c1", None, "a")
    with pytest.raises(ConfigurationError, match="fits nobody"):
        keeper(tmp_path, '{acl: [{user: "*", anonymous: true, allow: ["#"]}]}')


def test_users_stay_managed_until_a_restart(tmp_path: Path) -> None:
    """A reload that removes the setting does not at once let in those whom it has kept out."""
    access = keeper(tmp_path, "{managed: true, methods: [managed]}")
    access.managed.put([User("eve", enabled=False)])
    link = Link("eve")
    assert decide(access, link=link).text == "the user is disabled"
    (tmp_path / "settings.yaml").write_text("listeners: [{name: plain, port: 0}]\n")
    for environ in ({}, {"MQGATE_SECURITY__USERS__BOB__PASSWORD": "x"}):
        access.prepare(load_settings(str(tmp_path / "settings.yaml"), environ, {}))()
        assert decide(access, link=link).text == "the user is disabled"


def test_a_password_file_that_was_emptied_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would lock everybody out. Whoever wants that writes it, as `mqgate passwd --delete` does."""
    access, clock, _ = guarded(tmp_path, monkeypatch)
    settings, file = load_settings(str(tmp_path / "settings.yaml"), {}, {}), tmp_path / "users"
    file.write_text("")
    with pytest.raises(ConfigurationError, match="the file is empty, and what is in force has 9 users of it"):
        access.prepare(settings)
    assert ask(access, clock, "dev-1", b"pw-1").reason == 0
    write_password_file(file, {})
    access.prepare(settings)()
    assert ask(access, clock, "dev-1", b"pw-1").reason == 0x86
    file.write_text("")
    access.prepare(settings)()


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ({"enabled": False}, 0x86),
        ({"password": hash_password(b"new", pbkdf2=True, iterations=1)}, 0x86),
        ({"client_id": "another"}, 0x87),
        ({"role": "another"}, 0),
        (None, 0x86),
    ],
)
def test_a_managed_user_is_let_in_as_it_is_when_its_password_has_been_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: dict[str, Any] | None, reason: int
) -> None:
    """The check takes a while on a thread, and a user removed meanwhile would be let in as one without a role."""
    access, clock, _ = guarded(tmp_path, monkeypatch, ", managed: true")
    user = User("dev", hash_password(b"old", pbkdf2=True, iterations=1), changed=1.0)
    access.managed.put([user])
    connect = client.connect(5, "c1")
    connect.username, connect.password = "dev", b"old"
    verdicts: list[Verdict] = []
    access.authenticate(connect, Link(), verdicts.append)  # type: ignore[arg-type]
    assert not verdicts
    if after is None:
        access.managed.remove(["dev"])
    else:
        access.managed.put([user._replace(changed=2.0, **after)])
    clock.run()
    assert [verdict.reason for verdict in verdicts] == [reason]


def test_devices_with_one_password_that_come_together_wait_for_one_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, clock, threads = guarded(tmp_path, monkeypatch)
    verdicts: list[Verdict] = []
    for number in range(100):
        connect = client.connect(5, f"c{number}")
        connect.username, connect.password = "dev-1", b"pw-1"
        access.authenticate(connect, Link(), verdicts.append)  # type: ignore[arg-type]
    clock.run()
    assert len(verdicts) < 50, "they come in a few in each turn"
    clock.advance(0.0)
    assert [verdict.reason for verdict in verdicts] == [0] * 100
    assert threads.computed == checks.THREADS


def test_one_whose_user_has_been_changed_while_it_waited_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access, clock, _ = guarded(tmp_path, monkeypatch, ", managed: true")
    user = User("dev", hash_password(b"old", pbkdf2=True, iterations=1), changed=1.0)
    access.managed.put([user])
    verdicts: list[Verdict] = []
    for number in range(5):
        connect = client.connect(5, f"c{number}")
        connect.username, connect.password = "dev", b"old"
        access.authenticate(connect, Link(), verdicts.append)  # type: ignore[arg-type]
    access.managed.put([user._replace(changed=2.0, password=hash_password(b"new", pbkdf2=True, iterations=1))])
    clock.advance(0.0)
    assert [verdict.reason for verdict in verdicts] == [0x86] * 5


@pytest.mark.parametrize("where", ["webhook: {{url: 'http://127.0.0.1:{port}/login', timeout: 30s}}",
    "ldap: {{servers: ['ldap://127.0.0.1:{port}'], start_tls: false, bind_as: 'uid={{user}},o=x', timeout: 30s}}",
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pyasn1, by ldap3
def test_who_is_known_here_does_not_wait_for_somebody_elsewhere_who_does_not_answer(tmp_path: Path, where: str) -> None:
    write_password_file(tmp_path / "users", {"dev-1": hash_password(b"pw-1", pbkdf2=True, iterations=1)})
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and answers nothing
        elsewhere = where.format(port=silent.getsockname()[1]).replace("{{", "{").replace("}}", "}")
        clock, verdicts = ManualScheduler(), list[Verdict]()
        file = tmp_path / "settings.yaml"
        file.write_text(
            "listeners: [{name: plain, port: 0}]\n"
            f"security: {{anonymous: false, password_file: users, {elsewhere}}}\n"
        )
        access = Gatekeeper(load_settings(str(file), {}, {}), clock)
        for number in range(checks.BATCH_THREADS + 1):
            connect = client.connect(5, f"c{number}")
            connect.username, connect.password = f"eve-{number}", b"pw"
            access.authenticate(connect, Link(), lambda _verdict: None)  # type: ignore[arg-type]
        connect = client.connect(5, "d1")
        connect.username, connect.password = "dev-1", b"pw-1"
        access.authenticate(connect, Link(), verdicts.append)  # type: ignore[arg-type]
        clock.run_until(lambda: bool(verdicts), 20.0)
        assert verdicts[0].reason == 0
        access.close()
