"""gateway.queue_manager.store.unit: how many messages a unit brings to a queue, while it grows and is cut back."""

from __future__ import annotations

from random import Random

import pytest

from gateway.queue_manager.store.unit import LaneMoves, LanePuts, StoreUnit

QUEUES = "ABC"


def brought(unit: StoreUnit, queue: str) -> int:
    """Counted one after the other."""
    rows = sum(len(puts.heads) for puts in unit.puts_to(queue))
    return rows + sum(len(moves.tokens) for moves in unit.moves if moves.to_queue == queue)


def grow(unit: StoreUnit, random: Random) -> None:
    """By something of any kind."""
    queue, rows = random.choice(QUEUES), random.randrange(4)
    match random.randrange(8):
        case 0:
            unit.puts.append(LanePuts(queue, heads=[b"h"] * rows, bodies=[b""] * rows))
        case 1:
            lanes = [((name, b"", 9), random.randrange(3)) for name in QUEUES]
            count = sum(size for _, size in lanes)
            unit.puts.append(LanePuts("", heads=[b"h"] * count, bodies=[b""] * count, groups=lanes))
        case 2:
            unit.moves.append(LaneMoves("Z", b"", range(rows), queue))
        case _:
            unit.add_row(LanePuts(queue, b"", random.randrange(2), heads=[b"h"], bodies=[b""]), 0)


@pytest.mark.parametrize("seed", range(30))
def test_messages_are_counted_as_they_come_and_are_cut_back(seed: int) -> None:
    random, unit = Random(seed), StoreUnit()
    for _ in range(60):
        mark = unit.mark()
        for _ in range(random.choice((1, 5, 40))):
            grow(unit, random)
            if random.random() < 0.5:
                queue = random.choice(QUEUES)
                assert unit.messages_for(queue) == brought(unit, queue)
        if random.random() < 0.6:
            unit.cut_back(mark)
        assert [unit.messages_for(queue) for queue in QUEUES] == [brought(unit, queue) for queue in QUEUES]


def test_messages_are_counted_anew_when_a_queue_has_gone() -> None:
    unit = StoreUnit(puts=[LanePuts("A" if at % 2 else "B", heads=[b"h"], bodies=[b""]) for at in range(50)])
    assert unit.messages_for("A") == 25
    unit.puts = [puts for puts in unit.puts if puts.queue == "B"]
    assert (unit.messages_for("A"), unit.messages_for("B")) == (0, 25)
