"""State on IBM MQ moves into a new buffer, whatever breaks meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from buffer_rig import HEAD, Killed, Rig, puts

from gateway.backends.buffer.adoption import adopt, stay
from gateway.backends.buffer.queue_manager import STATE_QUEUES
from gateway.backends.buffer.spool import ADOPTED, COPYING
from gateway.errors import StoreUnavailable
from gateway.mq import mqmd
from gateway.ports.batch import Puts, Takes, Token, Unit

QUEUES = sorted(STATE_QUEUES)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    made.mq.commit(
        Unit(
            [
                puts("MQGATE.SESSIONS", b"session", key=b"s" * 20),
                puts("MQGATE.STAGED", b"first", b"second", key=b"s" * 20),
                Puts("MQGATE.OUT", key=b"s" * 20, priority=0, heads=[HEAD], bodies=[b"later"]),
                Puts("MQGATE.OUT", key=b"s" * 20, priority=9, heads=[mqmd.patch(HEAD, priority=9)], bodies=[b"sooner"]),
            ]
        )
    )
    yield made
    made.close()


def _adopt(rig: Rig) -> int:
    def remove(queue: str, tokens: Sequence[Token]) -> None:
        keys = [key for key, _ in rig.mq.queue_manager.load(queue)]
        rig.mq.commit(Unit(takes=[Takes(queue, key, list(tokens)) for key in dict.fromkeys(keys)]))

    return adopt(rig.queue_manager.spool, QUEUES, rig.mq.load, remove)


def _all_here(rig: Rig) -> None:
    manager = rig.queue_manager
    assert [(key, stored.data) for key, stored in manager.load("MQGATE.SESSIONS")] == [(b"s" * 20, b"session")]
    assert [stored.data for stored in manager.fetch("MQGATE.STAGED", b"s" * 20, 9)] == [b"first", b"second"]
    assert [stored.data for stored in manager.fetch("MQGATE.OUT", b"s" * 20, 9)] == [b"sooner", b"later"]
    assert not [queue for queue in QUEUES if rig.mq.bodies(queue)]


def test_everything_moves_once(rig: Rig) -> None:
    assert _adopt(rig) == 5
    _all_here(rig)
    rig.mq.commit(Unit([puts("MQGATE.SESSIONS", b"of another gateway", key=b"x")]))
    assert _adopt(rig) == 0
    assert rig.mq.bodies("MQGATE.SESSIONS") == [b"of another gateway"]


@pytest.mark.parametrize("commits", range(1, 7))
@pytest.mark.parametrize("after", [True, False])
def test_a_start_that_is_killed_is_gone_on_with(rig: Rig, commits: int, after: bool) -> None:
    rig.store.ends_at, rig.store.after = commits, after
    try:
        _adopt(rig)
    except Killed:
        rig.kill()
    _adopt(rig)
    _all_here(rig)
    assert rig.queue_manager.spool.identity.home == ADOPTED


def test_a_buffer_begun_without_mq_takes_nothing_over(rig: Rig) -> None:
    stay(rig.queue_manager.spool)
    assert _adopt(rig) == 0
    assert rig.mq.bodies("MQGATE.SESSIONS") == [b"session"]


def test_half_moved_state_needs_mq_to_be_there(rig: Rig) -> None:
    rig.store.ends_at = 3
    with pytest.raises(Killed):
        _adopt(rig)
    rig.kill()
    assert rig.queue_manager.spool.identity.home == COPYING
    with pytest.raises(StoreUnavailable, match="start again"):
        stay(rig.queue_manager.spool)
