"""What a listing of dead letters looks through."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.app.api.dead_letters import DeadLetterViews
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
