"""PROXY header, TLS and WebSocket around each other on a link of the hub, and what a defect in them costs."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_harness import Harness
from certificates import NOW, Authority
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID

from gateway.mqtt import client
from gateway.net import tls_session
from gateway.net.handshakes import Handshakes
from gateway.net.hub import Hub
from gateway.net.hub_socket import HubSocket
from gateway.net.proxy import ProxyReader
from gateway.net.reactor import HubReactor
from gateway.net.tls import CIPHERS, end_of_der, user_of, user_of_der
from gateway.net.websocket import WebSocketServer
from gateway.net.wrapping import ProxyWrapping, TlsWrapping, WebSocketWrapping

REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Bench:
    """A hub, and devices at the other ends of its sockets."""

    def __init__(self, directory: Path) -> None:
        self.harness = Harness()
        self.hub = Hub(HubReactor(), self.harness.engine)
        self.defects: list[Exception] = []
        self.hub.on_defect = lambda error, _peer: self.defects.append(error)
        self.authority = Authority(directory)
        certificate, key = self.authority.issue("localhost")
        self.context = tls_session.new_context(str(certificate), str(key), CIPHERS, False, None, False, None, 0)
        self.trust = ssl.create_default_context(cafile=str(self.authority.path))
        self.soon: list[object] = []
        self.pool = Handshakes(self.soon.append, threads=1)
        self.sockets: list[socket.socket] = []

    def link(self) -> tuple[HubSocket, socket.socket]:
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        theirs.settimeout(20)
        self.sockets += [ours, theirs]
        link = HubSocket(self.hub, ours, "10.0.0.9:1", "any")
        link.connection = self.harness.engine.connected(link)
        self.hub.add(link)
        return link, theirs

    def turn(self) -> None:
        """Serve what there is, and what the threads have done meanwhile."""
        self.hub.wait(0)
        while self.soon:
            self.soon.pop(0)()  # type: ignore[operator]
        self.hub.wait(0)
        self.harness.clock.advance(0.001)
        while self.harness.queues.commit():
            pass


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.pool.close()
    for sock in made.sockets:
        sock.close()


class Secure:
    """A device's TLS over memory, whose records it sends as it likes."""

    def __init__(self, bench: Bench, sock: socket.socket, piece: int = 1 << 20) -> None:
        self.bench, self.sock, self.piece = bench, sock, piece
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = bench.trust.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def push(self, data: bytes) -> None:
        for at in range(0, len(data), self.piece):
            self.sock.settimeout(0)
            rest = data[at : at + self.piece]
            while rest:
                with contextlib.suppress(BlockingIOError):  # a thread works on what came before
                    rest = rest[self.sock.send(rest) :]
                self.bench.turn()

    def pull(self) -> None:
        self.sock.settimeout(0.01)
        with contextlib.suppress(TimeoutError):
            self.incoming.write(self.sock.recv(65_536))

    def shake(self) -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                self.push(self.outgoing.read())
                return
            self.push(self.outgoing.read())
            self.bench.turn()
            self.pull()
        raise AssertionError("no handshake")

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.push(self.outgoing.read())

    def receive(self, end: bytes) -> bytes:
        found, until = b"", time.monotonic() + 20
        while not found.endswith(end):
            assert time.monotonic() < until, found
            self.bench.turn()
            self.pull()
            with contextlib.suppress(ssl.SSLWantReadError):
                found += self.tls.read(65_536)
        return found


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_all_wrappings_around_each_other_in_pieces(bench: Bench, piece: int) -> None:
    link, theirs = bench.link()
    told: list[str | None] = []
    session = bench.context.session()
    framed = WebSocketWrapping(link, WebSocketServer("/mqtt", [], {"localhost"}), session)
    secure = TlsWrapping(link, session, framed, bench.pool, lambda _link, wrong: told.append(wrong))
    link.wrapping = ProxyWrapping(link, ProxyReader(1), secure, lambda: True)
    device = Secure(bench, theirs, piece)
    device.push(b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 8883\r\n")
    assert link.peer == "192.0.2.7:4711"
    device.shake()
    device.send(REQUEST)
    assert b" 101 " in device.receive(b"\r\n\r\n")
    assert told == [None]
    connect = client.encode_connect(client.connect(4, "wrapped"))
    device.send(bytes((0x82, 0x80 | len(connect))) + bytes(4) + connect)
    bench.harness.clock.run()
    assert device.receive(b"\x20\x02\x00\x00") == b"\x82\x04\x20\x02\x00\x00"
    assert not bench.defects


def test_a_defect_at_the_end_of_a_handshake_is_that_connections(bench: Bench) -> None:
    def shaken(link: HubSocket, wrong: str | None) -> None:
        if link is first:
            raise RuntimeError("an odd certificate")

    (first, one), (second, other) = bench.link(), bench.link()
    for link in (first, second):
        link.wrapping = TlsWrapping(link, bench.context.session(), None, bench.pool, shaken)
    Secure(bench, one).shake()
    good = Secure(bench, other)
    good.shake()
    until = time.monotonic() + 20
    while not (first.closed and second.inward) and time.monotonic() < until:
        bench.turn()
    assert [str(error) for error in bench.defects] == ["an odd certificate"]
    assert first.closed
    assert not second.closed
    assert second.inward is not None


def test_nothing_is_said_before_the_handshake_is_done(bench: Bench) -> None:
    link, theirs = bench.link()
    link.wrapping = TlsWrapping(link, bench.context.session(), None, bench.pool, lambda _link, _wrong: None)
    link.write(b"secret")
    link.close()
    assert theirs.recv(100) == b""


def test_a_certificate_that_names_nobody_or_is_none() -> None:
    assert user_of_der(b"", "common_name") is None
    assert user_of_der(b"\x30\x03\x02\x01\x00", "common_name") == ""


@pytest.mark.parametrize(
    ("naming", "user"),
    [
        ("common_name", "device 7"),
        ("subject", "CN=device 7"),
        ("dns", "localhost"),
        ("email", ""),
        ("uri", ""),
        ("none", "device 7"),
    ],
)
def test_what_of_a_certificate_is_its_user(tmp_path: Path, naming: str, user: str) -> None:
    certificate, _ = Authority(tmp_path).issue("device 7")
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    assert user_of_der(der, naming) == user


def test_alternative_names_of_which_none_or_several_are_of_the_kind_name_nobody() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])

    def named(*names: x509.GeneralName) -> x509.Certificate:
        return made(x509.SubjectAlternativeName(names)) if names else made()

    def made(*extensions: x509.ExtensionType) -> x509.Certificate:
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW)
        for each in extensions:
            builder = builder.add_extension(each, critical=True)
        return builder.sign(key, hashes.SHA256())

    uri, other = x509.UniformResourceIdentifier("spiffe://plant/pump-7"), x509.UniformResourceIdentifier("urn:x")
    assert user_of(named(uri, x509.DNSName("pump-7")), "uri") == "spiffe://plant/pump-7"
    assert user_of(named(x509.RFC822Name("pump-7@plant.example")), "email") == "pump-7@plant.example"
    assert user_of(named(uri, other), "uri") == ""
    assert user_of(named(uri), "dns") == user_of(named(), "uri") == user_of(named(uri), "common_name") == ""


NAMES = ExtensionOID.SUBJECT_ALTERNATIVE_NAME
UNREAD = {
    "a name of a kind that is not read": x509.UnrecognizedExtension(NAMES, b"\x30\x04\xa3\x02\x30\x00"),
    "no names": x509.UnrecognizedExtension(NAMES, b"\x04\x00"),
    "version 2": x509.SubjectAlternativeName([x509.DNSName("pump-7")]),
}


@pytest.mark.parametrize("what", UNREAD)
def test_a_certificate_that_openssl_takes_and_that_cannot_be_read_names_nobody(what: str) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW)
    made = builder.add_extension(UNREAD[what], critical=False).sign(key, hashes.SHA256())
    der = made.public_bytes(serialization.Encoding.DER)
    if what == "version 2":
        der = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01", 1)
    assert user_of_der(der, "dns") == ""
    assert end_of_der(der) == (0.0 if what == "version 2" else int(NOW.timestamp()))
