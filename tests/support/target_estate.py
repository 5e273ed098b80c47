"""Gateways with targets, and the queue managers they need, as processes on loopback."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import gateway_template
import mqi_clients
from bridge_estate import wait
from gateways import RunningGateway

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.reader import Reader
from gateway.bridge.message import read_message
from gateway.mq import mqmd
from gateway.ports.batch import Puts

ROOT = Path(__file__).parents[2]
OBJECTS = "DEFINE QLOCAL(HERE)\nDEFINE QLOCAL(THERE)\n"
MAPPING = """
version: 1
to_mq:
  - {name: here, topic: "here/#", queue: HERE, headers: []}
  - {name: there, topic: "there/#", queue: THERE, queue_manager: QM2, headers: [],
     on_failure: {retry: {times: 3, from: 100ms, to: 300ms}}}
  - {name: both, topic: "both/#", queue: HERE, headers: [], continue: true}
  - {name: both there, topic: "both/#", queue: THERE, queue_manager: QM2, headers: []}
"""
SPREAD = """
  - {name: turns, topic: "turns/#", queue: THERE, queue_manager: [QM2, QM3], spread: round_robin, headers: []}
"""
THIRD = ', QM3: {{connection: "unix:{place}/qm3/mqi.sock", reconnect_from: 100ms, reconnect_to: 300ms}}}}'
SETTINGS = """
targets: {{QM2: {{connection: "unix:{place}/qm2/mqi.sock", reconnect_from: 100ms, reconnect_to: 300ms}}}}
mappings: [map.yaml]
queue_manager: {manager}
"""
MANAGERS = {
    "embedded": "{embedded: {name: QM1, objects: objects.mqsc}}",
    "ibm": '{ibm: {name: QM1, connection: "unix:PLACE/qm1/mqi.sock", reconnect_from: 100ms, reconnect_to: 300ms}}',
}


class Manager:
    """A queue manager process."""

    def __init__(self, place: Path, name: str) -> None:
        self.name, self._place = name, place
        self.socket = place / name.lower() / "mqi.sock"
        self.start()

    def start(self) -> None:
        (self._place / "objects.mqsc").write_text(OBJECTS)
        command = [sys.executable, "-m", "gateway", "mqi", "serve", self.name.lower(), "--name", self.name]
        log = self._place / f"{self.name}.log"
        with log.open("wb") as file:
            self._process = gateway_template.launch(
                [*command, "--objects", "objects.mqsc"], cwd=self._place, stdout=file, stderr=file,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        wait(lambda: '"started"' in log.read_text(), 90)

    def stop(self) -> None:
        """It stands still from now on."""
        self._process.send_signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self._process.pid}/stat")
        wait(lambda: stat.read_text().rpartition(") ")[2][0] == "T", 60)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)

    def put(self, queue: str, *bodies: bytes) -> None:
        """A program puts persistent messages."""
        mqi_clients.load_bindings()
        settings = ConnectSettings(self.name, f"unix:{self.socket}")
        connection = Connection(load("ibmmq").connect(settings), MessageIds(0.0, b""))
        puts = Puts(queue, heads=[mqmd.build(persistence=1)] * len(bodies), bodies=[*bodies])
        connection.put_run(puts, asynchronous=False)
        connection.session.commit()
        connection.session.disconnect()

    def bodies(self, queue: str) -> list[bytes]:
        """What lies on a queue, first to last."""
        mqi_clients.load_bindings()
        reader = Reader(load("ibmmq"), ConnectSettings(self.name, f"unix:{self.socket}"), MessageIds(0.0, b""))
        try:
            found = reader.fetch(queue, b"", 2000, None)
        finally:
            reader.close()
        return [read_message(stored.md, stored.data).body.raw for stored in found]


class Estate:
    """A gateway with a target."""

    def __init__(
        self, place: Path, manager: str, more: str = "", *, third: bool = False, mapping: str = MAPPING
    ) -> None:
        """`more`: settings of the queue manager of the state; `third`: there is a second target."""
        self.place, self.mapping = place, mapping
        self.third = Manager(place, "QM3") if third else None
        self.there = Manager(place, "QM2")
        self.here = Manager(place, "QM1") if manager == "ibm" else None
        said = MANAGERS[manager].replace("PLACE", str(place)).replace("name: QM1", f"{more}name: QM1")
        text = SETTINGS.replace("}}}}\n", "}}" + THIRD + "\n", 1) if third else SETTINGS
        self.settings = text.format(place=place, manager=said)
        self.gateway = self.add_gateway("edge")

    def add_gateway(self, name: str) -> RunningGateway:
        """One that is not started yet."""
        edge = self.place / name
        edge.mkdir()
        (edge / "map.yaml").write_text(self.mapping + SPREAD if self.third else self.mapping)
        (edge / "objects.mqsc").write_text(OBJECTS)
        environ = {"PYTHONPATH": str(mqi_clients.packages(*mqi_clients.BINDINGS))}
        return RunningGateway(edge, settings=self.settings, environ=environ)

    def start(self, dies_at: str = "") -> None:
        self.gateway.environ["MQGATE_FAILPOINT"] = dies_at
        self.gateway.start()
        self.until_connected()

    def ready(self) -> str:
        return self.gateway.get("/readyz")

    def until_connected(self) -> None:
        wait(lambda: "target QM2\n" in self.ready(), 60)
        wait(lambda: self.third is None or "target QM3\n" in self.ready(), 60)

    def end(self) -> None:
        for one in (self.gateway, self.here, self.there, self.third):
            if one is not None and (one is not self.gateway or self.gateway.process is not None):
                one.kill()
