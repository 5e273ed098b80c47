"""What tests of the queue manager's commits and of its turns share."""

from __future__ import annotations

import pytest

from gateway.queue_manager.batch import commit


@pytest.fixture
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit takes long, whatever this machine does beside it: all are written on the caller's thread."""
    monkeypatch.setattr(commit, "perf_counter", lambda: 0.0)
