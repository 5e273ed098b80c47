"""What a round trip of request and reply costs in calls into Python: a guard that does not depend on the machine."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from request_reply import Market

from gateway.queue_manager.thread_scheduler import ThreadScheduler


def test_six_calls_of_the_mqi(tmp_path: Path) -> None:
    """Measured 230 to 250; 400 to 430 when each get went through all that a get may ask for and each commit had an
    account of its own."""
    with ThreadScheduler() as scheduler:
        market = Market(tmp_path / "data", scheduler, 40, 10)
        market.run(100)
        assert market.calls(200) < 320
        market.queue_manager.close()
