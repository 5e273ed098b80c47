"""Every fault at every point of a unit of work, on both backends, and a count: QoS 0 at most once and accounted for,
QoS 1 at least once, QoS 2 exactly once.

Short form: every fault at (nearly) every point on the embedded queue manager, every fault at one point on `ibm`. Long
form, with its progress on standard error (MQGATE_KILLS processes are killed, 500 unless told otherwise):

    MQGATE_LONG=1 .venv/bin/pytest tests/fault/test_fault_matrix.py -s
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import mqi_clients
import pytest
from frame_proxy import FORWARD, FrameProxy
from gateways import RunningGateway

from gateway.mqtt import client, writer
from gateway.mqtt.client import server_reader

LONG = bool(os.environ.get("MQGATE_LONG"))
KILLS = int(os.environ.get("MQGATE_KILLS", "500"))
ROOT = Path(__file__).parents[2]
QUEUE, DEAD = "T.Q", "T.DEAD"
BATCH = 9
MAPPING = """
version: 1
to_mq:
  - {name: matrix, topic: "t/#", queue: T.Q, headers: [],
     on_failure: {retry: {times: 1, from: 50ms, to: 50ms}, then: dead_letter}}
"""
OBJECTS = f"""
DEFINE QLOCAL({QUEUE}) MAXDEPTH(999999) REPLACE
DEFINE QLOCAL({DEAD}) MAXDEPTH(999999) REPLACE
ALTER QMGR DEADQ({DEAD})
"""
EMBEDDED = "mappings: [map.yaml]\nqueue_manager: {embedded: {objects: objects.mqsc}}\n"
IBM = """
queue_manager:
  ibm: {{name: MQGATE, connection: "localhost(1414)", channel: DEV.APP.SVRCONN, user: app, password_file: app.pw,
        driver: {driver}, connections: 2, reconnect_from: 50ms, reconnect_to: 200ms}}
mappings: [map.yaml]
"""
SETTINGS = """
queue_manager:
  embedded: {{objects: objects.mqsc, socket: {socket}, users: {{app: {{password_file: app.pw}}}}}}
"""

POINTS = ("before put", "after put", "during commit", "after commit", "between PUBREC and PUBREL")
"""Where `breaking_gateway.py` stops."""
KILLED, MANAGER_KILLED, CUT = "gateway killed", "queue manager killed", "connection cut"
FULL, INHIBITED, NOT_AUTHORISED = "queue full", "put inhibited", "not authorised"
TOO_LONG, DEAD_FULL = "message too long", "dead-letter queue full"
CONDITIONS = {
    FULL: (f"ALTER QLOCAL({QUEUE}) MAXDEPTH(0)", f"ALTER QLOCAL({QUEUE}) MAXDEPTH(999999)"),
    INHIBITED: (f"ALTER QLOCAL({QUEUE}) PUT(DISABLED)", f"ALTER QLOCAL({QUEUE}) PUT(ENABLED)"),
    TOO_LONG: (f"ALTER QLOCAL({QUEUE}) MAXMSGL(1)", f"ALTER QLOCAL({QUEUE}) MAXMSGL(4194304)"),
    NOT_AUTHORISED: (
        f"SET AUTHREC PROFILE('{QUEUE}') OBJTYPE(QUEUE) PRINCIPAL('app') AUTHADD(BROWSE)",
        f"DELETE AUTHREC PROFILE('{QUEUE}') OBJTYPE(QUEUE) PRINCIPAL('app')",
    ),
    DEAD_FULL: (
        f"ALTER QLOCAL({QUEUE}) PUT(DISABLED)\nALTER QLOCAL({DEAD}) MAXDEPTH(0)",
        f"ALTER QLOCAL({DEAD}) MAXDEPTH(999999)\nALTER QLOCAL({QUEUE}) PUT(ENABLED)",
    ),
}
KILLED_AT = POINTS[2:]
"""Points of the short form at which the gateway is killed: each costs a start."""
ON_EMBEDDED = [KILLED, CUT, FULL, INHIBITED, TOO_LONG, DEAD_FULL]
"""The gateway is the queue manager there, and has no need of authority."""
ON_IBM = [KILLED, MANAGER_KILLED, CUT, FULL, INHIBITED, NOT_AUTHORISED, TOO_LONG, DEAD_FULL]


@dataclass
class Message:
    body: bytes
    qos: int
    packet_id: int
    sent: int = 0
    received: bool = False
    """PUBREC has come."""
    done: bool = False
    arrived: bool = False
    """QoS 0: something that was sent behind it on its connection was answered."""


class Sender:
    """A device that keeps every promise of the protocol across connections: it resends until it is told. QoS 0 it sends
    once."""

    def __init__(self, port: Callable[[], int]) -> None:
        self.port = port
        self.messages: list[Message] = []
        self.everything: list[Message] = []
        self.socket: socket.socket | None = None
        self._here: list[Message] = []
        """What was sent on this connection and had no answer then, in order."""
        self._ids = 0

    def send(self, count: int, seconds: float = 90.0) -> None:
        """Publish so many messages, QoS 0, 1 and 2 in turn, and see all of them through."""
        self._find_out()
        self.messages = []
        for _ in range(count):
            self._ids = self._ids % 0xFFFF + 1
            number = len(self.everything)
            message = Message(b"%d/%d" % (number % 3, number), number % 3, self._ids)
            self.messages.append(message)
            self.everything.append(message)
        until = time.monotonic() + seconds
        while not all(one.done for one in self.messages):
            assert time.monotonic() < until, f"not acknowledged: {[one.body for one in self.messages if not one.done]}"
            with suppress(OSError):
                self._session()

    def cut(self) -> None:
        """The connection breaks."""
        if self.socket is not None:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)

    def _session(self) -> None:
        if self.socket is None:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port()), 2)
            except OSError:
                time.sleep(0.02)
                raise
            self.socket.settimeout(60)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.reader = server_reader(4)
            self.socket.sendall(client.encode_connect(client.connect(4, "sender", clean_start=False)))
            if not self._read(lambda packet: packet[0] >> 4 == 2):
                return
        self._here = [one for one in self.messages if not one.done]
        try:
            self.socket.sendall(b"".join(map(self._open, self._here)))
        except OSError:
            self._lost()
            return
        self._read(self._acknowledged)

    def _find_out(self) -> None:
        """Whether the connection has broken when nothing more was to be answered on it: QoS 0 would be sent nowhere."""
        if self.socket is not None:
            self.socket.settimeout(0)
            with suppress(BlockingIOError):
                self._read(lambda _packet: False)
            if self.socket is not None:
                self.socket.settimeout(60)

    def _open(self, one: Message) -> bytes:
        if one.received:
            return writer.encode_acks(6, [one.packet_id])
        one.sent += 1
        one.done = not one.qos
        packet_id = one.packet_id if one.qos else 0
        return writer.encode_publish(4, b"t/x", one.body, one.qos, packet_id=packet_id, dup=one.sent > 1)

    def _acknowledged(self, packet: Any) -> bool:
        kind, packet_id = packet[0] >> 4, packet[1]
        for at, one in enumerate(self._here):
            if one.packet_id == packet_id and not one.done:
                for before in self._here[:at]:
                    before.arrived = True
                if kind == 5 and one.qos == 2:
                    one.received = True
                    assert self.socket is not None
                    self.socket.sendall(writer.encode_acks(6, [packet_id]))
                else:
                    one.done = (kind, one.qos) in {(4, 1), (7, 2)}
        return all(one.done for one in self.messages)

    def _read(self, until: Callable[[Any], bool]) -> bool:
        """Packets until one is what is waited for; False when the connection ended."""
        assert self.socket is not None
        try:
            while chunk := self.socket.recv(65536):
                for packet in self.reader.feed(chunk):
                    if until(packet):
                        return True
        except BlockingIOError:
            raise
        except OSError:
            pass
        self._lost()
        return False

    def _lost(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None


@dataclass
class Breakpoints:
    """The line to a gateway that stops at points."""

    path: Path
    hits: queue.Queue[str] = field(default_factory=queue.Queue)

    def __post_init__(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(4)
        self.peer: socket.socket | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.peer = peer
            threading.Thread(target=self._listen, args=(peer,), daemon=True).start()

    def _listen(self, peer: socket.socket) -> None:
        with suppress(OSError):
            for line in peer.makefile():
                self.hits.put(line.rstrip("\n"))

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def arm(self, point: str) -> None:
        assert self.peer is not None
        self.peer.sendall(f"arm {point}\n".encode())
        assert self.hits.get(timeout=30) == "armed"

    def answer(self, text: str) -> None:
        assert self.peer is not None
        self.peer.sendall(f"{text}\n".encode())


class Nest:
    """Where gateways are forked: loading one takes longer than all it does in a trial."""

    def __init__(self, environ: dict[str, str]) -> None:
        command = [sys.executable, str(Path(__file__).parent / "breaking_gateway.py")]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}
        )

    def launch(self, command: list[str], *, stops: bool, **named: Any) -> Forked:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        asked = {"argv": command, "env": named["env"], "cwd": str(named["cwd"]), "log": named["stdout"].name}
        self.process.stdin.write(json.dumps(asked | {"stops": stops}) + "\n")
        self.process.stdin.flush()
        return Forked(int(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()


class Forked:
    """A process of the nest, as `Popen` would show it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 0
        return None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, seconds: float = 60) -> int:
        until = time.monotonic() + seconds
        while self.poll() is None:
            assert time.monotonic() < until, f"process {self.pid} does not end"
            time.sleep(0.002)
        return 0


_RECEIVED, _DROPPED = "mqgate_mqtt_publish_received_total", "mqgate_messages_dropped_total"
_HELD = "mqgate_messages_held"
_SIGNS = {
    _RECEIVED: 1, "mqgate_mq_put_messages_total": -1, "mqgate_dlq_messages_total": -1, _DROPPED: -1, _HELD: -1,
}  # fmt: skip


@dataclass
class Account:
    """What a gateway says of its rule."""

    balance: float = 0.0
    """Received less put, dead-lettered, dropped and held."""
    received: float = 0.0
    """At QoS 0."""
    dropped: float = 0.0
    """QoS 0: the rule dead-letters, and what is acknowledged is never given up."""
    held: float = 0.0


class Estate:
    """A gateway that stops at points, its queue manager, and one device."""

    def __init__(self, directory: Path, driver: str = "") -> None:
        self.driver = driver
        self.points = Breakpoints(directory / "b")
        environ = {
            "MQGATE_BREAK_SOCKET": str(directory / "b"), "MQGATE_BREAK_QUEUE": QUEUE, "MQGATE_BREAK_ROOT": str(ROOT),
        }  # fmt: skip
        edge = directory / "gw"
        edge.mkdir()
        self.proxy: FrameProxy | None = None
        if driver:
            environ |= mqi_clients.program_environment(str(directory / "p"), *mqi_clients.BINDINGS)
            self.manager = self._manager(directory / "qm", directory / "s")
            self.proxy = FrameProxy(directory / "p", directory / "s", lambda _verb: FORWARD)
        self.gateway = RunningGateway(edge, settings=IBM.format(driver=driver) if driver else EMBEDDED, environ=environ)
        self.nest = Nest(environ)
        self.gateway.program = []
        self.gateway.launch = partial(self._launch, stops=True)
        (edge / "map.yaml").write_text(MAPPING)
        (edge / "objects.mqsc").write_text(OBJECTS)
        (edge / "app.pw").write_text("pw")
        if not driver:
            self.manager = self.gateway
        self.gateway.start_seconds = self.manager.start_seconds = 300.0
        self.sender = Sender(lambda: self.port)
        self.port = 0
        self.loose: set[str] = set()
        """Bodies of QoS 0 that were on the queues when it was last looked."""
        self.before = Account()
        self.kills: Counter[str] = Counter()
        self.trials: Counter[tuple[str, str]] = Counter()

    def _manager(self, folder: Path, path: Path) -> RunningGateway:
        folder.mkdir()
        (folder / "objects.mqsc").write_text(OBJECTS + (ROOT / "deploy" / "mq" / "state.mqsc").read_text())
        (folder / "app.pw").write_text("pw")
        made = RunningGateway(folder, settings=SETTINGS.format(socket=path))
        made.program, made.launch = [], partial(self._launch, stops=False)
        return made

    def _launch(self, command: list[str], *, stops: bool, **named: Any) -> Any:
        return self.nest.launch(command[1:], stops=stops, **named)

    def start(self) -> None:
        if self.driver:
            self.manager.start()
        self.port = self.gateway.start().port

    def stop(self) -> None:
        for one in (self.gateway, self.manager):
            if one.process is not None and one.process.poll() is None:
                one.kill()
        self.nest.close()
        self.points.close()
        if self.proxy is not None:
            self.proxy.close()

    def mqsc(self, text: str) -> None:
        assert self.manager.api("POST", "/mqsc", {"text": text})["ok"], text

    # -- one trial --

    def trial(self, fault: str, point: str) -> None:
        """One fault at one point, with messages on their way before, at and behind it."""
        self.trials[fault, point] += 1
        self.points.arm(point)
        failed: list[BaseException] = []
        sending = threading.Thread(target=self._send, args=(failed,))
        sending.start()
        try:
            assert self.points.hits.get(timeout=60) == f"at {point}"
            self._strike(fault)
        finally:
            sending.join(120)
        assert not sending.is_alive()
        assert not failed, (fault, point, failed)
        self.unanswered(fault, point)

    def _send(self, failed: list[BaseException]) -> None:
        try:
            self.sender.send(BATCH)
        except BaseException as error:  # noqa: BLE001 -- reported in the test's own thread
            failed.append(error)

    def _strike(self, fault: str) -> None:
        if fault == KILLED:
            self.points.answer("kill")
            self._gone(self.gateway, "gateway")
            self.gateway.start(port=self.port)
        elif fault == MANAGER_KILLED:
            self.manager.kill()
            self._gone(self.manager, "queue manager")
            self.points.answer("go")
            self.manager.start()
        elif fault == CUT:
            self.sender.cut()
            if self.proxy is not None:
                self.proxy.cut()
            self.points.answer("go")
        else:
            self._condition(fault)

    def _condition(self, fault: str) -> None:
        begin, end = CONDITIONS[fault]
        if not self.driver:
            self.points.answer("mqsc " + begin.replace("\n", ";"))
        else:
            self.mqsc(begin)
            if fault == NOT_AUTHORISED and self.proxy is not None:  # authority is asked for when a queue is opened
                self.proxy.cut()
            self.points.answer("go")
        time.sleep(0.15)  # long enough to be met and to use up the rule's retry; nothing is asserted about it
        self.mqsc(end)

    def _gone(self, process: RunningGateway, name: str) -> None:
        assert process.process is not None
        process.process.wait(30)
        self.kills[name] += 1

    # -- counting --

    def unanswered(self, fault: str, point: str) -> None:
        """QoS 0 of the trial: never twice; where the gateway lived on as often as it says, by its own account."""
        sent = {one.body.decode(): one for one in self.sender.messages if not one.qos}
        before, now = Account() if fault == KILLED else self.before, self.settled()
        queues = Counter(self.manager.bodies(QUEUE)) + Counter(self.manager.bodies(DEAD))
        found = {body for body in queues if body.startswith("0/")}
        what = (fault, point, found - self.loose, now, before)
        assert max((queues[body] for body in found), default=1) == 1, what
        volatile = fault == MANAGER_KILLED or (fault == KILLED and not self.driver)
        assert found - sent.keys() == (set() if volatile else self.loose), what
        mine, arrived = found & sent.keys(), {body for body, one in sent.items() if one.arrived}
        if fault == KILLED:
            assert volatile or arrived <= mine, what
        else:
            received, dropped = now.received - before.received, now.dropped - before.dropped
            assert len(arrived) <= received <= len(sent), what
            assert fault == CUT or received == len(sent), what
            assert (len(mine) <= received - dropped) if volatile else (len(mine) == received - dropped), what
        self.loose, self.before = found, now

    def settled(self) -> Account:
        """The gateway's account when nothing waits any more."""
        until = time.monotonic() + 60
        while (account := self.account()).held:
            assert time.monotonic() < until, account
            time.sleep(0.02)
        assert account.balance == 0, account
        return account

    def account(self) -> Account:
        """What the gateway has counted since it started."""
        found = Account()
        for line in self.gateway.get("/metrics").splitlines():
            if 'route="matrix"' in line:
                name, value = line.partition("{")[0], float(line.rsplit(" ", 1)[1])
                found.balance += value * _SIGNS.get(name, 0)
                found.received += value if name == _RECEIVED and 'qos="0"' in line else 0
                found.dropped += value if name == _DROPPED else 0
                found.held += value if name == _HELD else 0
        return found

    def check(self) -> None:
        """What was acknowledged is there, as often as its QoS says, on its queue or on that of the dead letters."""
        found = Counter(self.manager.bodies(QUEUE)) + Counter(self.manager.bodies(DEAD))
        everything = {one.body.decode(): one for one in self.sender.everything}
        assert all(one.done for one in everything.values())
        assert not set(found) - set(everything), "nobody sent it"
        lost = [body for body, one in everything.items() if one.qos and not found[body]]
        assert not lost, f"acknowledged and gone: {lost}"
        doubled = [body for body, one in everything.items() if one.qos != 1 and found[body] > 1]
        assert not doubled, f"more than once: {doubled}"
        beyond = [body for body, one in everything.items() if one.qos == 1 and found[body] > one.sent]
        assert not beyond, f"more often than it was sent: {beyond}"
        assert self.manager.api("GET", "/queues/MQGATE.STAGED")["depth"] == 0
        self.settled()


@contextmanager
def estate(directory: Path, driver: str = "") -> Iterator[Estate]:
    made = Estate(directory, driver)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def tell(made: Estate, begun: float) -> None:
    if LONG:
        kills = sum(made.kills.values())
        sys.__stderr__.write(
            f"\r{made.driver or 'embedded'}: {kills} kills, {sum(made.trials.values())} trials, "
            f"{len(made.sender.everything)} messages, {time.monotonic() - begun:.0f} s "
        )  # type: ignore[union-attr]
        sys.__stderr__.flush()  # type: ignore[union-attr]


def run(made: Estate, trials: list[tuple[str, str]]) -> None:
    begun = time.monotonic()
    for fault, point in trials:
        made.trial(fault, point)
        tell(made, begun)
    made.sender.send(BATCH)
    made.check()
    if not LONG:
        assert made.loose, "nothing of QoS 0 has come anywhere"


@pytest.mark.skipif(LONG, reason="the long form has all of it")
def test_every_fault_at_every_point_on_the_embedded_queue_manager(tmp_path: Path) -> None:
    with estate(tmp_path) as made:
        run(
            made, [(fault, point) for fault in ON_EMBEDDED for point in POINTS if fault != KILLED or point in KILLED_AT]
        )


@pytest.mark.mqi
@pytest.mark.skipif(LONG, reason="the long form has all of it")
def test_every_fault_on_ibm(tmp_path: Path) -> None:
    with estate(tmp_path, "ibmmq") as made:
        run(made, [(fault, POINTS[index % len(POINTS)]) for index, fault in enumerate(ON_IBM)])


@pytest.mark.skipif(not LONG, reason="MQGATE_LONG=1 runs it")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("driver", ["", "ibmmq", "pymqi"])
def test_the_whole_matrix_again_and_again(tmp_path: Path, driver: str) -> None:
    """Rounds of every fault at every point, and of kills alone between them, until enough have been killed."""
    share = {"": KILLS - KILLS * 3 // 10 - KILLS // 10, "ibmmq": KILLS * 3 // 10, "pymqi": KILLS // 10}[driver]
    faults = ON_IBM if driver else ON_EMBEDDED
    begun = time.monotonic()
    with estate(tmp_path, driver) as made:
        rounds = 0
        while sum(made.kills.values()) < share:
            killing = [fault for fault in faults if "killed" in fault]
            for fault in faults if rounds % 5 == 0 else killing:
                for point in POINTS:
                    made.trial(fault, point)
                    tell(made, begun)
            rounds += 1
            if rounds % 5 == 0:
                made.check()
        made.check()
        sys.__stderr__.write(f"\n{driver or 'embedded'}: {dict(made.kills)}\n")  # type: ignore[union-attr]
