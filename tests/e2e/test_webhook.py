"""The service of the howto asked by a running gateway: its own example, what a login gives, outages, and other devices
that notice nothing of a service that hangs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from gateways import RunningGateway
from key_server import KeyServer, Request, new_key, published, signed
from patient_device import Device, Stranger

from gateway.errors import ProtocolError
from gateway.mqtt import client, writer
from gateway.mqtt import properties as prop
from gateway.mqtt.packets import Auth

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "ask-a-service.md"
"""The page whose commands are run here."""


def until(met: Callable[[], bool], gateway: RunningGateway) -> None:
    end = time.monotonic() + 60
    while not met():
        assert time.monotonic() < end, gateway.log
        time.sleep(0.02)


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The example, as it stands there."""
    folder, port = tmp_path_factory.mktemp("service"), free_port()
    (folder / "service.token").write_text("s3cret\n")
    (folder / "service.py").write_text(block("python"))
    process = subprocess.Popen([sys.executable, "service.py", str(port)], cwd=folder, stderr=subprocess.DEVNULL)
    yield folder, port
    process.kill()
    process.wait(30)


@pytest.fixture(scope="module")
def gateway(service: tuple[Path, int]) -> Iterator[RunningGateway]:
    folder, port = service
    settings = block("yaml").split("\n", 1)[1].replace(":8090", f":{port}")
    with RunningGateway(folder, settings=settings + "process: {drain_timeout: 1s}\n") as running:
        yield running


def login(gateway: RunningGateway, user: str, password: bytes, client_id: str = "c1") -> int:
    with Stranger("127.0.0.1", gateway.port, client_id, version=5, timeout=60) as device:
        return device.connect(user, password)


def test_the_example_of_the_page(gateway: RunningGateway) -> None:
    until(lambda: login(gateway, "line7", b"seven") == 0, gateway)
    assert login(gateway, "line7", b"eight") == 0x86
    assert login(gateway, "line9", b"") == 0x86
    with Device("127.0.0.1", gateway.port, "c7", version=5, timeout=60) as device:
        assert device.connect("line7", b"seven") == 0
        device.publish("plant/line7/t", b"1", 1)
        assert device.subscribe("plant/line7/cmd/+", 1) in {0, 1}
        with pytest.raises(ProtocolError):
            device.publish("plant/line8/t", b"1", 1)
    with Device("127.0.0.1", gateway.port, "c8", version=5, timeout=60) as device:
        assert device.connect("line8", b"eight") == 0
        assert device.subscribe("plant/line7/cmd/#", 1) == 0x87
    assert gateway.metric('mqgate_mqtt_logins_total{method="webhook"}') >= 3
    assert "seven" not in gateway.log
    assert "s3cret" not in gateway.log


def test_one_without_a_client_identifier_is_given_one(gateway: RunningGateway) -> None:
    with Device("127.0.0.1", gateway.port, "", version=5, timeout=60) as device:
        assert device.connect("line7", b"seven") == 0
        device.publish("plant/line7/t", b"1", 1)
        with pytest.raises(ProtocolError):
            device.publish("plant/line8/t", b"1", 1)


def _connect(client_id: str, user: str | None, password: bytes | None) -> Any:
    connect = client.connect(5, client_id)
    connect.username, connect.password = user, password
    return connect


SETTINGS = """
security:
  anonymous: false
  users: {{eve: {{password_file: eve.pw}}}}
  webhook: {{url: "{url}/login", timeout: 2s, fail: {fail}}}
  jwt: {{jwks_file: keys.json, topics_claim: topics}}
  methods: [jwt, webhook, users]
  acl:
    - {{user: eve, allow: ["#"]}}
    - {{user: "*", deny_publish: ["plant/secret/#"]}}
process: {{drain_timeout: 1s}}
"""
KEY = new_key()


def begun(folder: Path, url: str, fail: str = "closed") -> RunningGateway:
    (folder / "eve.pw").write_text("evil\n")
    (folder / "keys.json").write_text(json.dumps({"keys": [published(KEY, "k1")]}))
    return RunningGateway(folder, settings=SETTINGS.format(url=url, fail=fail))


def test_a_service_that_hangs_keeps_its_own_users_waiting_and_nobody_else(tmp_path: Path) -> None:
    with KeyServer() as server:
        server.free.clear()
        with begun(tmp_path, server.url) as gateway, Device("127.0.0.1", gateway.port, "eve", timeout=60) as eve:
            assert eve.connect("eve", b"evil") == 0, "another method knows her, once the service has not answered"
            waiting = [Device("127.0.0.1", gateway.port, f"w{number}", version=5, timeout=60) for number in range(20)]
            for device in waiting:
                device._socket.sendall(client.encode_connect(_connect(device.client_id, "line7", b"x")))
            for number in range(20):
                eve.publish("t/x", b"%d" % number, 1)
            for device in waiting:
                answer: Any = device._next(2)
                assert answer[1].reason == 0x88
                device.close()
            until(lambda: "identity.unavailable" in gateway.log, gateway)
        server.free.set()


def test_where_it_fails_open_names_are_believed_meanwhile(tmp_path: Path) -> None:
    with begun(tmp_path, "http://127.0.0.1:9", "open") as gateway:
        assert login(gateway, "anybody", b"x") == 0
        assert login(gateway, "", b"x") == 0x88
        with Device("127.0.0.1", gateway.port, "e", version=5, timeout=60) as device:
            assert device.connect("eve", b"evil") == 0, "she is known by her password"
            device.publish("plant/secret/x", b"1", 1)


def test_a_token_brings_its_topics_and_a_renewed_one_others(tmp_path: Path) -> None:
    def token(*topics: str) -> bytes:
        return signed(KEY, "k1", topics=list(topics))

    with begun(tmp_path, "http://127.0.0.1:9") as gateway:
        first = {prop.AUTHENTICATION_METHOD: "JWT", prop.AUTHENTICATION_DATA: token("a/#", "both/#")}
        second = {prop.AUTHENTICATION_METHOD: "JWT", prop.AUTHENTICATION_DATA: token("b/#", "both/#")}
        with (
            Device("127.0.0.1", gateway.port, "c1", version=5, timeout=60) as device,
            Device("127.0.0.1", gateway.port, "e", version=5, timeout=60) as eve,
        ):
            assert eve.connect("eve", b"evil") == 0
            request = _connect("c1", None, None)
            request.properties = first
            device._socket.sendall(client.encode_connect(request))
            answer: Any = device._next(2)
            assert answer[1].reason == 0
            assert device.subscribe("a/+", 1) == 1
            assert device.subscribe("both/+", 1) == 1
            device.publish("a/x", b"its own", 1)
            assert device.receive() == ("a/x", b"its own")
            device._socket.sendall(writer.encode_auth(Auth(0x19, second)))
            answer = device._next(15)
            assert answer[1].reason == 0
            eve.publish("a/1", b"not for it any more", 1)
            eve.publish("both/1", b"for it", 1)
            assert device.receive() == ("both/1", b"for it")
            device.publish("b/x", b"1", 1)
            with pytest.raises(ProtocolError):
                device.publish("a/x", b"1", 1)


def test_a_login_that_has_ended_lets_nobody_in_also_as_long_as_its_answer_is_kept(tmp_path: Path) -> None:
    """Whom it let in was disconnected at once, and came again."""
    ends = [time.time() - 60]

    def answers(request: Request) -> None:
        asked = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        request.give({"logins": [{"allow": True, "user": one["user"], "ends": ends[0]} for one in asked["logins"]]})

    with KeyServer() as service:
        service.paths["/login"] = answers
        with begun(tmp_path, service.url) as gateway:
            assert login(gateway, "line7", b"seven") == 0x87
            until = time.monotonic() + 60  # the log is written behind the answer
            while "its login has ended" not in gateway.log and time.monotonic() < until:
                time.sleep(0.05)
            assert "its login has ended" in gateway.log
            for seconds in (3, 30):  # the first may be over before it is let in, on a machine that stands still
                ends[0] = time.time() + seconds
                with Device("127.0.0.1", gateway.port, "c7", version=5, timeout=60) as device:
                    said: Any = device._next(14) if device.connect("line8", b"eight") == 0 else None
                if said is not None:
                    break
            assert (said[1].reason, said[1].properties[prop.REASON_STRING]) == (0x87, "its login has ended")
            assert login(gateway, "line8", b"eight") == 0x87
            ends[0] = time.time() + 60
            assert login(gateway, "line8", b"eight") == 0
