"""gateway.app.managed_users: changes of users while their clients come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_harness import Device, FarQueues, Harness

from gateway.access.logins import Credentials, Login
from gateway.access.managed import LEAST_OWN, ManagedUsers, User, hashed
from gateway.app.managed_users import LONGEST_COMMIT, LOOK_SECONDS, UserStore, key_of
from gateway.mqtt import packets as p
from gateway.ports.access import Verdict
from gateway.ports.state_queues import USERS

TOKEN, OWN = b"token", b"x" * LEAST_OWN
TOKEN_USER = User("dev", token=hashed(TOKEN), token_ends=4e9)


def managing(bench: Harness) -> tuple[ManagedUsers, UserStore]:
    managed = ManagedUsers()
    store = UserStore(bench.engine, managed)
    store.start()
    return managed, store


def login(managed: ManagedUsers, password: bytes) -> Any:
    return managed.ask(Credentials("c1", "dev", password, "bench", "10.0.0.9"))


@pytest.mark.parametrize(
    "change",
    [
        lambda store, user: store.change([user._replace(enabled=False)]),
        lambda store, user: store.change([user._replace(token="", token_ends=0.0, password=hashed(b"chosen"))]),
        lambda store, user: store.change(gone=[user]),
    ],
    ids=["disabled", "rotated", "deleted"],
)
def test_a_token_that_is_used_undoes_no_change_of_its_user(change: Callable[[UserStore, User], None]) -> None:
    """It is used on a thread, and what that leads to comes in a later turn."""
    bench = Harness()
    managed, store = managing(bench)
    store.change([TOKEN_USER])
    assert isinstance(login(managed, TOKEN + b":" + OWN), Login)
    change(store, managed.users["dev"])
    wanted = dict(managed.users)
    bench.clock.run()
    found = managed.users.get("dev")
    assert (found is None) == (not wanted)
    if found is not None:
        assert (found.enabled, found.password) == (wanted["dev"].enabled, wanted["dev"].password)
    again, _ = managing(bench)
    assert again.users.keys() == wanted.keys(), "on the queue, too"


def test_a_token_sets_the_password_beside_other_changes() -> None:
    bench = Harness()
    managed, store = managing(bench)
    store.change([TOKEN_USER])
    login(managed, TOKEN + b":" + OWN)
    store.change([TOKEN_USER._replace(role="lines")])  # from what was known before
    bench.clock.run()
    for one in (managed, managing(bench)[0]):
        assert one.users["dev"].role == "lines"
        assert isinstance(login(one, OWN), Login)


@pytest.mark.parametrize("deleted", [True, False])
def test_who_waits_for_its_session_is_refused_too(monkeypatch: pytest.MonkeyPatch, deleted: bool) -> None:
    bench = Harness("version: 1\n", FarQueues())
    _, store = managing(bench)
    user = User("dev", password=hashed(b"pw"))
    store.change([user])
    monkeypatch.setattr(
        bench.engine.context.access, "authenticate", lambda *rest: rest[-1](Verdict(0, "dev", method="managed"))
    )

    def answers() -> None:
        while bench.queues.commit() or bench.queues.answer():
            pass

    device = bench.device(5, "c1").connect(clean=False)
    answers()
    device.drop()
    answers()
    waiting: Device = bench.device(5, "c1").connect(clean=True)
    assert not waiting.take(), "what is stored for its earlier session is read first"
    if deleted:
        store.change(gone=[user])
    else:
        store.change([user._replace(enabled=False)])
    answers()
    ((first, found),) = waiting.take()
    assert (first >> 4, found.reason) == (p.CONNACK, 0x87)
    assert waiting.wire.closed


class Pair:
    """Two gateways on one queue, of which the first changes users, and a device of one of them at the second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first, self.second = Harness(), Harness("version: 1\n", FarQueues())
        self.second.queues.rows = self.first.queues.rows
        self.user = User("dev", password=hashed(b"pw"))
        _, self.there = managing(self.first)
        self.there.change([self.user, User("other", password=hashed(b"pw"))])
        self.managed, _ = managing(self.second)
        monkeypatch.setattr(
            self.second.engine.context.access,
            "authenticate",
            lambda *rest: rest[-1](Verdict(0, "dev", method="managed")),
        )
        self.device = self.second.device(5, "c1").connect(clean=True)
        while self.second.queues.commit() or self.second.queues.answer():
            pass
        assert self.device.take()[0][1].reason == 0

    def look(self) -> None:
        self.second.clock.advance(LOOK_SECONDS)
        while self.second.queues.answer() or self.second.queues.commit():
            pass


def test_a_user_whose_change_is_under_way_elsewhere_is_not_taken_for_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a unit of work replaces can be seen by nobody else while it is open."""
    pair = Pair(monkeypatch)
    rows = pair.first.queues.rows[USERS]
    before = {**rows}
    pair.there.change([pair.user._replace(role="lines")])
    after = {**rows}
    rows.clear()
    rows.update({token: row for token, row in before.items() if token in after})  # it is open
    assert key_of(pair.user) not in {key for _, key, _, _ in rows.values()}
    pair.look()
    assert "dev" in pair.managed.users
    assert not pair.device.take()
    rows.update(after)
    pair.look()
    assert pair.managed.users["dev"].role == "lines"
    pair.there.change(gone=[pair.user])
    pair.look()
    assert "dev" not in pair.managed.users
    assert pair.device.take()[0][1].reason == 0x87


def test_users_of_a_queue_that_was_cleared_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair(monkeypatch)
    pair.first.queues.rows[USERS].clear()
    for _ in range(int(LONGEST_COMMIT / LOOK_SECONDS) + 2):
        pair.look()
    assert not pair.managed.users
    assert pair.device.take()[0][1].reason == 0x87
