"""The embedded queue manager as a process of its own, and gateways that share it, by the commands of the guide."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gateway_template
import mqi_clients
import pytest
from bridge_estate import Application, Talker, wait
from free_ports import free_port

from gateway.errors import MQError
from gateway.mqtt import packets as p

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "howto" / "several-processes.md"


class Served:
    """`mqgate mqi serve` with these words."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder / "serve.log"
        command = [sys.executable, "-m", "gateway", "mqi", "serve", *words]
        with self.log.open("wb") as log:
            self.process = gateway_template.launch(command, cwd=folder, stdout=log, stderr=log, env=environment())

    def ready(self) -> Served:
        wait(lambda: '"started"' in self.log.read_text() or self.process.poll() is not None, 90)
        assert self.process.poll() is None, self.log.read_text()
        return self

    def refused(self) -> tuple[int, str]:
        return self.process.wait(90), self.log.read_text()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def environment(**more: str) -> dict[str, str]:
    """Without anything that says where a library or a queue manager is."""
    kept = {name: value for name, value in os.environ.items() if name not in {"MQGATE_MQI", "LD_LIBRARY_PATH"}}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


@contextmanager
def served(folder: Path, *words: str) -> Iterator[Served]:
    made = Served(folder, *words).ready()
    try:
        yield made
    finally:
        made.stop()


def page(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
        return str(answer.read().decode())


def test_it_serves_programs_says_how_it_is_and_ends_when_asked(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(APP.Q) MAXDEPTH(50)\n")
    words = ("qm", "--objects", "objects.mqsc", "--admin-port", str(port))
    with served(tmp_path, *words) as running:
        program = Application(str(tmp_path / "qm" / "mqi.sock"))
        program.put("APP.Q", b"kept")
        assert "[+] listeners" in page(port, "/readyz")
        assert "ok" in page(port, "/livez")
        assert 'mqgate_queue_depth{queue="APP.Q"} 1.0' in page(port, "/metrics")
        assert 'mqgate_queue_max_depth{queue="APP.Q"} 50.0' in page(port, "/metrics")
        assert 'mqgate_queue_high_depth{queue="APP.Q"} 40.0' in page(port, "/metrics")
        assert 'queue="MQGATE.SESSIONS"' in page(port, "/metrics"), "what gateways need is defined"
        program.close()
        assert running.stop() == 0
    assert not (tmp_path / "qm" / "mqi.sock").exists()
    with served(tmp_path, *words):
        program = Application(str(tmp_path / "qm" / "mqi.sock"))
        assert [message.body.raw for message in program.messages("APP.Q")] == [b"kept"]
        program.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("running")
    with served(folder, "qm"):
        yield folder


MISTAKES: list[tuple[str, list[str], int, str]] = [
    ("directory in use", ["qm"], 3, "has this store open; stop it"),
    ("socket in use", ["other", "--socket", "qm/mqi.sock"], 3, "is served by another process: stop it, or choose"),
    ("no directory", ["serve.log"], 3, "the data directory must be a writable directory"),
    ("no such objects", ["third", "--objects", "nothing.mqsc"], 3, "nothing.mqsc"),
    ("wrong name", ["third", "--name", "not a name"], 1, "is not a queue manager name"),
    ("IBM MQ", ["-c", "ibm.yaml"], 1, "ibm.yaml:1:22: `queue_manager.ibm` names IBM MQ"),
]


@pytest.mark.parametrize(("words", "code", "text"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES])
def test_what_keeps_it_from_starting_is_said(running: Path, words: list[str], code: int, text: str) -> None:
    (running / "ibm.yaml").write_text('queue_manager: {ibm: {name: Q, connection: "h(1414)", channel: C}}\n')
    done = gateway_template.run("mqi", "serve", *words, cwd=running, env=environment())
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


class Estate:
    """What the guide's commands start, with free ports instead of the usual ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("1883", "1884", "9160", "9161", "9170")}
        program = folder / "bin" / "mqgate"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gateway "$@"\n')
        program.chmod(0o755)
        bindings = os.pathsep.join([str(mqi_clients.packages(*mqi_clients.BINDINGS)), str(ROOT)])
        path = f"{program.parent}:{os.environ['PATH']}"
        self.environment = environment(PATH=path, PYTHONPATH=bindings)
        self.shells: list[subprocess.Popen[bytes]] = []
        for text in blocks("yaml"):
            name = re.match(r"# (\S+)", text)
            assert name is not None
            (folder / name[1]).write_text(text)

    def run(self, block: str) -> subprocess.Popen[bytes]:
        """A block of commands, whatever it leaves running included."""
        # in one pass: a free port may have the digits of a usual one
        block = re.sub("|".join(self.ports), lambda usual: str(self.ports[usual[0]]), block)
        with (self.folder / f"shell.{len(self.shells)}").open("wb") as log:
            self.shells.append(subprocess.Popen(
                ["sh", "-e", "-c", f"{block}\nwait"], cwd=self.folder, env=self.environment, stdout=log, stderr=log,
                start_new_session=True,
            ))  # fmt: skip
        return self.shells[-1]

    def up(self, usual: str) -> bool:
        try:
            return page(self.ports[usual], "/readyz").endswith("\nok\n")
        except OSError:
            return False

    def gateways(self) -> list[dict[str, Any]]:
        """As the first one knows them, by the command."""
        words = "gateway", "list", "-c", "../gateway.yaml", "--json"
        done = gateway_template.run(*words, cwd=self.folder / "g1", env=self.environment)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    def said(self) -> str:
        return "\n".join(log.read_text() for log in sorted(self.folder.glob("shell.*")))

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)

    def end(self, *shells: subprocess.Popen[bytes]) -> None:
        for shell in shells or self.shells:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait(30)


def test_the_guide_makes_one_broker_of_two_gateways(tmp_path: Path) -> None:
    """Its commands as they are written; then the queue manager is killed and started again."""
    serve, gateways = blocks("sh")[:2]
    estate = Estate(tmp_path)
    try:
        first = estate.run(serve)
        estate.until(lambda: estate.up("9170"))
        estate.run(gateways)
        estate.until(lambda: estate.up("9160") and estate.up("9161"))
        here, there = Talker(estate.ports["1883"], "here"), Talker(estate.ports["1884"], "there")
        here.subscribe("plant/#", 1)
        assert there.publish("plant/a", b"1", 1) == 0
        assert bytes(here.next(p.PUBLISH)[4]) == b"1"
        estate.until(
            lambda: all(one["heard"] and (one["own"] or one["lease_age"] is not None) for one in estate.gateways())
        )
        listed = estate.gateways()
        assert [one["own"] for one in listed] == [True, False]
        assert listed[1]["page"] == f"http://127.0.0.1:{estate.ports['9161']}/admin/"
        assert 0 <= listed[1]["lease_age"] <= listed[1]["lease_seconds"]
        estate.end(first)
        estate.run(serve)
        estate.until(lambda: estate.up("9170") and estate.up("9160") and estate.up("9161"))
        assert there.publish("plant/a", b"2", 2) == 0
        assert bytes(here.next(p.PUBLISH)[4]) == b"2"
        assert 'mqgate_queue_depth{queue="TELEMETRY"} 2.0' in page(estate.ports["9170"], "/metrics")
    finally:
        estate.end()


def test_its_log_says_when_the_disk_is_full_and_when_there_is_room_again(tmp_path: Path) -> None:
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(APP.Q)\n")
    limits = "{segment_bytes: 1MiB, max_bytes: 6MiB}"
    (tmp_path / "settings.yaml").write_text(f"queue_manager: {{embedded: {limits}}}\n")
    with served(tmp_path, "qm", "-c", "settings.yaml", "--objects", "objects.mqsc") as running:
        program = Application(str(tmp_path / "qm" / "mqi.sock"))

        def told() -> bool:
            with suppress(MQError):  # it is full
                program.put("APP.Q", bytes(100_000))
            return '"disk_full"' in running.log.read_text()

        wait(told, 60)
        program.clear("APP.Q")
        wait(lambda: '"disk_room"' in running.log.read_text(), 60)
        program.put("APP.Q", b"again")
