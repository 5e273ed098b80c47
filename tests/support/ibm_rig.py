"""The IBM backend against our own queue manager: what contract, fault and bench tests share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import mqi_clients
from frame_proxy import FrameProxy

from gateway.backends.buffer.ibm_link import IbmLink
from gateway.backends.buffer.queue_manager import STATE_QUEUES, BufferedQueueManager
from gateway.backends.ibm.client import IbmQueueManager
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.worker import Backoff
from gateway.mq import mqmd
from gateway.mqi.serve import MqiServer
from gateway.ports.batch import BatchQueueManager, Outcome, Unit
from gateway.ports.counters import Counters
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions
from gateway.queue_manager.thread_scheduler import ThreadScheduler

STATE = (Path(__file__).parents[2] / "deploy" / "mq" / "state.mqsc").read_text()
OBJECTS = f"{STATE}\n" + "\n".join(
    f"DEFINE QLOCAL({name}) DEFPSIST(YES) REPLACE" for name in ("APP.Q", "OTHER.Q", "MQGATE.STATE")
)
HEAD = mqmd.build(persistence=1)


class DescriptorScheduler(ThreadScheduler):
    """One that a thread can wake by writing to a descriptor, as the reactor behind the hub."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC)
        self.told = 0
        """How often somebody wrote to it."""

    def collect(self, call: Callable[[], None]) -> int:
        def listen() -> None:
            while os.eventfd_read(self.descriptor) < _END:
                self.told += 1
                self.soon(call)

        threading.Thread(target=listen, daemon=True).start()
        return self.descriptor

    def __exit__(self, *error: object) -> None:
        os.eventfd_write(self.descriptor, _END)
        super().__exit__(*error)


_END = 1 << 32


class BatchRig:
    """A queue manager behind the batch port, and a way to wait for outcomes without a reactor."""

    queue_manager: BatchQueueManager

    def __init__(self) -> None:
        self.scheduler = ThreadScheduler()
        self.scheduler.__enter__()
        self.told: list[str] = []

    def commit(self, unit: Unit) -> Outcome:
        done = threading.Event()
        outcomes: list[Outcome] = []

        def finished(_unit: Unit, outcome: Outcome) -> None:
            outcomes.append(outcome)
            done.set()

        self.queue_manager.submit(unit, finished)
        assert done.wait(60), f"no outcome; {self.told}"
        return outcomes[0]

    def close(self) -> None:
        self.queue_manager.close()  # type: ignore[attr-defined]
        self.scheduler.__exit__(None, None, None)


class Rig(BatchRig):
    """The IBM backend over one of the bindings."""

    queue_manager: IbmQueueManager

    def __init__(self, driver: str, where: str, *, posted: bool = False) -> None:
        """`posted`: with a scheduler that has a descriptor, called in its thread alone, as in the gateway."""
        os.environ["MQGATE_MQI"] = where
        super().__init__()
        if posted:
            self.scheduler.__exit__(None, None, None)
            self.scheduler = DescriptorScheduler()
            self.scheduler.__enter__()
        self.queue_manager = self.make(driver)
        self.queue_manager.start()
        if posted:
            self.queue_manager = _InItsThread(self.queue_manager, self.scheduler)  # type: ignore[assignment]

    def make(self, driver: str) -> IbmQueueManager:
        settings = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
        return IbmQueueManager(
            settings, self.scheduler, driver=driver, connections=2, backoff=Backoff(0.05, 0.2), told=self.told.append
        )


class EmbeddedRig(BatchRig):
    """The embedded queue manager itself: what the other one is measured by."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.queue_manager = EmbeddedQueueManager.open(path, "QM1", self.scheduler, OBJECTS)


@contextmanager
def served(path: Path | None, socket: Path, objects: str = OBJECTS) -> Iterator[EmbeddedQueueManager]:
    """The embedded queue manager behind the MQI socket."""
    with ThreadScheduler() as scheduler:
        queue_manager = EmbeddedQueueManager.open(path, "QM1", scheduler, objects, users={"app": "pw"})
        server = MqiServer(queue_manager, socket)
        server.start()
        try:
            yield queue_manager
        finally:
            server.stop()
            queue_manager.close()


class ServingProcess:
    """The same as a process of its own, to be killed and started again."""

    def __init__(self, folder: Path, objects: str = OBJECTS) -> None:
        self.socket = folder / "mqi.sock"
        self._folder = folder
        (folder / "objects.mqsc").write_text(objects)
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "gateway.mqi.serve", str(self._folder / "data")]
        command += ["--name", "QM1", "--socket", str(self.socket), "--user", "app:pw"]
        command += ["--objects", str(self._folder / "objects.mqsc")]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert "answers" in self._process.stdout.readline()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


R = TypeVar("R", bound=BatchRig)


@contextmanager
def behind_proxy(
    path: Path, decide: Callable[[int], str], make: Callable[[str], R]
) -> Iterator[tuple[EmbeddedQueueManager, R]]:
    """A queue manager, and a rig that reaches it through a proxy that may cut the connection at a call."""
    mqi_clients.load_bindings()
    with served(None, path / "mqi.sock") as queue_manager:
        proxy = FrameProxy(path / "proxy.sock", path / "mqi.sock", decide)
        rig = make(str(path / "proxy.sock"))
        try:
            yield queue_manager, rig
        finally:
            rig.close()
            proxy.close()


class BufferRig(BatchRig):
    """IBM MQ with a buffer in front. What tests call comes from the scheduler's thread, as the port asks for it."""

    def __init__(self, driver: str, where: str, path: Path | None, *, max_bytes: int = 1 << 30) -> None:
        os.environ["MQGATE_MQI"] = where
        super().__init__()
        settings = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
        backoff = Backoff(0.05, 0.2)
        small = StoreOptions("BUFFER", segment_bytes=4 << 20, spare_segments=1)
        store = EmbeddedQueueManager.open(path, "BUFFER", self.scheduler, store_options=small)
        link = IbmLink(load(driver), settings, self.scheduler, MessageIds(time.time(), b"test"), backoff=backoff)
        reads = IbmQueueManager(settings, self.scheduler, driver=driver, connections=1, backoff=backoff)
        self.counters = Counters()
        self.buffer = BufferedQueueManager(
            store, link, reads, self.scheduler, self.counters, max_bytes=max_bytes, name="QM1",
            state_queues=(*STATE_QUEUES, "MQGATE.STATE"), told=lambda state, why: self.told.append(f"{state} {why}"),
        )  # fmt: skip
        self.queue_manager = _InItsThread(self.buffer, self.scheduler)
        self.scheduler.soon(self.buffer.start)

    @staticmethod
    def wait(condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + 30
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        return condition()

    def until(self, state: str) -> None:
        deadline = time.monotonic() + 30
        while self.buffer.state != state:
            assert time.monotonic() < deadline, f"never {state}: {self.told[-5:]}, {self.buffer.problems}"
            time.sleep(0.01)


class _InItsThread:
    """Every call of the port in the scheduler's thread."""

    def __init__(self, queue_manager: BatchQueueManager, scheduler: ThreadScheduler) -> None:
        self._queue_manager = queue_manager
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._queue_manager, name)
        return partial(self._call, found) if callable(found) else found

    def _call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        answer: Future[Any] = Future()

        def call() -> None:
            try:
                answer.set_result(function(*arguments, **named))
            except Exception as error:  # noqa: BLE001 -- the caller's
                answer.set_exception(error)

        self._scheduler.soon(call)
        return answer.result(30)


@contextmanager
def over(backend: str, path: Path, objects: str = OBJECTS) -> Iterator[BatchRig]:
    """The batch port over `embedded`, or over a binding and how it reaches a queue manager: `ibmmq`, `pymqi-posted`."""
    if backend == "embedded":
        made: BatchRig = EmbeddedRig(path / "data")
        yield made
        made.close()
        return
    mqi_clients.load_bindings()
    driver, _, where = backend.partition("-")
    socket = str(path / "mqi.sock")
    with served(None, path / "mqi.sock", objects):
        made = BufferRig(driver, socket, None) if where == "buffer" else Rig(driver, socket, posted=where == "posted")
        if isinstance(made, BufferRig):
            made.until("connected")
        yield made
        made.close()
