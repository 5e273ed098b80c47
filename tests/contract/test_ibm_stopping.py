"""Stopping: a queue manager that is to end is let go, and a gateway that ends does not hang on one that is away."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import mqi_clients
import pytest
from ibm_rig import HEAD, Rig, served

from gateway.ports.batch import Outcome, Puts, Unit

pytestmark = pytest.mark.mqi
PROMPT = 15.0
"""Seconds, on a machine that does a lot else; a wait in a call is one second."""


def _unit() -> Unit:
    return Unit(puts=[Puts("APP.Q", heads=[HEAD], bodies=[b"x"])])


def _until(condition) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_a_quiescing_queue_manager_is_let_go(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    with served(None, tmp_path / "mqi.sock") as queue_manager:
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        rig.queue_manager.consume("OTHER.Q", lambda: None)
        assert not rig.commit(_unit()).failures
        queue_manager.quiesce()
        _until(lambda: any("waiting on OTHER.Q" in line and "2161" in line for line in rig.told))
        outcomes: list[Outcome] = []
        rig.queue_manager.submit(_unit(), lambda _unit, outcome: outcomes.append(outcome))
        _until(lambda: not rig.queue_manager.connected)
        begin = time.monotonic()
        rig.close()
        assert time.monotonic() - begin < PROMPT
        assert queue_manager.depth("APP.Q") == 1


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_a_gateway_ends_while_its_queue_manager_is_away(driver: str, tmp_path: Path) -> None:
    mqi_clients.load_bindings()
    outcomes: list[Outcome] = []
    with served(None, tmp_path / "mqi.sock"):
        rig = Rig(driver, str(tmp_path / "mqi.sock"))
        rig.queue_manager.consume("OTHER.Q", lambda: None)
    submitted = threading.Event()

    def submit() -> None:
        rig.queue_manager.submit(_unit(), lambda _unit, outcome: outcomes.append(outcome))
        submitted.set()

    rig.scheduler.soon(submit)
    assert submitted.wait(60)
    _until(lambda: any("2059" in line or "2009" in line for line in rig.told))
    begin = time.monotonic()
    rig.queue_manager.close()
    assert time.monotonic() - begin < PROMPT
    _until(lambda: bool(outcomes))
    rig.scheduler.__exit__(None, None, None)
    assert [failure.reason for failure in outcomes[0].failures] == [2203]
