"""Strangers who guess: passwords, users, proofs; and what their attempts may cost before they are let in."""

from __future__ import annotations

import base64
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import RunningGateway
from stall_attacks import LONG, Attacked

from gateway.access.passwords import hash_password, write_password_file
from gateway.mqtt import client
from gateway.mqtt import packets as p

METHOD, DATA = 0x15, 0x16
SETTINGS = """
mqtt: {connect_timeout: 10s}
security:
  anonymous: true
  password_file: users
  users: {eve: {password_file: eve.pw}}
  guesses: {within: 24h}
"""
"""None comes back while a test lasts, however slow the machine is."""
GUESSES = 1000 if LONG else 200
MIB = 1 << 20


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("guessed")
    users = {name: hash_password(name.encode(), pbkdf2=True, iterations=20_000) for name in ("alice", "bob", "carol")}
    write_password_file(directory / "users", users)
    (directory / "eve.pw").write_text("evil\n")
    with Attacked(directory, SETTINGS).serve() as one:
        yield one


def ask(gateway: RunningGateway, user: str, password: bytes, source: str = "127.0.0.1") -> socket.socket:
    """A CONNECT with a password; its answer is still to come."""
    sock = socket.create_connection(("127.0.0.1", gateway.port), 60, source_address=(source, 0))
    connect = client.connect(5, f"{user}-{password[:20].hex()}")
    connect.username, connect.password = user, password
    sock.sendall(client.encode_connect(connect))
    return sock


def answer(sock: socket.socket) -> int:
    """The reason of its CONNACK."""
    with sock:
        data = sock.recv(4096)
        assert data[0] == 0x20, data
        return data[3]


def test_guesses_at_a_user_are_bounded_and_hold_up_nobody_else(attacked: Attacked) -> None:
    gateway = attacked.running
    assert answer(ask(gateway, "alice", b"alice", "127.0.0.2")) == 0, "she has been here"
    with attacked.budget():
        held = [ask(gateway, "alice", b"guess %d" % number) for number in range(GUESSES)]
        assert answer(ask(gateway, "bob", b"bob")) == 0, "another user from the guesser's address"
        assert answer(ask(gateway, "alice", b"alice", "127.0.0.2")) == 0, "the user herself, from hers"
        said = Counter(answer(sock) for sock in held)
        assert answer(ask(gateway, "alice", b"alice")) == 0x9F, "not even the right one, from there"
    assert said[0x86] <= 22, "of the user's twenty, and one on each thread"
    assert said[0x86] + said[0x9F] + said[0x89] == GUESSES
    assert "too many wrong passwords: user alice" in gateway.log
    assert gateway.metric('mqgate_mqtt_auth_failures_total{listener="plain",reason="guessing"}') >= said[0x9F]


def test_a_password_sprayed_over_many_users_is_bounded_too(attacked: Attacked) -> None:
    gateway, address = attacked.running, "127.0.0.3"
    with attacked.budget():
        said: Counter[int] = Counter()
        for at in range(0, GUESSES + 100, 100):
            held = [ask(gateway, f"user-{number}", b"summer", address) for number in range(at, at + 100)]
            said += Counter(answer(sock) for sock in held)
    assert said[0x86] <= 202, "two hundred, and one on each thread"
    assert said[0x9F] > 50
    assert answer(ask(gateway, "carol", b"carol", "127.0.0.4")) == 0


def begin(gateway: RunningGateway, first: bytes) -> socket.socket:
    """The first message of SCRAM."""
    sock = socket.create_connection(("127.0.0.1", gateway.port), 60)
    connect = client.connect(5, "")
    connect.properties = {METHOD: "SCRAM-SHA-256", DATA: first}
    sock.sendall(client.encode_connect(connect))
    return sock


def memory(gateway: RunningGateway) -> int:
    assert gateway.process is not None
    for line in Path(f"/proc/{gateway.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def test_exchanges_of_strangers_keep_next_to_nothing_and_end_with_their_connections(attacked: Attacked) -> None:
    gateway = attacked.running
    begin(gateway, b"n,,n=eve,r=x").close()
    attacked.settled()
    before = memory(gateway)
    with attacked.budget():
        for _ in range(GUESSES):
            begin(gateway, b"n,,n=eve,r=" + b"x" * 60_000).close()
        held = [begin(gateway, b"n,,n=eve,r=" + b"x" * 200) for _ in range(100)]
        assert all(sock.recv(4096)[:1] == b"\xf0" for sock in held)
        for sock in held:
            sock.close()
    assert memory(gateway) - before < 30 * MIB


def challenge(gateway: RunningGateway, user: str) -> dict[str, str]:
    with begin(gateway, f"n,,n={user},r=abc".encode()) as sock:
        reader = client.server_reader(5)
        packets = reader.feed(sock.recv(4096))
        auth: p.Auth = packets[0][1]
        fields = auth.properties[DATA].decode().split(",")
        return {one[0]: one[2:] for one in fields}


def test_a_name_does_not_tell_whether_there_is_such_a_user(tmp_path: Path) -> None:
    """Its salt looks like any other and stays, whatever is restarted or reloaded."""
    (tmp_path / "eve.pw").write_text("evil\n")
    gateway = RunningGateway(tmp_path, settings="security: {users: {eve: {password_file: eve.pw}}}\n")
    names = ["eve", "nobody", "somebody"]
    seen = []
    for _ in range(2):
        with gateway:
            seen.append([challenge(gateway, name) for name in names])
            gateway.api("POST", "/reload")
            seen.append([challenge(gateway, name) for name in names])
            gateway.stop()
    salts = [[one["s"] for one in round_] for round_ in seen]
    assert salts[0] == salts[1] == salts[2] == salts[3]
    assert len(set(salts[0])) == 3
    assert {len(base64.b64decode(salt)) for salt in salts[0]} == {16}
    assert {one["i"] for round_ in seen for one in round_} == {"4096"}
