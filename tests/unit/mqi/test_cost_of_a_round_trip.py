"""The number of calls into Python for a round trip of request and reply: a guard that does not depend on the
machine."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import pytest
from request_reply import Market

from gateway.queue_manager.thread_scheduler import ThreadScheduler


@pytest.mark.parametrize(("committed", "most"), [(True, 300), (False, 225)])
def test_calls_of_the_mqi(tmp_path: Path, committed: bool, most: int) -> None:
    """Measured: 210 to 235 with replies got under syncpoint (400 to 430 when each get went through everything that a
    get may ask for and each commit was accounted for separately), and 160 to 185 where they are handed over."""
    with ThreadScheduler() as scheduler:
        market = Market(tmp_path / "data", scheduler, 40, 10, committed=committed)
        market.run(100)
        assert market.calls(200) < most
        market.queue_manager.close()
