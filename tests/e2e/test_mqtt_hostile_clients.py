"""Clients that flood, trickle, stall or lie cost a real gateway a bounded amount, and the others nothing."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest
from free_ports import free_port
from gateways import RunningGateway
from waiting import until_idle

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p

pytestmark = pytest.mark.xdist_group("hostile")
SETTINGS = """
listeners:
  - {name: plain, port: 1883}
  - {name: small, port: SMALL, max_connections: 3}
mqtt: {connect_timeout: PATIENCEs, max_connections: 300, max_queued: 100}
mappings: [none.yaml]
"""
CLOSED = 60
"""Seconds for which the end of a connection is waited for."""
NO_TIME_OUT = 600
"""The time for a CONNECT where a gateway is to close connections at once: within CLOSED it cannot be the reason."""


@contextlib.contextmanager
def running(directory, patience: int):
    (directory / "none.yaml").write_text("version: 1\n")
    small = free_port()
    gateway = RunningGateway(
        directory, settings=SETTINGS.replace("SMALL", str(small)).replace("PATIENCE", str(patience))
    )
    gateway.small = small
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    with running(tmp_path_factory.mktemp("hostile"), NO_TIME_OUT) as gateway:
        yield gateway


def status(gateway, field: str) -> int:
    lines = Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def descriptors(gateway) -> int:
    """Sockets: the store opens and closes files of its own."""
    links = Path(f"/proc/{gateway.process.pid}/fd").iterdir()
    return sum(1 for link in links if link.is_symlink() and "socket:" in str(link.readlink()))


def connect(gateway, name: str, version: int = 4, **options) -> socket.socket:
    connection = gateway.connect()
    connection.settimeout(60)
    connection.sendall(client.encode_connect(client.connect(version, name, **options)))
    assert connection.recv(100)[:1] == b"\x20"
    return connection


def works(gateway) -> bool:
    with connect(gateway, "a good client") as good:
        good.sendall(client.encode_pingreq())
        return good.recv(10) == b"\xd0\0"


def closed(connection: socket.socket, seconds: float = CLOSED) -> bool:
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def until(condition, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def settled(gateway) -> int:
    """Resident memory once it has stopped growing: a gateway that has just opened its port still loads modules."""
    assert works(gateway)
    seen = [status(gateway, "VmRSS")]
    until(lambda: seen.append(status(gateway, "VmRSS")) or (len(seen) > 20 and max(seen[-20:]) == min(seen[-20:])))
    until_idle(gateway.process.pid)  # it may have stood still for lack of a processor
    return status(gateway, "VmRSS")


@pytest.mark.parametrize("announced", [b"\x10\xff\xff\xff\x7f", b"\x10\x80\x80\x80\x40"])
def test_huge_announced_lengths_leave_memory_flat(gateway, announced):
    before = settled(gateway)
    block = b"x" * 65536
    for _ in range(14):
        with gateway.connect() as liar:
            with contextlib.suppress(ConnectionError):
                liar.sendall(announced)
                for _ in range(80):
                    liar.sendall(block)
            assert closed(liar)
    assert status(gateway, "VmRSS") - before < 4_000
    assert works(gateway)


def test_connections_without_connect_do_not_pile_up(tmp_path):
    with running(tmp_path, 3) as gateway:
        before = descriptors(gateway)
        silent = [gateway.connect() for _ in range(50)]
        for connection in silent[:25]:
            connection.sendall(b"\x10")
        assert works(gateway)
        assert all(closed(connection) for connection in silent)
        assert until(lambda: descriptors(gateway) <= before)


def test_malformed_connections_are_closed_at_once(gateway):
    before = descriptors(gateway)
    for number in range(200):
        with gateway.connect() as bad:
            bad.sendall((b"\0\0", b"\x36\0", b"GET / HTTP/1.0\r\n\r\n", b"\x10\xff\xff\xff\xff")[number % 4])
            assert closed(bad)
    assert until(lambda: descriptors(gateway) <= before)
    assert works(gateway)


def test_a_subscriber_that_never_reads(gateway):
    stalled = connect(gateway, "stalled")
    stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wanted = p.Subscribe(1, [p.Subscription("flood", 0)])
    stalled.sendall(client.encode_subscribe(4, wanted))
    before = status(gateway, "VmRSS")
    sender = connect(gateway, "sender")
    packet = writer.encode_publish(4, b"flood", b"x" * 60_000)
    for _ in range(1000):
        sender.sendall(packet)
    sender.sendall(client.encode_pingreq())
    assert sender.recv(10) == b"\xd0\0"
    assert status(gateway, "VmRSS") - before < 40_000
    assert works(gateway)
    stalled.close()
    sender.close()


def test_a_session_that_stays_away_is_bounded_and_counted(gateway):
    with connect(gateway, "away", clean_start=False) as away:
        away.sendall(client.encode_subscribe(4, p.Subscribe(1, [p.Subscription("pile", 1)])))
        assert away.recv(10)
        away.sendall(b"\xe0\0")
        assert closed(away)
    with connect(gateway, "sender") as sender:
        for number in range(1, 301):
            sender.sendall(writer.encode_publish(4, b"pile", str(number).encode(), 1, packet_id=number))
        got = b""
        while len(got) < 4 * 300:
            got += sender.recv(65536)
    back = gateway.connect()
    back.settimeout(60)
    back.sendall(client.encode_connect(client.connect(4, "away", clean_start=False)))
    reader, packets = client.server_reader(4), []
    while len(packets) < 101:
        packets += reader.feed(back.recv(65536))
        acks = [packet[2] for packet in packets if packet[0] >> 4 == p.PUBLISH]
        back.sendall(writer.encode_acks(p.PUBACK, acks[-100:]))
    assert [packet[4] for packet in packets[1:101]] == [str(number).encode() for number in range(1, 101)]
    back.close()


def test_too_many_connections_of_a_listener(gateway):
    held = [socket.create_connection(("127.0.0.1", gateway.small), 60) for _ in range(3)]
    for number, connection in enumerate(held):
        connection.settimeout(60)
        connection.sendall(client.encode_connect(client.connect(4, f"held{number}")))
        assert connection.recv(10) == b"\x20\x02\0\0"
    with socket.create_connection(("127.0.0.1", gateway.small), 60) as fourth:
        assert closed(fourth)
    assert works(gateway)
    held[0].close()

    def admitted() -> bool:
        with (
            socket.create_connection(("127.0.0.1", gateway.small), 60) as again,
            contextlib.suppress(ConnectionError),
        ):
            again.sendall(client.encode_connect(client.connect(4, "again")))
            return again.recv(10) == b"\x20\x02\0\0"
        return False

    assert until(admitted)
    for connection in held[1:]:
        connection.close()


def test_sigterm_tells_5_0_clients_and_ends_within_seconds(gateway):
    told, plain = connect(gateway, "told", 5), connect(gateway, "plain")
    gateway.stop()
    assert told.recv(100)[:1] == b"\xe0"
    assert closed(plain)
    gateway.start()
    assert works(gateway)
