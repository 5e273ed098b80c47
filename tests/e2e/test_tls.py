"""TLS connections of a running gateway: committed together, handshakes that disturb nobody, how connections end."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from gateways import RunningGateway
from patient_device import Device

from gateway.mqtt import client, writer
from gateway.mqtt.packets import Subscribe, Subscription
from gateway.net.wrapping import BROKEN_OFF_BY_CLIENT

CONNACK = b"\x20\x02\x00\x00"
MAPPING = "version: 1\nto_mq:\n  - {name: all, topic: 'dev/#', queue: DEV}\n"


class World:
    """A gateway, and those who trust it."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        certificate, key = self.authority.issue("localhost")
        (directory / "mapping.yaml").write_text(MAPPING)
        (directory / "objects.mqsc").write_text("DEFINE QLOCAL(DEV) MAXDEPTH(999999) REPLACE\n")
        tls = f"tls: {{certificate: {certificate}, key: {key}}}"
        self.gateway = RunningGateway(
            directory,
            settings=f"""
listeners:
  - {{name: plain, port: 0}}
  - {{name: tls, port: 0, {tls}}}
  - {{name: web, port: 0, websocket: {{}}}}
  - {{name: secureweb, port: 0, websocket: {{}}, {tls}}}
mqtt: {{connect_timeout: 5s}}
mappings: [mapping.yaml]
queue_manager: {{embedded: {{path: {directory}/data, objects: {directory}/objects.mqsc}}}}
""",
        )
        self.ports: dict[str, int] = {}
        self.trust = ssl.create_default_context(cafile=str(self.authority.path))

    def open(self, listener: str = "tls", context: ssl.SSLContext | None = None, **more: object) -> ssl.SSLSocket:
        """A TLS connection."""
        raw = socket.create_connection(("127.0.0.1", self.ports[listener]), 20)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return (context or self.trust).wrap_socket(raw, server_hostname="localhost", **more)  # type: ignore[arg-type]

    def online(self, name: str, **more: object) -> ssl.SSLSocket:
        """A connection of a client that was let in."""
        sock = self.open(**more)  # type: ignore[arg-type]
        sock.sendall(client.encode_connect(client.connect(4, name)))
        assert sock.recv(4) == CONNACK
        return sock

    def websocket(self) -> socket.socket:
        """An open WebSocket."""
        sock = socket.create_connection(("127.0.0.1", self.ports["web"]), 60)
        sock.sendall(
            b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
        )
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += sock.recv(1)
        assert b" 101 " in answer
        return sock


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("tls"))
    with made.gateway:
        made.ports = made.gateway.ports()
        yield made


def puback(packet_id: int) -> bytes:
    return b"\x40\x02" + struct.pack("!H", packet_id)


def framed(data: bytes) -> bytes:
    """A frame of a client, masked with zeros."""
    assert len(data) < 126
    return bytes((0x82, 0x80 | len(data))) + b"\0\0\0\0" + data


@pytest.mark.parametrize("way", ["tls", "web"])
def test_clients_with_one_message_in_flight_are_committed_together(world: World, way: str) -> None:
    clients, rounds = 40, 5
    with contextlib.ExitStack() as stack:
        socks: list[socket.socket] = []
        for number in range(clients):
            name = f"one-{way}-{number}"
            if way == "tls":
                sock: socket.socket = stack.enter_context(world.online(name))
            else:
                sock = stack.enter_context(world.websocket())
                sock.sendall(framed(client.encode_connect(client.connect(4, name))))
                assert sock.recv(6, socket.MSG_WAITALL) == b"\x82\x04" + CONNACK
            socks.append(sock)
        before = world.gateway.metric("mqgate_spool_sync_seconds_count")
        process = world.gateway.process
        assert process is not None
        for packet_id in range(1, rounds + 1):
            packet = writer.encode_publish(4, b"dev/a", b"x", 1, packet_id=packet_id)
            os.kill(process.pid, 19)  # it finds all of them when it looks again: SIGSTOP, SIGCONT
            for sock in socks:
                sock.sendall(packet if way == "tls" else framed(packet))
            os.kill(process.pid, 18)
            for sock in socks:
                if way == "tls":
                    assert sock.recv(4) == puback(packet_id)
                else:
                    assert sock.recv(6, socket.MSG_WAITALL) == b"\x82\x04" + puback(packet_id)
        commits = world.gateway.metric("mqgate_spool_sync_seconds_count") - before
    assert commits < clients * rounds / 4, f"{commits} commits for {clients * rounds} messages"


def test_a_flood_of_handshakes_does_not_stop_devices(world: World) -> None:
    over = threading.Event()
    failures: list[BaseException] = []

    def flood() -> None:
        while not over.is_set():
            try:
                world.open().close()
            except OSError as error:
                failures.append(error)

    with Device("127.0.0.1", world.ports["plain"], "canary") as canary:
        canary.connect()
        threads = [threading.Thread(target=flood) for _ in range(8)]
        done = 'mqgate_tls_handshakes_total{listener="tls",result="full"}'
        before = world.gateway.metric(done)
        for thread in threads:
            thread.start()
        try:
            answered = 0
            until = time.monotonic() + 60
            while answered < 50 or (world.gateway.metric(done) - before < 50 and time.monotonic() < until):
                canary.publish("dev/canary", b"alive")
                answered += 1
        finally:
            over.set()
            for thread in threads:
                thread.join()
    assert not failures
    assert world.gateway.metric(done) - before >= 50


def test_handshakes_that_stall_at_each_flight_end_in_time(world: World) -> None:
    held: list[socket.socket] = []
    for stop in range(6):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        hello = world.trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
        sock = socket.create_connection(("127.0.0.1", world.ports["tls"]), 60)
        held.append(sock)
        if stop == 0:
            continue  # it says nothing at all
        with contextlib.suppress(ssl.SSLWantReadError):
            hello.do_handshake()
        flight = outgoing.read()
        sock.sendall(flight[: len(flight) * stop // 4 or 1])
        if stop < 4:
            continue  # it never ends its first flight
        incoming.write(sock.recv(65_536))
        hello.do_handshake()
        flight = outgoing.read()
        sock.sendall(flight[: len(flight) if stop == 5 else 10])  # half of its last one; or it says no CONNECT
    for sock in held:
        sock.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(65_536):
                pass
        sock.close()
    timed_out = 'mqgate_mqtt_connects_total{listener="tls",protocol="3.1.1",result="timeout"}'
    assert world.gateway.metric(timed_out) >= 6


def test_a_client_that_goes_without_a_word_on_the_certificate_is_said(world: World) -> None:
    """As many do that do not know the authority; who has sent nothing has only looked whether the port is open."""
    failed = 'mqgate_tls_handshakes_total{listener="tls",result="failed"}'
    before = world.gateway.metric(failed)
    socket.create_connection(("127.0.0.1", world.ports["tls"]), 60).close()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = world.trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    with socket.create_connection(("127.0.0.1", world.ports["tls"]), 60) as sock:
        sock.sendall(outgoing.read())
        assert sock.recv(65_536)
        peer = f"127.0.0.1:{sock.getsockname()[1]}"
    until = time.monotonic() + 60
    while world.gateway.metric(failed) < before + 1:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert world.gateway.metric(failed) == before + 1
    while not any(BROKEN_OFF_BY_CLIENT in line and peer in line for line in world.gateway.log.splitlines()):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("first", [bytes.fromhex("100D00044D51545404020000000161"), b"GET /mqtt HTTP/1.1\r\n\r\n"])
def test_who_comes_to_the_port_of_tls_without_it_is_said(world: World, first: bytes) -> None:
    with socket.create_connection(("127.0.0.1", world.ports["tls"]), 60) as sock:
        sock.sendall(first)
        peer = f"127.0.0.1:{sock.getsockname()[1]}"
        while sock.recv(65_536):
            pass
    until = time.monotonic() + 60
    while not any("speaks without TLS" in line and peer in line for line in world.gateway.log.splitlines()):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_resumed(world: World, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=str(world.authority.path))
    context.minimum_version = context.maximum_version = version
    with world.online("first", context=context) as sock:
        session = sock.session
    with world.online("again", context=context, session=session) as sock:
        assert sock.session_reused
    assert world.gateway.metric('mqgate_tls_handshakes_total{listener="tls",result="resumed"}') >= 1


def test_records_of_every_size_and_in_pieces(world: World) -> None:
    payload = os.urandom(200_000)
    with world.online("big") as sock:
        sock.sendall(client.encode_subscribe(4, Subscribe(1, [Subscription("big/#", 0)])))
        assert sock.recv(5)[0] == 0x90
        sock.sendall(writer.encode_publish(4, b"big/a", payload, 1, packet_id=2))
        data = b""
        while puback(2) not in data or payload not in data:
            piece = sock.recv(65_536)
            assert piece
            data += piece
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = world.trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", world.ports["tls"]), 60) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def drip() -> None:
            data = outgoing.read()
            for at in range(len(data)):
                raw.sendall(data[at : at + 1])

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                drip()
                incoming.write(raw.recv(65_536))
        tls.write(client.encode_connect(client.connect(4, "dripping")))
        drip()
        answer = b""
        while not answer:
            incoming.write(raw.recv(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                answer = tls.read(100)
        assert answer == CONNACK


def test_close_notify_is_answered_and_ends_the_connection(world: World) -> None:
    with world.online("polite") as sock:
        sock.sendall(writer.encode_publish(4, b"dev/last", b"word", 0, packet_id=0))
        raw = sock.unwrap()  # SSLError unless the gateway says close_notify too
        raw.settimeout(60)
        assert raw.recv(1) == b""
    with world.online("said goodbye") as sock:
        sock.sendall(b"\xe0\x00")
        assert sock.recv(1) == b"", "the end is announced by TLS"
    assert world.gateway.bodies("DEV").count("word") == 1


def test_what_comes_with_the_last_flight_is_served(world: World) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = world.trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", world.ports["tls"]), 60) as raw:
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        raw.sendall(outgoing.read())
        while True:
            incoming.write(raw.recv(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                break
        packets = [writer.encode_publish(4, b"dev/early", b"early", 1, packet_id=n) for n in range(1, 30)]
        tls.write(client.encode_connect(client.connect(4, "hasty")) + b"".join(packets))
        raw.sendall(outgoing.read())  # Finished, CONNECT and PUBLISHes at once
        wanted = CONNACK + b"".join(map(puback, range(1, 30)))
        answer = b""
        while len(answer) < len(wanted):
            incoming.write(raw.recv(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                while True:
                    answer += tls.read(1000)
        assert answer == wanted


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_keys_that_are_changed_on_the_way(world: World) -> None:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{world.ports['tls']}", "-tls1_3", "-quiet",
               "-CAfile", str(world.authority.path)]  # fmt: skip
    with subprocess.Popen(
        [*command[:5], *command[6:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def wait_for(data: bytes) -> None:
            found, until = b"", time.monotonic() + 60
            while data not in found:
                left = until - time.monotonic()
                assert select.select([process.stdout], [], [], max(left, 0))[0], found
                piece = os.read(process.stdout.fileno(), 65_536)  # type: ignore[union-attr]
                assert piece, found
                found += piece

        process.stdin.write(client.encode_connect(client.connect(4, "changing")))
        process.stdin.flush()
        wait_for(CONNACK)
        for packet_id in range(1, 6):
            process.stdin.write(b"K\n")  # new keys of both sides
            process.stdin.flush()
            wait_for(b"KEYUPDATE")
            process.stdin.write(writer.encode_publish(4, b"dev/keys", b"x", 1, packet_id=packet_id))
            process.stdin.flush()
            wait_for(puback(packet_id))
        process.kill()
