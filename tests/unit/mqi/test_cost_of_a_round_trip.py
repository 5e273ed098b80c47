"""What a round trip of request and reply costs in calls into Python: a guard that does not depend on the machine."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from request_reply import Market

from gateway.queue_manager.thread_scheduler import ThreadScheduler


def test_six_calls_of_the_mqi(tmp_path: Path) -> None:
    """Measured 400 to 430; 620 to 650 when messages were read twice, and frames kept before they were answered."""
    with ThreadScheduler() as scheduler:
        market = Market(tmp_path / "data", scheduler, 40, 10)
        market.run(100)
        assert market.calls(200) < 520
        scheduler.make_calls_through(None)
        market.queue_manager.close()
