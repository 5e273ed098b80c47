"""gateway.people.people: who signs in, and who is held up by whom."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from gateway.access.directory import Directory
from gateway.access.guesses import Guesses
from gateway.access.passwords import hash_password
from gateway.config.identity import Ldap
from gateway.config.people import Oidc
from gateway.people.oidc import Provider
from gateway.people.people import MOST_WAITING, THREADS, People, SignedIn
from gateway.people.sessions import Sessions
from gateway.people.users import User
from gateway.people.users_file import UsersFile

PASSWORD = "correct horse"


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of what takes connections and answers nothing, whatever comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class Office:
    """People, and what they have been told."""

    def __init__(self, place: Path) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        bounds = Guesses(1000, 1000, 300.0)
        self.people = People(UsersFile(place / "users"), bounds, Sessions(60.0, 60.0), b"secret", self.calls.put)
        self.people.use({"ann": User("ann", "admin", hash_password(PASSWORD.encode()))})
        self.told: list[Any] = []

    def hear(self, count: int) -> list[Any]:
        """The first answers."""
        while len(self.told) < count:
            self.calls.get(timeout=60)()
        return self.told

    def sign_in(self, user: str, password: str) -> None:
        self.people.sign_in(user, password, "10.0.0.9", self.told.append)


def test_own_users_sign_in_while_a_provider_does_not_answer(tmp_path: Path, silent: int) -> None:
    office = Office(tmp_path)
    url = f"http://127.0.0.1:{silent}"
    settings = {"issuer": url, "client_id": "c", "gateway_url": url, "timeout": 30}
    oidc = Oidc.model_validate({**settings, "roles": [{"value": "x", "role": "viewer"}]})
    office.people.use_others(Provider(oidc, None, None, lambda _provider, _why: None), None, set())
    refused: list[Any] = []
    for _ in range(MOST_WAITING + 1):
        office.people.send(refused.append)
    office.sign_in("ann", PASSWORD)
    assert isinstance(office.hear(1)[0], SignedIn)
    assert [one.status for one in refused] == [503], "as many as that do not wait"
    office.people.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pyasn1, by ldap3
def test_own_users_sign_in_while_a_directory_does_not_answer(tmp_path: Path, silent: int) -> None:
    pytest.importorskip("ldap3")
    office = Office(tmp_path)
    settings = Ldap(servers=[f"ldap://127.0.0.1:{silent}"], start_tls=False, bind_as="uid={user},o=x", timeout=30)
    office.people.use_others(None, Directory(settings, None, None, lambda _server, _why: None), set())
    for number in range(10):
        office.sign_in(f"eve{number}", PASSWORD)
    office.sign_in("ann", PASSWORD)
    assert isinstance(office.hear(1)[0], SignedIn)
    office.people.close()


def test_no_guess_is_looked_at_before_those_before_it_are_counted(tmp_path: Path) -> None:
    """The reactor may stand still meanwhile, and the threads went on with all that waited."""
    office = Office(tmp_path)
    office.people.guesses.use(2, 1000, 300.0)
    for number in range(10):
        office.sign_in("ann", f"wrong {number}")
    answers = [office.calls.get(timeout=60) for _ in range(THREADS)]
    with pytest.raises(Empty):
        office.calls.get(timeout=0.5)
    for answer in answers:
        answer()
    assert [one.status for one in office.hear(10)] == [401] * 2 + [429] * 8
    office.people.close()
