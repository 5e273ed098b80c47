"""Secrets planted wherever settings take one, and payloads, are looked for wherever the gateway says something."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import gateway_template
import jwt
import pytest
from certificates import Authority
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from gateways import RunningGateway
from patient_device import Device
from pydantic import BaseModel, SecretStr

from gateway.access.passwords import hash_password, write_password_file
from gateway.config.model import Settings
from gateway.mqtt import client
from gateway.mqtt.packets import Will

PLANTED = {
    "users.file": "planted-user-file-1", "users.environment": "planted-user-environment-2",
    "hashed": "planted-hashed-3", "mqi": "planted-mqi-4", "mqi.environment": "planted-mqi-environment-5",
    "operator": "planted-operator-token-6", "reader": "planted-reader-token-7",
    "wrong": "planted-wrong-password-8", "payload": "planted-payload-9", "will": "planted-will-10",
    "property": "planted-property-11", "posted": "planted-posted-12",
    "client": "planted-client-secret-13", "directory": "planted-directory-14",
}  # fmt: skip
ENVIRONMENT = {
    "MQGATE_SECURITY__USERS__CAROL__PASSWORD": PLANTED["users.environment"],
    "MQGATE_QUEUE_MANAGER__EMBEDDED__USERS__ADMIN__PASSWORD": PLANTED["mqi.environment"],
    "MQGATE_ADMIN__OIDC__CLIENT_SECRET": PLANTED["client"],
    "MQGATE_ADMIN__LDAP__PASSWORD": PLANTED["directory"],
}


def secret_fields(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every key of the settings that takes a secret, or the name of a file with one."""
    for name, field in model.model_fields.items():
        here = f"{path}.{name}" if path else name
        kinds = [field.annotation, *get_args(field.annotation)]
        kinds += [inner for kind in kinds for inner in get_args(kind)]
        if SecretStr in kinds or name in {"password_file", "token_file", "read_token_file", "key"}:
            yield here
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from secret_fields(kind, here)


class World:
    """A gateway with a secret in every place, and all that it says."""

    def __init__(self, directory: Path) -> None:
        authority = Authority(directory)
        certificate, self.key = authority.issue("localhost")
        self.signer = ed25519.Ed25519PrivateKey.generate()
        public = jwt.algorithms.OKPAlgorithm.to_jwk(self.signer.public_key(), as_dict=True)
        (directory / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "1", "alg": "EdDSA"}]}))
        for name, text in (
            ("alice.pw", "users.file"),
            ("mqi.pw", "mqi"),
            ("w.token", "operator"),
            ("r.token", "reader"),
        ):
            (directory / name).write_text(PLANTED[text] + "\n")
        write_password_file(directory / "users", {"bob": hash_password(PLANTED["hashed"].encode())})
        self.settings = directory / "settings.yaml"
        self.running = RunningGateway(
            directory,
            settings=f"""
listeners:
  - {{name: plain, port: 0}}
  - {{name: tls, port: 0, tls: {{certificate: {certificate}, key: {self.key}}}}}
admin:
  token_file: w.token
  read_token_file: r.token
  oidc:
    issuer: http://127.0.0.1:9
    client_id: mqgate
    gateway_url: http://127.0.0.1:9160
    roles: [{{value: operators, role: operator}}]
  ldap:
    servers: ["ldap://127.0.0.1:9"]
    start_tls: false
    search_base: "ou=people,dc=plant"
    bind_dn: "cn=reader,dc=plant"
    roles: [{{group: "cn=operators,dc=plant", role: operator}}]
queue_manager: {{embedded: {{path: {directory}/data, users: {{admin: {{}}, app: {{password_file: mqi.pw}}}}}}}}
security:
  users: {{alice: {{password_file: alice.pw}}, carol: {{}}}}
  password_file: users
  jwt: {{jwks_file: keys.json}}
  acl: [{{user: "*", publish: ["open/#"], subscribe: ["#"]}}]
log: {{level: debug}}
""",
            environ=ENVIRONMENT,
        )
        self.running.launch = subprocess.Popen  # its command line is looked at
        self.said: dict[str, str] = {}

    def token(self) -> str:
        private = self.signer.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return jwt.encode({"sub": "dave", "exp": 4_000_000_000}, private, "EdDSA", headers={"kid": "1"})

    def ask(self, method: str, path: str, token: str, body: Any = None) -> str:
        """What the admin port answers, headers included."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.running.admin}{path}", data, {"Authorization": f"Bearer {token}"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return f"{answer.headers}\n{answer.read().decode('utf-8', 'replace')}"
        except urllib.error.HTTPError as error:
            return f"{error.headers}\n{error.read().decode('utf-8', 'replace')}"

    def command(self, *arguments: str) -> str:
        """What a command of ours prints."""
        done = gateway_template.run(*arguments, env={**os.environ, **ENVIRONMENT})
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("secrets"))
    with made.running:
        made.said = said_by(made)
    return made


def connections(world: World) -> None:
    """Everybody comes, with the right word and with a wrong one, and publishes where it may and where it may not."""
    right = {
        "alice": PLANTED["users.file"], "bob": PLANTED["hashed"], "carol": PLANTED["users.environment"],
        "dave": world.token(),
    }  # fmt: skip
    for version in (4, 5):
        for user, password in right.items():
            with Device("127.0.0.1", world.running.port, f"d-{user}", version=version) as device:
                connect = client.connect(
                    version, f"d-{user}", will=Will("w", PLANTED["will"].encode(), 0, retain=False)
                )
                connect.username, connect.password = user, password.encode()
                if version == 5:
                    connect.properties[0x26] = [("k", PLANTED["property"])]
                device._socket.sendall(client.encode_connect(connect))
                device._next(2)
                with contextlib.suppress(Exception):
                    device.publish("open/a", PLANTED["payload"].encode(), 2, retain=True)
                    device.publish("closed/a", PLANTED["payload"].encode(), 1)
        with Device("127.0.0.1", world.running.port, "guesser", version=version) as device:
            assert device.connect("alice", PLANTED["wrong"].encode()) != 0
        with (
            Device("127.0.0.1", world.running.port, "guesser", version=version) as device,
            contextlib.suppress(Exception),
        ):
            broken = client.encode_connect(client.connect(version, "broken"))
            device._socket.sendall(broken[:-1] + PLANTED["wrong"].encode())
            device._next(2)


def said_by(world: World) -> dict[str, str]:
    """Everything the gateway says, by where."""
    said: dict[str, str] = {}
    connections(world)
    for token in (PLANTED["operator"], PLANTED["reader"], PLANTED["wrong"]):
        for path in ("/metrics", "/readyz", "/api/v1/settings", "/api/v1/overview", "/api/v1/clients", "/api/v1/me",
                     "/api/v1/clients/d-alice", "/api/v1/log", "/api/v1/rules", "/api/v1/nothing"):  # fmt: skip
            said[f"GET {path} {token}"] = world.ask("GET", path, token)
    said["sign-in elsewhere"] = world.ask("GET", "/api/v1/sign-in/begin", PLANTED["reader"])
    said["sign-in by the directory"] = world.ask(
        "POST", "/api/v1/session", PLANTED["reader"], {"user": "erin", "password": PLANTED["wrong"]}
    )
    said["wrong body"] = world.ask("PUT", "/api/v1/log", PLANTED["operator"], {"level": "debug", "x": {}})
    world.ask("POST", "/api/v1/queues/MQGATE.DEFAULT/messages", PLANTED["operator"], {"text": PLANTED["posted"]})
    written = world.settings.read_text()
    world.settings.write_text(
        written.replace("alice: {password_file: alice.pw}", f"alice: {{password: {PLANTED['wrong']}}}")
    )
    said["reload, a password in the file"] = world.ask("POST", "/api/v1/reload", PLANTED["operator"], {})
    assert "a file of settings contains a password" in said["reload, a password in the file"]
    world.settings.write_text(written.replace("  token_file: w.token", f"  tokn_file: {PLANTED['wrong']}"))
    said["reload, a misspelt key"] = world.ask("POST", "/api/v1/reload", PLANTED["operator"], {})
    said["mqgate check, a misspelt key"] = world.command("check", str(world.settings))
    assert "is not a known key" in said["mqgate check, a misspelt key"]
    world.settings.write_text(written)
    said["reload"] = world.ask("POST", "/api/v1/reload", PLANTED["operator"], {})
    for arguments in (("check", str(world.settings)), ("doctor", "-c", str(world.settings)),
                      ("explain", "open/a", "-c", str(world.settings), "--as", "alice")):  # fmt: skip
        said[f"mqgate {arguments[0]}"] = world.command(*arguments)
    process = world.running.process
    assert process is not None
    said["its command line"] = Path(f"/proc/{process.pid}/cmdline").read_text()
    world.running.stop()
    said["the log"] = world.running.log
    said["its address"] = (world.running.directory / "data/gateway.json").read_text()
    return said


def test_every_setting_that_is_a_secret_is_planted_here_or_needs_ibm_mq(world: World) -> None:
    text = world.settings.read_text() + " ".join(ENVIRONMENT).lower().replace("__", ".")
    for path in sorted(set(secret_fields(Settings))):
        if path.startswith("queue_manager.ibm"):
            continue  # its password goes to MQCONNX only: tests/contract
        assert path.rsplit(".", 1)[-1] in text, path


def test_no_secret_is_said_anywhere(world: World) -> None:
    secrets = dict(PLANTED)
    secrets["private key"] = world.key.read_text().splitlines()[1]
    secrets["signature"] = world.token().rsplit(".", 1)[1]
    secrets["hash"] = (world.running.directory / "users").read_text().split(":", 1)[1].strip()[-20:]
    found = [(name, where) for where, text in world.said.items() for name, secret in secrets.items() if secret in text]
    assert found == []


def test_what_was_refused_is_in_the_log_all_the_same(world: World) -> None:
    log = world.said["the log"]
    assert "client.refused" in log or "refused" in log
    assert '"audit"' in log
    assert "posted" not in log, "what an operator puts on a queue is a payload too"
