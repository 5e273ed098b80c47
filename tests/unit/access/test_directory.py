"""Users of a directory, with a real slapd on loopback."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from certificates import Authority
from free_ports import free_port
from hypothesis import given, settings
from hypothesis import strategies as st
from slapd import ANSWERING, BASE, SERVICE, SERVICE_PASSWORD, USERS, Slapd

from gateway.access.directory import Directory, _canonical, is_plain_name
from gateway.access.logins import Answer, Credentials, Login, NotNow
from gateway.config.identity import Ldap
from gateway.config.units import Contradictions
from gateway.errors import ConfigurationError

pytest.importorskip("ldap3", reason="the extra `ldap` is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pyasn1, by ldap3

PEOPLE = f"ou=people,{BASE}"
SEARCH = {"search_base": PEOPLE, "bind_dn": SERVICE, "password_file": "x"}
ROLES = [{"group": f"CN=operators, OU=groups,{BASE}", "role": "operators"},
         {"group": f"cn=devices,ou=groups,{BASE}", "role": "devices"}]  # fmt: skip


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Slapd]:
    with Slapd(tmp_path_factory.mktemp("slapd") / "one", tls=authority.issue("directory")) as running:
        yield running


class Asked:
    """A directory, and what it has reported."""

    def __init__(self, server: Slapd | list[str], ca: Path | None = None, **settings: object) -> None:
        servers = [server.url] if isinstance(server, Slapd) else server
        made = Ldap(**{"servers": servers, "start_tls": False, "timeout": 20, **settings})  # type: ignore[arg-type]
        self.told: list[str] = []
        self.directory = Directory(
            made, str(ca) if ca else None, SERVICE_PASSWORD, lambda _p, why: self.told.append(why)
        )

    def ask(self, user: str | None, password: bytes | None) -> Answer:
        return self.directory.ask(Credentials("c1", user, password))

    def name(self, user: str | None, password: bytes | None) -> str | None:
        answer = self.ask(user, password)
        assert not isinstance(answer, NotNow), self.told
        return answer.user if isinstance(answer, Login) else None


def test_users_are_searched_and_then_bound(server: Slapd) -> None:
    asked = Asked(server, **SEARCH)
    for user, password in USERS.items():
        assert asked.name(user, password.encode()) == user
        assert asked.name(user, b"wrong") is None
    assert asked.name("nobody", b"x") is None
    assert asked.name("ALICE", b"wonder") == "alice", "one name for one user, however it is written"
    assert asked.ask("alice", b"wonder") == Login("alice", "ldap", 300.0)
    assert set(asked.told) == {""}
    asked.directory.close()


def test_users_are_bound_by_a_name_made_of_theirs(server: Slapd) -> None:
    asked = Asked(server, bind_as=f"uid={{user}},{PEOPLE}")
    assert asked.name("alice", b"wonder") == "alice"
    assert asked.name("alice", b"wrong") is None
    assert asked.name("nobody", b"wrong") is None
    assert asked.name("ALICE", b"wonder") is None, "it would be a second name of alice"
    assert asked.name("ａlice", b"wonder") is None
    asked.directory.close()


def test_a_password_is_sent_as_it_came_and_holds_up_no_other(server: Slapd) -> None:
    """The passwords have characters that SASLprep (RFC 4013) alters or prohibits, such as a line feed that ended a
    file."""
    asked = Asked(server, **SEARCH)
    assert asked.name("dave", "Pässwort ² und ½ ".encode()) == "dave"
    for wrong in (b"wonder\n", b"\0", "\u0627b1".encode(), "\ue000".encode(), "\xad".encode(), b"\xff"):
        assert asked.name("alice", wrong) is None
        assert asked.name("alice", b"wonder") == "alice"
    assert set(asked.told) == {""}
    asked.directory.close()


@pytest.mark.parametrize("user", ["locked", "forbidden"])
def test_what_a_server_says_of_one_user_holds_up_no_other(server: Slapd, user: str) -> None:
    """Several servers answer a bind of a locked account with constraintViolation (RFC 4511, A.2)."""
    asked = Asked(server, bind_as=f"cn={{user}},{ANSWERING}")
    for _ in range(2):
        assert asked.name(user, b"x") is None
    assert set(asked.told) == {""}
    asked.directory.close()


def test_a_user_of_more_groups_than_the_server_tells_holds_up_no_other(tmp_path: Path) -> None:
    """The search comes before the bind: otherwise whoever knows the name of such a user could keep out all others."""
    filter_ = {"group_filter": "(member={dn})", "group_base": f"ou=groups,{BASE}", "group_attribute": "description"}
    with Slapd(tmp_path / "own", more="sizelimit 1") as server:
        asked = Asked(server, **SEARCH, **filter_, roles=ROLES, user="{role}:{user}")
        assert isinstance(asked.ask("alice", b"wonder"), NotNow), "she is in two groups"
        assert "sizeLimitExceeded" in asked.told[0]
        assert asked.name("bob", b"builder") == "devices:bob"
        asked.directory.close()


def test_a_server_that_is_busy_has_said_nothing_of_the_user(server: Slapd) -> None:
    asked = Asked(server, bind_as=f"cn={{user}},{ANSWERING}")
    assert isinstance(asked.ask("busy", b"x"), NotNow)
    assert "busy" in asked.told[0]


@pytest.mark.parametrize("how", [SEARCH, {"bind_as": f"uid={{user}},{PEOPLE}"}, {"bind_as": "{user}@plant.example"}])
@pytest.mark.parametrize("password", [b"", None, b"\xff\xfe"])
def test_a_password_that_is_none_lets_nobody_in(server: Slapd, how: dict[str, object], password: bytes | None) -> None:
    """A server takes a bind without a password for an anonymous one, and accepts it."""
    asked = Asked(server, **how)
    assert asked.name("alice", password) is None
    assert asked.told in ([], [""])
    asked.directory.close()


HOSTILE = [
    "*", "a*", "alice)(uid=*", "*)(uid=*))(|(uid=*", "alice)(|(objectClass=*)", "(uid=alice)", "alice\\2a", "\\61lice",
    "alice\x00", "alice,ou=people", f"alice,{PEOPLE}", "alice+cn=alice", " alice", "alice ", "al  ice", "", "#616c",
    "alice\nuid: bob", "cn=reader", "..", "a" * 300, "alice\\", '"alice"', "alice;x", "<alice>", "alice=x", "bob\u202e",
]  # fmt: skip


@pytest.mark.parametrize("user", HOSTILE)
@pytest.mark.parametrize("how", [
    SEARCH, {"bind_as": f"uid={{user}},{PEOPLE}"}, {"bind_as": "{user}"},
    {**SEARCH, "search_filter": "(&(objectClass=person)(|(uid={user})(mail={user})))"},
])  # fmt: skip
def test_a_name_is_no_part_of_a_filter_or_of_a_name(server: Slapd, user: str, how: dict[str, object]) -> None:
    """Whatever a device calls itself: with everybody's password, only the user who is called exactly that is let in."""
    asked = Asked(server, **how)
    for password in USERS.values():
        assert asked.name(user, password.encode()) is None
    asked.directory.close()


def test_a_full_name_to_bind_with_is_not_to_be_had_by_a_user_name(server: Slapd) -> None:
    asked = Asked(server, bind_as="{user}")
    assert asked.name(f"uid=alice,{PEOPLE}", b"wonder") is None
    assert asked.name("domain\\alice", b"wonder") is None
    asked.directory.close()


@pytest.mark.parametrize("more", [
    {}, {"group_attribute": "seeAlso", "group_filter": "(member={dn})", "group_base": f"ou=groups,{BASE}"},
])  # fmt: skip
def test_the_first_group_that_counts_is_the_role(server: Slapd, more: dict[str, object]) -> None:
    asked = Asked(server, **SEARCH, roles=ROLES, user="{role}:{user}", **more)
    assert asked.name("alice", b"wonder") == "operators:alice"
    assert asked.name("bob", b"builder") == "devices:bob"
    assert asked.name("carol", b"sings") is None, "she is in no group that counts"
    assert asked.name("bob", b"wrong") is None
    asked.directory.close()


def test_a_filter_that_finds_two_finds_nobody(server: Slapd) -> None:
    asked = Asked(server, **{**SEARCH, "search_filter": "(|(uid={user})(objectClass=inetOrgPerson))"})
    assert asked.name("alice", b"wonder") is None
    asked.directory.close()


@pytest.mark.parametrize("secure", [True, False])
def test_tls_is_verified(server: Slapd, authority: Authority, tmp_path: Path, secure: bool) -> None:
    how = {**SEARCH, "start_tls": True}
    url = server.secure_url if secure else server.url
    asked = Asked([url], authority.path, **how)
    assert asked.name("alice", b"wonder") == "alice"
    assert asked.name("alice", b"wrong") is None
    asked.directory.close()
    other = Authority(tmp_path, "other")
    for ca in (other.path, None):
        asked = Asked([url], ca, **how)
        assert isinstance(asked.ask("alice", b"wonder"), NotNow)
        assert re.fullmatch(rf"ldap: {url}: [a-z ]+: .*certificate verify failed: [\w -]+", asked.told[-1])
        assert SERVICE_PASSWORD not in asked.told[-1]


def test_a_file_without_certificates_is_refused_with_its_name(server: Slapd, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("none")
    with pytest.raises(ConfigurationError, match=f"{tmp_path}/ca.pem: .*: give a PEM file"):
        Asked([server.secure_url], tmp_path / "ca.pem", **SEARCH)


def test_the_name_in_its_certificate_is_checked(server: Slapd, authority: Authority) -> None:
    """The certificate names localhost and 127.0.0.1, and no other address of this host."""
    url = server.secure_url.replace("127.0.0.1", "127.0.0.2")
    with socket.create_server(("127.0.0.2", 0)):  # this system has that address
        pass
    forwarded = server.secure_url.replace("127.0.0.1", "localhost")
    asked = Asked([forwarded], authority.path, **SEARCH)
    assert asked.name("alice", b"wonder") == "alice"
    asked = Asked([url], authority.path, **SEARCH)
    assert isinstance(asked.ask("alice", b"wonder"), NotNow)


def test_another_server_answers_while_one_is_away(server: Slapd) -> None:
    asked = Asked([f"ldap://127.0.0.1:{free_port()}", server.url], **SEARCH)
    for _ in range(3):
        assert asked.name("alice", b"wonder") == "alice"
    asked.directory.close()


def test_when_none_answers_nobody_is_wrong_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        asked = Asked([f"ldap://127.0.0.1:{silent.getsockname()[1]}"], **{**SEARCH, "timeout": "500ms"})
        monkeypatch.setattr("gateway.access.directory.REST_SECONDS", 3600.0)
        answer = asked.ask("alice", b"wonder")
        assert isinstance(answer, NotNow)
        assert "127.0.0.1" not in answer.why, "the device is not told where it is"
        for _ in range(100):
            assert isinstance(asked.ask("alice", b"wonder"), NotNow)
        assert len(asked.told) == 1


class _NoDirectory:
    """A server that is none: it answers whatever comes in its own way."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"ldap://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection, suppress(OSError):
                    connection.recv(1000)
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._socket.close()


class _Rubbish(_NoDirectory):
    """It answers with always the same bytes, and ends the connection."""

    def __init__(self, answer: bytes) -> None:
        self._bytes = answer
        super().__init__()

    def _answer(self, connection: socket.socket) -> None:
        connection.sendall(self._bytes)


def _framed(inside: bytes) -> bytes:
    """Something of the length that an LDAP message says it has."""
    return bytes([0x30, len(inside)]) + inside


@pytest.mark.parametrize("how", [SEARCH, {"bind_as": f"uid={{user}},{PEOPLE}"}, {**SEARCH, "start_tls": True}])
@given(answer=st.one_of(
    st.binary(min_size=1, max_size=64),
    st.binary(max_size=40).map(_framed),
    st.binary(max_size=40).map(lambda inside: _framed(b"\x02\x01\x01" + inside)),
    st.just(b"HTTP/1.0 400 Bad request\r\n\r\n"),
))  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_what_answers_with_something_else_than_ldap_is_a_directory_that_is_away(
    how: dict[str, object], answer: bytes
) -> None:
    """The library raises what its decoder comes upon: KeyError for an unknown type, IndexError, and more."""
    with closing(_Rubbish(answer)) as other:
        asked = Asked([other.url], **{**how, "timeout": "5s"})
        assert isinstance(asked.ask("alice", b"wonder"), NotNow)
        assert asked.told[0].startswith("ldap: ")
        asked.directory.close()


class _Slow(_NoDirectory):
    """It begins an answer and never ends it."""

    def __init__(self, piece: bytes, pause: float) -> None:
        self._piece, self._pause = piece, pause
        self._ended = threading.Event()
        super().__init__()

    def _answer(self, connection: socket.socket) -> None:
        connection.sendall(b"\x30\x84\x7f\xff\xff\xff")  # of 2 GiB
        while not self._ended.wait(self._pause):
            connection.sendall(self._piece)

    def close(self) -> None:
        self._ended.set()
        super().close()


@pytest.mark.parametrize(("piece", "pause", "timeout", "why"), [
    (b"x", 0.1, "1s", "timed out|takes longer than"), (b"x" * (1 << 20), 0.0, "60s", "more than 4194304 bytes"),
])  # fmt: skip
@pytest.mark.parametrize("how", [
    {"start_tls": True, "bind_as": f"uid={{user}},{PEOPLE}"}, {"bind_as": f"uid={{user}},{PEOPLE}"}, SEARCH,
])  # fmt: skip
def test_an_answer_without_end_is_given_up(
    piece: bytes, pause: float, timeout: str, why: str, how: dict[str, object]
) -> None:
    slow = _Slow(piece, pause)
    try:
        asked = Asked([slow.url], **{**how, "timeout": timeout})
        assert isinstance(asked.ask("alice", b"wonder"), NotNow)
        assert re.search(f"{why}|abruptly closed", asked.told[-1]), "the latter is what the library calls it in a bind"
    finally:
        slow.close()


def test_a_server_that_is_back_is_asked_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The library itself would pass over an address for some seconds that did not answer."""
    monkeypatch.setattr("gateway.access.directory.REST_SECONDS", 0.0)
    with Slapd(tmp_path / "own") as server:
        asked = Asked(server, **SEARCH)
        server.stop()
        assert isinstance(asked.ask("alice", b"wonder"), NotNow)
        server.start()
        assert asked.name("alice", b"wonder") == "alice"
        asked.directory.close()


def test_connections_are_kept_and_a_restart_costs_nobody_a_login(tmp_path: Path) -> None:
    with Slapd(tmp_path / "own") as server:
        asked = Asked(server, **SEARCH)
        for _ in range(5):
            assert asked.name("alice", b"wonder") == "alice"
        assert server.log.count("ACCEPT") - 1 <= 2 + server.log.count("UNBIND"), server.log
        server.stop()
        server.start()
        assert asked.name("alice", b"wonder") == "alice"
        asked.directory.close()


def test_a_base_that_is_not_there_or_not_to_be_seen_is_said(server: Slapd) -> None:
    for how in ({**SEARCH, "search_base": f"ou=nowhere,{BASE}"}, {"search_base": PEOPLE}):
        asked = Asked(server, **how)
        assert isinstance(asked.ask("alice", b"wonder"), NotNow), "his password may be right"
        assert re.search(r"below ou=\w+,dc=plant,dc=example ends with noSuchObject", asked.told[-1])
        asked.directory.close()


def test_a_service_that_may_not_bind_is_said(server: Slapd) -> None:
    asked = Asked(server, **{**SEARCH, "bind_dn": f"cn=nobody,{BASE}"})
    assert isinstance(asked.ask("alice", b"wonder"), NotNow)
    assert "invalidCredentials" in asked.told[0]


@pytest.mark.parametrize("settings", [
    {"servers": []}, {"servers": ["ldap://directory.example"]}, {"servers": ["http://a"]}, {"servers": ["ldaps://"]},
    {"servers": ["ldaps://a/dc=x"]}, {"bind_as": None}, {"bind_as": "uid=x"}, {"search_base": "dc=x"},
    {"search_base": "dc=x", "bind_as": None, "search_filter": "(uid=x)"},
    {"search_base": "dc=x", "bind_as": None, "bind_dn": "cn=x"}, {"roles": ROLES}, {"user": "{role}:{user}"},
    {"user": "x"},
])  # fmt: skip
def test_settings_that_cannot_be_meant(settings: dict[str, object]) -> None:
    good = {"servers": ["ldaps://a"], "start_tls": False, "bind_as": "uid={user},dc=x"}
    Ldap(**good)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r".") as caught:
        Ldap(**{**good, **settings})  # type: ignore[arg-type]
    error = caught.value.errors()[0]  # type: ignore[attr-defined]
    assert error["type"] == "too_short" or isinstance(error["ctx"]["error"], Contradictions)


def test_what_is_a_name() -> None:
    assert all(map(is_plain_name, ("alice", "Ålice", "a b", "device-7", "a@b")))
    assert not any(map(is_plain_name, ("", " ", "a\x00", "a\tb", " a", "a  b", "a" * 257, "a\u200b")))


def test_distinguished_names_are_compared_without_regard_to_spaces_and_case() -> None:
    assert _canonical("CN=Ops , OU = x,dc=A") == _canonical("cn=ops,ou=x,dc=a")
    assert _canonical(r"cn=a\,b,dc=x") != _canonical("cn=a,b,dc=x")


def test_a_group_is_the_same_however_its_name_is_escaped() -> None:
    for one, other in (
        (r"cn=Ops\, North,dc=x", r"cn=Ops\2C North,dc=x"), (r"cn=a\+b\"c\\,dc=x", r"cn=a\2bb\22c\5C,dc=x"),
        ("cn=Süd \U0001f600,dc=x", r"cn=S\C3\BCd \F0\9F\98\80,dc=x"), (r"cn=\#a=b,dc=x", r"cn=\23a\3Db,dc=x"),
    ):  # fmt: skip
        assert _canonical(one) == _canonical(other)
    assert _canonical(r"cn=a\5C,cn=b") != _canonical(r"cn=a\5C\2Ccn=b")
    assert _canonical(r"cn=\FF,dc=x") != _canonical(r"cn=\FE,dc=x")
