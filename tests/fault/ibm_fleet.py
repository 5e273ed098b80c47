"""Several gateways on one queue manager: what the tests of owners of sessions share."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import mqi_clients
from bridge_estate import Talker
from gateways import RunningGateway
from ibm_rig import OBJECTS, served

from gateway.mqtt import packets as p
from gateway.mqtt import writer
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.session.record import decode_json

LEASE = 3
"""Seconds, where a gateway ends without a word and another one takes over from it."""
SETTINGS = """
queue_manager:
  ibm: {name: QM1, connection: "localhost(1414)", channel: C, user: app, password_file: pw, driver: ibmmq,
        connections: 2, reconnect_from: 100ms, reconnect_to: 500ms, lease: LEASE}
mqtt: {connect_timeout: 60s}
security: {users: {alice: {password_file: pw}, bob: {password_file: pw}}}
mappings: [map.yaml]
"""
MAPPING = 'version: 1\nto_mq:\n  - {name: up, topic: "up/#", queue: APP.Q, headers: []}\n'


class Fleet:
    """Gateways by number, and their queue manager."""

    def __init__(self, directory: Path, queue_manager: EmbeddedQueueManager) -> None:
        self.directory = directory
        self.queue_manager = queue_manager
        self.settings, self.mapping = SETTINGS, MAPPING
        self.lease = 60
        """Nobody is taken for dead on a machine that does a lot else; LEASE where somebody is to be."""
        self.gateways: list[RunningGateway] = []
        self.program: list[str] = []
        """What is run instead of `-m gateway`, from its first import."""

    def start(self, dies_at: str = "") -> RunningGateway:
        """One more; it may be that it is to die at a failpoint."""
        edge = self.directory / f"g{len(self.gateways)}"
        edge.mkdir(exist_ok=True)
        (edge / "map.yaml").write_text(self.mapping)
        (edge / "pw").write_text("pw\n")
        (edge / "pw").chmod(0o600)
        environ = mqi_clients.program_environment(str(self.directory / "s"), *mqi_clients.BINDINGS)
        environ["MQGATE_FAILPOINT"] = f"owners.{dies_at}" if dies_at else ""
        settings = self.settings.replace("LEASE", f"{self.lease}s")
        environ["MQGATE_CLOCK"] = str(edge / "clock")
        gateway = RunningGateway(edge, settings=settings, environ=environ)
        if self.program:
            gateway.program, gateway.launch = self.program, subprocess.Popen
        self.gateways.append(gateway)
        return gateway.start()

    def bodies(self, queue: str) -> list[bytes]:
        return [stored.data for _, stored in self.queue_manager.load(queue)]

    def sessions(self) -> dict[str, str]:
        """Owner by client; each has one record."""
        records = [decode_json(body) for body in self.bodies("MQGATE.SESSIONS")]
        assert len({record["client"] for record in records}) == len(records)
        return {record["client"]: record["owner"] for record in records}


@contextmanager
def fleet_in(directory: Path) -> Iterator[Fleet]:
    """None has started yet; whoever lives in the end is ended."""
    mqi_clients.load_bindings()
    with served(None, directory / "s", OBJECTS) as queue_manager:
        made = Fleet(directory, queue_manager)
        yield made
        for gateway in made.gateways:
            if gateway.process is not None and gateway.process.poll() is None:
                gateway.process.send_signal(signal.SIGCONT)
                gateway.kill()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def stay(client_id: str, gateway: RunningGateway, **named: object) -> Talker:
    """A device whose session outlives its connection."""
    return Talker(gateway.port, client_id, clean=False, **named)


def stage(device: Talker, body: bytes) -> None:
    """A QoS 2 publication up to its PUBREC."""
    device.socket.sendall(writer.encode_publish(5, b"up/q2", body, 2, packet_id=7, properties=b""))
    assert device.next(p.PUBREC)[1] == 7


def release(device: Talker) -> None:
    device.socket.sendall(writer.encode_acks(p.PUBREL, [7]))
    assert device.next(p.PUBCOMP)[1] == 7
