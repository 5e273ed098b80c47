"""A running gateway under attack, on loopback. All the while a well-behaved client publishes at QoS 1 (canary.py): it
never waits more than a second, and the process does not grow beyond what the limits of its settings add up to.

A second of a gateway that has a processor to itself: how long its reactor waited for one, while others used it, and
what a control without any gateway took meanwhile, are measured in the same window and allowed for."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from canary import Watched, watched
from certificates import Authority
from gateways import RunningGateway
from OpenSSL import SSL
from patient_device import Device
from waiting import until_idle

from gateway.access.passwords import hash_password, write_password_file
from gateway.mqtt import client, writer
from gateway.mqtt.packets import Connect, Disconnect, Subscribe, Subscription, Unsubscribe, Will

PATIENCE = 1.0
"""The longest a well-behaved client may wait for an acknowledgement, beyond what the machine itself costs."""
HOPS = 3
"""The canary's way leads through so many processes and threads (canary, reactor, the store's writer) that each may have
to wait as the control, which is one, had to."""
CLOSED = 60.0
"""How long is waited for the end of a connection."""
NO_TIME_OUT = 600
"""Seconds that a connection may take to its CONNECT where the gateway is to close it for what was sent: within CLOSED
the time cannot be the reason, however busy the machine is."""
LONG = bool(os.environ.get("MQGATE_LONG"))
MIB = 1 << 20
CONNACK = 2


class Target:
    """The gateway, and what is known of its process."""

    def __init__(self, directory: Path, connect_timeout: int) -> None:
        authority = Authority(directory)
        certificate, key = authority.issue("localhost")
        write_password_file(directory / "users", {"alice": hash_password(b"right")})
        self.running = RunningGateway(
            directory,
            settings=f"""
listeners:
  - {{name: plain, port: 0}}
  - {{name: tls, port: 0, tls: {{certificate: {certificate}, key: {key}}}}}
  - {{name: web, port: 0, websocket: {{}}}}
mqtt:
  {{connect_timeout: {connect_timeout}s, max_connections: 400, max_retained: 2000, max_retained_bytes: 4MiB,
    max_user_properties: 50, max_buffered_bytes: 64MiB}}
security: {{anonymous: true, password_file: users}}
""",
        )
        self.trust = ssl.create_default_context(cafile=str(authority.path))
        self.ports: dict[str, int] = {}
        self.canary: Watched
        self.control: Watched

    def open(self, listener: str = "plain") -> socket.socket:
        """A raw connection; what the attacker sends and reads is up to it."""
        sock = socket.create_connection(("127.0.0.1", self.ports[listener]), 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def open_tls(self) -> ssl.SSLSocket:
        """The same behind a whole TLS handshake."""
        return self.trust.wrap_socket(self.open("tls"), server_hostname="localhost")

    def open_web(self) -> socket.socket:
        """The same behind a whole WebSocket handshake."""
        sock = self.open("web")
        sock.sendall(
            b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
        )
        assert b" 101 " in sock.recv(4096)
        return sock

    def open_by(self, way: str) -> socket.socket:
        """One of these."""
        return {"plain": self.open, "tls": self.open_tls, "web": self.open_web}[way]()

    def online(self, name: str, version: int = 5, way: str = "plain") -> socket.socket:
        """A connection of a client that was let in."""
        sock = self.open_by(way)
        connect = client.encode_connect(client.connect(version, name, keep_alive=0))
        sock.sendall(frame(connect) if way == "web" else connect)
        answer = sock.recv(4096)
        assert answer[2 if way == "web" else 0] >> 4 == CONNACK
        return sock

    def total(self, metric: str, label: str) -> float:
        """All series of a metric with this label, added up."""
        lines = self.running.get("/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric + "{") and label in line)

    def memory(self, what: str) -> int:
        """VmRSS: what the process occupies; VmHWM: the most it did since `forget_peak`."""
        assert self.running.process is not None
        for line in Path(f"/proc/{self.running.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(what)

    def processor(self) -> tuple[int, int]:
        """Nanoseconds for which the reactor's thread ran, and for which it could have and had no processor."""
        assert self.running.process is not None
        file = Path(f"/proc/{self.running.process.pid}/schedstat")
        ran, waited, _ = file.read_text().split() if file.exists() else ("1", "0", "0")
        return int(ran), int(waited)

    def forget_peak(self) -> None:
        """VmHWM begins anew."""
        assert self.running.process is not None
        Path(f"/proc/{self.running.process.pid}/clear_refs").write_text("5")


@contextlib.contextmanager
def attacked(directory: Path, connect_timeout: int) -> Iterator[Target]:
    """A gateway with a canary on it, and the control beside."""
    made = Target(directory, connect_timeout)
    with made.running:
        made.ports = made.running.ports()
        (made.running.directory / "control").mkdir()
        elsewhere = str(made.running.directory / "control")
        with watched("canary", str(made.ports["plain"])) as canary, watched("control", elsewhere) as control:
            made.canary, made.control = canary, control
            yield made


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """What it closes, it closes for what was sent."""
    with attacked(tmp_path_factory.mktemp("attacked"), NO_TIME_OUT) as made:
        yield made


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """It closes what has not sent its CONNECT after two seconds."""
    with attacked(tmp_path_factory.mktemp("impatient"), 2) as made:
        yield made


@contextlib.contextmanager
def attack(target: Target, growth: int) -> Iterator[contextlib.ExitStack]:
    """The canary lives through what happens inside; sockets entered into the stack are closed afterwards."""
    assert target.running.process is not None
    until_idle(target.running.process.pid)  # passwords of guessers that are gone may be under way, and take 64 MiB each
    target.forget_peak()
    before = target.memory("VmRSS")
    target.control.begin()
    target.canary.begin()
    ran, waited = target.processor()
    with contextlib.ExitStack() as sockets:
        yield sockets
        time.sleep(0.1)
    answered, longest = target.canary.end()
    _, machine = target.control.end()
    ran, waited = target.processor()[0] - ran, target.processor()[1] - waited
    slower = min((ran + waited) / max(ran, 1), 10.0)
    measured = (
        f"the canary waited {longest:.2f} s ({answered} answers); control {machine:.2f} s, processor 1/{slower:.1f}"
    )
    print(measured)
    grown = target.memory("VmHWM") - before
    assert answered, "the canary was never answered"
    assert longest < PATIENCE * slower + HOPS * machine, measured
    assert grown < growth, f"the process grew by {grown / MIB:.1f} MiB"
    assert '"defect"' not in target.running.log


def send(sock: socket.socket, data: bytes) -> bool:
    """False when the gateway has closed the connection."""
    try:
        sock.sendall(data)
    except OSError:
        return False
    return True


def ended(sock: socket.socket, seconds: float = CLOSED) -> bool:
    """Whether the gateway closes the connection in time; what it says before is skipped."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            if not sock.recv(65_536):
                return True
        except TimeoutError:
            return False
        except OSError:
            return True
    return False


def read_packet(sock: socket.socket) -> bytes:
    """What comes next, as it comes."""
    sock.settimeout(30)
    return sock.recv(65_536)


def publish_of(size: int) -> bytes:
    """The head of a PUBLISH that announces so many bytes."""
    length = bytearray()
    while True:
        size, digit = divmod(size, 128)
        length.append(digit | 0x80 if size else digit)
        if not size:
            return b"\x32" + bytes(length) + b"\x00\x04bomb\x00\x01\x00"


def test_slow_loris_before_and_in_connect_is_ended_in_time(impatient: Target) -> None:
    connect = client.encode_connect(client.connect(4, "loris" * 40))
    with attack(impatient, 16 * MIB) as sockets:
        quiet = [sockets.enter_context(impatient.open()) for _ in range(60)]
        dripping = [sockets.enter_context(impatient.open()) for _ in range(60)]
        for byte in connect[:-2]:  # half a minute of it
            dripping = [sock for sock in dripping if send(sock, bytes((byte,)))]
            if not dripping:
                break
            time.sleep(0.15)
        assert not dripping, "a byte now and then gives no more time"
        assert all(ended(sock) for sock in quiet)
    assert (
        impatient.running.metric('mqgate_mqtt_connects_total{listener="plain",protocol="3.1.1",result="timeout"}') > 0
    )


def test_a_flood_of_connections_ends_in_time(impatient: Target) -> None:
    with attack(impatient, 32 * MIB) as sockets:
        held = [sockets.enter_context(impatient.open()) for _ in range(600)]
        assert all(ended(sock) for sock in held), "connections that say nothing end in time"
    impatient.online("after the flood").close()


def test_a_flood_of_connections_is_turned_away_beyond_the_limit(target: Target) -> None:
    with attack(target, 32 * MIB) as sockets:
        held = [sockets.enter_context(target.open()) for _ in range(600)]
        refused = 'mqgate_mqtt_connects_total{listener="plain",protocol="3.1.1",result="too_many"}'
        until = time.monotonic() + CLOSED
        while target.running.metric(refused) < 600 - 400:
            assert time.monotonic() < until
            time.sleep(0.1)
        for sock in held:
            sock.close()
    connect = client.encode_connect(client.connect(5, "after the flood"))
    answer = b""
    while not answer:  # their places are free as soon as the gateway has seen it
        assert time.monotonic() < until
        with target.open() as sock, contextlib.suppress(OSError):
            sock.sendall(connect)
            answer = sock.recv(64)
    assert answer[0] >> 4 == CONNACK


def test_lengths_that_are_only_announced_take_no_memory(target: Target) -> None:
    with attack(target, 24 * MIB) as sockets:
        for index in range(14):
            stranger = sockets.enter_context(target.open())
            send(stranger, b"\x10\xff\xff\xff\x2f" + b"\x00" * 65_536)
            assert ended(stranger)
            known = sockets.enter_context(target.online(f"announcer-{index}"))
            send(known, publish_of(100 * MIB))
            while send(known, b"\x00" * 65_536):
                pass
            assert ended(known)


def test_packets_that_never_end_are_held_within_the_limits(target: Target) -> None:
    known, strangers = 14, 100
    with attack(target, known * MIB * 3 + strangers * (256 << 10)) as sockets:
        for index in range(known):
            sock = sockets.enter_context(target.online(f"unfinished-{index}"))
            assert send(sock, publish_of(MIB - 64) + bytes(MIB - 200))
        for _ in range(strangers):
            sock = sockets.enter_context(target.open())
            assert send(sock, b"\x10\xfe\xff\x07" + bytes(126 << 10))
        time.sleep(0.3)


def test_what_strangers_send_behind_a_wrong_password_is_not_kept(target: Target) -> None:
    connect = client.connect(5, "guesser")
    connect.username, connect.password = "alice", b"wrong"
    with attack(target, 192 * MIB) as sockets:  # Argon2 takes 64 MiB for each of the two that are computed at once
        for _ in range(14):
            sock = sockets.enter_context(target.open())
            send(sock, client.encode_connect(connect))
            behind = writer.encode_publish(5, b"t", bytes(100_000), 0, packet_id=0)
            for _ in range(20):
                if not send(sock, behind):
                    break
        time.sleep(0.2)


def test_guessing_passwords_is_answered_late_and_hurts_nobody(target: Target) -> None:
    connect = client.connect(5, "guesser")
    connect.username = "alice"
    with attack(target, 192 * MIB) as sockets:
        held, begun = [], time.monotonic()
        for index in range(24):
            sock = sockets.enter_context(target.open())
            connect.password = b"guess %d" % index
            send(sock, client.encode_connect(connect))
            held.append(sock)
        answers = [sock.recv(64) for sock in held[:3]]
        assert time.monotonic() - begun > 0.2
        assert all(answer[:1] in {b"", b"\x20"} for answer in answers)


@pytest.mark.parametrize(("way", "readers"), [("plain", 10), ("tls", 4), ("web", 4)])
def test_readers_that_do_not_read_are_ended_at_their_bound(target: Target, way: str, readers: int) -> None:
    name = "mqgate_messages_dropped_total", 'reason="qos0_overload"'
    before = target.total(*name) + target.total("mqgate_mqtt_disconnects_total", 'reason="slow_consumer"')
    with attack(target, 140 * MIB) as sockets:
        for index in range(readers):
            reader = sockets.enter_context(target.online(f"sleeper-{index}", way=way))
            subscribe = client.encode_subscribe(5, Subscribe(1, [Subscription("bomb/#", 1)]))
            reader.sendall(frame(subscribe) if way == "web" else subscribe)
            read_packet(reader)
        publisher = sockets.enter_context(Device("127.0.0.1", target.ports["plain"], "bomber", version=5, timeout=30))
        publisher.connect()
        for _ in range(250):
            publisher.publish("bomb/a", bytes(100_000), 0)
        publisher.publish("bomb/end", b"", 1)
    after = target.total(*name) + target.total("mqgate_mqtt_disconnects_total", 'reason="slow_consumer"')
    assert after > before


def test_large_messages_that_are_never_finished_stay_within_their_sum(target: Target) -> None:
    """Each of them is within `max_packet`."""
    begun = writer.encode_publish(5, b"load/x", bytes(1000 * 1024), 1, packet_id=1)[: 900 * 1024]
    closed = "mqgate_mqtt_disconnects_total", 'reason="buffers_full"'
    before = target.total(*closed)
    with attack(target, 110 * MIB) as sockets:
        senders = [sockets.enter_context(target.online(f"beginner-{index}")) for index in range(150)]
        for sender in senders:
            send(sender, begun)
        until = time.monotonic() + 30
        while target.total(*closed) < before + 60:  # 132 MiB of 64
            assert time.monotonic() < until
            time.sleep(0.1)
    assert target.total(*closed) < before + 120, "those that are within the sum stay"


def test_retained_messages_stay_within_their_limits(target: Target) -> None:
    with attack(target, 48 * MIB) as sockets:
        publisher = sockets.enter_context(target.online("hoarder", 4))
        packets = [
            writer.encode_publish(4, b"hoard/%d" % index, bytes(2048), 0, retain=True, packet_id=0)
            for index in range(3000)
        ]
        assert send(publisher, b"".join(packets) + b"\xc0\x00")
        assert read_packet(publisher) == b"\xd0\x00"
        for _ in range(10):
            greedy = sockets.enter_context(target.online("greedy"))
            for packet_id in range(1, 11):
                send(greedy, client.encode_subscribe(5, Subscribe(packet_id, [Subscription("#", 1)])))
        time.sleep(0.5)
    assert target.running.metric("mqgate_mqtt_retained_messages ") <= 2000
    with target.online("cleaner", 4) as cleaner:
        cleaner.sendall(b"".join(
            writer.encode_publish(4, b"hoard/%d" % index, b"", 0, retain=True, packet_id=0) for index in range(3000)
        ))  # fmt: skip
        cleaner.sendall(b"\xc0\x00")
        assert read_packet(cleaner) == b"\xd0\x00"


def test_subscriptions_stay_within_their_limit(target: Target) -> None:
    with attack(target, 48 * MIB) as sockets:
        for index in range(3):
            sock = sockets.enter_context(target.online(f"collector-{index}"))
            for start in range(0, 5000, 500):
                wanted = [Subscription(f"sub/{number}/+/#", 0) for number in range(start, start + 500)]
                sock.sendall(client.encode_subscribe(5, Subscribe(start + 1, wanted)))
                answer = read_packet(sock)
            assert answer[-1] == 0x97
    assert target.running.metric("mqgate_mqtt_subscriptions ") <= 3 * 1000 + 100


def test_deep_wildcards_do_not_hold_up_the_others(target: Target) -> None:
    chance = random.Random(7)
    with attack(target, 96 * MIB) as sockets:
        for index in range(3):
            sock = sockets.enter_context(target.online(f"deep-{index}"))
            for start in range(0, 900, 100):
                wanted = [Subscription("/".join(chance.choice("+a") for _ in range(150)) + "/#", 0) for _ in range(100)]
                sock.sendall(client.encode_subscribe(5, Subscribe(start + 1, wanted)))
                read_packet(sock)
        publisher = sockets.enter_context(target.online("deep publisher", 4))
        for number in range(100):
            topic = b"/".join([b"a"] * 150) + b"/%d" % number
            publisher.sendall(writer.encode_publish(4, topic, b"x", 1, packet_id=number + 1))
        assert read_packet(publisher)


def test_thousands_of_user_properties_are_refused(target: Target) -> None:
    pairs = b"\x26\x00\x01k\x00\x01v" * 5000
    block = bytes((len(pairs) & 0x7F | 0x80, len(pairs) >> 7 & 0x7F | 0x80, len(pairs) >> 14)) + pairs
    body = b"\x00\x01t\x00\x01" + block + b"x"
    packet = b"\x32" + bytes((len(body) & 0x7F | 0x80, len(body) >> 7 & 0x7F | 0x80, len(body) >> 14)) + body
    with attack(target, 16 * MIB) as sockets:
        for index in range(14):
            sock = sockets.enter_context(target.online(f"talkative-{index}"))
            send(sock, packet)
            answer = read_packet(sock)
            assert answer[:1] == b"\xe0" or (answer[:1] == b"\x40" and answer[4] >= 0x80), answer


def test_tls_handshakes_that_stop_halfway_are_ended_in_time(impatient: Target) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = impatient.trust.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    first = outgoing.read()
    with attack(impatient, 32 * MIB) as sockets:
        held = []
        for index in range(90):
            sock = sockets.enter_context(impatient.open("tls"))
            send(sock, (b"", first[:50], first)[index % 3])
            held.append(sock)
        assert all(ended(sock) for sock in held)


def test_tls_renegotiation_is_refused(target: Target) -> None:
    with attack(target, 16 * MIB) as sockets:
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        sock = sockets.enter_context(target.open("tls"))
        sock.settimeout(None)
        tls = SSL.Connection(context, sock)
        tls.set_connect_state()
        tls.do_handshake()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 1, 0))
        tls.sendall(client.encode_connect(client.connect(4, "again")))
        assert tls.recv(4)[0] >> 4 == CONNACK
        tls.renegotiate()
        with pytest.raises(SSL.Error):  # refused, or not answered
            tls.do_handshake()


def frame(payload: bytes, opcode: int = 2, fin: bool = True) -> bytes:
    """A masked frame (mask of zeros)."""
    head = bytes(((0x80 if fin else 0) | opcode,))
    if len(payload) < 126:
        return head + bytes((0x80 | len(payload),)) + bytes(4) + payload
    return head + b"\xfe" + struct.pack("!H", len(payload)) + bytes(4) + payload


def test_websocket_fragments_and_frames_without_end_are_bounded(target: Target) -> None:
    connect = client.encode_connect(client.connect(4, "fragments"))
    with attack(target, 96 * MIB) as sockets:
        for _ in range(4):  # a packet that is announced and arrives a byte a frame
            sock = sockets.enter_context(target.open_web())
            send(sock, frame(connect))
            read_packet(sock)
            send(sock, frame(b"\x30\xff\x7f", fin=False) + frame(b"\x00", 0, fin=False) * 15_000)
        for size in (1 << 62, 1 << 40, 64 * MIB):  # a frame that is only announced, then more than a packet may have
            sock = sockets.enter_context(target.open_web())
            send(sock, b"\x82\xff" + struct.pack("!Q", size) + bytes(4) + connect + publish_of(100 * MIB))
            while send(sock, bytes(65_536)):
                pass
            assert ended(sock)
        deaf = sockets.enter_context(target.open_web())  # pings whose answers nobody reads
        deaf.settimeout(0.5)
        send(deaf, frame(connect))
        until = time.monotonic() + 1.5
        while send(deaf, frame(bytes(125), 9) * 200) and time.monotonic() < until:
            pass
        for wrong in (frame(b"text", 1), b"\x82\x04none", frame(bytes(126), 9), frame(b"", 3)):
            sock = sockets.enter_context(target.open_web())
            send(sock, wrong)
            assert ended(sock)


def garbage(
    target: Target, sockets: contextlib.ExitStack, way: str, lengths: range, first: int = 0
) -> list[socket.socket]:
    """Connections on each of which something without a meaning was sent; `first`: bits of its first byte."""
    chance, held = random.Random(way), []
    for index in range(25):
        if way == "in tls":
            sock: socket.socket = target.open_tls()
        elif way == "in web":
            sock = target.open_web()
        elif way == "after connect":
            sock = target.online(f"garbler-{index}")
        else:
            sock = target.open(way)
        sockets.enter_context(sock)
        noise = chance.randbytes(chance.choice(lengths))
        noise = bytes((noise[0] | first,)) + noise[1:]
        send(sock, frame(noise) if way == "in web" else noise)
        held.append(sock)
    return held


@pytest.mark.parametrize("way", ["plain", "tls", "web", "in tls", "in web", "after connect"])
def test_garbage_ends_the_connection_that_sent_it(target: Target, way: str) -> None:
    with attack(target, 32 * MIB) as sockets:
        held = garbage(target, sockets, way, range(16, 400), 0x80)  # no CONNECT, which may be announced to be longer
        if way != "after connect":  # a client that was let in may be in the middle of a packet
            assert all(ended(sock) for sock in held)


@pytest.mark.parametrize("way", ["plain", "tls", "web", "in tls", "in web"])
def test_garbage_that_may_be_the_beginning_of_something_ends_in_time(impatient: Target, way: str) -> None:
    with attack(impatient, 32 * MIB) as sockets:
        assert all(ended(sock) for sock in garbage(impatient, sockets, way, range(1, 400)))


def packets_of(version: int) -> list[bytes]:
    """One of each kind that a client may send, and a few that are only larger."""
    properties = b"\x26\x00\x01k\x00\x01v" if version == 5 else b""
    will = Will("will/a", b"gone", 1, retain=False)
    again = client.connect(version, "fuzz", clean_start=False, will=will)
    return [
        client.encode_connect(again),
        writer.encode_publish(version, b"fuzz/a", b"x" * 300, 0, packet_id=0),
        writer.encode_publish(version, b"fuzz/b", b"x", 1, packet_id=7, properties=properties),
        writer.encode_publish(version, b"fuzz/c", b"x", 2, retain=True, packet_id=8, properties=properties),
        *(writer.encode_acks(kind, [8]) for kind in (4, 5, 6, 7)),
        client.encode_subscribe(version, Subscribe(9, [Subscription("fuzz/#", 2), Subscription("+/a", 0)])),
        client.encode_unsubscribe(version, Unsubscribe(10, ["+/a"])),
        client.encode_pingreq(),
        writer.encode_disconnect(version, Disconnect()),
    ]


def mutated(chance: random.Random, packets: list[bytes]) -> bytes:
    """A few packets in a row, some with wrong bytes, some cut, some put together from two."""
    made = bytearray()
    for _ in range(chance.randrange(1, 8)):
        packet = bytearray(chance.choice(packets))
        for _ in range(chance.choice((0, 0, 1, 1, 3))):
            packet[chance.randrange(len(packet))] = chance.randrange(256)
        if chance.random() < 0.1:
            del packet[chance.randrange(len(packet)) :]
        if chance.random() < 0.1:
            packet += chance.choice(packets)[chance.randrange(2) :]
        made += packet
    return bytes(made)


@pytest.mark.parametrize("way", ["plain", "tls", "web"])
def test_packets_with_wrong_bytes_hurt_only_who_sends_them(target: Target, way: str) -> None:
    chance = random.Random(way)
    with attack(target, (192 if LONG else 64) * MIB) as sockets:  # thousands of TLS contexts leave the heap in pieces
        for index in range(2000 if LONG else 40):
            version = chance.choice((3, 4, 5))
            with target.open_by(way) as sock:
                data = client.encode_connect(client.connect(version, f"fuzz-{way}-{index % 50}", keep_alive=0))
                data += mutated(chance, packets_of(version))
                cut = chance.randrange(len(data))
                for part in (data[:cut], data[cut:]):
                    send(sock, frame(part) if way == "web" else part)
                if chance.random() < 0.5:
                    sock.settimeout(0.05)
                    with contextlib.suppress(OSError):
                        sock.recv(65_536)
        sockets.enter_context(target.online("after the fuzzing"))


def test_a_flood_leaves_a_log_that_can_be_read(target: Target) -> None:
    lines = target.running.log.count("\n")
    with attack(target, 16 * MIB) as sockets:
        for _ in range(300):
            sock = sockets.enter_context(target.open())
            send(sock, b"\xff\xff\xff\xff")
            assert ended(sock)
    assert target.running.log.count("\n") - lines < 100


def test_the_gateways_are_as_they_were(target: Target, impatient: Target) -> None:
    for one in (target, impatient):
        assert one.running.process is not None
        assert one.running.process.poll() is None
        connect: Connect = client.connect(5, "afterwards")
        with one.open() as sock:
            sock.sendall(client.encode_connect(connect))
            assert sock.recv(64)[0] >> 4 == CONNACK
