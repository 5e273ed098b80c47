"""Several methods in order on a running gateway: who is known by which, what happens when one is away, and what
`mqgate check --ask` and `mqgate explain --as` say of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gateway_template
import pytest
from gateways import RunningGateway
from key_server import new_key, published, signed
from patient_device import Device, Stranger
from slapd import BASE, SERVICE, SERVICE_PASSWORD, Slapd

from gateway.access.passwords import hash_password, write_password_file
from gateway.errors import ProtocolError

pytest.importorskip("ldap3", reason="the extra `ldap` is not installed")

KEY = new_key()
SETTINGS = """
security:
  anonymous: false
  users: {{eve: {{password_file: eve.pw}}}}
  password_file: users
  jwt: {{jwks_file: keys.json}}
  ldap:
    servers: ["{url}"]
    start_tls: false
    timeout: 20s
    search_base: ou=people,{base}
    bind_dn: "{service}"
    password_file: reader.pw
    roles:
      - {{group: "cn=operators,ou=groups,{base}", role: operators}}
      - {{group: "cn=devices,ou=groups,{base}", role: devices}}
    user: "{{role}}:{{user}}"
  methods: [jwt, users, ldap, password_file]
  acl:
    - {{user: "operators:*", allow: ["#"]}}
    - {{user: "devices:*", publish: ["plant/{{client}}/#"]}}
    - {{user: "*", publish: ["t/#"]}}
process: {{drain_timeout: 1s}}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    with Slapd(tmp_path_factory.mktemp("slapd") / "one") as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, server: Slapd) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("methods")
    (folder / "eve.pw").write_text("evil\n")
    (folder / "reader.pw").write_text(f"{SERVICE_PASSWORD}\n")
    (folder / "keys.json").write_text(json.dumps({"keys": [published(KEY, "k1")]}))
    hashes = {"dev-1": hash_password(b"pw", pbkdf2=True, iterations=1000)}
    write_password_file(folder / "users", hashes)
    settings = SETTINGS.format(url=server.url, base=BASE, service=SERVICE)
    with RunningGateway(folder, settings=settings) as running:
        yield running


def login(gateway: RunningGateway, user: str, password: bytes, client_id: str = "c1") -> int:
    with Stranger("127.0.0.1", gateway.port, client_id, version=5, timeout=60) as device:
        return device.connect(user, password)


def until(met: Callable[[], bool], gateway: RunningGateway) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, gateway.log
        time.sleep(0.05)


def logins(gateway: RunningGateway, method: str) -> float:
    return gateway.metric(f'mqgate_mqtt_logins_total{{method="{method}"}}')


@pytest.mark.parametrize(("user", "password", "method"), [
    ("eve", b"evil", "users"), ("alice", b"wonder", "ldap"), ("dev-1", b"pw", "password_file"),
    ("", signed(KEY, "k1"), "jwt"),
])  # fmt: skip
def test_each_is_known_by_its_method(gateway: RunningGateway, user: str, password: bytes, method: str) -> None:
    before = logins(gateway, method)
    client_id = f"by-{method}"
    assert login(gateway, user, password, client_id) == 0
    assert logins(gateway, method) == before + 1
    until(
        lambda: any(f'"{client_id}"' in line and "disconnected" in line for line in gateway.log.splitlines()), gateway
    )
    lines = [json.loads(line) for line in gateway.log.splitlines() if f'"{client_id}"' in line]
    assert method in {line.get("method") for line in lines}


def test_a_wrong_password_is_wrong_for_all(gateway: RunningGateway) -> None:
    for user in ("eve", "alice", "dev-1", "nobody", "*", "alice)(uid=*"):
        assert login(gateway, user, b"wrong") == 0x86


def test_groups_are_what_access_lists_name(gateway: RunningGateway) -> None:
    with Device("127.0.0.1", gateway.port, "line7", version=5, timeout=60) as device:
        assert device.connect("bob", b"builder") == 0
        device.publish("plant/line7/x", b"1", 1)
        with pytest.raises(ProtocolError):
            device.publish("other/x", b"1", 1)
    with Device("127.0.0.1", gateway.port, "desk", version=5, timeout=60) as device:
        assert device.connect("Alice", b"wonder") == 0
        device.publish("plant/line7/x", b"1", 1)
    assert login(gateway, "carol", b"sings") == 0x86, "she is in no group"


def test_check_tries_each_method(gateway: RunningGateway) -> None:
    def ask(user: str, password: bytes, *more: str) -> subprocess.CompletedProcess[bytes]:
        settings = next(gateway.directory.glob("*.yaml"))
        command = [
            sys.executable,
            "-m",
            "gateway",
            "check",
            str(settings),
            "--ask",
            user,
            "--password-file",
            "-",
            *more,
        ]
        return subprocess.run(
            command, input=password, capture_output=True, check=False, timeout=100, env=dict(os.environ)
        )

    done = ask("alice", b"wonder\n")
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    assert "ldap: lets in as operators:alice" in said
    assert "password_file: does not know" in said
    assert "the password is not a token" in said
    done = ask("bob", b"wrong\n")
    assert (done.returncode, done.stdout.decode().splitlines()[-1]) == (1, "nobody lets in bob: 1 file, 0 tests passed")
    done = ask("", signed(KEY, "k1", exp=1), "--json")
    assert done.returncode == 1
    methods = {one["method"]: one["says"] for one in json.loads(done.stdout)["methods"]}
    assert list(methods) == ["jwt", "users", "ldap", "password_file"]
    assert methods["jwt"].endswith("the token is refused: it has expired")
    assert b"wonder" not in done.stdout


def test_explain_names_the_methods(gateway: RunningGateway) -> None:
    settings = next(gateway.directory.glob("*.yaml"))
    done = gateway_template.run("explain", "t/x", "-c", settings, "--as", "eve")
    assert "SCRAM, jwt, users, ldap, password_file" in done.stdout, done.stderr


def test_when_the_directory_is_away_its_users_come_again_and_others_come_in(
    gateway: RunningGateway, server: Slapd
) -> None:
    """The last test of this file: it ends the server, and begins it again."""
    assert login(gateway, "bob", b"builder") == 0
    server.stop()
    try:
        assert login(gateway, "bob", b"builder") == 0, "remembered"
        assert login(gateway, "dev-1", b"pw") == 0
        assert login(gateway, "eve", b"evil") == 0
        assert login(gateway, "alice", b"not-asked-yet") == 0x88
        until(lambda: "identity.unavailable" in gateway.log, gateway)
        assert gateway.metric('mqgate_identity_requests_total{method="ldap",result="failed"}') >= 1
    finally:
        server.start()
    until(lambda: login(gateway, "alice", b"not-asked-yet") == 0x86, gateway)
    assert SERVICE_PASSWORD not in gateway.log
    assert "wonder" not in gateway.log


def test_methods_that_have_no_settings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "eve.pw").write_text("evil\n")
    text = "security: {users: {eve: {password_file: eve.pw}}, methods: [users, ldap]}\n"
    with pytest.raises(AssertionError, match="`ldap` has no settings"):
        RunningGateway(tmp_path, settings=text).start()
