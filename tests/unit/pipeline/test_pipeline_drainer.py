"""The drainer between a queue manager's unit of work and the journal's commit, ended at each point between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from strategies_pipeline import SMALL

from gateway.backends.embedded.journal.store import Store
from gateway.mq import mqmd
from gateway.pipeline import drainer
from gateway.pipeline.drainer import Drainer, Got
from gateway.pipeline.owner import StoreJournal


class Killed(BaseException):
    """The process ends here."""


class Queue:
    """A queue with a unit of work: what was got and not committed comes again."""

    def __init__(self, count: int) -> None:
        self.waiting = [Got(mqmd.build(msg_id=bytes([at % 250 + 1]) * 24), b"%d" % at) for at in range(count)]
        self.open: list[Got] = []

    def get(self, limit: int, wait: float) -> list[Got]:
        self.open = self.waiting[:limit]
        return self.open

    def commit(self) -> None:
        self.waiting = self.waiting[len(self.open) :]
        self.open = []

    def back_out(self) -> None:
        self.open = []


def bodies(path: Path) -> list[bytes]:
    store = Store.open(path, clock=time.time, options=SMALL)
    found = [message.body for message in store.fetch("Q", limit=10_000)]
    store.close()
    return found


def drain(queue: Queue, path: Path) -> drainer.Drained:
    store = Store.open(path, clock=time.time, options=SMALL)
    try:
        return Drainer(queue, StoreJournal(store), "Q", batch=10).run(stop_when_empty=True, wait=0.0)
    finally:
        store.close()


def dying(point: str, times: int) -> Callable[[str], None]:
    left = [times]

    def reach(name: str) -> None:
        if name == point:
            left[0] -= 1
            if not left[0]:
                raise Killed

    return reach


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "point", ["drain.get.after", "drain.append.before", "drain.append.after", "drain.commit.after"]
)
def test_nothing_lost_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, times: int) -> None:
    queue = Queue(47)
    with monkeypatch.context() as patched:
        patched.setattr(drainer, "failpoint", dying(point, times))
        with pytest.raises(Killed):
            drain(queue, tmp_path)
    done = drain(queue, tmp_path)
    assert bodies(tmp_path) == [b"%d" % at for at in range(47)]
    assert done.repeated == (10 if point == "drain.append.after" else 0)


def test_redelivered_in_another_order_and_killed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(30)
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(drainer, "failpoint", dying("drain.append.after", 1))
            with pytest.raises(Killed):
                drain(queue, tmp_path)
        queue.waiting = queue.waiting[5:15] + queue.waiting[:5] + queue.waiting[15:]
    drain(queue, tmp_path)
    assert sorted(bodies(tmp_path)) == sorted(b"%d" % at for at in range(30))


def test_the_same_msgid_later_is_another_message(tmp_path: Path) -> None:
    first, second = Queue(5), Queue(5)
    drain(first, tmp_path)
    drain(second, tmp_path)
    assert len(bodies(tmp_path)) == 10


def test_the_drainer_without_its_record_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the count above does notice."""
    queue = Queue(20)
    with monkeypatch.context() as patched:
        patched.setattr(drainer, "failpoint", dying("drain.append.after", 1))
        with pytest.raises(Killed):
            drain(queue, tmp_path)
    monkeypatch.setattr(Drainer, "_without_repeated", lambda self, messages: (list(messages), Counter()))
    drain(queue, tmp_path)
    assert len(bodies(tmp_path)) == 30
