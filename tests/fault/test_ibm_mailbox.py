"""What gateways tell each other arrives whole, once and in order, whatever happens to the connection that reads it."""

from __future__ import annotations

import itertools
import json
import threading
from pathlib import Path

import mqi_clients
import pytest
from frame_proxy import CUT_AFTER, CUT_BEFORE, FORWARD, FrameProxy
from ibm_rig import ServingProcess, served

from gateway.backends.ibm.connection import Connection, state_put
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.mailbox import Mailbox, empty
from gateway.backends.ibm.membership import Membership
from gateway.backends.ibm.worker import Backoff
from gateway.errors import MQError
from gateway.mqi.wire import Verb
from gateway.ports.ownership import Message, message_key
from gateway.ports.state_queues import GATEWAYS, MARKERS

pytestmark = pytest.mark.mqi
SETTINGS = ConnectSettings("QM1", "localhost(1414)", "GATEWAY.SVRCONN", "app", "pw")
READER, OTHER = "0a" * 12, "0b" * 12
MANY = 120
STARTS = itertools.count(1.0)
"""No two processes make the same MsgId: a reader that has not heard of a commit knows messages by these."""


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    mqi_clients.load_bindings()
    return monkeypatch


def connected(socket: Path, monkeypatch: pytest.MonkeyPatch) -> Connection:
    monkeypatch.setenv("MQGATE_MQI", str(socket))
    return Connection(load("ibmmq").connect(SETTINGS), MessageIds(next(STARTS), b"test"))


class Reader:
    """Reads until it has all, by a new connection each time that the last one broke."""

    def __init__(self, socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: list[int] = []
        self.broken = 0
        self._mailbox = Mailbox(READER, self._deal_with)
        self._connect = lambda: connected(socket, monkeypatch)
        self._connection: Connection | None = None

    def _deal_with(self, _connection: Connection, message: Message) -> None:
        self.numbers.append(message["number"])

    def read(self) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._mailbox.read(self._connection, 50)
        except MQError:
            self.broken += 1
            if self._connection is not None:
                self._connection.session.disconnect()
            self._connection = None


def put(connection: Connection, number: int, to: str = READER, padding: int = 0) -> None:
    body = json.dumps({"kind": "say", "from": OTHER, "number": number, "padding": "x" * padding}).encode()
    connection.put_run(state_put(GATEWAYS, message_key(to), body), asynchronous=False)
    connection.session.commit()


@pytest.mark.parametrize("decision", [CUT_BEFORE, CUT_AFTER])
@pytest.mark.parametrize("verb", [Verb.GET, Verb.COMMIT])
def test_a_connection_that_breaks_costs_no_message(
    sockets: pytest.MonkeyPatch, tmp_path: Path, verb: Verb, decision: str
) -> None:
    """Calls or their answers are lost; the queue manager may hold a unit of work open for a while."""
    calls = itertools.count(1)

    def decide(asked: int) -> str:
        if asked != verb:
            return FORWARD
        call = next(calls)
        return decision if call % 7 == 0 and call < 20 * 7 else FORWARD  # at last a unit of work comes to its end

    with served(None, tmp_path / "mqi.sock") as queue_manager:
        assert queue_manager.mqsc(f"DEFINE QLOCAL({GATEWAYS}) REPLACE").ok
        proxy = FrameProxy(tmp_path / "proxy.sock", tmp_path / "mqi.sock", decide)
        writer, reader = connected(tmp_path / "mqi.sock", sockets), Reader(proxy.path, sockets)
        for number in range(MANY):
            put(writer, number, padding=100_000 if number % 50 == 3 else 0)
            if number % 5 == 0:
                reader.read()
        while len(reader.numbers) < MANY or queue_manager.depth(GATEWAYS):
            reader.read()
        assert reader.numbers == list(range(MANY))
        assert reader.broken
        proxy.close()


def test_nor_does_a_queue_manager_that_is_killed(sockets: pytest.MonkeyPatch, tmp_path: Path) -> None:
    manager = ServingProcess(tmp_path, f"DEFINE QLOCAL({GATEWAYS}) DEFPSIST(YES)")
    reader = Reader(manager.socket, sockets)
    numbers = iter(range(3 * MANY))
    for _ in range(3):
        writer = connected(manager.socket, sockets)
        for number in itertools.islice(numbers, MANY):
            put(writer, number)
        killing = threading.Timer(0.02, manager.kill)
        killing.start()
        while killing.is_alive():
            reader.read()
        manager.start()
    while len(reader.numbers) < 3 * MANY:
        reader.read()
    assert reader.numbers == list(range(3 * MANY))
    manager.kill()


def test_what_was_put_for_a_gateway_that_is_gone_is_removed(sockets: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In several units of work: nothing bounds how much that is."""
    with served(None, tmp_path / "mqi.sock") as queue_manager:
        assert queue_manager.mqsc(f"DEFINE QLOCAL({GATEWAYS}) REPLACE").ok
        connection = connected(tmp_path / "mqi.sock", sockets)
        for number in range(250):
            put(connection, number, OTHER if number % 25 else READER)
        commits: list[int] = []
        empty(connection, OTHER, lambda: commits.append(queue_manager.depth(GATEWAYS)))
        assert commits == [150, 50, 10]  # the lease can be renewed in between
        left = [json.loads(stored.data)["number"] for _, stored in queue_manager.load(GATEWAYS)]
        assert left == [number for number in range(250) if number % 25 == 0]
        connection.session.disconnect()


def test_a_lease_is_renewed_while_much_is_looked_through(sockets: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What lies there for others, as many messages as devices ask for sessions: a lease does not run out meanwhile."""
    verbs: list[int] = []

    def decide(asked: int) -> str:
        verbs.append(asked)
        return FORWARD

    with served(None, tmp_path / "mqi.sock") as queue_manager:
        for name in (GATEWAYS, MARKERS):
            assert queue_manager.mqsc(f"DEFINE QLOCAL({name}) REPLACE").ok
        writer = connected(tmp_path / "mqi.sock", sockets)
        for number in range(60):
            put(writer, number, OTHER)
        proxy = FrameProxy(tmp_path / "proxy.sock", tmp_path / "mqi.sock", decide)
        sockets.setenv("MQGATE_MQI", str(proxy.path))
        member = Membership(
            load("ibmmq"), SETTINGS, MessageIds(2.0, b"more"), READER, 0, 1e-6, backoff=Backoff(0.05, 0.2),
            told=lambda _text: None, superseded=lambda _text: None,
        )  # fmt: skip
        member.join()
        assert verbs.count(Verb.COMMIT) > 60
        member.stop()
        member.thread.join(60)
        member.leave()
        proxy.close()
