"""Enhanced authentication on the wire: SCRAM-SHA-256 through CONNECT and AUTH, and once more on a live connection."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from gateways import RunningGateway

from gateway.mqtt import client, writer
from gateway.mqtt import packets as p

pytestmark = pytest.mark.xdist_group("enhanced-auth")
METHOD, DATA = 0x15, 0x16
SETTINGS = """
security:
  anonymous: false
  users: {alice: {password_file: alice.pw}}
mappings: [none.yaml]

"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    directory = tmp_path_factory.mktemp("enhanced-auth")
    (directory / "alice.pw").write_text("pencil\n")
    (directory / "none.yaml").write_text("version: 1\n")
    gateway = RunningGateway(directory, settings=SETTINGS)
    gateway.start()
    yield gateway
    gateway.stop()


class Scram:
    """The client's side of RFC 5802."""

    def __init__(self, user: str, password: str) -> None:
        self.bare, self.password = f"n={user},r=bench", password.encode()

    def first(self) -> bytes:
        return b"n,," + self.bare.encode()

    def last(self, challenge: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac("sha256", self.password, base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c=biws,r={fields['r']}"
        signed = f"{self.bare},{challenge.decode()},{without}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        self.expected = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
        return without.encode() + b",p=" + proof

    def verified(self, answer: bytes) -> bool:
        return answer == b"v=" + base64.b64encode(self.expected)


class Wire:
    def __init__(self, gateway) -> None:
        self.socket = gateway.connect()
        self.socket.settimeout(60)
        self.reader, self.packets = client.server_reader(5), []

    def read(self):
        while not self.packets:
            chunk = self.socket.recv(4096)
            if not chunk:
                return None
            self.packets += self.reader.feed(chunk)
            assert self.reader.error is None
        return self.packets.pop(0)

    def connect(self, name: str, method: str, data: bytes) -> None:
        connect = client.connect(5, name)
        connect.properties = {METHOD: method, DATA: data}
        self.socket.sendall(client.encode_connect(connect))

    def auth(self, reason: int, data: bytes, method: str = "SCRAM-SHA-256") -> None:
        self.socket.sendall(writer.encode_auth(p.Auth(reason, {METHOD: method, DATA: data})))


def authenticated(gateway, name: str) -> Wire:
    wire, scram = Wire(gateway), Scram("alice", "pencil")
    wire.connect(name, "SCRAM-SHA-256", scram.first())
    first, challenge = wire.read()
    assert (first, challenge.reason, challenge.properties[METHOD]) == (0xF0, 0x18, "SCRAM-SHA-256")
    wire.auth(0x18, scram.last(challenge.properties[DATA]))
    first, connack = wire.read()
    assert (first, connack.reason) == (0x20, 0)
    assert connack.properties[METHOD] == "SCRAM-SHA-256"  # [MQTT-4.12.0-5]
    assert scram.verified(connack.properties[DATA])
    return wire


def test_connect_mqtt_4_12_0_2(gateway):
    wire = authenticated(gateway, "scram")
    wire.socket.sendall(client.encode_pingreq())
    assert wire.read() == (0xD0,)


def test_a_wrong_password_mqtt_4_12_0_4(gateway):
    wire, scram = Wire(gateway), Scram("alice", "pen")
    wire.connect("wrong", "SCRAM-SHA-256", scram.first())
    wire.auth(0x18, scram.last(wire.read()[1].properties[DATA]))
    first, connack = wire.read()
    assert first == 0x20
    assert connack.reason in {0x86, 0x87}
    assert wire.read() is None


def test_re_authentication_mqtt_4_12_1_1(gateway):
    wire, scram = authenticated(gateway, "again"), Scram("alice", "pencil")
    wire.auth(0x19, scram.first())
    first, challenge = wire.read()
    assert (first, challenge.reason) == (0xF0, 0x18)
    wire.auth(0x18, scram.last(challenge.properties[DATA]))
    first, done = wire.read()
    assert (first, done.reason) == (0xF0, 0)
    assert scram.verified(done.properties[DATA])


def test_failed_re_authentication_ends_the_connection_mqtt_4_12_1_2(gateway):
    wire, scram = authenticated(gateway, "fails"), Scram("alice", "pen")
    wire.auth(0x19, scram.first())
    wire.auth(0x18, scram.last(wire.read()[1].properties[DATA]))
    first, end = wire.read()
    assert first == 0xE0
    assert end.reason in {0x86, 0x87}
    assert wire.read() is None


def test_another_method_in_auth_mqtt_4_12_0_5(gateway):
    wire = authenticated(gateway, "changes")
    wire.auth(0x19, b"x", "OTHER")
    first, end = wire.read()
    assert (first, end.reason) == (0xE0, 0x82)


@pytest.mark.parametrize("reason", [0x00, 0x19])
def test_an_exchange_is_continued_with_0x18_mqtt_4_12_0_3(gateway, reason):
    wire, scram = Wire(gateway), Scram("alice", "pencil")
    wire.connect("reasons", "SCRAM-SHA-256", scram.first())
    wire.auth(reason, scram.last(wire.read()[1].properties[DATA]))
    first, connack = wire.read()
    assert (first, connack.reason) == (0x20, 0x82)
    assert wire.read() is None


def test_success_is_the_servers_to_say_mqtt_4_12_1_1(gateway):
    wire = authenticated(gateway, "says so")
    wire.auth(0x00, b"")
    assert wire.read()[1].reason == 0x82


def test_packets_before_the_end_of_the_exchange_mqtt_3_1_2_30(gateway):
    """A client may not send anything but AUTH and DISCONNECT; it hears so at once, whatever is behind it."""
    wire = Wire(gateway)
    wire.connect("early", "SCRAM-SHA-256", Scram("alice", "pencil").first())
    wire.socket.sendall(client.encode_pingreq())
    packet = wire.read()
    assert packet[0] == 0xF0
    first, connack = wire.read()
    assert (first, connack.reason) == (0x20, 0x82)
    assert "AUTH" in connack.properties[0x1F]
    assert wire.read() is None
