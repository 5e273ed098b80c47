"""What MQI calls cost through the library, in microseconds and as ratios: `python tests/bench/mqi.py [--driver NAME]`.

With a queue manager inside the process (`c/memory_queue_manager.c`: what the binding and the library cost), over the
socket one by one, over the socket asynchronously; then batches of the IBM backend, in messages a second. The bindings
are installed into a cache on first use.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import memory_library
import mqi_clients
from ibm_rig import HEAD, OBJECTS, Rig

from gateway.backends.ibm.driver import ConnectSettings, Session, load
from gateway.backends.ibm.structures import get_options, match_md, object_descriptor, plain_md, put_options
from gateway.mq import constants as mq
from gateway.ports.batch import Puts, Unit

BODY = b"x" * 256
COUNT = 4000


def timed(call: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count * 1e6


class Program:
    """One session with a queue open for everything."""

    def __init__(self, driver: str) -> None:
        settings = ConnectSettings("QM1", "h(1)", "C", "app", "pw")
        self.session: Session = load(driver).connect(settings)
        self.handle = self.session.open(
            bytes(bytearray(object_descriptor("APP.Q"))), mq.MQOO_OUTPUT | mq.MQOO_INPUT_SHARED
        )

    def put(self, options: int, *, persistent: bool) -> Callable[[], object]:
        make, mqput, hconn, hobj = put_options(options), self.session.mqput, self.session.handle, self.handle
        before, behind = plain_md(HEAD, 0, persistent)
        return lambda: mqput(hconn, hobj, before + behind, make(), BODY)

    def get(self) -> Callable[[], object]:
        make, mqget, hconn, hobj = get_options(0, 0), self.session.mqget, self.session.handle, self.handle
        return lambda: mqget(hconn, hobj, match_md(), make(), 4096)

    def drain(self) -> None:
        get = self.get()
        while get()[-1] == 0:  # type: ignore[index]
            pass

    def asynchronous(self, count: int) -> float:
        put = self.put(mq.MQPMO_ASYNC_RESPONSE | mq.MQPMO_SYNCPOINT, persistent=False)
        begin = time.perf_counter()
        for _ in range(count // 500):
            for _ in range(500):
                put()
            self.session.commit()
        return (time.perf_counter() - begin) / count * 1e6


@contextmanager
def process(folder: Path) -> Iterator[None]:
    """The queue manager as a process of its own, as it would be: two interpreters, not one lock."""
    (folder / "objects").write_text(OBJECTS + "\nALTER QLOCAL(APP.Q) MAXDEPTH(9999999)")
    command = [sys.executable, "-m", "gateway.mqi.serve", str(folder / "data"), "--name", "QM1"]
    command += ["--socket", str(folder / "mqi.sock"), "--user", "app:pw", "--objects", str(folder / "objects")]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert "answers" in server.stdout.readline()
    try:
        yield
    finally:
        server.terminate()
        server.wait()


def calls(driver: str) -> dict[str, float]:
    program = Program(driver)
    found = {"synchronous put": timed(program.put(mq.MQPMO_NO_SYNCPOINT, persistent=False), COUNT)}
    found["synchronous put, persistent"] = timed(program.put(mq.MQPMO_NO_SYNCPOINT, persistent=True), COUNT // 8)
    found["get"] = timed(program.get(), COUNT)
    program.drain()
    found["asynchronous put, a commit every 500"] = program.asynchronous(COUNT)
    program.drain()
    program.session.disconnect()
    return found


def batches(driver: str, size: int, seconds: float = 2.0) -> float:
    """Messages a second through the IBM backend when each unit has `size` persistent puts."""
    rig = Rig(driver, os.environ["MQGATE_MQI"])
    done, ended = [0], threading.Event()
    until = time.perf_counter() + seconds

    def unit() -> Unit:
        return Unit(puts=[Puts("APP.Q", heads=[HEAD] * size, bodies=[BODY] * size)])

    def finished(_unit: object, outcome: object) -> None:
        assert not outcome.failures  # type: ignore[attr-defined]
        done[0] += size
        if time.perf_counter() < until:
            rig.queue_manager.submit(unit(), finished)
        else:
            ended.set()

    begin = time.perf_counter()
    rig.scheduler.soon(lambda: rig.queue_manager.submit(unit(), finished))
    ended.wait(30)
    rate = done[0] / (time.perf_counter() - begin)
    rig.close()
    return rate


SIZES = (1, 10, 100, 500)


def measure(driver: str) -> tuple[dict[str, float], list[float]]:
    """Microseconds of each call, and messages a second of each size of unit."""
    return calls(driver), [batches(driver, size) for size in SIZES]


def in_memory(driver: str) -> tuple[dict[str, float], list[float]]:
    """The same in a process of its own, with the queue manager inside it."""
    environment = memory_library.program_environment(*mqi_clients.BINDINGS)
    environment["PYTHONPATH"] += f":{Path(__file__).parents[2]}"
    command = [sys.executable, __file__, "--driver", driver, "--in-this-process"]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    costs, rates = json.loads(done.stdout)
    return costs, rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", default="ibmmq", choices=["ibmmq", "pymqi"])
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.in_this_process:
        print(json.dumps(measure(given.driver)))
        return
    memory, memory_rates = in_memory(given.driver)
    mqi_clients.load_bindings()
    with tempfile.TemporaryDirectory() as folder, process(Path(folder)):
        os.environ["MQGATE_MQI"] = str(Path(folder) / "mqi.sock")
        socket, socket_rates = measure(given.driver)
    print(f"{'':42}{'in memory':>12}{'socket':>12}   us, {given.driver}")
    for name, cost in memory.items():
        print(f"{name:42}{cost:12.1f}{socket[name]:12.1f}")
    asynchronous = socket["asynchronous put, a commit every 500"]
    for name in ("synchronous put", "synchronous put, persistent"):
        print(f"asynchronous over the socket: {socket[name] / asynchronous:.1f} times as many as {name}")
    for size, inside, outside in zip(SIZES, memory_rates, socket_rates, strict=True):
        print(f"units of {size:4} puts: {inside:10.0f} a second in memory, {outside:10.0f} over the socket")


if __name__ == "__main__":
    main()
