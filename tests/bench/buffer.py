"""What a buffer costs and gives: `python tests/bench/buffer.py [--driver NAME]`. Messages a second, 256 bytes, in
batches of 200, through the real binding to a queue manager in a process of its own."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import mqi_clients
from ibm_rig import HEAD, OBJECTS, BatchRig, BufferRig, Rig

from gateway.ports.batch import Puts, Takes, Unit

BODY, BATCH, BATCHES = b"x" * 256, 200, 50


class Manager:
    """The queue manager behind it all."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "s"
        (folder / "objects").write_text(OBJECTS + "\nALTER QLOCAL(APP.Q) MAXDEPTH(9000000)")
        command = [sys.executable, "-m", "gateway.backends.embedded.mqi.serve", str(folder / "qm"), "--name", "QM1"]
        self._command = [
            *command,
            "--socket",
            str(self.socket),
            "--objects",
            str(folder / "objects"),
            "--user",
            "app:pw",
        ]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert "answers" in self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def puts() -> Puts:
    return Puts("APP.Q", heads=[HEAD] * BATCH, bodies=[BODY] * BATCH)


def rate(rig: BatchRig, unit: Callable[[], Unit]) -> float:
    began = time.perf_counter()
    for _ in range(BATCHES):
        assert not rig.commit(unit()).failures
    return BATCHES * BATCH / (time.perf_counter() - began)


def with_state(rig: BatchRig) -> Callable[[], Unit]:
    """Units as the release of QoS 2 messages makes them: what is released has been staged before."""
    tokens: list[list[object]] = []
    for _ in range(BATCHES):
        staged = Puts("MQGATE.STAGED", key=b"device", heads=[HEAD] * BATCH, bodies=[BODY] * BATCH)
        rig.commit(Unit([staged]))
        tokens.append(list(staged.tokens))
    return lambda: Unit([puts()], [Takes("MQGATE.STAGED", b"device", tokens.pop())])  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", default="ibmmq")
    driver = parser.parse_args().driver
    mqi_clients.load_bindings()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manager = Manager(folder)
        manager.start()
        found: dict[str, float] = {}
        plain = Rig(driver, str(manager.socket))
        found["without a buffer"] = rate(plain, lambda: Unit([puts()]))
        found["without a buffer, releases of QoS 2"] = rate(plain, with_state(plain))
        plain.close()
        rig = BufferRig(driver, str(manager.socket), folder / "buffer")
        rig.until("connected")
        found["with one, connected"] = rate(rig, lambda: Unit([puts()]))
        found["with one, connected, releases of QoS 2"] = rate(rig, with_state(rig))
        manager.kill()
        rig.until("buffering")
        found["IBM MQ away, into the buffer"] = rate(rig, lambda: Unit([puts()]))
        manager.start()
        began = time.perf_counter()
        rig.until("draining")
        rig.until("connected")
        found["drained"] = BATCHES * BATCH / (time.perf_counter() - began)
        rig.close()
        manager.kill()
    for what, value in found.items():
        print(f"{what:42} {value:10,.0f} messages/s")


if __name__ == "__main__":
    main()
