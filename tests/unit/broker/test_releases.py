"""gateway.broker.deliver.releases: the rows of what clients have received are named together, each for itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from slow_harness import Slow

from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.ports.state_queues import OUT
from gateway.session.record import decode_publication

READERS = 3


def rows(bench: Slow) -> Counter[tuple[bytes, bool]]:
    """How many each session has stored, and whether they are released."""
    stored = bench.queues.rows.get(OUT, {}).values()
    return Counter((key, decode_publication(data)[3]) for _, key, _, data in stored)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("breaks", [False, True])
def test_the_rows_of_each_go_with_their_pubcomp(monkeypatch: pytest.MonkeyPatch, count: int, breaks: bool) -> None:
    """A defect with those of one session leaves them stored as released, until it comes again; others do not mind."""
    bench, readers = Slow("version: 1\nto_mq: []\n"), []
    bench.defects = []
    for number in range(READERS):
        readers.append(bench.device(5, f"reader-{number}").connect(clean=False))
        readers[-1].subscribe("news/#", 2)
        readers[-1].take()
    sender = bench.device(5, "sender").connect()
    ids = range(1, count + 1)
    sender.send(b"".join(writer.encode_publish(5, b"news/a", b"%d" % at, 2, packet_id=at) for at in ids))
    sender.send(b"".join(b"\x62\x02" + at.to_bytes(2) for at in ids))
    releases = bench.engine.in_flight.releases
    name, failing = releases._name, bench.engine.sessions.get("reader-1")

    def named(session: Any, *rest: Any) -> None:
        if breaks and session is failing:
            raise ZeroDivisionError
        name(session, *rest)

    monkeypatch.setattr(releases, "_name", named)
    keys = [bench.engine.sessions.get(one.client_id).key for one in readers]
    told = [[packet[2] for packet in one.take() if packet[0] >> 4 == p.PUBLISH] for one in readers]
    bench.engine.received_each([
        (one.connection, b"".join(b"\x50\x02" + at.to_bytes(2) for at in own))
        for one, own in zip(readers, told, strict=True)
    ])  # fmt: skip
    bench.engine.flush()
    assert rows(bench) == Counter({(key, True): count for key in keys})
    for one, own in zip(readers, told, strict=True):
        assert [packet[1] for packet in one.take() if packet[0] >> 4 == p.PUBREL] == own
        one.send(b"".join(b"\x70\x02" + at.to_bytes(2) for at in own))
    assert rows(bench) == (Counter({(keys[1], True): count}) if breaks else Counter())
    assert len(bench.defects) == breaks
