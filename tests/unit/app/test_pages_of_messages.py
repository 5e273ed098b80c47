"""gateway.app.api.queues: pages of whole messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gateway.app.api.queues import QueueViews
from gateway.cli.reach import LocalClock
from gateway.mq import mqmd
from gateway.net.calls import OPERATOR, Call, Later
from gateway.ports.batch import Puts, Unit
from gateway.ports.inspection import Seen
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.inspection import Inspection

QUEUE, ASKED = "MQGATE.DEFAULT", 5


class Browsed(Inspection):
    """Counts the pages that are read."""

    pages = 0

    def browse(self, name: str, limit: int = 50, after: int | None = None) -> list[Seen]:
        self.pages += 1
        return super().browse(name, limit, after)


def test_pages_of_whole_messages_are_read_one_after_another() -> None:
    """Each may take 8 MiB and its text several times that: all that were asked for at once would be there together."""
    manager = EmbeddedQueueManager.open(None, "MQGATE", LocalClock())
    inspection = Browsed(manager)
    puts = Puts(QUEUE, priority=0, persistent=True, heads=[mqmd.build(persistence=1)] * 3, bodies=[b"x"] * 3)
    assert not inspection.commit(Unit([puts])).failures
    under_way: dict[str, Iterator[None]] = {}

    def in_slices(name: str, work: Callable[[], Iterator[None]]) -> None:
        if name not in under_way:
            under_way[name] = work()

    views = QueueViews(inspection, in_slices=in_slices)
    answers: list[object] = []
    for _ in range(ASKED):
        call = Call({"queue": QUEUE}, {"decoded": "true", "whole": "true"}, {}, OPERATOR)
        _, later = views.browse(call)
        assert isinstance(later, Later)
        later.begin(answers.append)
    (work,) = under_way.values()
    assert not inspection.pages
    for _ in work:
        assert inspection.pages == len(answers) + 1
    assert [len(answer[1]["items"]) for answer in answers] == [3] * ASKED  # type: ignore[index]
    manager.close()


def test_a_page_that_meets_a_defect_keeps_no_other_waiting() -> None:
    manager = EmbeddedQueueManager.open(None, "MQGATE", LocalClock())
    inspection = Inspection(manager)
    puts = Puts(QUEUE, priority=0, persistent=True, heads=[mqmd.build(persistence=1)], bodies=[b"x"])
    assert not inspection.commit(Unit([puts])).failures
    under_way: dict[str, Iterator[None]] = {}

    def in_slices(name: str, work: Callable[[], Iterator[None]]) -> None:
        if name not in under_way:
            under_way[name] = work()

    def broken(_answer: object) -> None:
        raise ZeroDivisionError

    views, answers = QueueViews(inspection, in_slices=in_slices), list[object]()
    for told in (broken, answers.append):
        _, later = views.browse(Call({"queue": QUEUE}, {"decoded": "true", "whole": "true"}, {}, OPERATOR))
        assert isinstance(later, Later)
        later.begin(told)
    with pytest.raises(ZeroDivisionError):
        list(under_way.popitem()[1])
    assert not answers
    list(under_way.popitem()[1])
    assert len(answers) == 1
    manager.close()
