"""deploy/mq: the commands define what the gateway uses, and our own queue manager understands them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from schedulers import ManualScheduler

from gateway.backends.ibm.requirements import STATE_QUEUES
from gateway.ports.state_queues import DEAD_LETTERS
from gateway.queue_manager.embedded import EmbeddedQueueManager

ROOT = Path(__file__).parents[4]
DEPLOY = ROOT / "deploy" / "mq"


def _defined(name: str) -> set[str]:
    return set(re.findall(r"^DEFINE QLOCAL\(([\w.]+)\)", (DEPLOY / name).read_text(), re.MULTILINE))


def test_every_state_queue_is_defined() -> None:
    assert _defined("state.mqsc") == {*STATE_QUEUES, DEAD_LETTERS}


def test_every_state_queue_of_the_code_is_known() -> None:
    named = set()
    for layer in ("broker", "session", "bridge", "backends/ibm"):
        for path in (ROOT / "gateway" / layer).rglob("*.py"):
            named |= set(re.findall(r'"(MQGATE\.[A-Z.]+)"', path.read_text()))
    assert named - {"MQGATE.DEFAULT"} <= {*STATE_QUEUES, DEAD_LETTERS}


@pytest.mark.parametrize("name", ["state.mqsc", "application.mqsc", "channel.mqsc"])
def test_the_commands_run(name: str) -> None:
    queue_manager = EmbeddedQueueManager.open(None, "QM1", ManualScheduler(), "")
    report = queue_manager.mqsc((DEPLOY / name).read_text())
    assert report.ok, report.lines
    queue_manager.close()


def test_authorities_distinguish_putting_and_consuming() -> None:
    command = ["sh", DEPLOY / "authorities.sh", "QM1", "gw", "OUT", "--", "IN"]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env={"DRY_RUN": "1", "PATH": "/bin:/usr/bin"}
    )
    assert done.stdout.splitlines() == [
        "setmqaut -m QM1 -t qmgr -p gw +connect +inq",
        "setmqaut -m QM1 -n MQGATE.** -t queue -p gw +put +get +browse +inq +setid",
        "setmqaut -m QM1 -n OUT -t queue -p gw +put +inq +setid",
        "setmqaut -m QM1 -n IN -t queue -p gw +put +get +browse +inq +setid",
    ]
