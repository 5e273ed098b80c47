"""Checkpoints of this host: a killed driver's is removed by the next start of its job, and nobody else's is."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gateway.pipeline.jobs.checkpoint_folder import CheckpointFolder

DRIVER = """
import sys
from gateway.pipeline.jobs.checkpoint_folder import CheckpointFolder
own = CheckpointFolder("plant")
(own.path / "offsets").mkdir()
print(own.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_killed_drivers_is_removed_and_a_running_ones_stays(folder: Path) -> None:
    beside = [CheckpointFolder("plant_2"), CheckpointFolder("other")]
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        left = Path(driver.stdout.readline().decode().strip())
        own = CheckpointFolder("plant")
        assert (left / "offsets").is_dir()
        assert own.path != left
        driver.send_signal(signal.SIGKILL)
    assert left.exists()
    again = CheckpointFolder("plant")
    assert not left.exists()
    assert own.path.exists()
    for each in (own, again, *beside):
        assert each.path.exists()
        each.remove()
    assert list(folder.iterdir()) == []


SESSION = """
import sys
from gateway.pipeline.jobs.spark.spark_session import socket_settings
print(socket_settings()["spark.python.unix.domain.socket.dir"], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_sockets_of_a_session_go_with_it_or_with_the_next_one(monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="s") as short:
        monkeypatch.setenv("TMPDIR", short)
        command = [sys.executable, "-c", SESSION]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as session:
            assert session.stdout is not None
            left = Path(session.stdout.readline().decode().strip())
            if killed:
                session.send_signal(signal.SIGKILL)
        assert left.exists() == killed
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, capture_output=True)
        assert list(Path(short).iterdir()) == []


def test_what_only_has_such_a_name_stays(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "mqgate-checkpoint-plant-link").symlink_to(elsewhere)
    (folder / "mqgate-checkpoint-plant-file").write_text("")
    CheckpointFolder("plant").remove()
    assert len(list(folder.iterdir())) == 3
