"""What the openssl command gets from a TLS listener: certificates of every wrong kind, names, versions, ciphers.

The certificates are made here. The command is the one that people check listeners with, and it is not Python's ssl.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority
from gateways import RunningGateway

from gateway.mqtt import client

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")

CONNECT = client.encode_connect(client.connect(4, "openssl"))
CONNACK = b"\x20\x02\x00\x00"


class World:
    """A listener that anybody may come to, and one for clients with a certificate."""

    def __init__(self, directory: Path) -> None:
        self.authority, stranger = Authority(directory), Authority(directory, "another authority")
        certificate, key = self.authority.issue("localhost")
        self.clients = {
            "good": self.authority.issue("device-7"),
            "expired": self.authority.issue("device-old", days=-1),
            "revoked": self.authority.issue("device-lost"),
            "wrong CA": stranger.issue("device-7b"),
            "none": None,
        }
        revoked = self.clients["revoked"]
        assert revoked is not None
        self.authority.revoke(revoked[0])
        tls = f"certificate: {certificate}, key: {key}"
        mutual = (
            f"client_ca: {self.authority.path}, client_certificate: required, crl: {self.authority.revocation_list()}"
        )
        self.gateway = RunningGateway(
            directory,
            settings=f"""
listeners:
  - {{name: tls, port: 0, tls: {{{tls}}}}}
  - {{name: mutual, port: 0, tls: {{{tls}, {mutual}}}}}
""",
        )
        self.ports: dict[str, int] = {}

    def speak(self, listener: str, *options: str, trusted: Path | None = None) -> tuple[bytes, str]:
        """Say CONNECT through `openssl s_client`: what comes back, and what openssl says of it."""
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.ports[listener]}", "-verify_return_error",
                   "-CAfile", str(trusted or self.authority.path), "-ign_eof", *options]  # fmt: skip
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            bufsize=0,  # nothing is left to be written at the end to one that has ended
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            output = b""
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                process.stdin.write(CONNECT)
                process.stdin.flush()
                while CONNACK not in output and (part := os.read(process.stdout.fileno(), 65_536)):
                    output += part
                process.stdin.write(b"\xe0\x00")  # DISCONNECT: the gateway closes, and the command ends
                process.stdin.close()
            with contextlib.suppress(BrokenPipeError):
                output += process.stdout.read()
        return (CONNACK if CONNACK in output else b""), output.decode("utf-8", "replace")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("openssl"))
    with made.gateway:
        made.ports = made.gateway.ports()
        yield made


def identity(world: World, name: str) -> list[str]:
    found = world.clients[name]
    return [] if found is None else ["-cert", str(found[0]), "-key", str(found[1])]


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_the_right_certificate_is_let_in(world: World, version: str) -> None:
    assert world.speak("mutual", version, *identity(world, "good"))[0] == CONNACK
    assert world.speak("tls", version)[0] == CONNACK


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize(("name", "said"), [
    ("expired", "certificate expired"), ("revoked", "certificate revoked"), ("wrong CA", "unknown ca"),
    ("none", "handshake failure|certificate required"),
])  # fmt: skip
def test_a_wrong_certificate_stays_out_and_is_told_why(world: World, version: str, name: str, said: str) -> None:
    answer, output = world.speak("mutual", version, *identity(world, name))
    assert answer == b""
    assert any(text in output for text in said.split("|")), output[-800:]


def test_refused_certificates_are_counted_and_in_the_log(world: World) -> None:
    world.speak("mutual", *identity(world, "expired"))
    until = time.monotonic() + 20
    while not world.gateway.metric('mqgate_mqtt_auth_failures_total{listener="mutual",reason="certificate"}'):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "TLS: certificate verify failed" in world.gateway.log


def test_a_client_finds_out_when_it_is_not_the_gateway_it_wanted(world: World) -> None:
    assert world.speak("tls", "-verify_hostname", "localhost")[0] == CONNACK
    answer, output = world.speak("tls", "-verify_hostname", "other.example")
    assert answer == b""
    assert "hostname mismatch" in output.lower()
    answer, output = world.speak("tls", trusted=world.authority.directory / "another-authority.pem")
    assert answer == b""
    assert "unable to get local issuer certificate" in output or "certificate verify failed" in output


@pytest.mark.parametrize("options", [
    ["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"], ["-tls1", "-cipher", "DEFAULT@SECLEVEL=0"],
    ["-tls1_2", "-cipher", "AES128-SHA"], ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"],
    ["-tls1_2", "-cipher", "aNULL@SECLEVEL=0"], ["-tls1_2", "-cipher", "PSK"],
], ids=" ".join)  # fmt: skip
def test_old_versions_and_ciphers_without_forward_secrecy_are_refused(world: World, options: list[str]) -> None:
    assert world.speak("tls", *options)[0] == b""


def test_nothing_is_compressed_and_a_session_is_resumed_by_ticket(world: World) -> None:
    output = world.speak("tls", "-tls1_2")[1]
    assert "Compression: NONE" in output
    assert "Secure Renegotiation IS supported" in output  # RFC 5746; renegotiation itself is refused: test_attacks
