"""The administration API's part: groups, extents, errors with their status."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from device_fleet import SMALL, put, write_journal

from gateway.pipeline.journal.owner import Owner, StoreJournal
from gateway.pipeline.journal.service import PipelineService
from gateway.pipeline.source.queue_access import JournalAccess
from gateway.queue_manager.journal.store import Store


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PipelineService]:
    write_journal(tmp_path, 100, frame=10)
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    yield PipelineService(Owner(StoreJournal(store)), tmp_path)
    store.close()


def call(service: PipelineService, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
    given = {name.rstrip("_"): str(value) for name, value in query.items()}
    reply = service.handle(method, path, given, json.dumps(body).encode() if body is not None else b"")
    return reply.status, json.loads(b"".join(reply.body))


WANTED = {"name": "g", "queues": "TELEMETRY.*", "consume": True, "delay": 0, "owner": "one:0", "ttl": 60}


def test_a_group_from_lease_to_purge(service: PipelineService) -> None:
    status, lease = call(service, "POST", "acquire", WANTED)
    assert (status, lease["epoch"], lease["cursor"]) == (200, 1, 0)
    _, end = call(service, "GET", "extent", queues="TELEMETRY.*", from_=0, rows=30)
    assert end["messages"] == 30
    moved = {"name": "g", "epoch": 1, "cursor": end["next"], "ttl": 60}
    assert call(service, "POST", "acknowledge", moved)[1]["cursor"] == end["next"]
    assert call(service, "GET", "groups")[1][0]["lag"] == 70
    service.owner.clock = lambda: time.time() + 1
    service.owner.purge()
    assert call(service, "GET", "count", queues="*", from_=0, to=10**9)[1] == {"messages": 70}
    assert call(service, "POST", "release", {"name": "g", "epoch": 1})[0] == 200
    assert call(service, "POST", "cursor", {"name": "g", "cursor": 1})[1]["cursor"] == 1
    assert call(service, "POST", "remove", {"name": "g"})[1] == {"removed": True}
    assert call(service, "GET", "groups")[1] == []


def test_an_extent_by_bytes_and_a_number_by_time(service: PipelineService) -> None:
    _, few = call(service, "GET", "extent", queues="TELEMETRY.*", from_=0, rows=100, bytes=4_000)
    assert 10 <= few["messages"] < 60
    _, all_ = call(service, "GET", "extent", queues="TELEMETRY.*", from_=0, rows=100)
    begin, end = 0, int((time.time() + 10) * 1_000_000)
    _, first = call(service, "GET", "since", queues="TELEMETRY.*", micros=begin)
    assert call(service, "GET", "count", queues="*", from_=0, to=first["next"])[1] == {"messages": 0}
    assert call(service, "GET", "since", queues="TELEMETRY.*", micros=end)[1]["next"] == all_["next"]


def test_what_the_journal_calls_itself(service: PipelineService, tmp_path: Path) -> None:
    _, extent = call(service, "GET", "extent", queues="A", from_=1 << 59)
    assert extent["journal"] == JournalAccess(tmp_path).journal("A")
    write_journal(tmp_path / "other", 1)
    assert JournalAccess(tmp_path / "other").journal("A") not in (extent["journal"], None)


def test_messages_that_are_not_persistent_are_not_read(service: PipelineService) -> None:
    """They are in memory, where no reader gets at them. Where a group consumes, they go with those around them."""
    from gateway.pipeline.journal.chunks import read_stream

    journal = service.owner.journal
    assert isinstance(journal, StoreJournal)
    put(journal.store, "TELEMETRY.A", [b"head"] * 5, [b"at QoS 0"] * 5, persistent=False)
    put(journal.store, "TELEMETRY.A", [b"head"] * 3, [b"at QoS 1"] * 3)
    _, lease = call(service, "POST", "acquire", WANTED)
    _, extent = call(service, "GET", "extent", queues="TELEMETRY.*", from_=0, rows=1000)
    assert extent["messages"] == 103
    assert call(service, "GET", "count", queues="*", from_=0, to=extent["next"])[1] == {"messages": 103}
    _, since = call(service, "GET", "since", queues="TELEMETRY.*", micros=int((time.time() + 10) * 1_000_000))
    assert since == {"next": extent["next"]}
    reply = service.handle("GET", "messages", {"queues": "TELEMETRY.*", "from": "0", "to": str(extent["next"])}, b"")
    assert reply.status == 200
    assert sum(chunk.rows for chunk in read_stream(io.BytesIO(b"".join(reply.body)))) == 103
    moved = {"name": "g", "epoch": lease["epoch"], "cursor": extent["next"], "ttl": 60}
    call(service, "POST", "acknowledge", moved)
    assert call(service, "GET", "groups")[1][0]["lag"] == 0
    service.owner.clock = lambda: time.time() + 1
    service.owner.purge()
    assert journal.store.index.queues["TELEMETRY.A"].depth == 0


def test_errors(service: PipelineService) -> None:
    call(service, "POST", "acquire", WANTED)
    status, told = call(service, "POST", "acquire", {**WANTED, "owner": "two:0"})
    assert (status, told["kind"]) == (409, "LeaseHeld")
    assert call(service, "POST", "acknowledge", {"name": "g", "epoch": 9, "cursor": 1, "ttl": 1})[0] == 409
    assert call(service, "POST", "acquire", {**WANTED, "queues": "B"})[0] == 400
    assert call(service, "GET", "extent")[0] == 400
    assert call(service, "GET", "count", queues="*", from_="x", to=1)[0] == 400
    assert call(service, "GET", "nothing")[0] == 404
    assert call(service, "POST", "acquire", [])[0] == 400
