"""A queue manager that says nothing: devices go on, whoever looks at its queues is told, and the gateway still ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gateway_template
import mqi_clients
import pytest
from bridge_estate import Talker, wait
from gateways import RunningGateway
from long_form import in_long_form

from gateway.mqtt import client, writer
from gateway.mqtt.client import server_reader
from gateway.mqtt.packets import PINGRESP

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
STATE = (Path(__file__).parents[2] / "deploy" / "mq" / "state.mqsc").read_text()
PATIENCE = 1.0
SETTINGS = f"""
queue_manager:
  ibm: {{name: MQGATE, connection: "localhost(1414)", channel: DEV.APP.SVRCONN, driver: DRIVER, connections: 2}}
admin: {{answer_timeout: {PATIENCE}s}}
mappings: [map.yaml]
"""
MAPPING = "version: 1\nto_mq:\n  - {name: up, topic: 'up/#', queue: UP.Q}\n"


class Estate:
    def __init__(self, directory: Path, driver: str) -> None:
        host, edge, where = directory / "qm", directory / "gw", directory / "s"
        host.mkdir()
        edge.mkdir()
        (host / "objects.mqsc").write_text(f"DEFINE QLOCAL(UP.Q) REPLACE\n{STATE}")
        (edge / "map.yaml").write_text(MAPPING)
        manager = f"queue_manager: {{embedded: {{objects: objects.mqsc, socket: {where}}}}}\n"
        self.manager = RunningGateway(host, settings=manager)
        environ = mqi_clients.program_environment(str(where), *mqi_clients.BINDINGS)
        self.gateway = RunningGateway(edge, settings=SETTINGS.replace("DRIVER", driver), environ=environ)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """The process stands still: its sockets are open and nothing is answered."""
        assert self.manager.process is not None
        self.manager.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.manager.process.send_signal(signal.SIGCONT)

    def ask(self, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
        token = next(self.gateway.directory.rglob("admin.token"))
        (self.gateway.directory / "data").mkdir(exist_ok=True)
        (self.gateway.directory / "data" / "admin.token").write_text(token.read_text())
        try:
            return 200, self.gateway.api(method, path, body)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())["detail"]

    def until_answered(self, path: str) -> Any:
        until = time.monotonic() + 60
        while (found := self.ask(path))[0] != 200:
            assert time.monotonic() < until, found
            time.sleep(0.1)
        return found[1]

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        folder, environ = self.gateway.directory, {**os.environ, **self.gateway.environ}
        return gateway_template.run(*words, "-c", folder / "settings.yaml", cwd=folder, env=environ)


@pytest.fixture(params=["ibmmq", *in_long_form("pymqi")])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Estate]:
    made = Estate(tmp_path, request.param)
    with made.manager, made.gateway:
        yield made


DEVICES = 20


def _stay(site: Estate, name: str) -> Talker:
    """A device with a session that is stored, and messages in it."""
    device = Talker(site.gateway.port, name, clean=False)
    device.subscribe("news", 1)
    device.socket.close()
    return device


def test_sessions_that_cannot_be_read_hold_up_nobody_else(tmp_path: Path) -> None:
    """With a patience of minutes a read in the reactor would be one of minutes."""
    site = Estate(tmp_path, "ibmmq")
    site.gateway.program = [str(Path(__file__).parent / "waiting_gateway.py")]
    site.gateway.settings += "mqtt: {connect_timeout: 10s}\n"
    with site.manager, site.gateway:
        for name in ("resumes", "anew", "waits"):
            _stay(site, name)
        devices = [Talker(site.gateway.port, f"d{number}") for number in range(DEVICES)]
        devices[0].subscribe("talk/#", 0)
        for number in range(10):
            devices[1].publish("news", b"%d" % number, 1)
        waits = Talker(site.gateway.port, "waits", clean=False)  # is being read when it falls silent, or just before
        with site.silence():
            anew = socket.create_connection(("127.0.0.1", site.gateway.port), 20)
            anew.sendall(client.encode_connect(client.connect(5, "anew", clean_start=True)))
            resumes = socket.create_connection(("127.0.0.1", site.gateway.port), 20)
            asked = client.connect(5, "resumes", clean_start=False, keep_alive=0)
            asked.properties[0x11] = 3600
            resumes.sendall(client.encode_connect(asked))
            until = time.monotonic() + 5
            while time.monotonic() < until:
                for number, device in enumerate(devices):
                    device.socket.sendall(writer.encode_publish(5, b"talk/%d" % number, b"x", 0) + b"\xc0\x00")
                for device in devices:
                    device.next(PINGRESP)
            for waited in (anew, resumes):  # for what is stored; for the commit
                refused = server_reader(5).feed(waited.recv(1000))
                assert refused[0][1].reason == 0x88, refused
                assert waited.recv(1) == b""
                waited.close()
        with Talker(site.gateway.port, "anew") as again:
            assert again.publish("up/1", b"one", 1) == 0
        assert waits.receive()[1] == b"0"
        with Talker(site.gateway.port, "resumes", clean=False) as resumed:
            assert resumed.receive()[1] == b"0"


@pytest.mark.parametrize("site", ["ibmmq", "pymqi"], indirect=True)
def test_devices_go_on_and_who_asks_is_told(site: Estate) -> None:
    with Talker(site.gateway.port, "dev") as device:
        device.publish("up/1", b"one", 1)
        found = site.until_answered("/queues/UP.Q")
        assert (found["depth"], found["attributes"]["CURDEPTH"]) == (1, "1")
        with site.silence():
            status, sentence = site.ask("/queues/UP.Q/messages", "POST", {"text": "perhaps"})
            assert status == 504
            assert "the queue manager has not answered for" in sentence
            assert "may still be done" in sentence
            status, sentence = site.ask("/dlq")
            assert (status, "the queue manager has not answered for" in sentence) == (503, True)
            assert "nothing was asked of it" in sentence
            for _ in range(3):  # the reactor does everything else
                device.socket.sendall(b"\xc0\x00")
                device.next(PINGRESP)
                assert site.ask("/journey?msg_id=" + "AB" * 24)[0] == 503
                assert "mqgate_mqtt_connections" in site.gateway.get("/metrics")
            overview = site.ask("/overview")[1]
            assert any("IBM MQ has not answered" in line for line in overview["problems"])
            done = site.command("dlq", "list")
            assert done.returncode == 3
            assert "the queue manager has not answered for" in done.stderr
        assert site.until_answered("/dlq")["total"] == 0
        assert site.until_answered("/queues/UP.Q")["depth"] == 2  # the sentence had said so
        device.publish("up/2", b"two", 1)


def test_it_is_not_ready_meanwhile(tmp_path: Path) -> None:
    """Its connections are open for as long as nobody notices; devices are better sent to another gateway."""
    site = Estate(tmp_path, "ibmmq")
    site.gateway.settings = site.gateway.settings.replace("connections: 2", "connections: 2, lease: 2s")
    with site.manager, site.gateway:
        assert "[+] queue manager\n" in site.gateway.get("/readyz")
        with site.silence():
            wait(lambda: "[-] queue manager: it has not answered for" in _ready(site))
        wait(lambda: _ready(site).endswith("\nok\n"))


def _ready(site: Estate) -> str:
    try:
        return site.gateway.get("/readyz")
    except urllib.error.HTTPError as error:
        return error.read().decode()


def test_without_a_gateway_the_command_does_not_hang_either(site: Estate) -> None:
    site.gateway.kill()
    assert site.command("queue", "list").returncode == 0
    with site.silence():
        done = site.command("queue", "list")
    assert done.returncode == 3
    assert re.search(r"the queue manager has not answered for \d+ s", done.stderr)


def test_it_ends_while_nothing_is_answered(site: Estate) -> None:
    site.until_answered("/dlq")
    with site.silence():
        assert site.ask("/dlq")[0] == 504
        begin = time.monotonic()
        assert site.gateway.stop() == 0
        assert time.monotonic() - begin < 28
