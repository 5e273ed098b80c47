"""gateway.app.api.pages_of_messages, with the queues whose messages they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gateway.app.api.queues import QueueViews
from gateway.cli.reach import LocalClock
from gateway.mq import mqmd
from gateway.net.calls import OPERATOR, Answered, Call, Later
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


class Pages:
    """Pages of a queue with three messages, and the answers in the order in which they are made."""

    def __init__(self) -> None:
        self.manager = EmbeddedQueueManager.open(None, "MQGATE", LocalClock())
        self.inspection = Browsed(self.manager)
        puts = Puts(QUEUE, priority=0, persistent=True, heads=[mqmd.build(persistence=1)] * 3, bodies=[b"x"] * 3)
        assert not self.inspection.commit(Unit([puts])).failures
        self.under_way: dict[str, Iterator[None]] = {}
        self.views = QueueViews(self.inspection, in_slices=self.in_slices)
        self.answers: list[tuple[str, object]] = []

    def in_slices(self, name: str, work: Callable[[], Iterator[None]]) -> None:
        if name not in self.under_way:
            self.under_way[name] = work()

    def ask(self, peer: str, told: Answered | None = None) -> Later:
        call = Call({"queue": QUEUE}, {"decoded": "true", "whole": "true"}, {}, OPERATOR, peer)
        _, later = self.views.browse(call)
        assert isinstance(later, Later)
        later.begin(told or (lambda answer: self.answers.append((peer, answer))))
        return later


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    made.manager.close()


def test_pages_of_whole_messages_are_read_one_after_another(pages: Pages) -> None:
    """Each may take 8 MiB and its text several times that: all that were asked for at once would be there together."""
    for _ in range(ASKED):
        pages.ask("10.0.0.1")
    (work,) = pages.under_way.values()
    assert not pages.inspection.pages
    for _ in work:
        assert pages.inspection.pages == len(pages.answers) + 1
    assert [len(answer[1]["items"]) for _, answer in pages.answers] == [3] * ASKED  # type: ignore[index]


def test_who_asks_for_many_pages_does_not_keep_the_others_waiting(pages: Pages) -> None:
    for _ in range(3):
        pages.ask("10.0.0.1")
    (work,) = pages.under_way.values()
    next(work)
    for peer in ("10.0.0.2", "10.0.0.2", "10.0.0.3"):
        pages.ask(peer)
    for _ in work:
        pass
    assert [peer[-1] for peer, _ in pages.answers] == ["1", "1", "2", "3", "1", "2"]


def test_pages_for_clients_that_are_gone_are_not_made(pages: Pages) -> None:
    asked = [pages.ask("10.0.0.1") for _ in range(3)]
    (work,) = pages.under_way.values()
    next(work)
    for later in asked[:2]:
        later.is_wanted = lambda: False
    for _ in work:
        pass
    assert (pages.inspection.pages, len(pages.answers)) == (2, 1)


def test_a_page_that_meets_a_defect_keeps_no_other_waiting(pages: Pages) -> None:
    def broken(_answer: object) -> None:
        raise ZeroDivisionError

    pages.ask("10.0.0.1", broken)
    pages.ask("10.0.0.2")
    with pytest.raises(ZeroDivisionError):
        list(pages.under_way.popitem()[1])
    assert not pages.answers
    list(pages.under_way.popitem()[1])
    assert len(pages.answers) == 1
