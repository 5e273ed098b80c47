"""Users and roles that are managed while the gateway runs: with clients connected, over a kill, in bulk."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import gateway_template
import pytest
from certificates import Authority
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from gateways import RunningGateway
from patient_device import Device, Stranger

from gateway.cli import main
from gateway.errors import ProtocolError

SETTINGS = """
security:
  anonymous: false
  managed: true
  acl:
    - {user: boss, allow: ["#"]}
    - {user: "*", deny: ["secret/#"]}
process: {drain_timeout: 1s}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(tmp_path_factory.mktemp("managed"), settings=SETTINGS) as running:
        yield running


def until(met: Callable[[], bool], gateway: RunningGateway) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, gateway.log
        time.sleep(0.02)


def user(gateway: RunningGateway, *arguments: str, code: int = 0, text: str = "") -> str:
    """`mqgate user ...`, called: it only asks the gateway, and a start of Python costs more than the answer."""
    line = ["user", *arguments, "--data", str(gateway.directory / "data")]
    done = CliRunner().invoke(main, line, input=text)
    assert done.exit_code == code, (done.stdout, done.stderr)
    return done.stdout or done.stderr


def change(gateway: RunningGateway, *users: dict[str, object], mode: str = "add") -> list[dict[str, str]]:
    items: list[dict[str, str]] = gateway.api("POST", "/device-users", {"mode": mode, "users": list(users)})["items"]
    return items


def device(gateway: RunningGateway, client_id: str = "c1") -> Device:
    return Stranger("127.0.0.1", gateway.port, client_id, version=5, timeout=60)


def login(gateway: RunningGateway, name: str, password: str, client_id: str = "c1") -> int:
    with device(gateway, client_id) as one:
        return one.connect(name, password.encode())


def ended(one: Device) -> int:
    """The reason with which the gateway disconnects."""
    answer: Any = one._next(14)
    return int(answer[1].reason)


def test_the_life_of_a_user(gateway: RunningGateway) -> None:
    assert login(gateway, "line7", "x") == 0x86
    user(gateway, "role", "lines", "--publish", "plant/{client}/#", "--subscribe", "plant/{client}/cmd/#")
    said = json.loads(user(gateway, "add", "line7", "--role", "lines", "--json"))
    password = said[0]["password"]
    assert login(gateway, "line7", "x") == 0x86
    with device(gateway) as one:
        assert one.connect("line7", password.encode()) == 0
        one.publish("plant/c1/t", b"1", 1)
        with pytest.raises(ProtocolError):
            one.publish("other/t", b"1", 1)
        gateway.api("PUT", "/device-roles/lines", {"publish": ["other/#"]})
        one.publish("other/t", b"1", 1)
        with pytest.raises(ProtocolError):
            one.publish("plant/c1/t", b"1", 1)
        user(gateway, "disable", "line7")
        assert ended(one) == 0x87
    assert login(gateway, "line7", password) == 0x86
    change(gateway, {"user": "line7", "enabled": True}, mode="change")
    rotated = json.loads(user(gateway, "rotate", "line7", "--json"))[0]["password"]
    assert login(gateway, "line7", password) == 0x86
    assert login(gateway, "line7", rotated) == 0
    user(gateway, "rotate", "line7", "--password-file", "-", text="chosen by somebody\n")
    assert login(gateway, "line7", "chosen by somebody") == 0
    assert "line7" in user(gateway, "list")
    shown = json.dumps(gateway.api("GET", "/device-users/line7"))
    assert json.loads(shown)["role"] == "lines"
    assert "$" not in shown, "no hash"
    assert user(gateway, "role", "lines", "--delete", code=1).startswith("Error"), "it is in use"
    with device(gateway) as one:
        assert one.connect("line7", b"chosen by somebody") == 0
        user(gateway, "delete", "line7")
        assert ended(one) == 0x87
    assert login(gateway, "line7", "chosen by somebody") == 0x86
    gateway.api("DELETE", "/device-roles/lines")
    assert rotated not in gateway.log


def test_a_role_that_is_not_there_is_said(gateway: RunningGateway) -> None:
    """It may be made later; one that is misspelt leaves its users without rights."""
    data = str(gateway.directory / "data")
    for what in (["add", "line9", "--role", "lynes"], ["set", "line9", "--role", "lynes"]):
        done = gateway_template.run("user", *what, "--data", data)
        assert done.returncode == 0, done.stderr
        assert "there is no role lynes" in done.stderr
        assert "lynes" not in done.stdout
    user(gateway, "role", "lynes", "--publish", "a/#")
    done = gateway_template.run("user", "set", "line9", "--role", "lynes", "--data", data)
    assert (done.returncode, done.stderr) == (0, "")
    gateway.api("DELETE", "/device-users/line9")
    gateway.api("DELETE", "/device-roles/lynes")


def test_a_password_is_set_with_whatever_else_is_changed(gateway: RunningGateway, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"caf\xe9 \xff\r\nsecond line\n")  # a password has bytes, no characters (MQTT 5.0, 3.1.3.6)
    user(gateway, "add", "line12")
    assert "--password-file" in user(gateway, "set", "line12", code=2)
    user(gateway, "set", "line12", "--client-id", "", "--password-file", str(file))
    with Device("127.0.0.1", gateway.port, "line12") as device:
        assert device.connect("line12", b"caf\xe9 \xff") == 0


def test_to_look_at_a_role_leaves_it_as_it_is(gateway: RunningGateway) -> None:
    assert "there is no role looked" in user(gateway, "role", "looked", code=1)
    user(gateway, "role", "looked", "--publish", "hall/#")
    shown = json.loads(user(gateway, "role", "looked", "--json"))
    assert [(one["role"], one["publish"], one["subscribe"]) for one in shown] == [("looked", ["hall/#"], [])]
    assert "hall/#" in user(gateway, "role", "looked")
    user(gateway, "role", "looked", "--publish", "")
    assert json.loads(user(gateway, "role", "looked", "--json"))[0]["publish"] == []


def test_the_access_list_comes_first(gateway: RunningGateway) -> None:
    gateway.api("PUT", "/device-roles/all", {"publish": ["#"], "subscribe": ["#"]})
    [one] = change(gateway, {"user": "first", "role": "all"})
    with device(gateway) as there:
        assert there.connect("first", one["password"].encode()) == 0
        there.publish("any/t", b"1", 1)
        with pytest.raises(ProtocolError):
            there.publish("secret/t", b"1", 1)


def test_what_a_role_no_longer_lets_in_is_not_delivered(gateway: RunningGateway) -> None:
    gateway.api("PUT", "/device-roles/r", {"publish": ["#"], "subscribe": ["a/#", "b/#"]})
    [one] = change(gateway, {"user": "second", "role": "r"})
    with device(gateway) as there:
        assert there.connect("second", one["password"].encode()) == 0
        assert [there.subscribe(name, 1) for name in ("a/#", "b/#")] == [1, 1]
        there.publish("a/1", b"1", 1)
        assert there.receive() == ("a/1", b"1")
        gateway.api("PUT", "/device-roles/r", {"publish": ["#"], "subscribe": ["b/#"]})
        there.publish("a/2", b"2", 1)
        there.publish("b/3", b"3", 1)
        assert there.receive() == ("b/3", b"3")


def test_a_token_sets_a_password_once(gateway: RunningGateway) -> None:
    token = change(gateway, {"user": "new", "secret": "token"})[0]["token"]
    own, other = "made-by-the-device-0123456789", "made-by-somebody-else-0123456789"
    assert login(gateway, "new", token) == 0x86
    assert login(gateway, "new", f"{token}:short") == 0x86
    assert login(gateway, "new", f"{token}x:{own}") == 0x86
    assert login(gateway, "new", f"{token}:{own}") == 0
    assert login(gateway, "new", f"{token}:{own}") == 0, "its first answer may have been lost"
    assert login(gateway, "new", f"{token}:{other}") == 0x86
    assert login(gateway, "new", other) == 0x86
    assert login(gateway, "new", own) == 0
    assert gateway.api("GET", "/device-users/new")["token_ends"] is None
    [late] = change(gateway, {"user": "line8", "secret": "token", "token_seconds": 1})
    until(lambda: gateway.api("GET", "/device-users/line8")["token_ends"] < time.time(), gateway)
    assert login(gateway, "line8", f"{late['token']}:{own}") == 0x86


def test_users_survive_a_kill(gateway: RunningGateway) -> None:
    gateway.api("PUT", "/device-roles/kept", {"publish": ["a/#"]})
    one, two, three = change(
        gateway, {"user": "one", "role": "kept"}, {"user": "two", "client_id": "c2"}, {"user": "three"}
    )
    gateway.api("DELETE", "/device-users/three")
    change(gateway, {"user": "two", "enabled": False}, mode="change")
    gateway.kill()
    gateway.start()
    assert login(gateway, "one", one["password"]) == 0
    assert login(gateway, "two", two["password"], "c2") == 0x86
    assert login(gateway, "three", three["password"]) == 0x86
    change(gateway, {"user": "two", "enabled": True}, mode="change")
    assert login(gateway, "two", two["password"], "c1") == 0x87
    assert login(gateway, "two", two["password"], "c2") == 0
    assert {"role": "kept", "publish": ["a/#"], "subscribe": []} in gateway.api("GET", "/device-roles")["items"]


NO_USERS: list[list[dict[str, object]]] = [
    [{"user": "a"}, {"user": "a"}], [{"user": " a"}], [{"user": "a\nb"}], [{"user": "a", "hash": "plain"}],
    [{"user": "a", "hash": "$6$short"}], [{"user": "a", "fingerprint": "00"}], [{"user": ""}], [{}],
    [{"user": "a", "fingerprint": "11" * 32}, {"user": "b", "fingerprint": ":".join(["11"] * 32)}],
    [{"user": "a", "enabled": "yes"}], [{"user": "a", "admin": True}], [{"user": f"u{n}"} for n in range(501)],
]  # fmt: skip


def test_what_is_no_user_changes_nothing(gateway: RunningGateway) -> None:
    before = gateway.api("GET", "/device-users")["total"]
    for users in NO_USERS:
        with pytest.raises(OSError, match=r"HTTP Error 4\d\d"):
            change(gateway, {"user": "good"}, *users)
    assert gateway.api("GET", "/device-users")["total"] == before


def test_a_file_of_users_is_imported(gateway: RunningGateway) -> None:
    """By 500 at a time; devices go on meanwhile."""
    [boss] = change(gateway, {"user": "boss"})
    file, secrets = gateway.directory / "users.csv", gateway.directory / "secrets.csv"
    file.write_text("user,role,client_id\n" + "".join(f"d{n},,d{n}\n" for n in range(800)))
    with device(gateway, "boss") as there:
        assert there.connect("boss", boss["password"].encode()) == 0
        assert "800 users imported" in user(gateway, "import", str(file), "--secrets", str(secrets))
        there.publish("t/x", b"1", 1)
    made = dict(line.split(",") for line in secrets.read_text().split())
    assert len(made) == 800
    assert login(gateway, "d777", made["d777"], "d777") == 0
    assert "there is a user d0" in user(gateway, "import", str(file), code=1)
    file.write_text("user,enabled\nd0,no\n")
    user(gateway, "import", str(file), "--replace")
    assert login(gateway, "d0", made["d0"], "d0") == 0x86


@pytest.mark.parametrize(("output", "made"), [("nowhere/secrets.csv", False), ("/dev/full", True)])
def test_secrets_that_cannot_be_written_are_said_so(gateway: RunningGateway, output: str, made: bool) -> None:
    """At once, if the file cannot be opened: nobody would know the passwords of users that are made."""
    file, name = gateway.directory / "more.csv", f"of-{output.count('/')}"
    file.write_text(f"user\n{name}\n")
    said = user(gateway, "import", str(file), "--secrets", str(gateway.directory / output), code=3)
    assert "imported" not in said
    assert bool(gateway.api("GET", f"/device-users?search={name}")["items"]) == made


TLS = """
listeners:
  - {{name: plain, port: 0}}
  - {{name: tls, port: 0, tls: {{certificate: {cert}, key: {key}, client_ca: {ca}, client_certificate: required}}}}
security: {{anonymous: false, managed: true}}
process: {{drain_timeout: 1s}}
"""


def test_a_certificate_is_bound_to_a_user(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, first, second = (authority.issue(name) for name in ("localhost", "line7", "line7-again"))
    settings = TLS.format(cert=server[0], key=server[1], ca=authority.path)

    def fingerprint(path: Path) -> str:
        return sha256(x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(Encoding.DER)).hexdigest()

    with RunningGateway(tmp_path, settings=settings) as gateway:

        def connect(pair: Any) -> tuple[int, str]:
            context = ssl.create_default_context(cafile=str(authority.path))
            context.load_cert_chain(*map(str, pair))
            port = gateway.ports()["tls"]
            with Device("127.0.0.1", port, "c1", version=5, timeout=60, tls=context, server_name="localhost") as one:
                code = one.connect()
                found = gateway.api("GET", "/clients/c1")["user"] if not code else ""
                return code, found

        assert connect(first) == (0, "line7")
        change(gateway, {"user": "meter", "fingerprint": fingerprint(second[0])})
        assert connect(second) == (0, "meter")
        change(gateway, {"user": "line7", "fingerprint": "00" * 32})
        assert connect(first)[0] == 0x87, "line7 has another certificate"
        change(gateway, {"user": "line7", "fingerprint": fingerprint(first[0])}, mode="change")
        assert connect(first) == (0, "line7")
        with pytest.raises(OSError, match="409"):
            change(gateway, {"user": "other", "fingerprint": fingerprint(first[0])})
        one, other = ({"user": name, "fingerprint": fingerprint(pair[0])} for name, pair in
                      (("line7", second), ("meter", first)))  # fmt: skip
        change(gateway, one, other, mode="change")
        assert (connect(first), connect(second)) == ((0, "meter"), (0, "line7"))
        change(gateway, {**one, "user": "meter"}, {**other, "user": "line7"}, mode="change")
        change(gateway, {"user": "line7", "enabled": False}, mode="change")
        assert connect(first)[0] == 0x87
