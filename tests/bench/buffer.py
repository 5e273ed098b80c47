"""What a buffer costs and gives: `python tests/bench/buffer.py [--driver NAME]`. Messages a second, 256 bytes, in
batches of 200, through the real binding to a queue manager in a process of its own.

`--records`: what 64 bytes of payload become in the buffer, by how many topics they come on and how many at a time, and
the processor time (in this process, without the threads of others) of a message on its way in and out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import mqi_clients
from ibm_rig import HEAD, OBJECTS, BatchRig, BufferRig, Rig

from gateway.backends.buffer.spool import Spool
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.ports.batch import Puts, Takes, Unit
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

BODY, BATCH, BATCHES = b"x" * 256, 200, 50


class Manager:
    """The queue manager behind it all."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "s"
        (folder / "objects").write_text(OBJECTS + "\nALTER QLOCAL(APP.Q) MAXDEPTH(9000000)")
        command = [sys.executable, "-m", "gateway.mqi.serve", str(folder / "qm"), "--name", "QM1"]
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


TOPICS, AT_A_TIME, MESSAGES = (1, 10, 1000, 10_000), (2000, 20, 1), 40_000
TAIL = b"1</msgId></mqtt>    " + b"x" * 64


def head(number: int) -> bytes:
    """As the mapping of `run.py` makes it of a topic, each with a client of its own."""
    folders = rfh2.build(
        [
            "<mcd><Msd>jms_bytes</Msd></mcd>",
            f"<usr><device>d{number}</device><kind>temperature</kind><listener>plain</listener></usr>",
            f"<mqps><Top>dev/d{number}/temperature</Top></mqps>",
            f"<mqtt><clientId>c{number}</clientId><qos dt='i4'>1</qos><gateway>gateway-0</gateway><msgId dt='i4'>",
        ]
    )
    return mqmd.build(persistence=1, format=b"MQHRF2  ") + folders


def units_of(size: int) -> int:
    """Commits take their time: not too many of them."""
    return min(MESSAGES // size, 4000)


def units(heads: list[bytes], size: int) -> Iterator[Unit]:
    coming = cycle(heads)
    for _ in range(units_of(size)):
        yield Unit([Puts("APP.Q", heads=list(islice(coming, size)), bodies=[TAIL] * size)])


def records(folder: Path, topics: int, size: int) -> tuple[float, float, float]:
    """Bytes of a message in the buffer, and microseconds on its way in and out. The first tenth is not timed."""
    with ThreadScheduler() as scheduler:
        store = EmbeddedQueueManager.open(folder, "BUFFER", scheduler)
        spool = Spool(store)
        heads, count, began = [head(number) for number in range(topics)], 0, 0.0
        for unit in units(heads, size):
            if count * 10 >= units_of(size) * size and not began:
                first, began = count, time.process_time()
            numbered = spool.records_of(unit, ["bench"], 1e9)
            puts = spool.puts_of(numbered)
            spool.commit_now(Unit([puts]))
            spool.added(numbered, puts)
            count += size
        into, bytes_each = (time.process_time() - began) / (count - first), spool.bytes / count
        began, left = time.process_time(), count
        while left:
            page = spool.page(spool.main)
            left -= sum(entry.messages for entry in page)
            spool.done(spool.main, page)
        out = (time.process_time() - began) / count
        store.close()
    return bytes_each, into * 1e6, out * 1e6


def all_records() -> None:
    print(f"{'topics':>6} {'at a time':>9} {'bytes':>7} {'us in':>7} {'us out':>7}   a message")
    for topics in TOPICS:
        for size in AT_A_TIME:
            with tempfile.TemporaryDirectory() as name:
                found = records(Path(name), topics, size)
            print(f"{topics:6} {size:9} {found[0]:7.1f} {found[1]:7.2f} {found[2]:7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", default="ibmmq")
    parser.add_argument("--records", action="store_true")
    options = parser.parse_args()
    if options.records:
        all_records()
        return
    driver = options.driver
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
