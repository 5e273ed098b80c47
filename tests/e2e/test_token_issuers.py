"""Tokens of issuers that publish their keys: discovery, rotation, outages, renewal by AUTH, on a running gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gateways import RunningGateway
from key_server import KeyServer, new_key, signed
from patient_device import Device, Stranger

from gateway.errors import ProtocolError
from gateway.mqtt import client, writer
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Auth

FIRST, SECOND = new_key(), new_key()
SETTINGS = """
security:
  anonymous: false
  jwt:
    - {{issuer: "{first.url}", audience: devices, user_claim: "one-{{sub}}", client_id_claim: cid, timeout: 20s,
        leeway: 1s}}
    - {{issuer: two, jwks_url: "{second.url}/keys", user_claim: "two-{{sub}}", timeout: 20s}}
process: {{drain_timeout: 1s}}
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[KeyServer, KeyServer]]:
    with KeyServer() as first, KeyServer() as second:
        first.discovered()
        first.publishes(("k1", FIRST))
        second.publishes(("k1", SECOND))
        yield first, second


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, servers: tuple[KeyServer, KeyServer]) -> Iterator[RunningGateway]:
    settings = SETTINGS.format(first=servers[0], second=servers[1])
    with RunningGateway(tmp_path_factory.mktemp("issuers"), settings=settings) as running:
        yield running


def token(servers: tuple[KeyServer, KeyServer], **claims: object) -> bytes:
    return signed(FIRST, "k1", **{"iss": servers[0].url, "aud": "devices", "cid": "c1", **claims})


def login(gateway: RunningGateway, password: bytes, client_id: str = "c1", user: str = "") -> int:
    with Stranger("127.0.0.1", gateway.port, client_id, version=5) as device:
        return device.connect(user, password)


def until(met: Callable[[], bool], gateway: RunningGateway) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, gateway.log
        time.sleep(0.05)


def test_each_issuer_names_its_own_users(gateway: RunningGateway, servers: tuple[KeyServer, KeyServer]) -> None:
    assert login(gateway, token(servers)) == 0
    assert login(gateway, signed(SECOND, "k1", iss="two"), "any") == 0
    assert login(gateway, token(servers), user="one-d7") == 0
    assert login(gateway, token(servers), user="d7") == 0x86
    assert login(gateway, signed(SECOND, "k1", iss=servers[0].url, aud="devices", cid="c1")) == 0x86
    assert login(gateway, signed(FIRST, "k1", iss="two")) == 0x86
    assert login(gateway, signed(FIRST, "k1", iss="three")) == 0x86
    assert gateway.metric('mqgate_identity_requests_total{method="jwt",result="ok"}') >= 2
    assert gateway.metric("mqgate_token_keys_age_seconds") >= 0


def test_the_token_says_which_client_it_is_for(gateway: RunningGateway, servers: tuple[KeyServer, KeyServer]) -> None:
    assert login(gateway, token(servers), "c2") == 0x85
    assert login(gateway, token(servers, cid=None), "c1") == 0x86
    with Device("127.0.0.1", gateway.port, "", version=5) as device:
        device._socket.sendall(client.encode_connect(_connect("", "", token(servers, cid="made"))))
        answer: Any = device._next(2)
        assert answer[1].reason == 0
        assert answer[1].properties[prop.ASSIGNED_CLIENT_IDENTIFIER] == "made"


def _connect(client_id: str, user: str | None, password: bytes | None, method: bytes | None = None) -> Any:
    connect = client.connect(5, client_id)
    connect.username, connect.password = user, password
    if method is not None:
        connect.properties = {prop.AUTHENTICATION_METHOD: "JWT", prop.AUTHENTICATION_DATA: method}
    return connect


def _renew(device: Device, data: bytes) -> Any:
    block = {prop.AUTHENTICATION_METHOD: "JWT", prop.AUTHENTICATION_DATA: data}
    device._socket.sendall(writer.encode_auth(Auth(0x19, block)))
    return device._next(15)


def test_a_token_is_renewed_by_auth_before_it_ends(
    gateway: RunningGateway, servers: tuple[KeyServer, KeyServer]
) -> None:
    """The connection outlives its first token, and ends with the last one."""
    for seconds in (3, 30):  # the first may be over before it is looked at or renewed, where everything stands still
        short = token(servers, exp=time.time() + seconds)
        with Device("127.0.0.1", gateway.port, "c1", version=5) as device:
            device._socket.sendall(client.encode_connect(_connect("c1", None, None, short)))
            answer: Any = device._next(2)
            if answer[1].reason:
                continue
            assert answer[1].properties[prop.AUTHENTICATION_METHOD] == "JWT"
            ends = time.time() + seconds + 5
            try:
                assert _renew(device, token(servers, exp=ends))[1].reason == 0
            except ProtocolError:
                continue
            said: Any = device._next(14)
            assert said[1].reason == 0x87
            assert time.time() >= ends - 1, "not with the first"
            return
    raise AssertionError("it was not renewed")


@pytest.mark.parametrize("changes", [
    {"sub": "other"}, {"cid": "c9"}, {"aud": "others"}, {"exp": time.time() - 60}, {"iss": "two"}, None,
])  # fmt: skip
def test_what_renews_nothing_ends_the_connection(
    gateway: RunningGateway, servers: tuple[KeyServer, KeyServer], changes: dict[str, object] | None
) -> None:
    with Device("127.0.0.1", gateway.port, "c1", version=5, timeout=60) as device:
        device._socket.sendall(client.encode_connect(_connect("c1", None, None, token(servers))))
        assert device._next(2)[1].reason == 0  # type: ignore[attr-defined]
        data = b"no token" if changes is None else token(servers, **changes)
        block = {prop.AUTHENTICATION_METHOD: "JWT", prop.AUTHENTICATION_DATA: data}
        device._socket.sendall(writer.encode_auth(Auth(0x19, block)))
        assert device._next(14)[1].reason == 0x87  # type: ignore[attr-defined]


def test_what_is_wrong_with_a_token_is_in_the_log(
    gateway: RunningGateway, servers: tuple[KeyServer, KeyServer]
) -> None:
    assert login(gateway, token(servers, aud="others")) == 0x86
    until(lambda: "the token is refused: it is for another audience" in gateway.log, gateway)


def test_devices_come_and_publish_while_a_provider_hangs(tmp_path: Path, servers: tuple[KeyServer, KeyServer]) -> None:
    """From the start on: one issuer's devices wait, all others do not; they are told to come again. What it publishes
    at last is taken."""
    with KeyServer() as hanging:
        hanging.free.clear()
        settings = f"""
security:
  users: {{eve: {{password_file: eve.pw}}}}
  jwt: [{{issuer: hangs, jwks_url: "{hanging.url}/keys", timeout: 2s}},
        {{issuer: two, jwks_url: "{servers[1].url}/keys", timeout: 20s}}]
"""
        (tmp_path / "eve.pw").write_text("evil\n")
        hanging.publishes(("k1", FIRST))
        with RunningGateway(tmp_path, settings=settings) as gateway:
            until(lambda: hanging.asked != [], gateway)
            assert login(gateway, signed(SECOND, "k1", iss="two"), "a") == 0
            with Device("127.0.0.1", gateway.port, "b", version=5) as device:
                assert device.connect("eve", b"evil") == 0
                device.publish("t/x", b"1", 1)
            assert login(gateway, signed(FIRST, "k1", iss="hangs"), "c") in {0x88, 0x89}
            until(lambda: "identity.unavailable" in gateway.log, gateway)
            [problem] = [one for one in gateway.api("GET", "/overview")["problems"] if "identities" in one]
            assert f"does not answer: {hanging.url}/keys has not answered within 2 s" in problem
            hanging.free.set()
            until(lambda: "identity.available" in gateway.log.partition("identity.unavailable")[2], gateway)
            assert login(gateway, signed(FIRST, "k1", iss="hangs"), "c") == 0
            assert gateway.metric('mqgate_identity_requests_total{method="jwt",result="failed"}') >= 1
            assert not [one for one in gateway.api("GET", "/overview")["problems"] if "identities" in one]
