"""Programs at one socket, with random calls: each is answered, whatever the others wait for, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded_rig import SMALL
from random_programs import run_all

from gateway.mqi.serve import MqiServer
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

OBJECTS = "DEFINE QLOCAL(Q) MAXDEPTH(100000)\nDEFINE QLOCAL(R) MAXDEPTH(100000)"
PROGRAMS, CALLS, SEEDS = (16, 600, 5) if os.environ.get("MQGATE_LONG") else (10, 40, 1)


@pytest.fixture(params=["slow disk", "fast disk"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A socket. Behind a slow disk frames are written by the journal's thread, behind a fast one by the thread that
    commits."""
    with ThreadScheduler() as scheduler:
        queue_manager = EmbeddedQueueManager.open(tmp_path / "data", "QM1", scheduler, OBJECTS, store_options=SMALL)
        committer = queue_manager.core.committer
        if request.param == "slow disk":
            committer.seconds, committer._trial_in = 10.0, 1 << 30
        server = MqiServer(queue_manager, tmp_path / "mqi.sock")
        server.start()
        yield server.path
        server.stop()
        queue_manager.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_call_is_answered_and_nothing_is_lost(served: Path, seed: int) -> None:
    run_all(served, programs=PROGRAMS, calls=CALLS, seed=seed)
