"""gateway.app.managed_users: changes of users while their clients come in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from broker_harness import Device, FarQueues, Harness

from gateway.access.logins import Credentials, Login
from gateway.access.managed import LEAST_OWN, ManagedUsers, User, hashed
from gateway.app.managed_users import (
    AGAIN_AT_MOST,
    AGAIN_SECONDS,
    AT_ONCE,
    LONGEST_COMMIT,
    LOOK_SECONDS,
    VERSION,
    UserStore,
    key_of,
)
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


class Both:
    """Two gateways on one queue, each of which changes users."""

    def __init__(self) -> None:
        self.benches = [Harness("version: 1\n", FarQueues()) for _ in range(2)]
        for bench in self.benches[1:]:
            bench.queues.rows, bench.queues._tokens = self.benches[0].queues.rows, self.benches[0].queues._tokens
        made = [managing(bench) for bench in self.benches]
        self.managed, self.stores = [one for one, _ in made], [store for _, store in made]
        self.settle()

    def settle(self) -> None:
        queues: list[Any] = [bench.queues for bench in self.benches]
        while any(one.answer() or one.commit() for one in queues):
            pass

    def look(self) -> None:
        for _ in range(4):
            for bench in self.benches:
                bench.clock.advance(LOOK_SECONDS)
            self.settle()

    def make(self, at: int, name: str = "dev", **fields: Any) -> None:
        """A change of a user as it is."""
        store, users = self.stores[at], self.managed[at].users
        store.when_current([name], lambda: store.change([users.get(name, User(name))._replace(**fields)]))

    def records(self) -> list[bytes]:
        return [key for _, key, _, _ in self.benches[0].queues.rows[USERS].values()]

    def known(self, name: str = "dev") -> list[User | None]:
        return [one.users.get(name) for one in self.managed]


def test_a_change_is_one_of_what_another_gateway_has_made_just_before() -> None:
    both = Both()
    both.make(0, password=hashed(b"pw"))
    both.settle()
    both.look()
    both.make(0, enabled=False)
    both.settle()
    both.make(1, role="lines")
    both.settle()
    both.look()
    for one in both.known():
        assert one is not None
        assert (one.enabled, one.role) == (False, "lines")


def test_many_changes_that_wait_are_made_together_and_in_order() -> None:
    """Thousands of devices use their tokens in the same minute: it is not read for each, and not committed."""
    both = Both()
    both.make(0, password=hashed(b"pw"))
    both.settle()
    both.look()
    context, reads = both.benches[0].engine.context, list[object]()
    ask = context.ask
    context.ask = lambda read, answered: (reads.append(read), ask(read, answered))[1]  # type: ignore[method-assign]
    order: list[int] = []
    for number in range(3 * AT_ONCE):
        name = f"d{number % 900}"
        both.stores[0].when_current([name], lambda number=number: order.append(number))  # type: ignore[misc]
        if number % 100 == 0:
            both.make(0, f"m{number}", password=hashed(b"pw"))
    both.settle()
    both.look()
    assert order == list(range(3 * AT_ONCE))
    assert len(reads) < 20
    assert all(both.managed[1].users.get(f"m{number}") for number in range(0, 3 * AT_ONCE, 100))


def test_a_user_that_another_gateway_has_removed_is_not_there_to_be_changed() -> None:
    both = Both()
    both.make(0, password=hashed(b"pw"))
    both.settle()
    both.look()
    both.stores[0].change(gone=[both.managed[0].users["dev"]])
    both.settle()
    found: list[bool] = []
    both.stores[1].when_current(["dev"], lambda: found.append("dev" in both.managed[1].users))
    both.settle()
    assert found == [False]


def test_a_change_waits_for_one_that_is_under_way_at_another_gateway() -> None:
    both = Both()
    both.make(0, password=hashed(b"pw"))
    both.settle()
    both.look()
    rows = both.benches[0].queues.rows[USERS]
    before = {**rows}
    both.make(0, enabled=False)
    both.settle()
    after = {**rows}
    rows.clear()
    rows.update({token: row for token, row in before.items() if token in after})  # it is open
    both.make(1, role="lines")
    both.settle()
    rows.update(after)
    both.benches[1].clock.advance(AGAIN_SECONDS)
    both.settle()
    both.look()
    for one in both.known():
        assert one is not None
        assert (one.enabled, one.role) == (False, "lines")


@pytest.mark.parametrize("known", [True, False])
def test_a_user_is_not_taken_for_gone_while_one_of_two_versions_is_replaced(known: bool) -> None:
    """Gateways that make changes at the same moment leave two; who sees the one that stays knows of no other."""
    both = Both()
    both.make(0, "first", password=hashed(b"pw"))
    both.settle()
    both.look()
    both.make(0, password=hashed(b"pw"))
    both.settle()
    if known:
        both.look()
    queues = both.benches[0].queues
    rows = queues.rows[USERS]
    before = {**rows}
    both.stores[0].change([both.managed[0].users["dev"]._replace(enabled=False)])
    both.settle()
    after = {**rows}
    rows.clear()
    rows.update({token: row for token, row in before.items() if token in after})  # it is open
    rows[next(queues._tokens)] = (0, VERSION, bytes(364), b"v" * 16)  # what another gateway has left
    for bench in both.benches:
        bench.queues.uncommitted[USERS] = 2
    there = both.benches[1]
    found: list[bool] = []
    both.stores[1].when_current(["dev"], lambda: found.append("dev" in both.managed[1].users))
    both.settle()
    there.clock.advance(3 * LOOK_SECONDS)
    both.settle()
    assert not found
    assert ("dev" in both.managed[1].users) == known
    rows.update(after)
    for bench in both.benches:
        bench.queues.uncommitted.clear()
    there.clock.advance(AGAIN_AT_MOST)
    both.settle()
    assert found == [True]
    assert not both.managed[1].users["dev"].enabled


@pytest.mark.parametrize("new", [True, False])
def test_a_new_user_does_not_wait_long_for_what_another_gateway_does(new: bool) -> None:
    """That may be importing thousands: of those there is hardly a moment without a unit of work."""
    both = Both()
    both.make(0, "first", password=hashed(b"pw"))
    both.settle()
    both.look()
    rows = both.benches[0].queues.rows[USERS]
    for token in [token for token, row in rows.items() if row[1] == VERSION]:
        del rows[token]
    called: list[bool] = []
    both.stores[1].when_current(["dev"], lambda: called.append(True), new=new)
    for _ in range(20):
        both.settle()
        both.benches[1].clock.advance(0.2)
    assert called == [True] * new


@pytest.mark.parametrize("disabled", [0, 1])
def test_of_two_records_of_a_user_one_stays(disabled: int) -> None:
    """What had been removed was there again: the other record was left."""
    both = Both()
    both.make(0, password=hashed(b"pw"))
    both.settle()
    both.look()
    user = both.managed[0].users["dev"]
    queues = both.benches[0].queues
    records: list[dict[int, Any]] = []
    for number in range(2):  # neither sees the other
        before = {**queues.rows[USERS]}
        both.benches[number].queues.automatic = True
        both.stores[number].change([user._replace(role=f"r{number}", enabled=number != disabled)])
        both.settle()
        records.append({**queues.rows[USERS]})
        if number == 0:
            queues.rows[USERS].clear()
            queues.rows[USERS].update(before)
    queues.rows[USERS].clear()
    queues.rows[USERS].update(records[0] | records[1])
    assert len(both.records()) == 4
    both.look()
    for one in both.known():
        assert one is not None
        assert (one.role, one.enabled) == ("r1", False), "the last one counts, and a disabled user stays so"
    assert sorted(both.records()) == sorted([VERSION, key_of(user)])
    both.stores[0].change(gone=[user])
    both.settle()
    both.look()
    assert both.known() == [None, None]


def test_a_token_counts_once_at_all_gateways() -> None:
    both = Both()
    both.stores[0].change([TOKEN_USER])
    both.settle()
    both.look()
    others = b"y" * LEAST_OWN
    assert isinstance(login(both.managed[0], TOKEN + b":" + OWN), Login)
    both.benches[0].clock.run()
    both.settle()
    assert isinstance(login(both.managed[1], TOKEN + b":" + others), Login), "it does not know yet"
    both.benches[1].clock.run()
    both.settle()
    both.look()
    for managed in both.managed:
        assert isinstance(login(managed, OWN), Login)
        assert isinstance(login(managed, TOKEN + b":" + OWN), Login), "the first answer may be lost"
        assert login(managed, others) is None
        assert login(managed, TOKEN + b":" + others) is None


def test_who_has_come_in_by_a_token_that_was_used_elsewhere_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both()
    both.stores[0].change([TOKEN_USER])
    both.settle()
    both.look()
    login(both.managed[0], TOKEN + b":" + OWN)
    both.benches[0].clock.run()
    both.settle()
    bench = both.benches[1]
    monkeypatch.setattr(
        bench.engine.context.access, "authenticate", lambda *rest: rest[-1](Verdict(0, "dev", method="managed"))
    )
    login(both.managed[1], TOKEN + b":" + b"y" * LEAST_OWN)
    bench.clock.run()
    device = bench.device(5, "c1").connect(clean=True)
    both.settle()
    assert [getattr(found, "reason", None) for _, found in device.take()] in ([0, 0x87], [0x87])
    assert device.wire.closed
