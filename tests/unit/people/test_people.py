"""gateway.people.people: who signs in, and who is held up by whom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from gateway.access.guesses import Guesses
from gateway.access.logins import Credentials, NotNow
from gateway.access.passwords import hash_password
from gateway.people.people import ELSEWHERE_THREADS, MOST_WAITING, THREADS, Begun, People, Refused, SignedIn
from gateway.people.sessions import Sessions
from gateway.people.users import User
from gateway.people.users_file import UsersFile
from gateway.ports.people import Caller

PASSWORD = "correct horse"


class Silent:
    """A directory, or a provider, that does not answer before it is let: however slow this machine is."""

    name = "silent"

    def __init__(self) -> None:
        self.free = threading.Event()

    def ask(self, _who: Credentials) -> NotNow:
        self.free.wait()
        return NotNow("away")

    def begin(self) -> Begun:
        self.free.wait()
        raise Refused("away", 503)

    def finish(self, _query: Mapping[str, str], _cookie: str) -> Caller:
        raise Refused("away", 503)

    def close(self) -> None:
        self.free.set()


@pytest.fixture
def silent() -> Iterator[Silent]:
    there = Silent()
    yield there
    there.close()


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
            self.calls.get(timeout=300)()
        return self.told

    def sign_in(self, user: str, password: str) -> None:
        self.people.sign_in(user, password, "10.0.0.9", self.told.append)


def test_own_users_sign_in_while_a_provider_does_not_answer(tmp_path: Path, silent: Silent) -> None:
    office = Office(tmp_path)
    office.people.use_others(silent, None, set())
    refused: list[Any] = []
    for _ in range(MOST_WAITING + 1):
        office.people.send(refused.append)
    office.sign_in("ann", PASSWORD)
    assert isinstance(office.hear(1)[0], SignedIn)
    assert [one.status for one in refused] == [503], "as many as that do not wait"
    office.people.close()


def test_own_users_sign_in_while_a_directory_does_not_answer(tmp_path: Path, silent: Silent) -> None:
    office = Office(tmp_path)
    office.people.use_others(None, silent, set())
    for number in range(ELSEWHERE_THREADS + 2):
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
    answers = [office.calls.get(timeout=300) for _ in range(THREADS)]
    with pytest.raises(Empty):
        office.calls.get(timeout=0.5)
    for answer in answers:
        answer()
    assert [one.status for one in office.hear(10)] == [401] * 2 + [429] * 8
    office.people.close()
