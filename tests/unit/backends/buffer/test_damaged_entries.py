"""Entries of the buffer that the disk damages while it runs: nothing overtakes them, and nothing counts as put."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from buffer_rig import Rig, puts
from embedded_rig import SMALL

from gateway.mq.constants import MQRC_OBJECT_DAMAGED
from gateway.ports.batch import Moves, Unit
from gateway.queue_manager.journal import Store, reader

BODIES = [number * 100 for number in (b"1", b"2", b"3")]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    options = replace(SMALL, queue_manager="BUFFER", cache_bytes=0)
    made = Rig(disk=Store.open(tmp_path, clock=lambda: 1_767_225_600.0, options=options))
    made.run()
    yield made
    made.close()
    made.store.close()


def swap(directory: Path, what: bytes, other: bytes) -> None:
    """Change one byte on the disk, or change it back."""
    (path, at), *_ = [
        (path, at) for path in directory.glob("*.segment") if (at := path.read_bytes().find(what)) >= 0
    ]  # fmt: skip
    with path.open("r+b") as file:
        file.seek(at)
        file.write(other[:1])


def test_those_before_it_are_put_and_the_others_wait(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "DAMAGED_FOR", 0.0)
    rig.mq.go()
    rig.run()
    for body in BODIES:
        assert not rig.commit(Unit([puts("APP.Q", body)])).failures
    swap(tmp_path, BODIES[1], b"x")
    rig.mq.come()
    rig.run(60)
    assert rig.mq.bodies("APP.Q") == BODIES[:1]
    (why,) = rig.queue_manager.problems.values()
    assert "damaged at byte" in why
    assert [queue for queue, _ in rig.store.damaged()] == ["MQGATE.BUFFER.ENTRIES"]
    swap(tmp_path, b"x" + BODIES[1][1:], BODIES[1])
    rig.run(60)
    assert rig.mq.bodies("APP.Q") == BODIES
    assert not rig.queue_manager.problems


def test_a_staged_message_that_is_damaged_is_refused_and_the_next_unit_goes(rig: Rig, tmp_path: Path) -> None:
    staged = puts("MQGATE.STATE", BODIES[0])
    assert not rig.commit(Unit([staged])).failures
    swap(tmp_path, BODIES[0], b"x")
    moved = rig.commit(Unit(moves=[Moves("MQGATE.STATE", b"", staged.tokens, "APP.Q")]))
    assert [failure.reason for failure in moved.failures] == [MQRC_OBJECT_DAMAGED]
    assert not rig.commit(Unit([puts("APP.Q", b"next")])).failures
    assert rig.mq.bodies("APP.Q") == [b"next"]
