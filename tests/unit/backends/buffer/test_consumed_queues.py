"""Queues that are consumed through the buffer: what was taken from them is removed before more is taken."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from buffer_rig import Rig, puts

from gateway.ports.batch import Takes, Unit


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    made.run()
    assert made.queue_manager.state == "connected"
    yield made
    made.close()


def test_consumers_wait_until_what_they_took_has_left(rig: Rig) -> None:
    rig.mq.commit(Unit([puts("APP.Q", b"command")]))
    told: list[int] = []
    rig.queue_manager.consume("APP.Q", lambda: told.append(1))
    page = rig.queue_manager.claim("APP.Q", b"", 10)
    rig.link.cut = "before"
    rig.mq.alive = False
    copy = puts("MQGATE.OUT", b"for a session", key=b"s")
    outcomes = rig.submit(Unit([copy], [Takes("APP.Q", b"", [page[0].token])]))
    rig.run()
    assert outcomes
    assert copy.tokens
    assert rig.queue_manager.claim("APP.Q", b"", 10) == []
    told.clear()
    rig.mq.come()
    rig.run()
    assert told
    assert rig.queue_manager.fetch("APP.Q", b"", 10) == []
    assert not rig.mq.bodies("APP.Q")


def test_a_queue_is_not_watched_before_what_was_taken_from_it_has_left(rig: Rig) -> None:
    rig.mq.commit(Unit([puts("APP.Q", b"command")]))
    page = rig.queue_manager.claim("APP.Q", b"", 10)
    rig.mq.go()
    rig.run()
    rig.commit(Unit([puts("MQGATE.OUT", b"copy", key=b"s")], [Takes("APP.Q", b"", [page[0].token])]))
    rig.kill()
    rig.queue_manager.consume("APP.Q", lambda: None)
    rig.run()
    assert rig.mq.consumed == []
    rig.mq.come()
    rig.run()
    assert rig.mq.consumed == ["APP.Q"]
    assert not rig.mq.bodies("APP.Q")
