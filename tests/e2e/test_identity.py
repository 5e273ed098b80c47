"""Identity and authority on a running gateway: passwords, tokens, access list, over real connections."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from gateways import RunningGateway
from patient_device import Device, Stranger

from gateway.access.passwords import hash_password, write_password_file
from gateway.errors import ProtocolError

SETTINGS = """
security:
  anonymous: false
  password_file: users
  users: {eve: {password_file: eve.pw}}
  jwt: {jwks_file: keys.json, audience: devices, leeway: 1s}
  acl:
    - {user: "*", deny_publish: ["secret/#"]}
    - {user: "alice", publish: ["plant/{client}/#"], subscribe: ["plant/{client}/cmd/#"]}
    - {user: "eve", allow: ["#"]}
    - {user: "token-*", publish: ["t/#"]}
"""
KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    directory = tmp_path_factory.mktemp("identity")
    write_password_file(directory / "users", {"alice": hash_password(b"pw", pbkdf2=True, iterations=5000)})
    (directory / "eve.pw").write_text("evil\n")
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key()))
    (directory / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "k1", "use": "sig", "alg": "ES256"}]}))
    with RunningGateway(directory, settings=SETTINGS) as running:
        yield running


def connect(gateway: RunningGateway, user: str | None, password: bytes | None, version: int = 5) -> int:
    with Stranger("127.0.0.1", gateway.port, "c1", version=version) as device:
        return device.connect(user, password)


def token(**claims: object) -> bytes:
    body = {"sub": "token-7", "aud": "devices", "exp": time.time() + 60, **claims}
    return jwt.encode(body, KEY, "ES256", {"kid": "k1"}).encode()


def test_a_password_of_the_file_lets_in_and_a_wrong_one_does_not(gateway: RunningGateway) -> None:
    assert connect(gateway, "alice", b"pw") == 0
    assert connect(gateway, "alice", b"pW") == 0x86
    assert connect(gateway, "alice", b"pw") == 0, "the right one still works, from memory"
    assert connect(gateway, "alice", b"w0rr0ng", version=4) == 5
    assert connect(gateway, "eve", b"evil", version=3) == 0


def test_anonymous_is_refused_where_it_is_off(gateway: RunningGateway) -> None:
    assert connect(gateway, None, None) == 0x87
    assert connect(gateway, None, None, version=4) == 5


def test_tokens_are_checked_by_signature_audience_and_expiry(gateway: RunningGateway) -> None:
    assert connect(gateway, None, None) == 0x87
    assert connect(gateway, "token-7", token()) == 0
    assert connect(gateway, "other", token()) == 0x86
    assert connect(gateway, "token-7", token(aud="others")) == 0x86
    assert connect(gateway, "token-7", token(exp=time.time() - 60)) == 0x86
    forged = jwt.encode({"sub": "token-7", "aud": "devices", "exp": time.time() + 60}, "k" * 32, "HS256").encode()
    assert connect(gateway, "token-7", forged) == 0x86


def test_a_token_that_expires_ends_its_connection(gateway: RunningGateway) -> None:
    """Whoever comes with a token is let in for as long as the token says, and told why when that is over."""
    for seconds in (2, 30):  # the first may be over before it is looked at, on a machine that stands still
        with Device("127.0.0.1", gateway.port, "passing", version=5, timeout=60) as device:
            if device.connect("token-7", token(exp=time.time() + seconds)) == 0:
                said = device._next(14)
                assert said[1].reason == 0x87
                assert "expired" in said[1].properties[0x1F]
                return
    raise AssertionError("it was not let in")


@pytest.mark.parametrize("version", [4, 5])
def test_who_comes_back_with_a_token_that_is_none_any_more_stays_out(gateway: RunningGateway, version: int) -> None:
    """The older connection of the same client goes on meanwhile, and is not taken over by what was refused."""
    with Device("127.0.0.1", gateway.port, "renews", version=version) as device:
        assert device.connect("token-7", token()) == 0
        for wrong in (token(exp=time.time() - 60), token(nbf=time.time() + 60), token(aud="others")):
            with Stranger("127.0.0.1", gateway.port, "renews", version=version) as again:
                assert again.connect("token-7", wrong) == (0x86 if version == 5 else 5)
        device.publish("t/x", b"1", 1)
        with Device("127.0.0.1", gateway.port, "renews", version=version) as again:
            assert again.connect("token-7", token()) == 0
            again.publish("t/x", b"1", 1)


def test_a_token_with_brackets_without_end_costs_its_own_connection_only(gateway: RunningGateway) -> None:
    hostile = jwt.utils.base64url_encode(b'{"alg":"ES256","x":' + b"[" * 5000 + b"]" * 5000 + b"}") + b".e30.AAAA"
    assert connect(gateway, "token-7", hostile) == 0x86
    assert '"defect"' not in gateway.log


def test_new_keys_are_taken_by_a_reload_and_the_old_ones_are_void(gateway: RunningGateway) -> None:
    path, other = gateway.directory / "keys.json", ec.generate_private_key(ec.SECP256R1())
    old = path.read_text()
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(other.public_key()))
    with Device("127.0.0.1", gateway.port, "stays", version=5) as device:
        assert device.connect("token-7", token()) == 0
        path.write_text(json.dumps({"keys": [{**public, "kid": "k2", "use": "sig", "alg": "ES256"}]}))
        reload(gateway, "ok")
        body = {"sub": "token-7", "aud": "devices", "exp": time.time() + 60}
        assert connect(gateway, "token-7", jwt.encode(body, other, "ES256", {"kid": "k2"}).encode()) == 0
        assert connect(gateway, "token-7", token()) == 0x86
        path.write_text("no key set")
        reload(gateway, "failed")
        assert connect(gateway, "token-7", jwt.encode(body, other, "ES256", {"kid": "k2"}).encode()) == 0
        path.write_text(old)
        reload(gateway, "ok")
        assert connect(gateway, "token-7", token()) == 0
        device.publish("t/x", b"1", 1)  # who is in stays in


def reload(gateway: RunningGateway, result: str) -> None:
    """SIGHUP, until it is counted."""
    series = f'mqgate_config_reloads_total{{result="{result}"}}'
    before, until = gateway.metric(series), time.monotonic() + 30
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGHUP)
    while gateway.metric(series) == before:
        assert time.monotonic() < until, gateway.log
        time.sleep(0.02)


def test_the_access_list_decides_about_topics(gateway: RunningGateway) -> None:
    with Device("127.0.0.1", gateway.port, "line7", version=5) as device:
        assert device.connect("alice", b"pw") == 0
        device.publish("plant/line7/temperature", b"21", 1)
        for topic in ("plant/line8/temperature", "secret/x"):
            with pytest.raises(ProtocolError) as caught:
                device.publish(topic, b"21", 1)
            assert caught.value.reason == 0x87
        assert device.subscribe("plant/line7/cmd/#", 1) == 1
        assert device.subscribe("plant/#", 1) == 0x87


def test_a_denied_publication_is_acknowledged_in_3_1_1_and_not_delivered(gateway: RunningGateway) -> None:
    before = gateway.metric('mqgate_mq_put_messages_total{qmgr="MQGATE",route="everything"}')
    with Device("127.0.0.1", gateway.port, "line9", version=4) as device:
        assert device.connect("alice", b"pw") == 0
        device.publish("secret/x", b"21", 1)
        device.publish("plant/line9/x", b"21", 1)
    assert gateway.metric('mqgate_mq_put_messages_total{qmgr="MQGATE",route="everything"}') == before + 1


def test_mosquitto_clients_log_in(gateway: RunningGateway) -> None:
    command = ["mosquitto_pub", "-p", str(gateway.port), "-u", "eve", "-P", "evil", "-t", "a", "-m", "x", "-q", "1"]
    assert subprocess.run(command, check=False, capture_output=True, timeout=20).returncode == 0
    assert subprocess.run([*command[:6], "bad", *command[7:]], check=False, capture_output=True, timeout=20).returncode


def test_no_secret_is_in_the_log(gateway: RunningGateway) -> None:
    for secret in ("evil", "pW", "w0rr0ng"):
        assert secret not in gateway.log


def test_settings_that_let_nobody_in_are_refused(tmp_path: Path) -> None:
    gateway = RunningGateway(tmp_path, settings="security: {anonymous: false, certificate_user: none}\n")
    with pytest.raises(AssertionError, match="nobody could connect"):
        gateway.start()
