"""The drainer between a queue manager's unit of work and the journal's commit, ended at each point between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from device_fleet import SMALL

from gateway.errors import StoreUnavailable
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.pipeline.drain import drainer
from gateway.pipeline.drain.drainer import Drainer, QueueDrain
from gateway.pipeline.drain.ibm_queue import GotMessage
from gateway.pipeline.drain.journal_server import LockedJournal
from gateway.pipeline.failpoint import POINTS
from gateway.pipeline.journal.owner import StoreJournal
from gateway.queue_manager.journal.store import Store


class Killed(BaseException):
    """The process ends here."""


class Queue:
    """A queue with a unit of work: what was got and not committed comes again."""

    def __init__(self, count: int) -> None:
        self.waiting = [GotMessage(mqmd.build(msg_id=bytes([at % 250 + 1]) * 24), b"%d" % at) for at in range(count)]
        self.open: list[GotMessage] = []

    def get(self, limit: int, wait: float) -> list[GotMessage]:
        self.open = list(self.waiting[:limit])
        return self.open

    def get_by_id(self, msg_id: bytes) -> GotMessage | None:
        for each in self.waiting:
            if each.md[48:72] == msg_id and not any(each is other for other in self.open):
                self.open.append(each)
                return each
        return None

    def commit(self) -> None:
        self.waiting = [each for each in self.waiting if not any(each is other for other in self.open)]
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
        draining = Drainer(queue, StoreJournal(store), "Q", batch=10)
        while draining.step(0.0):
            pass
        return draining.drained
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
@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("drain.")])
def test_nothing_lost_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, times: int) -> None:
    queue = Queue(47)
    with monkeypatch.context() as patched:
        patched.setattr(drainer, "failpoint", dying(point, times))
        with pytest.raises(Killed):
            drain(queue, tmp_path)
    done = drain(queue, tmp_path)
    assert bodies(tmp_path) == [b"%d" % at for at in range(47)]
    assert done.repeated == (10 if point in ("drain.append.after", "drain.commit.before") else 0)


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


def test_another_message_with_the_msgid_of_one_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the message that was appended is dropped, each copy as often as it was there."""
    same = mqmd.build(msg_id=b"S" * 24)
    queue = Queue(0)
    queue.waiting = [GotMessage(same, b"one"), GotMessage(same, b"one"), GotMessage(same, b"two")]
    with monkeypatch.context() as patched:
        patched.setattr(drainer, "failpoint", dying("drain.append.after", 1))
        with pytest.raises(Killed):
            drain(queue, tmp_path)
    queue.waiting = [GotMessage(same, b"three"), *queue.waiting, *[GotMessage(same, b"one") for _ in range(15)]]
    done = drain(queue, tmp_path)
    assert done.repeated == 3
    assert sorted(bodies(tmp_path)) == sorted([b"one"] * 17 + [b"two", b"three"])


def test_what_differs_in_every_message_stands_in_columns(tmp_path: Path) -> None:
    """Heads are shared, and the message is what it was when it is read back."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")
    from gateway.pipeline.decode.columns import COLUMNS
    from gateway.pipeline.decode.row_decoder import RowDecoder
    from gateway.pipeline.source.queue_access import JournalAccess

    front = rfh2.build([folder("usr", {"site": "lima"})], format_name=b"MQSTR   ")
    queue = Queue(0)
    for at in range(20):
        md = mqmd.build(
            format=rfh2.FORMAT, encoding=546, msg_id=bytes([at + 1]) * 24, correl_id=bytes([at + 7]) * 24,
            put_date=b"20261121", put_time=b"204501%02d" % at, priority=at % 2 * 4,
        )  # fmt: skip
        queue.waiting.append(GotMessage(md, front + b"%d" % at))
    sent = {each.md[48:72]: each for each in queue.waiting}
    drain(queue, tmp_path)
    found = [chunk for piece in JournalAccess(tmp_path).pieces("Q", 0, 1 << 40, 1) for chunk in piece.chunks(1000)]
    assert sum(chunk.rows for chunk in found) == 20
    assert sum(len(chunk.heads) for chunk in found) == 2, "one for each priority"
    for chunk in found:
        rows = RowDecoder("QM1", COLUMNS).batch(chunk).to_pylist()
        for row in rows:
            at = int(row["payload"])
            was = sent[row["msg_id"]]
            assert row["correl_id"] == was.md[72:96]
            assert row["put_ts"].isoformat() == f"2026-11-21T20:45:01.{at:02}0000+00:00".replace(".000000", "")
            assert (row["priority"], dict(row["properties"]), row["format"]) == (at % 2 * 4, {"site": "lima"}, "MQSTR")


@pytest.mark.parametrize("date", [b"00010101", b"19691231", b"19700101", b"99991231"])
def test_a_put_time_of_another_clock(tmp_path: Path, date: bytes) -> None:
    """A program may say any time (MQPMO_SET_ALL_CONTEXT), and its message holds up no others."""
    queue = Queue(2)
    md = mqmd.build(msg_id=b"m" * 24, put_date=date, put_time=b"00000000")
    queue.waiting.insert(1, GotMessage(md, b"old"))
    drain(queue, tmp_path)
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    found = store.fetch("Q", limit=10)
    store.close()
    assert [message.body for message in found] == [b"0", b"old", b"1"]


def test_a_disk_that_stays_full_is_tried_less_and_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try gets messages and backs them out, which is counted in them, and says so in a line."""
    monkeypatch.setattr(drainer, "LONGEST_PAUSE", 0.004)
    journal = LockedJournal(Store.open(tmp_path, clock=time.time, options=SMALL))
    said: list[str] = []

    def connect() -> None:
        if len(said) == 5:
            draining.done["Q"].units += 1  # there was room for a moment
        if len(said) == 7:
            draining.stopping.set()
        raise StoreUnavailable("no room")

    draining = QueueDrain(connect, journal, ("Q",), report=said.append)
    draining.run(once=False, pause=0.001)
    journal.store.close()
    again = [f"no room; again in {pause}ms" for pause in (1, 2, 4, 4, 4, 1, 2, 4)]
    assert said == again


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
