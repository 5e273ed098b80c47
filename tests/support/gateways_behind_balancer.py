"""Three gateways on the queues of one queue manager behind a load balancer: for a test it is one gateway."""

from __future__ import annotations

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import mqi_clients
from frame_proxy import CUT_BEFORE, FORWARD, FrameProxy
from gateways import RunningGateway
from ibm_rig import OBJECTS, ServingProcess
from load_balancer import LoadBalancer

QUEUE_MANAGER = """
queue_manager:
  ibm: {name: QM1, connection: "localhost(1414)", channel: C, user: app, password_file: pw, driver: ibmmq,
        connections: 2, reconnect_from: 100ms, reconnect_to: 500ms, lease: %ds}
"""


class GatewaysBehindBalancer:
    """Has of `RunningGateway` what tests use that do not look inside: `port`, `connect`, `start`, `stop`, `kill`."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: str = "",
        count: int = 3,
        lease: int = 30,
        may_be_cut_off: bool = False,
        objects: str = OBJECTS,
    ) -> None:
        self.lease = lease
        self._may_be_cut_off = may_be_cut_off
        self._proxies: dict[RunningGateway, FrameProxy] = {}
        """Between a gateway and the queue manager."""
        self._cut_off: set[RunningGateway] = set()
        mqi_clients.load_bindings()
        self.directory = directory
        (directory / "broker").mkdir()
        self.queue_manager = ServingProcess(directory / "broker", objects)
        self.gateways = [self._made(number, settings) for number in range(count)]
        self.balancer = LoadBalancer(lambda: [one.port for one in self.gateways if one.port])

    def _made(self, number: int, settings: str) -> RunningGateway:
        edge = self.directory / f"g{number}"
        edge.mkdir()
        (edge / "pw").write_text("pw\n")
        (edge / "pw").chmod(0o600)
        for path in self.directory.iterdir():
            if path.is_file():
                (edge / path.name).symlink_to(path)
        where = edge / "mqi.sock" if self._may_be_cut_off else self.queue_manager.socket
        environ = mqi_clients.program_environment(str(where), *mqi_clients.BINDINGS)
        made = RunningGateway(edge, settings=QUEUE_MANAGER % self.lease + settings, environ=environ)
        made.start_seconds = 240.0
        if self._may_be_cut_off:

            def decide(_verb: int) -> str:
                return CUT_BEFORE if made in self._cut_off else FORWARD

            self._proxies[made] = FrameProxy(where, self.queue_manager.socket, decide)
        return made

    def cut_off(self, gateway: RunningGateway) -> None:
        """It does not reach the queue manager until `join` is called."""
        self._cut_off.add(gateway)
        self._proxies[gateway].cut()

    def join(self, gateway: RunningGateway) -> None:
        """It reaches the queue manager again."""
        self._cut_off.discard(gateway)

    @property
    def port(self) -> int:
        return self.balancer.port

    def connect(self) -> socket.socket:
        return self.balancer.connect()

    def start(self) -> GatewaysBehindBalancer:
        """The first alone: what a life before has left it takes over at once, without waiting for leases to end."""
        self.gateways[0].start()
        with ThreadPoolExecutor(len(self.gateways)) as pool:
            list(pool.map(RunningGateway.start, self.gateways[1:]))
        return self

    def kill(self) -> None:
        """All of them at once."""
        for gateway in self.gateways:
            assert gateway.process is not None
            gateway.process.kill()
        for gateway in self.gateways:
            gateway.kill()

    def stop(self) -> None:
        """All of them in order, at the same time."""
        for gateway in self.gateways:
            assert gateway.process is not None
            gateway.process.send_signal(signal.SIGCONT)
            gateway.process.send_signal(signal.SIGTERM)
        for gateway in self.gateways:
            gateway.stop()

    def close(self) -> None:
        """The end: nobody has to take over anything."""
        self.balancer.close()
        for gateway in self.gateways:
            with suppress(AssertionError):
                gateway.kill()
        for proxy in self._proxies.values():
            proxy.close()
        self.queue_manager.kill()
