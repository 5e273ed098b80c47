"""Leases on a queue manager: what a gateway that is gone has left goes to exactly one, and it commits nothing more."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import mqi_clients
import pytest
from ibm_rig import HEAD, OBJECTS, BatchRig, served

from gateway.backends.ibm.client import IbmQueueManager
from gateway.backends.ibm.driver import ConnectSettings
from gateway.backends.ibm.structures import correl_id_of
from gateway.backends.ibm.worker import Backoff
from gateway.errors import MQError
from gateway.mq import mqmd
from gateway.ports.batch import Outcome, Puts, Takes, Unit
from gateway.ports.ownership import message_key
from gateway.ports.state_queues import GATEWAYS, MARKERS
from gateway.queue_manager.embedded import EmbeddedQueueManager

pytestmark = pytest.mark.mqi
LEASE = 2.0


class Member(BatchRig):
    """A gateway's queue manager with a lease."""

    queue_manager: IbmQueueManager
    open: ClassVar[list[Member]] = []
    """Those that have not been closed."""

    def __init__(self, driver: str = "ibmmq", lease: float = LEASE) -> None:
        super().__init__()
        settings = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
        self.queue_manager = IbmQueueManager(
            settings, self.scheduler, driver=driver, connections=2, backoff=Backoff(0.05, 0.2), told=self.told.append,
            lease=lease,
        )  # fmt: skip
        self.superseded = threading.Event()
        self.queue_manager.on_superseded = lambda _text: self.superseded.set()
        self.open.append(self)
        self.queue_manager.start()
        self.name = self.queue_manager.instance

    def die(self) -> None:
        """Its lease is not renewed any more; its workers could still commit."""
        membership = self.queue_manager._membership
        assert membership is not None
        membership.stop()
        membership.thread.join(60)

    def close(self) -> None:
        self.open.remove(self)
        super().close()

    def expired(self) -> set[str]:
        return {*self.queue_manager.expired_owners()} - {""}


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def queue_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedQueueManager]:
    mqi_clients.load_bindings()
    monkeypatch.setenv("MQGATE_MQI", str(tmp_path / "s"))
    with served(None, tmp_path / "s", OBJECTS) as made:
        yield made
        while Member.open:
            Member.open[-1].close()


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_everybody_knows_everybody(queue_manager: EmbeddedQueueManager, driver: str) -> None:
    """From the moment on that the last one has started; who came first has what names no owner."""
    members = [Member(driver, 60.0) for _ in range(3)]
    names = {member.name for member in members}
    for member in members:
        assert member.queue_manager.peers() == names - {member.name}
    assert [member.queue_manager.expired_owners() for member in members] == [[""], [], []]
    members[0].queue_manager.taken_over("")
    assert members[0].queue_manager.expired_owners() == []
    for member in members:
        member.close()
    assert queue_manager.depth("MQGATE.SESSIONS") == 0


def test_markers_of_one_that_is_killed_while_it_joins_expire(queue_manager: EmbeddedQueueManager) -> None:
    """Nobody knows of them. Those of one that is at work do not: they keep it from committing when it is replaced."""
    member = Member()

    def lasting() -> int:
        found = [mqmd.number(stored.md, mqmd.AT_EXPIRY) for _, stored in queue_manager.load(MARKERS)]
        assert len(found) == 3
        return found.count(-1)

    assert lasting() == 1  # that of the thread with the lease, which was put with the entry
    for number, worker in enumerate(member.queue_manager._workers):
        worker.close_objects(worker.concluded)  # it commits without a unit, as an idle one does once a day
        until(lambda number=number: lasting() == number + 2)
    assert not member.commit(Unit(puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"1"])])).failures
    assert lasting() == 3
    member.close()


def test_one_of_several_inherits_and_the_dead_commits_nothing(queue_manager: EmbeddedQueueManager) -> None:
    first, second, third = (Member() for _ in range(3))
    assert not first.commit(Unit(puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"alive"])])).failures
    first.die()
    until(lambda: second.expired() | third.expired())
    until(lambda: first.name not in second.queue_manager.peers() | third.queue_manager.peers())
    assert [second.expired(), third.expired()].count(set()) == 1
    outcomes: list[Outcome] = []
    late = Unit(puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"late"])])
    first.queue_manager.submit(late, lambda _unit, outcome: outcomes.append(outcome))
    assert first.superseded.wait(60)
    assert not outcomes
    successor = second if second.expired() else third
    successor.queue_manager.taken_over(first.name)
    assert successor.expired() == set()
    entries = f'"heir":"{successor.name}"'.encode()
    until(lambda: not any(entries in stored.data for _, stored in queue_manager.load(GATEWAYS)))
    assert [stored.data for _, stored in queue_manager.load("APP.Q")] == [b"alive"]
    for member in (second, third):
        member.close()


def test_a_unit_of_work_that_is_open_is_waited_for(queue_manager: EmbeddedQueueManager) -> None:
    """It could still be committed: its outcome is known before anybody else touches what it touches."""
    first, second = Member(), Member()
    worker = first.queue_manager._workers[1]
    assert worker._connection is not None
    worker._marker.advance(worker._connection)
    first.die()
    time.sleep(2 * LEASE)  # long enough for it to be taken over if it could
    assert second.expired() == set()
    assert second.queue_manager.peers() == {first.name}
    worker._connection.session.commit()
    until(lambda: second.expired() == {first.name})
    second.close()


def test_a_lease_that_is_renewed_by_a_gateway_that_had_stood_still_too_long_goes(
    queue_manager: EmbeddedQueueManager,
) -> None:
    """Its unit of work was open when the others removed what there was of it, and is committed when it goes on."""
    first, second = Member(), Member()
    first.die()
    until(lambda: second.expired() == {first.name})
    second.queue_manager.taken_over(first.name)
    name = bytes.fromhex(first.name)

    def left() -> list[bytes]:
        return [stored.md for _, stored in queue_manager.load(GATEWAYS) if name in correl_id_of(stored.md)]

    until(lambda: not left())
    membership = first.queue_manager._membership
    assert membership is not None
    membership._renew(membership._ready(), b"{}")
    membership._ready().session.commit()
    assert left()
    until(lambda: not left())
    second.close()


def test_one_that_stands_still_while_it_starts_and_is_taken_over_says_so(queue_manager: EmbeddedQueueManager) -> None:
    """As an operator reads it, and not as a defect: it is started again."""
    first, second = Member(), Member()
    first.die()
    until(lambda: second.expired() == {first.name})
    membership = first.queue_manager._membership
    assert membership is not None
    with pytest.raises(MQError, match=r"has taken over from this one.*start again"):
        membership.join()
    second.close()


def test_orphaned_sessions_go_on_to_the_next(queue_manager: EmbeddedQueueManager) -> None:
    """A successor that dies before it has taken anything over leaves that too."""
    first, second, third = (Member() for _ in range(3))
    first.die()
    until(lambda: second.expired() | third.expired())
    successor, other = (second, third) if second.expired() else (third, second)
    successor.die()
    until(lambda: other.expired() == {first.name, successor.name})
    assert other.queue_manager.peers() == frozenset()
    other.close()


def test_a_gateway_is_known_until_nothing_is_to_be_taken_over_from_it(queue_manager: EmbeddedQueueManager) -> None:
    """What names one that is not known is nobody's."""
    first, second, third = (Member(lease=1.0) for _ in range(3))
    first.die()
    until(lambda: second.expired() | third.expired())
    successor, other = (second, third) if second.expired() else (third, second)
    time.sleep(2.5)
    assert other.queue_manager.knows(first.name), "its successor has not taken everything over"
    assert first.name not in other.queue_manager.peers()
    successor.queue_manager.taken_over(first.name)
    until(lambda: not other.queue_manager.knows(first.name))
    assert other.queue_manager.knows(successor.name)
    assert other.queue_manager.knows(other.name)
    for one in (successor, other):
        one.close()


def test_more_messages_than_a_small_unit_of_work_holds_are_read(queue_manager: EmbeddedQueueManager) -> None:
    first = Member(lease=60.0)
    queue_manager.mqsc("ALTER QMGR MAXUMSGS(40)")
    second = Member(lease=60.0)
    second.die()
    queue_manager.mqsc("ALTER QMGR MAXUMSGS(10000)")
    bodies = [b'{"kind":"ask","from":"%s"}' % first.name.encode()] * 300
    told = Puts(GATEWAYS, key=message_key(second.name), heads=[HEAD] * 300, bodies=bodies)
    assert not first.commit(Unit([told])).failures
    queue_manager.mqsc("ALTER QMGR MAXUMSGS(40)")
    membership = second.queue_manager._membership
    assert membership is not None
    assert membership._connection is not None
    for _ in range(300):
        membership._mailbox.read(membership._connection, 0)
    assert second.queue_manager.depth(GATEWAYS, message_key(second.name)) == 0
    for one in (first, second):
        one.close()


def test_ending_in_order_and_coming_back(queue_manager: EmbeddedQueueManager) -> None:
    """Nothing is waited for, by those who live or by those who come."""
    first = Member()
    first.close()
    begun = time.monotonic()
    second, third = Member(), Member()
    assert second.expired() == {first.name}
    second.close()
    until(lambda: third.expired() == {first.name, second.name})
    assert time.monotonic() - begun < 30
    third.close()
    assert sum(b"instance" in stored.data for _, stored in queue_manager.load(GATEWAYS)) == 3


def test_one_that_ends_with_a_unit_of_work_in_doubt_does_not_say_that_it_has_ended(
    queue_manager: EmbeddedQueueManager,
) -> None:
    """The queue manager holds the unit open: the records that it has got cannot be seen by who would take over."""
    first, second = Member(), Member()
    worker = first.queue_manager._workers[1]
    held, worker._connection = worker._connection, None
    assert held is not None
    worker._marker.advance(held)
    first.close()
    time.sleep(LEASE / 2)
    assert second.expired() == set()
    time.sleep(LEASE)
    assert second.expired() == set(), "its markers are not all there"
    held.session.back()
    until(lambda: second.expired() == {first.name})
    second.close()


def test_one_that_starts_alone_waits_for_a_unit_of_work_that_is_still_being_backed_out(
    queue_manager: EmbeddedQueueManager,
) -> None:
    """Nobody has the markers open any more, but the queue manager still holds the unit."""
    first = Member(lease=10.0)
    worker = first.queue_manager._workers[1]
    held, worker._connection = worker._connection, None
    assert held is not None
    worker._marker.advance(held)
    held.forget_objects()
    first.close()
    backed_out = threading.Event()

    def back() -> None:
        time.sleep(1.5)
        backed_out.set()
        held.session.back()

    backing = threading.Thread(target=back)
    backing.start()
    second = Member(lease=10.0)
    assert backed_out.is_set()
    assert second.expired() == {first.name}
    backing.join()
    second.close()


@pytest.mark.skipif("MQGATE_LONG" not in os.environ, reason="long runs only: it takes more than a lease")
def test_an_entry_that_is_removed_by_hand_ends_its_gateway(queue_manager: EmbeddedQueueManager) -> None:
    member = Member()
    done = threading.Event()
    clear = [stored.token for _, stored in queue_manager.load(GATEWAYS) if b"instance" in stored.data]
    queue_manager.submit(Unit(takes=[Takes(GATEWAYS, b"", clear)]), lambda *_: done.set())
    assert done.wait(60)
    assert member.superseded.wait(30)


def test_a_missing_queue_is_named(queue_manager: EmbeddedQueueManager) -> None:
    assert queue_manager.mqsc(f"DELETE QLOCAL({GATEWAYS})").ok
    with pytest.raises(MQError, match=GATEWAYS):
        Member()
