"""What a listing of dead letters looks through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.app.api.dead_letters import WHOLE_BYTES, DeadLetterViews
from gateway.app.api.set_aside import OFFLINE
from gateway.bridge import deadletter
from gateway.cli.reach import LocalClock
from gateway.mq import mqmd
from gateway.mq.headers import dlh
from gateway.net.calls import OPERATOR, Call
from gateway.ports.batch import Outcome, Puts, Takes, Unit
from gateway.ports.inspection import Seen
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.inspection import Inspection

DEAD = "SYSTEM.DEAD.LETTER.QUEUE"
COUNT = 3_200


class Counting(Inspection):
    """Counts the messages that are looked at."""

    looked_at = 0

    def browse(self, name: str, limit: int = 50, after: int | None = None) -> list[Seen]:
        found = super().browse(name, limit, after)
        self.looked_at += len(found)
        return found


@pytest.fixture
def counting() -> Iterator[Counting]:
    manager = EmbeddedQueueManager.open(None, "MQGATE", LocalClock())
    counting = Counting(manager)
    puts = Puts(DEAD, priority=0, persistent=True, heads=[mqmd.build(persistence=1)] * COUNT, bodies=[b"x"] * COUNT)
    assert not counting.commit(Unit([puts])).failures
    yield counting
    manager.close()


@pytest.mark.parametrize(("query", "passes"), [({"counts": "false"}, 2), ({}, 8)])
def test_pages_without_counts_look_at_the_queue_once(counting: Counting, query: dict[str, str], passes: int) -> None:
    views = DeadLetterViews(counting, lambda: DEAD, lambda _destination, _topic: None, lambda _rule, _ok: None, OFFLINE)
    tokens: list[str] = []
    following, totals = "", set()
    while following is not None:
        after = {"after": following} if following else {}
        _, answer = views.listing(Call({}, {"limit": "500", **query, **after}, {}, OPERATOR))
        assert isinstance(answer, dict)
        tokens += [one["token"] for one in answer["items"]]
        totals.add(answer["total"])
        following = answer["next"]
    assert len(tokens) == len(set(tokens)) == COUNT
    assert counting.looked_at <= passes * COUNT
    assert totals == ({COUNT} if not query else {500, 200})


def test_pages_of_whole_messages_end_by_size() -> None:
    """Some are long, and an answer is made in memory."""
    sizes = [1, WHOLE_BYTES // 2, WHOLE_BYTES // 4, WHOLE_BYTES, 2, WHOLE_BYTES // 2, WHOLE_BYTES // 2, 3]
    manager = EmbeddedQueueManager.open(None, "MQGATE", LocalClock())
    inspection = Inspection(manager)
    puts = Puts(DEAD, priority=0, persistent=True, heads=[mqmd.build(persistence=1)] * len(sizes))
    puts.bodies = [b"x" * size for size in sizes]
    assert not inspection.commit(Unit([puts])).failures
    views = DeadLetterViews(
        inspection, lambda: DEAD, lambda _destination, _topic: None, lambda _rule, _ok: None, OFFLINE
    )
    pages: list[list[int]] = []
    following = ""
    while following is not None:
        query = {"limit": "500", "counts": "false", "whole": "true"} | ({"after": following} if following else {})
        _, answer = views.listing(Call({}, query, {}, OPERATOR))
        assert isinstance(answer, dict)
        pages.append([len(one["body"]["text"]) for one in answer["items"]])
        following = answer["next"]
    assert pages == [sizes[:4], sizes[4:7], sizes[7:]]
    manager.close()


def test_what_a_program_gets_meanwhile_is_not_put_back_too(counting: Counting) -> None:
    """It was on its destination, and with the program."""
    first, second, third = counting.browse(DEAD, 3)
    puts = Puts("SYSTEM.DEFAULT.LOCAL.QUEUE", priority=0, persistent=True, heads=[first.md] * 2, bodies=[b"x"] * 2)
    unit = Unit([puts], [Takes(DEAD, b"", [first.token, second.token])])
    assert counting.remove(DEAD, [second.token]) == 1
    assert [one.reason for one in counting.commit(unit).failures] == [2033]
    assert counting.browse(puts.queue) == []
    assert counting.message(DEAD, first.token).data == b"x"
    unit.takes[0].tokens[1] = third.token
    assert not counting.commit(unit).failures
    assert len(counting.browse(puts.queue)) == 2


class Commits(Inspection):
    """Notes how many messages each unit of work takes."""

    def __init__(self, manager: EmbeddedQueueManager) -> None:
        super().__init__(manager)
        self.taken: list[int] = []

    def commit(self, unit: Unit) -> Outcome:
        outcome = super().commit(unit)
        self.taken.append(len(unit.takes) * (-1 if outcome.failures else 1))
        return outcome


def test_replays_are_committed_together_and_what_is_refused_keeps_back_itself_alone() -> None:
    """Each waited for a write to the disk of its own. A token that is given twice is put back once."""
    manager = EmbeddedQueueManager.open(None, "MQGATE", LocalClock())
    manager.mqsc("DEFINE QLOCAL(OPEN)\nDEFINE QLOCAL(FULL) MAXDEPTH(0)")
    commits, told = Commits(manager), list[bool]()
    names = ["OPEN"] * 250 + ["FULL"] + ["OPEN"] * 9
    heads = [mqmd.build(persistence=1, format=b"MQDEAD")] * len(names)
    bodies = [
        dlh.build(2053, name, "", mqmd.build(format=b"MQSTR")) + b"%d" % number for number, name in enumerate(names)
    ]
    assert not commits.commit(Unit([Puts(DEAD, priority=0, persistent=True, heads=heads, bodies=bodies)])).failures
    views = DeadLetterViews(
        commits, lambda: DEAD, lambda _destination, _topic: None, lambda _rule, ok: told.append(ok), OFFLINE
    )
    first = str(commits.browse(DEAD, 1)[0].token)
    commits.taken.clear()
    _, answer = views.replay(Call({}, {}, {"tokens": [first, first]}, OPERATOR))
    assert isinstance(answer, dict)
    assert (answer["done"], [one["token"] for one in answer["failed"]]) == (1, [first])
    assert commits.taken == [1, -1]
    commits.taken.clear()
    _, answer = views.replay(Call({}, {}, {"limit": 1000}, OPERATOR))
    assert isinstance(answer, dict)
    assert (answer["matched"], answer["done"], answer["failed"][0]["reason"]) == (259, 258, 2053)
    assert commits.taken == [100, 100, -59, *[1] * 49, -1, *[1] * 9]
    assert (told.count(True), told.count(False)) == (259, 2)
    on_queue = [seen.data for seen in commits.browse("OPEN", 500)]
    assert on_queue == [b"%d" % number for number, name in enumerate(names) if name == "OPEN"]
    assert [seen.data[-3:] for seen in commits.browse(DEAD, 500)] == [b"250"]
    manager.close()


def test_what_was_cut_is_not_put_back_as_if_it_were_whole() -> None:
    manager = EmbeddedQueueManager.open(None, "MQGATE", LocalClock())
    manager.mqsc("DEFINE QLOCAL(SHORT)\nDEFINE QLOCAL(LOOKED.AT)")
    inspection = Inspection(manager)
    letter = deadletter.build(
        mqmd.build(format=b"MQSTR"), bytes(1000), reason=2030, queue="SHORT", now=0.0, max_length=dlh.LENGTH + 300
    )
    puts = Puts(DEAD, priority=0, persistent=True, heads=[letter.head], bodies=[letter.body])
    assert not inspection.commit(Unit([puts])).failures
    views = DeadLetterViews(
        inspection, lambda: DEAD, lambda _destination, _topic: None, lambda _rule, _ok: None, OFFLINE
    )
    for how in ({}, {"through_rules": True}):
        _, answer = views.replay(Call({}, {}, how, OPERATOR))
        assert isinstance(answer, dict)
        assert answer["done"] == 0
        assert "700 bytes of it did not fit" in answer["failed"][0]["text"]
    _, answer = views.replay(Call({}, {}, {"to": "LOOKED.AT"}, OPERATOR))
    assert isinstance(answer, dict)
    assert answer["done"] == 1
    assert [len(seen.data) for seen in inspection.browse("LOOKED.AT", 5)] == [300]
    manager.close()
