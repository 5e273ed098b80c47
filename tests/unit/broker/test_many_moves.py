"""Very many sessions that move at once, as where a gateway ends and all its devices go to the others: each takes as
long as one."""

from __future__ import annotations

from typing import Any

from several_brokers import Estate

MANY = 300


class Asked(dict[str, Any]):
    """A question of another gateway that counts how often it is looked at."""

    looked = 0

    def __getitem__(self, name: str) -> Any:
        Asked.looked += 1
        return dict.__getitem__(self, name)


def test_questions_that_wait_are_not_looked_at_for_each_other() -> None:
    estate = Estate()
    heir, other, ended = (estate.start() for _ in range(3))
    estate.kill(ended)
    estate.condemn(ended.instance, heir)
    Asked.looked = 0
    for number in range(MANY):
        asked = {"kind": "ask", "from": other.instance, "client": f"c{number}", "number": number}
        heir.queues.on_message(Asked(asked))
    heir.queues.on_message({"kind": "withdraw", "from": other.instance, "client": "c7"})
    once = Asked.looked
    assert once < 10 * MANY
    estate.settle(1.0)
    assert Asked.looked < 10 * once, "they are looked at again, and answered"
    device = other.bench.device(5, "c7").connect(clean=False)
    estate.settle(1.0)
    assert device.take()[0][1].reason == 0


def test_what_comes_from_others_is_remembered_without_a_look_at_all_that_has() -> None:
    estate = Estate()
    first, second = estate.start(), estate.start()
    devices = [first.bench.device(5, f"d{number}").connect(clean=False) for number in range(20)]
    estate.settle(0.5)
    moves = second.bench.engine.ownership.moves
    for number in range(20):
        second.bench.device(5, f"d{number}").connect(clean=False)
    estate.settle(1.0)
    assert all(device.wire.closed for device in devices)
    assert len(moves._came) == 20
    second.bench.clock.advance(100.0)
    second.bench.device(5, "new").connect(clean=False)
    first.bench.device(5, "later").connect(clean=False)
    estate.settle(1.0)
    second.bench.device(5, "later").connect(clean=False)
    estate.settle(1.0)
    assert list(moves._came) == ["later"], "those of a minute ago are forgotten"
