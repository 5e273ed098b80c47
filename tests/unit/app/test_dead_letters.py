"""What a listing of dead letters looks through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.app.api.dead_letters import WHOLE_BYTES, DeadLetterViews
from gateway.app.api.set_aside import OFFLINE
from gateway.cli.reach import LocalClock
from gateway.mq import mqmd
from gateway.net.calls import OPERATOR, Call
from gateway.ports.batch import Puts, Unit
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
