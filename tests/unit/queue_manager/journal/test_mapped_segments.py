"""Mapped segments: what a reader has pinned is not written over, what nobody has is."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from device_fleet import SMALL, commit, put

from gateway.queue_manager.journal.layout import BLOCK, header_area
from gateway.queue_manager.journal.mapped_segments import MappedSegment, files_in
from gateway.queue_manager.journal.store import Store
from gateway.queue_manager.store.unit import LaneTakes, StoreUnit

FIRST_FRAME = 2 * header_area(SMALL.segment_bytes) + BLOCK
"""Where it ends."""
ROUNDS = 40
"""Each puts and takes 1 MB in segments of 8 MiB: every one of them is used several times."""


def churn(store: Store) -> None:
    for _ in range(ROUNDS):
        tokens = put(store, "A", [b"h" * 364] * 10, [bytes(100_000)] * 10)
        commit(store, StoreUnit(takes=[LaneTakes("A", b"", tokens)]))


@pytest.mark.parametrize("pinned", [True, False])
def test_a_pinned_segment_keeps_its_bytes(tmp_path: Path, pinned: bool) -> None:
    store = Store.open(tmp_path, clock=time.time, options=SMALL)
    tokens = put(store, "A", [b"h" * 364], [b"to be read"])
    (slot,) = [each for each in files_in(tmp_path) if MappedSegment(tmp_path, each).header()]
    mapped = MappedSegment(tmp_path, slot, pinned=pinned)
    view, before, used = mapped.data[:FIRST_FRAME], bytes(mapped.data[:FIRST_FRAME]), mapped.header()
    del mapped  # the view alone holds the pin
    commit(store, StoreUnit(takes=[LaneTakes("A", b"", tokens)]))
    churn(store)
    assert (bytes(view) == before) is pinned
    assert used is not None
    del view
    churn(store)
    found = MappedSegment(tmp_path, slot).header() if slot in files_in(tmp_path) else None
    assert found is None or found.serial > used.serial
    store.close()


def test_nobody_else_maps_files() -> None:
    """The journal's package is the one door to the store's files."""
    root = Path(__file__).parents[4] / "gateway"
    door = root / "queue_manager/journal"
    for path in root.rglob("*.py"):
        if door in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert "mmap" not in names, path
