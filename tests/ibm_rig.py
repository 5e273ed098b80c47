"""The IBM backend against our own queue manager: what contract, fault and bench tests share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.backends.embedded.mqi.server import MqiServer
from gateway.backends.embedded.mqi.threads import ThreadScheduler
from gateway.backends.embedded.queue_manager import EmbeddedQueueManager
from gateway.backends.ibm.client import IbmQueueManager
from gateway.backends.ibm.driver import ConnectSettings
from gateway.backends.ibm.worker import Backoff
from gateway.mq import mqmd
from gateway.ports.batch import BatchQueueManager, Outcome, Unit

STATE = (Path(__file__).parents[1] / "deploy" / "mq" / "state.mqsc").read_text()
OBJECTS = f"{STATE}\n" + "\n".join(
    f"DEFINE QLOCAL({name}) DEFPSIST(YES) REPLACE" for name in ("APP.Q", "OTHER.Q", "MQGATE.STATE")
)
HEAD = mqmd.build(persistence=1)


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
        assert done.wait(20), f"no outcome; {self.told}"
        return outcomes[0]

    def close(self) -> None:
        self.queue_manager.close()  # type: ignore[attr-defined]
        self.scheduler.__exit__(None, None, None)


class Rig(BatchRig):
    """The IBM backend over one of the bindings."""

    queue_manager: IbmQueueManager

    def __init__(self, driver: str, where: str) -> None:
        os.environ["MQGATE_MQI"] = where
        super().__init__()
        self.queue_manager = self.make(driver)
        self.queue_manager.start()

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
