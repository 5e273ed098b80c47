"""Scripts that connect, publish at QoS 0 and go, without waiting for anything: what they have sent gets to its queue,
however long their password takes, and though the next one with their client identifier comes at once."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from certificates import Authority
from gateways import RunningGateway

from gateway.access.passwords import hash_password, write_password_file

ROUNDS, EACH = 10, 5


class Scripts:
    """A gateway, and who comes to it."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        certificate, key = self.authority.issue("localhost")
        tls = f"certificate: {certificate}, key: {key}"
        write_password_file(directory / "users", {"script": hash_password(b"pw", pbkdf2=True, iterations=5000)})
        (directory / "map.yaml").write_text(
            "version: 1\nto_mq:\n  - {name: all, topic: '{way}', queue: 'Q.{way:upper}'}\n"
        )
        (directory / "objects.mqsc").write_text("".join(f"DEFINE QLOCAL(Q.{way.upper()})\n" for way in WAYS))
        self.gateway = RunningGateway(
            directory,
            settings=f"""
mappings: [map.yaml]
queue_manager: {{embedded: {{objects: objects.mqsc}}}}
listeners:
  - {{name: plain, port: 0}}
  - {{name: tls, port: 0, tls: {{{tls}}}}}
  - {{name: web, port: 0, websocket: {{}}}}
  - {{name: secureweb, port: 0, websocket: {{}}, tls: {{{tls}}}}}
security: {{anonymous: false, password_file: users}}
mqtt: {{connect_timeout: 60s}}
""",
        )

    def run(self, way: str) -> None:
        """What everybody writes first. Nothing waits in its own system, which drops it where something is unread."""
        transport = "websockets" if "web" in way else "tcp"
        script = paho.Client(paho.CallbackAPIVersion.VERSION2, "script", transport=transport)
        script.username_pw_set("script", "pw")
        if way in {"tls", "secureweb"}:
            script.tls_set(str(self.authority.path))
        script.on_socket_open = _at_once
        script.connect("localhost", self.gateway.ports()[way])
        for number in range(EACH):
            script.publish(way, b"%d" % number)
        script.disconnect()


def _at_once(_client: object, _userdata: object, opened: Any) -> None:
    with socket.fromfd(opened.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy:
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


WAYS = ["plain", "tls", "web", "secureweb"]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripts]:
    made = Scripts(tmp_path_factory.mktemp("scripts"))
    with made.gateway:
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_what_scripts_have_sent_is_taken(scripts: Scripts, way: str) -> None:
    for _ in range(ROUNDS):
        scripts.run(way)
    until, depth = time.monotonic() + 60, 0
    while depth < ROUNDS * EACH and time.monotonic() < until:
        depth = len(scripts.gateway.bodies(f"Q.{way.upper()}"))
    assert depth == ROUNDS * EACH
