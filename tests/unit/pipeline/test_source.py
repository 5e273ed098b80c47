"""Streams on a queue manager whose message numbers have begun again: refused, before anything is passed over."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
from device_fleet import write_journal

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")

from gateway.errors import StoreInUse
from gateway.pipeline.errors import DataLost
from gateway.pipeline.journal.owner import opened
from gateway.pipeline.source.source import MqQueueDataSource, QueueStreamReader, ReadMaxRows


def reader(folder: Path, **options: str) -> QueueStreamReader:
    source = MqQueueDataSource({"path": str(folder), "queue": "A", **options})
    made: QueueStreamReader = source.streamReader(source.schema())
    return made


def test_a_queue_manager_that_was_made_anew(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    write_journal(journal, 250, queue="A")
    first = reader(journal)
    end = first.latestOffset(first.initialOffset(), ReadMaxRows(1000))
    assert end == {"messages": 250, "next": 251}
    first.stop()
    shutil.rmtree(journal)
    write_journal(journal, 100, queue="A")
    with pytest.raises(
        DataLost, match=r"goes on at message number 251 of A, and the queue manager has only come to 101"
    ):
        reader(journal).latestOffset(end, ReadMaxRows(1000))
    with pytest.raises(DataLost, match=r"restored from a backup"):
        reader(journal).partitions(end, {"messages": 350, "next": 351})
    with pytest.raises(DataLost, match=r"Nothing was read"):
        reader(journal, startingSeq="251").initialOffset()
    assert reader(journal).initialOffset() == {"messages": 0, "next": 0}


def test_one_that_is_at_its_end_goes_on(tmp_path: Path) -> None:
    write_journal(tmp_path / "journal", 250, queue="A")
    end = {"messages": 250, "next": 251}
    again = reader(tmp_path / "journal", startingSeq="251")
    assert again.initialOffset() == {"messages": 0, "next": 251}
    assert again.latestOffset(end, ReadMaxRows(1000)) == end


def test_one_that_does_not_say_how_far_it_has_come(tmp_path: Path) -> None:
    """A gateway of an earlier release, over HTTP."""
    end = {"messages": 250, "next": 251}
    write_journal(tmp_path / "journal", 100, queue="A")
    again = reader(tmp_path / "journal")
    again.access.next_number = lambda queues: None  # type: ignore[method-assign]
    assert again.latestOffset(end, ReadMaxRows(1000)) == end


def test_a_lease_is_renewed_while_a_batch_is_on_its_way(tmp_path: Path) -> None:
    """Spark calls the reader between batches alone."""
    journal = tmp_path / "journal"
    write_journal(journal, 250, queue="A")
    first = reader(journal, leaseTtl="0.2s")
    first.latestOffset(first.initialOffset(), ReadMaxRows(100))
    ends, until = lease_of(journal), time.monotonic() + 60
    while lease_of(journal) <= ends + 0.2:
        assert time.monotonic() < until, "nothing renews the lease"
        time.sleep(0.01)
    first.stop()
    assert lease_of(journal) == 0.0


def lease_of(journal: Path) -> float:
    """When the lease of the group ends. The store is open elsewhere at times, to write it."""
    while True:
        with suppress(StoreInUse), opened(journal) as owner:
            group = owner.group("spark")
            assert group is not None
            return group.expires
        time.sleep(0.01)
