"""Devices that save their battery: CONNECT, a publication and DISCONNECT in one go, and gone before anybody has looked
at their password. Clients need not wait for CONNACK."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator

import pytest
from certificates import Authority
from gateways import RunningGateway
from test_attacks import frame

from gateway.access.passwords import hash_password, write_password_file
from gateway.mqtt import client, writer
from gateway.mqtt.packets import Disconnect

SETTINGS = """
mappings: [map.yaml]
queue_manager: {{embedded: {{objects: objects.mqsc}}}}
security: {{anonymous: false, password_file: users}}
mqtt: {{connect_timeout: 60s}}
listeners:
  - {{name: plain, port: 0}}
  - {{name: tls, port: 0, tls: {{certificate: {certificate}, key: {key}}}}}
  - {{name: web, port: 0, websocket: {{}}}}
"""
MAPPING = 'version: 1\nto_mq: [{name: all, topic: "up/{way}", queue: "UP.{way:upper}"}]\n'
WAYS = ("plain", "tls", "web")
DEVICES = 6
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)
CLOSE = frame(b"\x03\xe8", 8)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("forgetful"))


@pytest.fixture(scope="module")
def gateway(authority: Authority) -> Iterator[RunningGateway]:
    folder = authority.directory
    certificate, key = authority.issue("localhost")
    (folder / "map.yaml").write_text(MAPPING)
    (folder / "objects.mqsc").write_text("".join(f"DEFINE QLOCAL(UP.{way.upper()})\n" for way in WAYS))
    # a user each: a password that was right before needs no second look
    names = [f"{way}-{number}" for way in WAYS for number in range(DEVICES)]
    write_password_file(folder / "users", {name: hash_password(b"right") for name in names})
    with RunningGateway(folder, settings=SETTINGS.format(certificate=certificate, key=key)) as running:
        yield running


def everything(way: str, number: int, qos: int) -> bytes:
    name = f"{way}-{number}"
    connect = client.connect(4, name)
    connect.username, connect.password = name, b"right"
    publish = writer.encode_publish(4, f"up/{way}".encode(), name.encode(), qos, packet_id=qos)
    return client.encode_connect(connect) + publish + writer.encode_disconnect(4, Disconnect())


@pytest.mark.parametrize("way", WAYS)
def test_what_a_device_that_waits_for_nothing_has_sent_is_on_its_queue(
    gateway: RunningGateway, authority: Authority, way: str
) -> None:
    trust = ssl.create_default_context(cafile=str(authority.path))
    for number in range(DEVICES):
        data = everything(way, number, number % 2)
        with socket.create_connection(("127.0.0.1", gateway.ports()[way]), 60) as sock:
            if way == "plain":
                sock.sendall(data)
            elif way == "web":
                sock.sendall(UPGRADE)
                assert b" 101 " in sock.recv(4096)
                sock.sendall(frame(data) + CLOSE * (number // 2 % 2))
            else:
                with trust.wrap_socket(sock, server_hostname="localhost") as tls:
                    tls.sendall(data)
                    if number // 2 % 2:
                        with contextlib.suppress(OSError):  # what it has not read is in the way of its own end
                            tls.unwrap()
    until = time.monotonic() + 60
    while len(found := gateway.bodies(f"UP.{way.upper()}")) < DEVICES:
        assert time.monotonic() < until, (found, gateway.log)
        time.sleep(0.05)
    assert sorted(found) == [f"{way}-{number}" for number in range(DEVICES)]
