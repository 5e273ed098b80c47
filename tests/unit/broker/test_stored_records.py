"""gateway.broker.sessions.stored_records: what is stored for a session that comes, looked at as it is read."""

from __future__ import annotations

from broker_harness import Harness

from gateway.broker.sessions.left_over import left_by_pages
from gateway.broker.sessions.stored_records import Left
from gateway.ports.batch import Stored
from gateway.ports.state_queues import OUT, PAGE
from gateway.session.publication import Publication
from gateway.session.record import encode_publication, key_of

COUNT = 3 * PAGE + 7


def stored_at(number: int) -> Stored:
    expires = {700: 90.0, 1200: 80.0}.get(number, 0.0)
    publication = Publication(b"t/%d" % (number % 9), b"x" * (number % 5), 1, retain=False, expires=expires)
    return Stored(number, bytes(364), encode_publication(publication, 1 + number))


def read_of(rows: list[Stored]) -> tuple[Left, list[int]]:
    """What is found, and how much of it was looked at when each page was asked for."""
    bench = Harness()
    reads = left_by_pages(bench.engine.context, {"client": "c"}, Stored(0, b"", b""))
    pages = [rows[begin : begin + PAGE] for begin in range(0, len(rows), PAGE)]
    counts = [0]
    next(reads)
    found: object = [], [], pages.pop(0)
    while True:
        try:
            reads.send(found)
        except StopIteration as end:
            return end.value, counts
        assert reads.gi_frame is not None
        counts.append(reads.gi_frame.f_locals["looked"].count)
        found = pages.pop(0)


def test_a_session_with_little_stored_is_read_at_once() -> None:
    """Each read is a turn of its own, and thousands of sessions are taken over one after the other."""
    left, counts = read_of([stored_at(number) for number in range(7)])
    assert counts == [0]
    assert left.looked.count == 7


def test_each_page_is_looked_at_when_it_comes() -> None:
    """All of them in one turn held up everybody."""
    rows = [stored_at(number) for number in range(COUNT)]
    rows[900] = Stored(900, bytes(364), b"what is no record")
    left, counts = read_of(rows)
    assert counts == [0, PAGE, 2 * PAGE, 3 * PAGE]
    looked = left.looked
    assert (looked.count, looked.unread, looked.expires) == (COUNT, [rows[900]], 80.0)
    assert looked.ids == set(range(1, COUNT + 1)) - {901}
    assert looked.size == sum(number % 5 for number in range(COUNT))


def test_what_cannot_be_read_of_a_session_is_set_aside_and_not_counted() -> None:
    bench = Harness()
    device = bench.device(4, "c").connect(clean=False)
    device.subscribe("t/#", 1)
    device.drop()
    sender = bench.device(4, "sender").connect()
    for number in range(3):
        sender.publish("t/1", b"12345", 1, 1 + number)
    rows = bench.queues.rows[OUT]
    token = sorted(rows)[1]
    rows[token] = (*rows[token][:3], b"what is no record")
    bench.defects = []
    bench.kill()
    assert [one.what for one in bench.defects] == ["stored"]
    session = bench.engine.sessions.get("c")
    assert session is not None
    assert session.key == key_of("c")
    assert (session.stored, session.stored_bytes) == (2, 10)
    assert bench.queues.depth(OUT) == 2
