"""`mqgate mqsc` with settings that name IBM MQ: the command server of that queue manager carries the commands out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import gateway_template
import mqi_clients
import pytest
from ibm_rig import served

from gateway.queue_manager.embedded import EmbeddedQueueManager

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
SETTINGS = """
queue_manager:
  ibm: {name: QM1, connection: "localhost(1414)", channel: C, user: app, password_file: pw, driver: %s}
"""


@pytest.fixture
def queue_manager(tmp_path: Path) -> Iterator[EmbeddedQueueManager]:
    """QM1 behind the MQI socket: a program that comes there knows it as IBM MQ."""
    (tmp_path / "pw").write_text("pw\n")
    with served(None, tmp_path / "s", "DEFINE QLOCAL(THERE) DESCR('was there')") as opened:
        yield opened


def mqsc(
    folder: Path, text: str, driver: str = "ibmmq", words: tuple[str, ...] = ("mqsc",)
) -> subprocess.CompletedProcess[str]:
    (folder / "ibm.yaml").write_text(SETTINGS % driver)
    environment = mqi_clients.program_environment(str(folder / "s"), *mqi_clients.BINDINGS)
    environment["PYTHONPATH"] += os.pathsep + str(ROOT)
    return gateway_template.run(*words, "-c", "ibm.yaml", text=text, cwd=folder, env=environment)


@pytest.mark.parametrize("driver", ["ibmmq", "pymqi"])
def test_the_queue_manager_that_is_named_carries_them_out(
    driver: str, queue_manager: EmbeddedQueueManager, tmp_path: Path
) -> None:
    done = mqsc(
        tmp_path,
        "DEFINE QLOCAL(FOO) +\n  MAXDEPTH(77)\nALTER QLOCAL(FOO) DESCR('a queue')\nDISPLAY QLOCAL(FOO) MAXDEPTH DESCR\n"
        "DISPLAY QMGR QMNAME\nDELETE QLOCAL(THERE)\nEND\nDEFINE QLOCAL(NEVER)\n",
        driver,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in ("AMQ8006I", "AMQ8008I", "MAXDEPTH(77)", "DESCR(a queue)", "QMNAME(QM1)", "AMQ8007I"):
        assert said in done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "5 MQSC commands read.", "No commands have a syntax error.", "All valid MQSC commands were processed.",
    ]  # fmt: skip
    report = queue_manager.mqsc("DISPLAY QUEUE(*) MAXDEPTH")
    shown = "\n".join(report.lines)
    assert "QUEUE(FOO)" in shown
    assert "MAXDEPTH(77)" in shown
    assert "QUEUE(THERE)" not in shown
    assert "QUEUE(NEVER)" not in shown
    assert "MQGATE.MQSC" not in shown, "the queue for answers is gone"
    assert not (tmp_path / "mqgate-data").exists(), "no other queue manager is made"


def test_what_fails_is_said_and_the_rest_is_carried_out(queue_manager: EmbeddedQueueManager, tmp_path: Path) -> None:
    done = mqsc(tmp_path, "DELETE QLOCAL(NOWHERE)\nDEFINE QLOCAL(\nDEFINE QLOCAL(BAR)\n")
    assert done.returncode == 1
    assert "AMQ8147E" in done.stdout
    assert "AMQ8405I" in done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "3 MQSC commands read.", "One command has a syntax error.", "One valid MQSC command could not be processed.",
    ]  # fmt: skip
    assert queue_manager.mqsc("DISPLAY QLOCAL(BAR)").ok


def test_a_user_without_authority_is_told(queue_manager: EmbeddedQueueManager, tmp_path: Path) -> None:
    assert queue_manager.mqsc(
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('app') AUTHADD(CONNECT,INQ)\n"
        "SET AUTHREC PROFILE(THERE) OBJTYPE(QUEUE) PRINCIPAL('app') AUTHADD(PUT)"
    ).ok
    done = mqsc(tmp_path, "DEFINE QLOCAL(FOO)")
    assert done.returncode == 3
    assert "SYSTEM.ADMIN.COMMAND.QUEUE" in done.stderr
    assert "runmqsc" in done.stderr
    assert not queue_manager.mqsc("DISPLAY QLOCAL(FOO)").ok


def test_a_queue_manager_that_is_away_is_said(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("pw\n")
    done = mqsc(tmp_path, "DISPLAY QMGR")
    assert done.returncode == 3
    assert "2059" in done.stderr


def test_queues_are_listed_while_no_gateway_runs(queue_manager: EmbeddedQueueManager, tmp_path: Path) -> None:
    """Those that the rules name: the shipped mapping's, and the dead-letter queue."""
    assert queue_manager.mqsc("DEFINE QLOCAL(MQGATE.DEFAULT)").ok
    done = mqsc(tmp_path, "", words=("queue", "list"))
    assert done.returncode == 0, done.stderr
    names = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert names == ["queue", "MQGATE.DEFAULT", "SYSTEM.DEAD.LETTER.QUEUE"]
